#!/usr/bin/env python3
"""Writes tests/golden/sampling.json: logits adjusted and log probabilities taken by transformers and torch.

min_tokens and repetition_penalty are transformers' own logits processors; logit_bias, frequency_penalty and presence_penalty are
OpenAI's formula (mu[j] -> mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence) in torch. In vLLM's order.
"""
import datetime
import json
import pathlib

import torch
import transformers
from transformers import MinNewTokensLengthLogitsProcessor, RepetitionPenaltyLogitsProcessor

VOCAB, NUM_TOP = 64, 5
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/sampling.json"


def adjust(logits, case):
    """The logits a row samples from; [V] -> [V]."""
    prompt, outputs = case["prompt"], case["outputs"]
    ids = torch.tensor([prompt + outputs])
    x = logits.clone()[None]
    if case["min_tokens"] > 0 and case["masked"]:
        x = MinNewTokensLengthLogitsProcessor(len(prompt), case["min_tokens"], case["masked"])(ids, x)
    for token, bias in case["logit_bias"]:
        x[0, token] += bias
    x = RepetitionPenaltyLogitsProcessor(case["repetition_penalty"])(ids, x)
    counts = torch.bincount(torch.tensor(outputs, dtype=torch.long), minlength=VOCAB)
    x = x - counts.float() * case["frequency_penalty"]
    x = x - (counts > 0).float() * case["presence_penalty"]
    return x[0]


def number(x):
    return None if x == float("-inf") else x


def make_case(seed):
    random = torch.Generator().manual_seed(seed)
    pick = lambda n, high: torch.randint(0, high, (n,), generator=random).tolist()
    on = lambda bit, value, off: value if seed >> bit & 1 else off
    case = {
        "prompt": pick(1 + seed % 9, VOCAB // 2),
        "outputs": pick(seed % 7 * 3, VOCAB // 2),  # with repeats, and tokens of the prompt
        "repetition_penalty": on(0, 1.3, on(5, 0.7, 1.0)),
        "frequency_penalty": on(1, 0.45, 0.0),
        "presence_penalty": on(2, -0.8, 0.0),
        "logit_bias": on(3, [[3, -100.0], [17, 2.5], [40, 0.125]], []),
        "min_tokens": on(4, 10, 0),
        "masked": on(4, [5, 63], []),
    }
    logits = torch.randn(VOCAB, generator=random) * 3
    adjusted = adjust(logits, case)
    logprobs = torch.log_softmax(logits.double(), -1)
    top = torch.topk(logprobs, NUM_TOP)
    token = int(adjusted.argmax())
    case["logits"] = logits.tolist()
    case["adjusted"] = [number(v) for v in adjusted.tolist()]
    case["token"] = token
    case["logprob"] = float(logprobs[token])
    case["rank"] = int((logprobs > logprobs[token]).sum()) + 1
    case["top_tokens"] = top.indices.tolist()
    case["top_logprobs"] = top.values.tolist()
    return case


def main():
    golden = {
        "made_by": f"tools/oracle/make_sampling_golden.py, transformers {transformers.__version__}, torch {torch.__version__}",
        "made_on": datetime.date.today().isoformat(),
        "vocab": VOCAB,
        "cases": [make_case(seed) for seed in range(64)],
    }
    OUT.write_text(json.dumps(golden, indent=None, separators=(",", ":")).replace("},{", "},\n{") + "\n")
    print(f"{OUT}: {len(golden['cases'])} cases")


if __name__ == "__main__":
    main()
