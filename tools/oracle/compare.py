"""Compares two files of teacher-forced logits: python compare.py GOT WANT [--vocab N] [--json]

Both are raw little-endian float32 [positions, vocab]. Prints what the accuracy benchmark is judged by:
  relative_rms  sqrt(sum (got - want)^2 / sum want^2), over everything
  p999, max     the 99.9th percentile and the largest of |got - want|
  kl            the mean over positions of KL(want || got), in nats
  same_top      the share of positions at which both have the same best id
"""

import argparse
import json

import numpy as np


def compare(got: np.ndarray, want: np.ndarray) -> dict[str, float]:
    """got, want: [positions, vocab]."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    error = np.abs(got - want)

    def log_softmax(rows: np.ndarray) -> np.ndarray:
        rows = rows - rows.max(axis=1, keepdims=True)
        return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))

    p, q = log_softmax(want), log_softmax(got)
    return {
        "positions": got.shape[0],
        "relative_rms": float(np.sqrt((error**2).sum() / (want**2).sum())),
        "p999": float(np.quantile(error, 0.999)),
        "max": float(error.max()),
        "kl": float((np.exp(p) * (p - q)).sum(axis=1).mean()),
        "same_top": float((got.argmax(axis=1) == want.argmax(axis=1)).mean()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("got")
    parser.add_argument("want")
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = compare(*(np.fromfile(name, "<f4").reshape(-1, args.vocab) for name in (args.got, args.want)))
    print(json.dumps(result) if args.json else "\n".join(f"{k:13} {v:.6g}" for k, v in result.items()))
