"""B13: what streaming costs a server, with an engine that costs nothing. Ours beside uvicorn + FastAPI, in turn, with the same client.

"Per core" is per second of CPU time that the server's whole process used (its mock engine included), read from /proc: a neighbour that
takes the processor away lowers the wall clock's figures, not these.
"""

import json
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from .programs import ROOT, BenchError, Setup, peer_python, run, say
from .stats import summary

# What is asked: streams, microseconds of an engine step, path. A paced engine is slower than every server here, so that each token is
# an event of its own; an overloading one is faster, and a server may put several tokens into one event.
WORKLOADS = {
    "stream_1": ("load", 1, 200),
    "stream_64": ("load", 64, 2000),
    "stream_256": ("load", 256, 8000),
    "overload_256": ("load", 256, 100),
    "get": ("get", 64, 8000),
}
PACED = [w for w in WORKLOADS if w.startswith("stream")]
PEERS = {"uvicorn": ["asyncio", "h11"], "uvicorn[standard]": ["uvloop", "httptools"]}
OURS = "blockzero"
FLOOR = "send alone"  # what the kernel takes for an event, whoever sends it (bench/least_server.h)


@dataclass
class Server:
    process: subprocess.Popen
    port: str

    @classmethod
    def start(cls, command: list[str]) -> "Server":
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = process.stdout.readline().strip()
        if not port.isdigit():
            raise BenchError(f"{command[0]} did not start")
        time.sleep(0.5)  # uvicorn listens a little later
        return cls(process, port)

    def cpu_seconds(self) -> float:
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)


def measure_one(setup: Setup, command: list[str], workload: str) -> dict[str, float]:
    kind, streams, _ = WORKLOADS[workload]
    path = "/v1/completions" if kind == "load" else "/v1/models"
    server = Server.start(command)
    try:
        client = [setup.program("b13_server"), kind, "--path", path, "--streams", str(streams), "--port", server.port]
        run([*client, "--seconds", "0.2"])  # warm
        before = server.cpu_seconds()
        counts = json.loads(run([*client, "--seconds", "0.5" if setup.quick else "2"]))
        cpu = server.cpu_seconds() - before
    finally:
        server.stop()
    return {
        "events_per_core_second": counts["events"] / cpu,
        "tokens_per_core_second": counts["tokens"] / cpu,
        "events_per_second": counts["events"] / counts["seconds"],
        "tokens_per_event": counts["tokens"] / counts["events"],
        "cpu_share": cpu / counts["seconds"],
    }


def measure(setup: Setup) -> dict:
    python = peer_python()
    values: dict[str, dict[str, list[dict]]] = {w: defaultdict(list) for w in WORKLOADS}
    for i in range(setup.rounds):
        say(f"B13: round {i + 1} of {setup.rounds}")
        for workload, (_, _, step_us) in WORKLOADS.items():
            program = setup.program("b13_server")
            commands = {OURS: [program, "serve", "--step-us", str(step_us)]}
            if workload in PACED:
                commands[FLOOR] = [program, "least", "--step-us", str(step_us)]
            for peer, how in PEERS.items():
                commands[peer] = [python, str(ROOT / "bench/peers/fastapi_sse.py"), str(step_us), *how]
            for arm in list(commands)[:: 1 if i % 2 == 0 else -1]:  # A B C, C B A, ...
                values[workload][arm].append(measure_one(setup, commands[arm], workload))
    rows = []
    for workload, arms in values.items():
        row = {"name": workload, "streams": WORKLOADS[workload][1]}
        for arm, rounds in arms.items():
            row[arm] = {key: summary([r[key] for r in rounds]) for key in rounds[0]}
        key = "tokens_per_core_second" if workload == "overload_256" else "events_per_core_second"
        for peer in PEERS:
            row[f"ratio_{peer}"] = row[OURS][key]["median"] / row[peer][key]["median"]
        if FLOOR in arms:
            row["ratio_floor"] = row[OURS][key]["median"] / row[FLOOR][key]["median"]
            row["largest_ratio"] = row[FLOOR][key]["median"] / row["uvicorn"][key]["median"]
        rows.append(row)
    versions = run([python, "-c", "import fastapi, uvicorn, sys; "
                    "print(f'FastAPI {fastapi.__version__}, uvicorn {uvicorn.__version__}, Python {sys.version.split()[0]}')"])  # fmt: skip
    return {"peer": versions.strip(), "rounds": setup.rounds, "rows": rows, "gates": gates(rows)}


def gates(rows: list[dict]) -> list[dict]:
    row = next(r for r in rows if r["name"] == "stream_256")
    rate = row[OURS]["events_per_core_second"]["median"]
    ratio = row["ratio_uvicorn"]
    return [
        {"what": "streamed events a second and core, 256 streams", "value": rate, "gate": 100_000, "goal": 200_000},
        {"what": "the same over uvicorn + FastAPI", "value": ratio, "gate": 6, "goal": 6,
         "largest": row["largest_ratio"]},
    ]


def table(result: dict) -> str:
    lines = [f"B13 per core second; peer: {result['peer']}; {result['rounds']} rounds",
             f"  {'':<14}{'events':>10}{'tokens':>12}{'tokens/event':>14} | {'uvicorn':>10}{'ratio':>7} | {'[standard]':>10}{'ratio':>7} | {FLOOR:>10}{'ratio':>7}"]  # fmt: skip
    for r in result["rows"]:
        ours = r[OURS]
        key = "tokens_per_core_second" if r["name"] == "overload_256" else "events_per_core_second"
        lines.append(
            f"  {r['name']:<14}{ours['events_per_core_second']['median']:>10.0f}{ours['tokens_per_core_second']['median']:>12.0f}"
            f"{ours['tokens_per_event']['median']:>14.1f} | "
            + " | ".join(f"{r[p][key]['median']:>10.0f}{r['ratio_' + p]:>7.1f}" for p in PEERS)
            + (f" | {r[FLOOR][key]['median']:>10.0f}{r['ratio_floor']:>7.2f}" if FLOOR in r else "")
        )
    for g in result["gates"]:
        met = "gate met" if g["value"] >= g["gate"] else "gate MISSED"
        goal = "goal met" if g["value"] >= g["goal"] else "goal missed"
        lines.append(f"  {g['what']}: {g['value']:.4g} ({met}: >= {g['gate']}; {goal}: >= {g['goal']})")
        if "largest" in g:
            lines.append(f"    {FLOOR}, which no server that sends an event a token can pass, is {g['largest']:.3g} times the peer")
    return "\n".join(lines)
