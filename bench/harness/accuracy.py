"""B11's other half: fast must not mean wrong. Logits of both engines against the float32 forward, same ids, same run."""

import json
from pathlib import Path

from .programs import CACHE, MODEL, Setup, run, say

ORACLE = CACHE / "oracle" / "smollm2"
HOW_TO_MAKE = "python3 tools/oracle/make_golden.py full (see tools/oracle/README.md; needs torch)"


def compare(setup: Setup, got: Path) -> dict:
    want = ORACLE / "logits_256.f32"
    num_ids = (ORACLE / "ids_256.bin").stat().st_size // 4
    vocab = want.stat().st_size // 4 // num_ids
    return json.loads(run([setup.program("compare_logits"), str(got), str(want), str(vocab)]))


def measure(setup: Setup) -> dict | None:
    """{"ours", "peer", "peer_single"}: errors by compare_logits; None: skipped, and said so."""
    ids, got = ORACLE / "ids_256.bin", setup.scratch / "logits.f32"
    if setup.model.name != MODEL:
        say(f"SKIPPED: accuracy: the oracle's logits are of {MODEL}")
        return None
    if not ids.is_file() or not (ORACLE / "logits_256.f32").is_file():
        say(f"SKIPPED: accuracy: {ORACLE} has no logits; make them with: {HOW_TO_MAKE}")
        return None
    say("accuracy: 256 positions, teacher-forced")
    threads = ["--threads", str(setup.threads)]
    run([setup.program("dump_logits"), str(setup.model), str(ids), str(got), *threads])
    result = {"ours": compare(setup, got)}
    if setup.peer:
        # Its paths for prompts and for single tokens round differently: both, and the better one is the bar.
        for name, batch in (("peer", "512"), ("peer_single", "1")):
            run([str(setup.peer / "llama_logits"), str(setup.model), str(ids), str(got), "--batch", batch, *threads])
            result[name] = compare(setup, got)
    return result
