"""From rounds to rows: measured, limit, peer, and which gates (an issue's) and goals (the project's) are met."""

from . import b11
from .limits import best_rate, limit, read_rate
from .stats import summary

# Least share of the limit (4-bit weights), and least multiple of the peer: gate, goal.
DECODE_SHARE_GOAL = 0.80
PREFILL_GOALS = ((("bf16", "f32"), 0.60), (("int8",), 0.50))  # one of them is enough
PEER = {"tg128": (1.0, 1.6), "pp512": (1.0, 2.0), "batch32": (None, 3.0)}
FIRST_TOKEN_SECONDS = (0.6, 0.25)
MEMORY_OVERHEAD_BYTES = 150_000_000
ACCURACY_GATES = {"relative_rms": 0.5, "p999": 1.0}


def check(kind: str, what: str, value: float, want: float, at_least: bool = True) -> dict:
    met = value >= want if at_least else value <= want
    return {"kind": kind, "what": what, "value": value, "want": f"{'>=' if at_least else '<='} {want:g}", "met": met}


def peer_checks(name: str, of_peer: float | None) -> list[dict]:
    gate, goal = PEER.get(name, (None, None))
    if of_peer is None:
        return []
    wanted = [("gate", gate), ("goal", goal)]
    return [check(kind, "x llama.cpp", of_peer, want) for kind, want in wanted if want is not None]


def prefill_check(gops: float, b0: dict, isa: str) -> dict:
    shares = []
    for kinds, want in PREFILL_GOALS:
        rate = best_rate(b0, isa, kinds)
        shares.append((gops / rate["all"], want, rate["kind"]))
    value, want, kind = max(shares, key=lambda s: s[0] / s[1])
    return check("goal", f"of the {kind} rate", value, want)


def speed_row(rounds: b11.Rounds, name: str, b0: dict) -> dict:
    ours, peer, work = rounds.our_rate(name), rounds.peer_rate(name), rounds.work[name]
    most = limit(work, b0, rounds.isa)
    seconds = work["tokens"] / ours["median"]
    row = {
        "name": name, "unit": "tok/s", "ours": ours, "limit": most["tok_per_s"], "limit_by": most["by"],
        "of_limit": ours["median"] / most["tok_per_s"], "peer": peer,
        "of_peer": ours["median"] / peer["median"] if peer else None,
        "gb_per_s": work["bytes"] / seconds / 1e9, "gop_per_s": work["ops"] / seconds / 1e9,
    }  # fmt: skip
    row["checks"] = peer_checks(name, row["of_peer"])
    if name == "tg128":
        row["checks"].append(check("goal", "of read bandwidth", row["gb_per_s"] / read_rate(b0), DECODE_SHARE_GOAL))
    if name == "pp512":
        row["checks"].append(prefill_check(row["gop_per_s"], b0, rounds.isa))
    return row


def start_rows(rounds: b11.Rounds) -> list[dict]:
    first = summary([s.first_output for s in rounds.starts])
    peak = summary([float(s.peak_bytes) for s in rounds.starts])
    gate, goal = FIRST_TOKEN_SECONDS
    peer = rounds.peer_rate("first_token")
    own_bytes = peak["median"] - rounds.setup.model.stat().st_size - b11.CACHE_BYTES
    return [
        {"name": "first_token", "unit": "s", "ours": first, "peer": peer,
         "of_peer": peer["median"] / first["median"] if peer else None,
         "checks": [check("gate", "s from process start", first["median"], gate, False),
                    check("goal", "s from process start", first["median"], goal, False)]},
        {"name": "peak_memory", "unit": "MB", "ours": {k: v / 1e6 if k != "rounds" else v for k, v in peak.items()},
         "checks": [check("gate", "MB beyond file and cache", own_bytes / 1e6, MEMORY_OVERHEAD_BYTES / 1e6, False)]},
    ]  # fmt: skip


def accuracy_rows(accuracy: dict | None) -> list[dict]:
    rows = []
    for name, most in ACCURACY_GATES.items() if accuracy else ():
        ours = accuracy["ours"][name]
        peers = [accuracy[p][name] for p in ("peer", "peer_single") if p in accuracy]
        checks = [check("gate", "x llama.cpp's error", ours / min(peers), most, False)] if peers else []
        rows.append({"name": name, "unit": "", "ours": {"median": ours}, "checks": checks,
                     "peer": {"median": min(peers)} if peers else None})  # fmt: skip
    return rows


def b11_rows(rounds: b11.Rounds, accuracy: dict | None, b0: dict) -> list[dict]:
    speeds = [speed_row(rounds, name, b0) for name in rounds.work if name != "first8"]
    return speeds + start_rows(rounds) + accuracy_rows(accuracy)


# ---- text ----


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def table(rows: list[dict]) -> str:
    lines = [f"{'':<13} {'measured':>9} {'[q1, q3]':>18} {'limit':>8} {'by':<7} {'/limit':>6} {'peer':>9} "
             f"{'[q1, q3]':>18} {'/peer':>6}"]  # fmt: skip
    for r in rows:
        ours, peer = r["ours"], r.get("peer")
        spread = [f"[{number(s['q1'])}, {number(s['q3'])}]" if s and "q1" in s else "" for s in (ours, peer)]
        ratio = [f"{r[k]:.2f}" if r.get(k) is not None else "-" for k in ("of_limit", "of_peer")]
        lines.append(f"{r['name']:<13} {number(ours['median']):>9} {spread[0]:>18} {number(r.get('limit')):>8} "
                     f"{r.get('limit_by', ''):<7} {ratio[0]:>6} {number(peer['median'] if peer else None):>9} "
                     f"{spread[1]:>18} {ratio[1]:>6}  {r['unit']}")  # fmt: skip
        for c in r["checks"]:
            word = "met" if c["met"] else "MISSED"
            lines.append(f"{'':<15}{c['kind']} {word}: {c['value']:.3g} {c['what']}, wanted {c['want']}")
    return "\n".join(lines)
