"""Compares the golden data with llama.cpp, an implementation that shares no code with transformers.

    python cross_check.py tokenize PEER_BIN      every string of tokenize.json through llama-tokenize
    python cross_check.py greedy PEER_BIN        the prompts of greedy.json through llama_logits --greedy
    python cross_check.py nll PEER_BIN           the text of nll.json through llama_logits

PEER_BIN is what `tools/peer/build_llama_cpp.sh --print-dir` prints. Differences are printed, each with what is needed to
judge it; llama.cpp rounds activations to 8 bits, so its greedy answers differ where the gap is small.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import model
from make_golden import GOLDEN


def load(name: str):
    return json.loads((GOLDEN / name).read_text())


def run_logits(peer: pathlib.Path, ids: list[int], folder: str, *options: str) -> pathlib.Path:
    source, out = pathlib.Path(folder, "ids.bin"), pathlib.Path(folder, "out.bin")
    np.asarray(ids, "<i4").tofile(source)
    subprocess.run([peer / "llama_logits", model.model_path(), source, out, *options], check=True, stdout=subprocess.DEVNULL)
    return out


def check_tokenize(peer: pathlib.Path) -> None:
    cases = load("tokenize.json")["cases"]
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            for parse_special in (True, False):
                source = pathlib.Path(folder, "text")
                source.write_bytes(case["text"].encode())
                command = [peer / "llama-tokenize", "-m", model.model_path(), "-f", source, "--ids", "--log-disable", "--no-escape"]
                if not parse_special:
                    command.append("--no-parse-special")
                done = subprocess.run(command, capture_output=True, check=False)
                want = case["ids"] if parse_special else case["ids_plain"]
                try:
                    got = json.loads(done.stdout)
                except ValueError:
                    got = f"exit {done.returncode}: {done.stderr[-200:]!r}"
                if got != want:
                    differ += 1
                    print(f"{case['category']} special={parse_special} {case['text']!a}\n  golden    {want}\n  llama.cpp {got}")
    print(f"tokenize: {len(cases)} strings, both ways: {differ} differ")


def check_greedy(peer: pathlib.Path) -> None:
    cases = load("greedy.json")["cases"]
    equal = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            out = run_logits(peer, case["prompt_ids"], folder, "--greedy", str(len(case["greedy_ids"])))
            got = np.fromfile(out, "<i4").tolist()
            first = next((i for i, (a, b) in enumerate(zip(got, case["greedy_ids"])) if a != b), None)
            equal += first is None
            print(f"{case['name']:24} " + ("equal" if first is None else f"differs at {first}, gap {case['gaps'][first]:.4f}"))
    print(f"greedy: {equal} of {len(cases)} equal")


def check_nll(peer: pathlib.Path) -> None:
    golden = load("nll.json")
    ids = golden["ids"]
    with tempfile.TemporaryDirectory() as folder:
        logits = np.fromfile(run_logits(peer, ids, folder), "<f4").reshape(len(ids), -1)
    values = token_nll(logits, ids)
    print(f"nll: golden {golden['mean_nll']:.6f}, llama.cpp {values.mean():.6f}")


def token_nll(logits: np.ndarray, ids: list[int]) -> np.ndarray:
    """float64 [len(ids) - 1]: -log p(ids[i + 1] | ids[0..i])."""
    rows = logits[:-1].astype(np.float64)
    top = rows.max(axis=1)
    log_sum = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
    return log_sum - rows[np.arange(len(ids) - 1), ids[1:]]


CHECKS = {"tokenize": check_tokenize, "greedy": check_greedy, "nll": check_nll}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    CHECKS[sys.argv[1]](pathlib.Path(sys.argv[2]))
