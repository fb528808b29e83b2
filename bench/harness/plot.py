"""A bar chart as SVG, by hand: our engine, the peer and the limit, each workload scaled to its own limit."""

from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 340, 50, 60, 50
COLOURS = {"blockzero": "#2563a8", "llama.cpp": "#b0b0b0", "limit": "#e8e2d0"}


def text(x: float, y: float, content: str, size: int = 12, anchor: str = "middle") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'font-family="sans-serif">{escape(content)}</text>')  # fmt: skip


def bar(x: float, width: float, share: float, colour: str, label: str) -> str:
    full = HEIGHT - BOTTOM - TOP
    height = max(1.0, min(share, 1.1) * full)
    y = HEIGHT - BOTTOM - height
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
            + text(x + width / 2, y - 4, label, 11))  # fmt: skip


def legend() -> list[str]:
    parts = []
    for i, (name, colour) in enumerate(COLOURS.items()):
        x = WIDTH - 320 + i * 105
        parts += [f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>', text(x + 17, 24, name, 12, "start")]
    return parts


def draw(rows: list[dict], title: str) -> str:
    """rows: those of report.py that have a limit."""
    rows = [r for r in rows if r.get("limit")]
    parts = [text(LEFT, 24, title, 13, "start"), *legend()]
    baseline = HEIGHT - BOTTOM
    parts.append(f'<line x1="{LEFT}" y1="{baseline}" x2="{WIDTH - 10}" y2="{baseline}" stroke="#444"/>')
    group = (WIDTH - LEFT - 10) / max(1, len(rows))
    for i, r in enumerate(rows):
        bars = [("blockzero", r["ours"]["median"]), ("llama.cpp", r["peer"]["median"] if r["peer"] else None),
                ("limit", r["limit"])]  # fmt: skip
        width = group / 4
        for j, (name, value) in enumerate(bars):
            if value is not None:
                x = LEFT + i * group + (j + 0.5) * width
                parts.append(bar(x, width * 0.9, value / r["limit"], COLOURS[name], f"{value:.0f}"))
        middle = LEFT + i * group + 2 * width
        parts += [text(middle, baseline + 18, r["name"], 13),
                  text(middle, baseline + 36, f"tok/s; limit: {r['limit_by']}", 11)]  # fmt: skip
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}"><rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')  # fmt: skip
