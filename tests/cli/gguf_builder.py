"""Writes small GGUF v3 files, right or wrong on purpose. Independent of src/formats (public GGUF specification)."""
import random
import struct

U32, F32, STRING, ARRAY, U64 = 4, 6, 8, 9, 10
TENSOR_F32 = 0


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(v):
    """A Python value with its GGUF type in front."""
    if isinstance(v, str):
        return struct.pack("<I", STRING) + string(v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v & 0xFFFFFFFF)
    inner = v[0]
    kind = STRING if isinstance(inner, str) else F32 if isinstance(inner, float) else U32
    body = b"".join(value(item)[4:] for item in v)
    return struct.pack("<IIQ", ARRAY, kind, len(v)) + body


def byte_alphabet():
    """The 256 characters of byte-level BPE, in byte order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = {b: chr(b) for b in shown}
    stand_in = 256
    for b in range(256):
        if b not in chars:
            chars[b] = chr(stand_in)
            stand_in += 1
    return [chars[b] for b in range(256)]


class TinyLlama:
    """A valid llama of two layers with random weights; change `metadata` or `shapes` to make it wrong."""

    def __init__(self):
        hidden, inner, kv, vocab = 64, 128, 32, 257
        self.metadata = {
            "general.architecture": "llama", "general.basename": "tiny",
            "llama.block_count": 2, "llama.context_length": 256, "llama.embedding_length": hidden,
            "llama.feed_forward_length": inner, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": 16, "llama.rope.freq_base": 1e4,
            "llama.vocab_size": vocab,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": byte_alphabet() + ["<|end|>"],
            "tokenizer.ggml.token_type": [1] * 256 + [3],
            "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.eos_token_id": 256, "tokenizer.ggml.bos_token_id": 256,
        }
        self.metadata["tokenizer.ggml.tokens"].append("ab")
        self.metadata["tokenizer.ggml.token_type"].append(1)
        vocab += 1
        self.metadata["llama.vocab_size"] = vocab
        self.shapes = {"token_embd.weight": [hidden, vocab], "output_norm.weight": [hidden]}
        for i in range(2):
            p = f"blk.{i}."
            self.shapes |= {p + "attn_norm.weight": [hidden], p + "attn_q.weight": [hidden, 64], p + "attn_k.weight": [hidden, kv],
                            p + "attn_v.weight": [hidden, kv], p + "attn_output.weight": [64, hidden],
                            p + "ffn_norm.weight": [hidden], p + "ffn_gate.weight": [hidden, inner],
                            p + "ffn_up.weight": [hidden, inner], p + "ffn_down.weight": [inner, hidden]}

    def bytes(self):
        rng = random.Random(1)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.shapes), len(self.metadata))
        for key, v in self.metadata.items():
            head += string(key) + value(v)
        data = b""
        for name, dims in self.shapes.items():
            head += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
            head += struct.pack("<IQ", TENSOR_F32, len(data))
            count = 1
            for d in dims:
                count *= d
            scale = 1.0 if len(dims) == 1 else 0.1
            data += struct.pack(f"<{count}f", *(scale * rng.uniform(0.5, 1.0) * rng.choice((-1, 1)) for _ in range(count)))
            data += b"\0" * (-len(data) % 32)
        return head + b"\0" * (-len(head) % 32) + data
