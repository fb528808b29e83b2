"""From B0 to a limit: the least time that a workload's bytes and operations take on this machine."""

# Which of B0's sequences an instruction set of ours could have used.
ISA_RATES = {"avx2": ("avx2",), "avx512-vnni": ("avx2", "avx512", "avx512-vnni", "avx512-bf16")}


def best_rate(b0: dict, isa: str, kinds: tuple[str, ...]) -> dict | None:
    """The fastest of B0's rates of these kinds, all cores: {"kind", "how", "all"}; None: this machine has none."""
    allowed = ISA_RATES.get(isa, ("avx2",))
    rates = [r for r in b0["compute_gop_per_s"] if r["kind"] in kinds and r["isa"] in allowed]
    return max(rates, key=lambda r: r["all"]) if rates else None


def read_rate(b0: dict) -> float:
    """GB/s: more pages or fewer threads are sometimes faster, and a limit is the best there is."""
    m = b0["memory_gb_per_s"]
    return max(m["read_1"], m["read_all"], m["read_all_4k_pages"])


def limit(work: dict, b0: dict, isa: str) -> dict:
    """Tokens per second at most, and what binds. Operations are counted at the fastest dot product: 8 bit."""
    rate = best_rate(b0, isa, ("int8", "int16", "f32", "bf16"))
    memory, compute = work["bytes"] / read_rate(b0) / 1e9, work["ops"] / rate["all"] / 1e9
    return {"tok_per_s": work["tokens"] / max(memory, compute), "by": "memory" if memory >= compute else rate["kind"]}


def merged(before: dict, after: dict) -> dict:
    """B0 measured twice, before and after: the better of each figure, because a limit is the best the machine did."""
    out = dict(before)
    out["memory_gb_per_s"] = {k: max(v, after["memory_gb_per_s"][k]) for k, v in before["memory_gb_per_s"].items()}
    out["compute_gop_per_s"] = [
        {**a, "one": max(a["one"], b["one"]), "all": max(a["all"], b["all"])}
        for a, b in zip(before["compute_gop_per_s"], after["compute_gop_per_s"])
    ]
    return out
