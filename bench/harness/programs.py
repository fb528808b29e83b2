"""Where the programs, the model and the oracle's logits are, and how one is run."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "blockzero"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


class BenchError(Exception):
    """One line: what, where, what to do."""


@dataclass
class Setup:
    build: Path  # build/cpu
    model: Path
    threads: int
    rounds: int
    quick: bool
    peer: Path | None  # folder of llama.cpp's programs
    scratch: Path

    def program(self, name: str) -> str:
        for path in (self.build / "bench" / name, self.build / name):
            if path.is_file():
                return str(path)
        raise BenchError(f"{self.build}: {name} is not built; run ./dev build, or name a build folder with --build-dir")


def say(text: str) -> None:
    print(f"-- {text}", file=sys.stderr, flush=True)


def run(command: list[str]) -> str:
    """Runs to the end; stdout. A program that fails ends the benchmark with its own words."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"{Path(command[0]).name} failed with {done.returncode}: {last}")
    return done.stdout


def run_json(setup: Setup, name: str, *arguments: str) -> dict:
    """One of our benchmarks with --json into a scratch file."""
    with tempfile.NamedTemporaryFile(dir=setup.scratch, suffix=".json") as out:
        run([setup.program(name), *arguments, "--json", out.name])
        return json.loads(Path(out.name).read_text())


@dataclass
class Started:
    first_output: float  # seconds from starting the process to the first byte on stdout that is not white space
    total: float
    peak_bytes: int  # largest resident set, file pages included


def time_start(command: list[str]) -> Started:
    start = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    first = None
    while data := os.read(child.stdout.fileno(), 65536):
        if first is None and data.strip():
            first = time.perf_counter() - start
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    total = time.perf_counter() - start
    if child.returncode != 0 or first is None:
        raise BenchError(f"{Path(command[0]).name} printed nothing or failed ({child.returncode}): {' '.join(command)}")
    return Started(first, total, usage.ru_maxrss * 1024)


def build_peer() -> Path:
    script = ROOT / "tools/peer/build_llama_cpp.sh"
    say("peer: llama.cpp (built once, into the user's cache)")
    if subprocess.run([str(script)], stdout=sys.stderr).returncode != 0:
        raise BenchError("the peer could not be built; run without --peer, or see above")
    return Path(run([str(script), "--print-dir"]).strip())


def peer_python() -> str:
    """An interpreter that has FastAPI and uvicorn, with what makes uvicorn fast; installed into build/venv if need be."""
    python = ROOT / "build/venv/bin/python"
    if not python.is_file():
        run([sys.executable, "-m", "venv", str(python.parents[1])])
    packages = ["fastapi", "uvicorn", "uvloop", "httptools"]
    if subprocess.run([str(python), "-c", "import " + ", ".join(packages)], stderr=subprocess.DEVNULL).returncode != 0:
        say(f"peer: installing {', '.join(packages)} into build/venv")
        run([str(python), "-m", "pip", "install", "--quiet", *packages])
    return str(python)


def find_model() -> Path:
    folder = Path(os.environ.get("BLOCKZERO_MODEL_DIR", CACHE / "models"))
    if not (folder / MODEL).is_file():
        raise BenchError(f"{folder / MODEL}: not there; run ./dev model to fetch it, or name a file with --model")
    return folder / MODEL


def source_version() -> str:
    try:
        return run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]).strip()
    except (BenchError, OSError):
        return "unknown"
