"""Makes tests/golden/smollm2/ from the model file: python make_golden.py [all | tokenize | chat | greedy | nll | logits] ...

Formats are described in tests/golden/README.md. `full` (not part of `all`) writes the first 256 positions' logits over the
whole vocabulary to the cache folder; see full_logits().
"""

import json
import pathlib
import sys
import time

import numpy as np

import model
import prompts
import strings

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "smollm2"

NUM_GREEDY = 48
NUM_TEXT_IDS = 1000
NUM_FULL = 256
LOGIT_POSITIONS = [0, 1, 7, 15, 31, 63, 95, 127, 159, 191, 223, 255, 383, 511, 767, 999]
NUM_LOGIT_IDS = 2048
NUM_TOP = 8
HEADER = {"model": model.MODEL_NAME, "model_sha256": model.MODEL_SHA256}


class Tools:
    """What the parts share, each made when it is first asked for."""

    def __init__(self) -> None:
        self.file = model.ModelFile()
        self.tokenizer = model.Tokenizer(self.file)
        self._forward: dict[str, model.Forward] = {}

    def forward(self, dtype: str = "float32") -> model.Forward:
        if dtype not in self._forward:
            self._forward[dtype] = model.Forward(self.file, dtype)
        return self._forward[dtype]

    def text_ids(self) -> list[int]:
        """The benchmark text, cut to NUM_TEXT_IDS ids."""
        ids = self.tokenizer.encode(prompts.BENCHMARK_TEXT, parse_special=False)
        assert len(ids) >= NUM_TEXT_IDS, f"the benchmark text has {len(ids)} ids only"
        return ids[:NUM_TEXT_IDS]


