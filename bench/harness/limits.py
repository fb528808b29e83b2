"""From B0 to a limit: the least time that a workload's bytes and operations take on this machine."""

from .stats import summary

# Which of B0's sequences an instruction set of ours could have used.
ISA_RATES = {"avx2": ("avx2",), "avx512-vnni": ("avx2", "avx512", "avx512-vnni", "avx512-bf16")}


def best_rate(b0: dict, isa: str, kinds: tuple[str, ...]) -> dict | None:
    """The fastest of B0's rates of these kinds, all cores: {"kind", "how", "all"}; None: this machine has none."""
    allowed = ISA_RATES.get(isa, ("avx2",))
    rates = [r for r in b0["compute_gop_per_s"] if r["kind"] in kinds and r["isa"] in allowed]
    return max(rates, key=lambda r: r["all"]) if rates else None


def read_rate(b0: dict) -> float:
    """GB/s: more pages or fewer threads are sometimes faster, and a limit is the best there is."""
    if "read_limit_gb_per_s" in b0:
        return b0["read_limit_gb_per_s"]["median"]
    m = b0["memory_gb_per_s"]
    return max(m["read_1"], m["read_all"], m["read_all_4k_pages"])


def limit(work: dict, b0: dict, isa: str) -> dict:
    """Tokens per second at most, and what binds. Operations are counted at the fastest dot product: 8 bit."""
    rate = best_rate(b0, isa, ("int8", "int16", "f32", "bf16"))
    memory, compute = work["bytes"] / read_rate(b0) / 1e9, work["ops"] / rate["all"] / 1e9
    return {"tok_per_s": work["tokens"] / max(memory, compute), "by": "memory" if memory >= compute else rate["kind"]}


def merged(calibrations: list[dict]) -> dict:
    """B0 of a run: the medians of the calibrations made between its rounds. Each of them is already the best of several
    passes; the median is taken because a virtual machine's memory rate moves with where its host puts the cores."""
    out = dict(calibrations[0])
    memory = [c["memory_gb_per_s"] for c in calibrations]
    out["memory_gb_per_s"] = {k: summary([m[k] for m in memory])["median"] for k in memory[0]}
    reads = summary([read_rate(c) for c in calibrations])
    out["read_limit_gb_per_s"] = reads
    out["core_handover_ns"] = summary([c["core_handover_ns"] for c in calibrations])
    out["compute_gop_per_s"] = []
    for i, rate in enumerate(calibrations[0]["compute_gop_per_s"]):
        same = [c["compute_gop_per_s"][i] for c in calibrations]
        medians = {k: summary([r[k] for r in same])["median"] for k in ("one", "all")}
        out["compute_gop_per_s"].append({**rate, **medians})
    return out
