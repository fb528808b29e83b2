"""Paged prefill attention, ours beside SDPA (contiguous), in one process and in turn.

    python3 prefill.py LIBRARY RESULTS.jsonl [--sizes 1x2k,8x2k,1x512@8k] [--heads 32/8/128]

rows x queries@context: a row's last `queries` tokens attend to `context` positions, causally; without @ the whole
prompt. KV as in b4.py: shuffled blocks in one pool, NaN in every byte that no row owns. ours_invariant is the
batch-invariant table, which takes a prompt token by token. Outputs are compared with float64. TFLOP/s count what a
causal mask leaves, once: we multiply twice (queries and weights in two terms).
"""
import argparse
import ctypes
import math

import torch
from harness import F32, I32, AttentionArm, Ours, emit, gpu, in_turn
import b4


class OursArm:
    def __init__(self, ours, shape, queries, batch_invariant):
        r, t, dev = shape.rows, shape.rows * queries, {"dtype": I32, "device": "cuda"}
        self.q = shape.q.to(F32)
        self.out = torch.full((t, b4.H, b4.HD), float("nan"), dtype=F32, device="cuda")
        columns = shape.blocks_per_row
        table = torch.zeros(r + 1, columns, **dev)
        table[1:] = shape.table
        width = torch.full((r + 1,), columns, **dev)
        width[0] = 0
        zeros, rows = torch.zeros(r + 1, **dev), torch.arange(r + 1, **dev)
        positions = torch.arange(shape.length - queries, shape.length, **dev).repeat(r)
        self.keep = [table, width, zeros, positions, rows[:r].repeat_interleave(queries), rows + 1, rows * queries,
                     torch.full((r,), shape.length, **dev), torch.tensor([r], **dev),
                     *ours.attention_lists([(i // queries + 1, queries, p, shape.length - queries)
                                            for i, p in enumerate(positions.tolist())])]
        p = [x.data_ptr() for x in self.keep]
        entry = b4.HKV * b4.HD * 2
        self.arm = AttentionArm(
            self.q.data_ptr(), self.out.data_ptr(), shape.pool[0].data_ptr(), p[0], p[1], p[2], p[3], p[4], p[5], p[6],
            p[7], p[2], p[8], p[9], p[10], 2 * entry * shape.block, 0, entry * shape.block, entry, r, t, b4.H,
            b4.HKV, b4.HD, shape.block, columns, columns * shape.block, 0, batch_invariant, 1 / math.sqrt(b4.HD))
        self.lib = ours.lib

    def call(self):
        self.lib.bz_attention(ctypes.byref(self.arm))


class SdpaArm:
    def __init__(self, shape, backend):
        size = (shape.rows, b4.HKV, shape.length, b4.HD)
        self.k, self.v = (torch.randn(size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self.q = shape.q.view(shape.rows, shape.length, b4.H, b4.HD).transpose(1, 2).contiguous()
        self.backend = backend

    def call(self):
        with torch.nn.attention.sdpa_kernel(self.backend):
            torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=True, enable_gqa=True)


def error(arm, shape, queries):
    """Of the last row's first, middle and last token."""
    worst = 0.0
    kv = shape.pool[0, shape.table[-1].long()].double()
    k, v = (kv[:, i].reshape(-1, b4.HKV, b4.HD)[: shape.length].transpose(0, 1) for i in (0, 1))
    for i in (0, queries // 2, queries - 1):
        sees = shape.length - queries + i + 1
        at = (shape.rows - 1) * queries + i
        q = shape.q[at].double().view(b4.HKV, b4.H // b4.HKV, b4.HD)
        weights = torch.softmax(q @ k[:, :sees].transpose(1, 2) / math.sqrt(b4.HD), -1)
        want = (weights @ v[:, :sees]).reshape(b4.H, b4.HD)
        worst = max(worst, ((arm.out[at].double() - want).norm() / want.norm()).item())
    return worst


def run(ours, args, rows, queries, context):
    shape = b4.Shape(rows, context, args.block)
    shape.q = torch.randn(rows * queries, b4.H, b4.HD, dtype=torch.bfloat16, device="cuda")
    arms = {"ours": OursArm(ours, shape, queries, 0), "ours_invariant": OursArm(ours, shape, queries, 1)}
    if queries == context:
        backends = torch.nn.attention.SDPBackend
        arms |= {"sdpa_flash": SdpaArm(shape, backends.FLASH_ATTENTION),
                 "sdpa_cudnn": SdpaArm(shape, backends.CUDNN_ATTENTION)}
    graphs, errors = {}, {}
    for name, arm in arms.items():
        try:
            graphs[name] = b4.Graph(ours.stream, [arm.call] * 4)
            graphs[name].replay()
            if hasattr(arm, "out"):
                errors[name] = error(arm, shape, queries)
        except Exception as e:  # a peer that does not run must not end the run of the others
            print(f"# {name}: {type(e).__name__}: {e}", flush=True)
            graphs.pop(name, None)
    times = in_turn(graphs, args.rounds)
    pairs = rows * sum(range(context - queries + 1, context + 1))
    flops = 4 * b4.H * b4.HD * pairs
    us = {k: round(v[0], 2) for k, v in times.items()}
    record = {"bench": "prefill_attention", "shape": f"{rows}x{queries}@{context}", "heads": args.heads,
              "block": args.block, "us": us, "quartiles": {k: [round(x, 2) for x in v[1:]] for k, v in times.items()},
              "TFLOPs": {k: round(flops / v / 1e6, 1) for k, v in us.items()}, "error": errors}
    emit(args.results, record)
    print(f"{record['shape']:>14} {args.heads} " + " ".join(f"{k} {v}" for k, v in us.items()) + " | TFLOP/s " +
          " ".join(f"{k} {v}" for k, v in record["TFLOPs"].items()) + " | err " +
          " ".join(f"{k} {v:.1e}" for k, v in errors.items()), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("library")
    p.add_argument("results")
    p.add_argument("--sizes", default="1x512,1x2k,8x2k,1x512@8k,8x64@4k")
    p.add_argument("--heads", default="32/8/128", help="query heads / KV heads / head dimension")
    p.add_argument("--block", type=int, default=16)
    p.add_argument("--rounds", type=int, default=7)
    args = p.parse_args()
    torch.manual_seed(1)
    b4.H, b4.HKV, b4.HD = (int(n) for n in args.heads.split("/"))
    ours = Ours(args.library)
    emit(args.results, {"bench": "prefill_attention", "gpu": gpu(), "torch": torch.__version__})
    for size in args.sizes.split(","):
        rows, rest = size.split("x")
        queries, _, context = rest.partition("@")
        run(ours, args, int(rows), b4.number(queries), b4.number(context or queries))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