def write_json(name: str, value: dict, list_key: str | None = None) -> None:
    """ASCII JSON; with list_key, each element of that list on a line of its own, so that diffs stay readable."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    value = HEADER | value
    if list_key is None:
        text = json.dumps(value)
    else:
        head = json.dumps({k: v for k, v in value.items() if k != list_key}, indent=1)[:-2]
        text = head + f',\n "{list_key}": [\n' + ",\n".join("  " + json.dumps(v) for v in value[list_key]) + "\n ]\n}"
    (GOLDEN / name).write_text(text + "\n")
    assert json.loads(text) == json.loads(json.dumps(value))


def write_floats(name: str, values: np.ndarray) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    np.ascontiguousarray(values, "<f4").tofile(GOLDEN / name)


def make_tokenize(tools: Tools) -> None:
    tokenizer = tools.tokenizer
    cases = []
    for category, text in strings.all_strings():
        ids = tokenizer.encode(text, parse_special=True)
        plain = tokenizer.encode(text, parse_special=False)
        case = {"category": category, "text": text, "ids": ids, "ids_plain": plain}
        # Both ids decode to the text, except where a byte has no token: it is dropped.
        decoded = tokenizer.decode_bytes(ids, skip_special=False)
        assert decoded == tokenizer.decode_bytes(plain, skip_special=False)
        if decoded != text.encode():
            case["decoded_hex"] = decoded.hex()
        cases.append(case)

    # Ids as a stream brings them: pieces that cut a character, special tokens, ids in an order that no text makes.
    sequences = [[], [0], [2], [1, 2], [1, 9690, 198, 2683, 2, 198], [216], [216, 216, 33], [198, 198], [104, 2, 104], [141], [223, 141]]
    for text in ["\U0001f600", "\u4e2d\u6587", "caf\u00e9", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"]:
        ids = tokenizer.encode(text, parse_special=True)
        sequences += [ids, ids[:-1], ids[1:], ids[::-1]]
    sequences += [[i] for i in [17, 100, 256, 300, 1000, 5000, 20000, 40000, 49151]]
    decode = [{"ids": ids, "hex": tokenizer.decode_bytes(ids, skip_special=False).hex(),
               "hex_without_special": tokenizer.decode_bytes(ids, skip_special=True).hex()} for ids in sequences]
    write_json("tokenize.json", {"pre": "smollm", "decode": decode, "cases": cases}, "cases")
    print(f"tokenize: {len(cases)} strings, {len(decode)} id lists")


def make_chat(tools: Tools) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source = tools.file.get("tokenizer.chat_template")
    # The two settings with which Hugging Face renders chat templates.
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    special = {f"{name}_token": tools.tokenizer.tokens[tools.file.get(f"tokenizer.ggml.{name}_token_id")] for name in ("bos", "eos")}
    cases = []
    for name, messages in prompts.CONVERSATIONS.items():
        for add in (False, True):
            text = template.render(messages=messages, add_generation_prompt=add, **special)
            cases.append({"name": name, "messages": messages, "add_generation_prompt": add, "text": text,
                          "ids": tools.tokenizer.encode(text, parse_special=True)})
    write_json("chat_template.json", {"template": source, "variables": special, "cases": cases}, "cases")
    print(f"chat: {len(cases)} renderings")


def make_greedy(tools: Tools) -> None:
    forward, exact = tools.forward(), tools.forward("float64")
    cases = []
    for name, text in prompts.GREEDY.items():
        start = time.monotonic()
        ids = tools.tokenizer.encode(text, parse_special=True)
        made, gaps = forward.greedy(ids, NUM_GREEDY)
        # The same answer in one teacher-forced pass of float64: it says how far rounding in float32 moves a gap.
        rows = exact.logits(ids + made[:-1])[len(ids) - 1:]
        differ = int((rows.argmax(axis=1) != made).sum())
        best = np.partition(rows, -2, axis=1)[:, -2:]
        exact_gaps = best[:, 1] - best[:, 0]
        moved = float(np.abs(exact_gaps - gaps).max())
        cases.append({"name": name, "text": text, "prompt_ids": ids, "greedy_ids": made, "gaps": [round(g, 6) for g in gaps],
                      "greedy_text": tools.tokenizer.decode_bytes(made, skip_special=False).decode(errors="replace")})
        print(f"greedy: {name:16} {len(ids):5} ids, least gap {min(gaps):.4f}; float64: {differ} ids differ, gaps move by {moved:.1e} at most "
              f"({time.monotonic() - start:.1f} s)")
    write_json("greedy.json", {"num_greedy": NUM_GREEDY, "cases": cases}, "cases")


def log_softmax_parts(logits: np.ndarray) -> np.ndarray:
    """float64 [rows]: log(sum(exp(row)))."""
    rows = logits.astype(np.float64)
    top = rows.max(axis=1)
    return top + np.log(np.exp(rows - top[:, None]).sum(axis=1))


def make_nll(tools: Tools) -> None:
    ids = tools.text_ids()
    values = {}
    for dtype in ("float32", "float64"):
        logits = tools.forward(dtype).logits(ids)
        values[dtype] = log_softmax_parts(logits)[:-1] - logits[np.arange(len(ids) - 1), ids[1:]]
    nll = values["float32"]
    print(f"nll: {len(ids)} ids, mean {nll.mean():.6f}; float64 {values['float64'].mean():.6f}, "
          f"largest difference of a token {np.abs(nll - values['float64']).max():.1e}")
    write_json("nll.json", {"text": tools.tokenizer.decode_bytes(ids, skip_special=False).decode(), "ids": ids, "mean_nll": float(nll.mean()),
                            "nll": [round(float(v), 6) for v in nll]})


def make_logits(tools: Tools) -> None:
    ids = tools.text_ids()
    full = tools.forward().logits(ids)
    exact = tools.forward("float64").logits(ids)
    rows = full[LOGIT_POSITIONS]
    top = np.argsort(-rows, axis=1, kind="stable")[:, :NUM_TOP]
    # The ids sampled: each position's best, every special token, and the rest spread evenly over the vocabulary.
    chosen = set(top.ravel().tolist()) | tools.tokenizer.special
    spread = [i for i in np.random.default_rng(1).permutation(full.shape[1]).tolist() if i not in chosen]
    sampled = sorted(chosen | set(spread[:NUM_LOGIT_IDS - len(chosen)]))
    assert len(sampled) == NUM_LOGIT_IDS
    write_floats("logits.bin", rows[:, sampled])
    positions = [{"position": p, "log_sum_exp": float(log_softmax_parts(rows[r:r + 1])[0]), "rms": float(np.sqrt((rows[r].astype(np.float64) ** 2).mean())),
                  "top_ids": top[r].tolist(), "top_logits": [float(v) for v in rows[r, top[r]]]} for r, p in enumerate(LOGIT_POSITIONS)]
    write_json("logits.json", {"text_ids": "nll.json", "shape": [len(LOGIT_POSITIONS), NUM_LOGIT_IDS], "file": "logits.bin",
                               "vocab_ids": sampled, "positions": positions}, "positions")
    error = relative_rms(rows, exact[LOGIT_POSITIONS])
    print(f"logits: {rows.shape[0]} positions x {NUM_LOGIT_IDS} ids; float32 against float64: relative RMS {error:.1e} over the whole vocabulary")


def full_logits(tools: Tools) -> pathlib.Path:
    """Writes the text's first NUM_FULL ids (ids_256.bin, int32) and their float32 logits over the whole vocabulary
    (logits_256.f32) to the cache folder, for the accuracy benchmark."""
    folder = model.cache_dir() / "oracle" / "smollm2"
    folder.mkdir(parents=True, exist_ok=True)
    ids = tools.text_ids()[:NUM_FULL]
    np.asarray(ids, "<i4").tofile(folder / f"ids_{NUM_FULL}.bin")
    np.ascontiguousarray(tools.forward().logits(ids), "<f4").tofile(folder / f"logits_{NUM_FULL}.f32")
    print(f"full: {folder}/ids_{NUM_FULL}.bin and logits_{NUM_FULL}.f32")
    return folder


def relative_rms(got: np.ndarray, want: np.ndarray) -> float:
    """sqrt(sum (got - want)^2 / sum want^2), over everything."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.sqrt(((got - want) ** 2).sum() / (want**2).sum()))


PARTS = {"tokenize": make_tokenize, "chat": make_chat, "greedy": make_greedy, "nll": make_nll, "logits": make_logits}

if __name__ == "__main__":
    asked = sys.argv[1:] or ["all"]
    if any(a not in [*PARTS, "all", "full"] for a in asked):
        sys.exit(__doc__)
    tools = Tools()
    for part in (list(PARTS) if "all" in asked else [a for a in asked if a != "full"]):
        PARTS[part](tools)
    if "full" in asked:
        full_logits(tools)
