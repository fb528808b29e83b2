#!/usr/bin/env python3
"""The benchmarks of a CPU machine: B0 (calibration), B10 (cache manager), B11 (inference beside llama.cpp), B13 (streaming beside
uvicorn + FastAPI).

  ./dev bench [--peer] [--only B0,B10,B11,B13] [--quick] [--rounds N]

Writes bench/results/<machine>.json (keys B0, B10, B11, B13; others stay) and a plot beside it, and prints a table.
--quick: one round, nothing written: to see that everything runs. See bench/README.md for what the numbers mean.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import accuracy, b11, b13, limits, plot, programs, report  # noqa: E402
from harness.programs import ROOT, BenchError, Setup, run_json, say  # noqa: E402
from harness.stats import rounded  # noqa: E402

KNOWN = ("B0", "B10", "B11", "B13")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="build llama.cpp if need be, and run it in turn with us")
    parser.add_argument("--only", default=",".join(KNOWN), help="which, by name; B0 always runs first")
    parser.add_argument("--quick", action="store_true", help="one round, no results written")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("BLOCKZERO_BENCH_ROUNDS", "7")))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", type=Path, help="a .gguf file instead of the test model")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/cpu")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    options = parser.parse_args()
    options.only = options.only.split(",")
    for name in options.only:
        if name not in KNOWN:
            parser.error(f"--only {name}: there are {', '.join(KNOWN)}")
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return options


def meta(setup: Setup, load_before: float) -> dict:
    return {
        "version": programs.source_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        "quick": setup.quick,
    }


def measure_b0(setup: Setup) -> dict:
    say("B0: calibration")
    return run_json(setup, "b0_cpu", *(["--quick"] if setup.quick else []))


def measure_b10(setup: Setup) -> dict:
    say("B10: cache manager beside its floors, the scheduler, its queue, a step with cold caches")
    programs = ("b10_kv", "b10_scheduler", "b10_waiting", "b10_cold")
    return {name: value for program in programs for name, value in run_json(setup, program)["B10"].items()}


def measure_b11(setup: Setup, b0: dict) -> tuple[dict, dict]:
    """B11's results, and B0 over all the calibrations of the run."""
    rounds = b11.Rounds(setup)
    rounds.run()
    errors = accuracy.measure(setup)
    b0 = limits.merged([b0, *rounds.calibrations])
    rows = report.b11_rows(rounds, errors, b0)
    result = {
        "model": setup.model.name, "isa": rounds.isa, "threads": setup.threads, "rounds": setup.rounds,
        "peer": "llama.cpp of llama-cpp-python " + setup.peer.parent.name.split("-")[1] if setup.peer else None,
        "rows": rows, "accuracy": errors, "by_round": rounds.by_round(),
    }  # fmt: skip
    return result, b0


def print_b0(b0: dict) -> None:
    m = b0["memory_gb_per_s"]
    print(f"\nB0  {b0['machine']} ({b0['cpu']}, {b0['cores']} cores)")
    print(f"  read {m['read_1']:.1f} GB/s by one thread, {m['read_all']:.1f} by all, {m['read_all_4k_pages']:.1f} "
          f"with 4 KiB pages; L3 {m['l3_read_all']:.0f}, L2 {m['l2_read_1']:.0f} a core")  # fmt: skip
    if spread := b0.get("read_limit_gb_per_s"):
        print(f"  limit of reading: {spread['median']:.1f} GB/s [{spread['q1']:.1f}, {spread['q3']:.1f}], the median of "
              f"{spread['rounds']} calibrations; two cores hand over in {b0['core_handover_ns']['median']:.0f} ns")  # fmt: skip
    for r in b0["compute_gop_per_s"]:
        print(f"  {r['kind']:<6}{r['isa']:<12}{r['one']:>8.0f} GOP/s a core {r['all']:>8.0f} all   {r['how']}")


def print_b10(b10: dict) -> None:
    print("\nB10")
    for name, value in b10.items():
        if isinstance(value, dict) and "goal" in value:
            met = "met" if value["value"] <= value["goal"] else "MISSED"
            print(f"  {name:<36}{value['value']:>8.2f}   goal {met}: <= {value['goal']:g}")
        elif isinstance(value, dict) and "median" in value:
            more = f"{value['heap']} heap allocations" if "heap" in value else f"mean {value['mean']:.2f}"
            print(f"  {name:<36}{value['median']:>8.2f} {value['unit']}, {more}")


def write_results(folder: Path, machine: str, new: dict) -> Path:
    """Merges: keys that this run did not measure stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{machine}.json"
    results = json.loads(path.read_text()) if path.is_file() else {"machine": machine}
    results.update(rounded(new))
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def bench(options: argparse.Namespace, scratch: Path) -> None:
    setup = Setup(options.build_dir, options.model or Path(), options.threads, 1 if options.quick else options.rounds,
                  options.quick, None, scratch)  # fmt: skip
    if "B11" in options.only:
        setup.model = options.model or programs.find_model()
        setup.peer = programs.build_peer() if options.peer else None
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"WARNING: the load is {load:.1f}: others are at work here, and every figure below suffers from it")
    new = {}
    b0 = measure_b0(setup)
    if "B10" in options.only:
        new["B10"] = {**measure_b10(setup), "meta": meta(setup, load)}
    if "B13" in options.only:
        new["B13"] = {**b13.measure(setup), "meta": meta(setup, load)}
    if "B11" in options.only:
        result, b0 = measure_b11(setup, b0)
        new["B11"] = {**result, "meta": meta(setup, load)}
    new["B0"] = {**b0, "meta": meta(setup, load)}

    print_b0(b0)
    if "B10" in new:
        print_b10(new["B10"])
    if "B11" in new:
        r = new["B11"]
        print(f"\nB11 {r['model']}, {r['isa']}, {r['threads']} threads, {r['rounds']} rounds; peer: {r['peer'] or 'none'}; "
              f"load {r['meta']['load']}")  # fmt: skip
        print(report.table(r["rows"]))
    if "B13" in new:
        print("\n" + b13.table(new["B13"]))
    if options.quick:
        print("\n--quick: nothing written")
        return
    path = write_results(options.results, b0["machine"], new)
    print(f"\nwritten: {path}")
    if "B11" in new:
        title = f"{b0['machine']}, {new['B11']['isa']}: {new['B11']['model']}, tokens per second"
        path.with_suffix(".svg").write_text(plot.draw(new["B11"]["rows"], title))
        print(f"plot:    {path.with_suffix('.svg')}")


def main() -> int:
    options = parse()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bench(options, Path(scratch))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
