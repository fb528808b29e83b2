"""B1: what padding-safe outputs cost, in graphs, ours beside four ways that engines use.

    python3 b1.py LIBRARY RESULTS.jsonl

Standalone: zeros in the padded rows of out [B, 128, 512] bf16, after some kernel wrote it (out is in L2 as far as it
fits, as it would be). pad = min(16, B / 2); rows whose seq_len is 0.

Fused: our attention with pad padded rows in its batch, against the same batch without them, in the same memory:
microseconds a layer, no node more. The L2 is cold before each graph of 20 calls, as a step finds it. Up to 32 rows also
with the most padding that the engine makes for that captured size; above, 16 is more than that. 32x128: 32 query heads
of 8 KV heads. 128x512: outputs of that many elements a row, as 512 heads of 128 (64 KV heads): latent attention is not
there yet.
"""
import sys

import torch
import triton
import triton.language as tl
from harness import (BF16, I32, AttentionArm, ColdL2, Graph, Ours, difference, emit, gpu, in_turn,
                     launch_floor)
import b4

SIZES = (1, 2, 8, 16, 32, 64, 128, 256, 512, 1024)
COLS = (128, 512)


@triton.jit
def zero_rows_kernel(out, seq_len, cols: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if tl.load(seq_len + row) == 0:
        for first in range(0, cols, block):
            tl.store(out + row * cols + first + tl.arange(0, block), tl.zeros((block,), out.dtype.element_ty))


@triton.jit
def zero_tiles_kernel(out, seq_len, cols: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if tl.load(seq_len + row) == 0:
        at = tl.program_id(1) * block + tl.arange(0, block)
        tl.store(out + row * cols + at, tl.zeros((block,), out.dtype.element_ty))


def standalone(ours, path, b, calls=50):
    pad = min(16, b // 2)
    out = torch.randn(b, *COLS, dtype=BF16, device="cuda")
    seq_len = torch.full((b,), 77, dtype=I32, device="cuda")
    seq_len[b - pad:] = 0
    mask = (seq_len == 0)[:, None, None]
    cols = COLS[0] * COLS[1]
    arms = {
        "nan_to_num": lambda: torch.nan_to_num(out, out=out),
        "mask_assign": lambda: out.masked_fill_((seq_len == 0)[:, None, None], 0),
        "precomputed_mask": lambda: out.masked_fill_(mask, 0),
        "triton_rows": lambda: zero_rows_kernel[(b,)](out, seq_len, cols, 4096, num_warps=8),
        "triton_tiles": lambda: zero_tiles_kernel[(b, cols // 8192)](out, seq_len, cols, 8192, num_warps=8),
        "ours": lambda: ours.zero_rows(out, seq_len),
    }
    graphs = {}
    for name, call in arms.items():
        graphs[name] = Graph(ours.stream, [call] * calls)
        out[:] = float("nan") if name != "nan_to_num" else 1.0
        if name != "nan_to_num":
            graphs[name].replay()
            assert out[b - pad:].count_nonzero() == 0 and out[: b - pad].isnan().all(), (name, b)
    graphs["smallest"] = launch_floor(ours.stream, calls)
    times = in_turn(graphs, 15)
    us = {k: round(v[0], 3) for k, v in times.items()}
    limit = 1.5 * us["smallest"] + pad * cols * 2 / 4.3e6
    best = min(us[k] for k in arms if k != "ours")
    emit(path, {"bench": "B1", "form": "standalone", "rows": b, "pad": pad, "us": us, "limit_us": round(limit, 3),
                "met": us["ours"] <= limit and us["ours"] < best})
    print(f"standalone {b:5} pad {pad:2} " + " ".join(f"{k} {v}" for k, v in us.items()) + f" | gate {limit:.2f}",
          flush=True)


class PaddedArm(b4.OursArm):
    """Ours on a batch whose last `pad` rows are padding: the null row, seq_len 0."""

    def __init__(self, ours, shape, pad):
        super().__init__(ours, shape)
        _, _, zeros, token_row, seq_len, _, row_index, valid, *_ = self.keep
        live = shape.rows - pad
        self.token_row, self.row_index = token_row.clone(), row_index.clone()
        self.token_row[live:], self.row_index[live:] = -1, 0
        seq_len[live:] = 0
        self.query_start = token_row.clone().clamp(max=live)
        valid.fill_(live)
        self.lists = ours.attention_lists(
            [(i + 1, 1, shape.length - 1, shape.length - 1) for i in range(live)] + [(0, 0, 0, 0)] * pad)
        for a in self.arms:
            a.class_tokens, a.class_counts = (x.data_ptr() for x in self.lists)
            a.token_row, a.row_index = self.token_row.data_ptr(), self.row_index.data_ptr()
            a.query_start = self.query_start.data_ptr()


class WithoutArm:
    """The live rows of a padded arm, in the same memory: all that differs is that there is no padding."""

    def __init__(self, ours, padded, shape, pad):
        live = shape.rows - pad
        last = shape.length - 1
        self.padded, self.lib = padded, padded.lib
        self.lists = ours.attention_lists([(i + 1, 1, last, last) for i in range(live)])
        self.arms = [AttentionArm.from_buffer_copy(a) for a in padded.arms]
        for a in self.arms:
            a.rows = a.tokens = live
            a.class_tokens, a.class_counts = (x.data_ptr() for x in self.lists)

    call = b4.OursArm.call


def most_padding(b):
    """Of a step that the engine runs at captured size b, one of 8, 16, 24 .. 248: the next smaller is 4, or b - 8."""
    return b - max(4, b - 8) - 1


def fused(ours, path, name, heads, kv_heads, b, length, pad, cold):
    b4.H, b4.HKV = heads, kv_heads
    shape = b4.Shape(b, length, 16)
    padded = PaddedArm(ours, shape, pad)
    without = WithoutArm(ours, padded, shape, pad)
    graphs = [b4.graph(ours.stream, a, shape.sets) for a in (padded, without)]
    graphs[0].replay()
    assert padded.out[b - pad:].count_nonzero() == 0 and not padded.out.isnan().any()
    *us, cost, quartiles = difference(*graphs, 121 if b <= 256 else 61, cold)
    us = dict(zip(("padded", "without"), (round(x, 3) for x in us)))
    floor = pad * heads * b4.HD * 4 / 4.3e6  # the zeros themselves, f32
    emit(path, {"bench": "B1", "form": "fused", "shape": name, "rows": b, "pad": pad, "context": length, "us": us,
                "cost_us": round(cost, 3), "cost_quartiles": [round(x, 3) for x in quartiles],
                "zeros_us": round(floor, 3)})
    print(f"fused {name} {b:5} pad {pad:2} context {length} padded {us['padded']} without {us['without']} "
          f"cost {cost:.3f} ({quartiles[0]:.3f} to {quartiles[1]:.3f}) zeros {floor:.3f}", flush=True)


def strategies(ours, path, rows=64, length=512):
    """What keeps block 0 harmless, per layer: the attention of a padded batch, block 0's page being ...

    nothing: left as it is. zero_after_capture: cleared once, outside the steps. zero_per_call: cleared before every
    call, as engines do it (a fill of the page) and by a kernel of ours. guard: in slabs whose block 0 is protected."""
    b4.H, b4.HKV = 32, 8
    shape = b4.Shape(rows, length, 16)
    arm = PaddedArm(ours, shape, 16)
    page = shape.pool[0, 0]
    empty = torch.zeros(1, dtype=I32, device="cuda")
    guarded = PaddedArm(ours, shape, 16)
    pools = {}
    for guard in (0, 1, 2):  # off, read-only, hard
        base = ours.slabs(shape.pool[0].stride(0) * 2, shape.num_blocks, guard)
        ours.upload(base + page.numel() * 2, shape.pool[0, 1:])
        pools[guard] = base
    calls = {"nothing": lambda: arm.call(0),
             "zero_per_call_fill": lambda: (page.zero_(), arm.call(0)),
             "zero_per_call_kernel": lambda: (ours.zero_rows(page.view(1, -1), empty), arm.call(0))}
    graphs = {k: Graph(ours.stream, [c] * 20) for k, c in calls.items()}
    for guard, base in pools.items():
        guarded.arms[0].base = base
        name = ("slabs_guard_off", "slabs_guard_read_only", "slabs_guard_hard")[guard]
        graphs[name] = Graph(ours.stream, [lambda: guarded.call(0)] * 20)
    once = Graph(ours.stream, [lambda: page.zero_()])
    times = in_turn(graphs, 25)
    us = {k: round(v[0], 3) for k, v in times.items()}
    us["zero_after_capture_once"] = round(once.us(), 3)
    emit(path, {"bench": "B1", "form": "strategies", "rows": rows, "pad": 16, "context": length, "us": us,
                "quartiles": {k: [round(x, 3) for x in v[1:]] for k, v in times.items()}})
    print("strategies " + " ".join(f"{k} {v}" for k, v in us.items()), flush=True)


def main():
    ours, path = Ours(sys.argv[1]), sys.argv[2]
    torch.manual_seed(1)
    emit(path, {"bench": "B1", "gpu": gpu(), "torch": torch.__version__, "triton": triton.__version__})
    for b in SIZES:
        standalone(ours, path, b)
    cold = ColdL2(ours.stream)
    for name, heads, kv_heads, context in (("gqa 32x128", 32, 8, 512), ("gqa 32x128", 32, 8, 16),
                                           ("128x512", 512, 64, 64)):
        for b in SIZES[1:]:
            for pad in sorted({min(16, b // 2)} | ({most_padding(b)} if 8 <= b <= 32 else set())):
                fused(ours, path, name, heads, kv_heads, b, context, pad, cold)
                torch.cuda.empty_cache()
    strategies(ours, path)


if __name__ == "__main__":
    main()
