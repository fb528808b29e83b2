"""B11's rounds: our engine and llama.cpp do the same work in turn, A B B A ..., and only then are compared."""

import json

from .limits import read_rate
from .programs import Setup, Started, run, run_json, say, time_start
from .stats import summary

PROMPT = "The capital of France is"
CACHE_BYTES = 64 << 20  # of `run` while its memory is measured
BATCHES = (8, 32)


def our_speeds(setup: Setup) -> dict:
    return run_json(setup, "b11_cpu", str(setup.model), "--threads", str(setup.threads), "--rounds", "1")


def peer_single(setup: Setup) -> dict[str, float]:
    """llama-bench: tg128, pp512 and tg64_d4096 in tokens per second. It warms up by itself."""
    speeds = {}
    for sizes in (["-p", "512", "-n", "128"], ["-p", "0", "-n", "64", "-d", "4096"]):
        lines = run([str(setup.peer / "llama-bench"), "-m", str(setup.model), "-t", str(setup.threads), *sizes,
                     "-r", "1", "-o", "jsonl"]).splitlines()  # fmt: skip
        for r in (json.loads(line) for line in lines if line.startswith("{")):
            name = f"tg{r['n_gen']}" if r["n_gen"] else f"pp{r['n_prompt']}"
            speeds[name + (f"_d{r['n_depth']}" if r["n_depth"] else "")] = r["avg_ts"]
    return speeds


def peer_batched(setup: Setup) -> dict[str, float]:
    """llama-batched-bench: decoding speed of 8 and of 32 requests at once, prompts of 128, 64 new tokens each."""
    lines = run([str(setup.peer / "llama-batched-bench"), "-m", str(setup.model), "-t", str(setup.threads),
                 "-c", "8192", "-b", "2048", "-ub", "512", "-npp", "128", "-ntg", "64",
                 "-npl", ",".join(map(str, BATCHES)), "--output-format", "jsonl"]).splitlines()  # fmt: skip
    results = [json.loads(line) for line in lines if line.startswith("{")]
    return {f"batch{r['pl']}": r["speed_tg"] for r in results}


def our_start(setup: Setup) -> Started:
    return time_start([setup.program("blockzero"), "run", str(setup.model), "-p", PROMPT, "-n", "8", "--temp", "0",
                       "--threads", str(setup.threads), "--kv-cache-bytes", str(CACHE_BYTES)])  # fmt: skip


def peer_start(setup: Setup) -> float:
    """The quicker of llama.cpp's two ways: its full program without warm-up, or its smallest example, start to end."""
    full = time_start([str(setup.peer / "llama-completion"), "-m", str(setup.model), "-t", str(setup.threads), "-n", "8",
                       "-no-cnv", "--no-warmup", "--no-display-prompt", "-p", PROMPT])  # fmt: skip
    simple = time_start([str(setup.peer / "llama-simple"), "-m", str(setup.model), "-n", "1", PROMPT])
    return min(full.first_output, simple.total)


class Rounds:
    """What each arm said, round by round."""

    def __init__(self, setup: Setup):
        self.setup = setup
        self.isa = ""
        self.work: dict[str, dict] = {}  # by workload: tokens, bytes, ops
        self.ours: dict[str, list[float]] = {}  # by workload: seconds
        self.peer: dict[str, list[float]] = {}  # by workload: tokens per second; first_token: seconds
        self.starts: list[Started] = []
        self.calibrations: list[dict] = []  # B0, once a round

    def arm_ours(self) -> None:
        result = our_speeds(self.setup)
        self.isa = result["isa"]
        for name, w in result["workloads"].items():
            self.work[name] = {k: w[k] for k in ("tokens", "bytes", "ops")}
            self.ours.setdefault(name, []).extend(w["seconds"])
        self.starts.append(our_start(self.setup))

    def arm_peer(self) -> None:
        speeds = peer_single(self.setup) | peer_batched(self.setup) | {"first_token": peer_start(self.setup)}
        for name, value in speeds.items():
            self.peer.setdefault(name, []).append(value)

    def arm_b0(self) -> None:
        self.calibrations.append(run_json(self.setup, "b0_cpu", "--quick"))

    def run(self) -> None:
        arms = [self.arm_b0, self.arm_ours] + ([self.arm_peer] if self.setup.peer else [])
        our_start(self.setup)  # the file is in the page cache from here on
        for i in range(self.setup.rounds):
            say(f"B11: round {i + 1} of {self.setup.rounds}")
            for arm in arms if i % 2 == 0 else reversed(arms):
                arm()

    def our_rate(self, name: str) -> dict:
        return summary([self.work[name]["tokens"] / s for s in self.ours[name]])

    def peer_rate(self, name: str) -> dict | None:
        return summary(self.peer[name]) if name in self.peer else None

    def by_round(self) -> list[dict]:
        """Raw figures, so that a run in which the host moved the cores can be told from one in which it did not."""
        rows = []
        for i, b0 in enumerate(self.calibrations):
            row = {"core_handover_ns": b0["core_handover_ns"], "read_gb_per_s": read_rate(b0)}
            for name, seconds in self.ours.items():
                row[name] = self.work[name]["tokens"] / seconds[i]
            row |= {f"peer_{name}": values[i] for name, values in self.peer.items()}
            rows.append(row)
        return rows
