"""B4: paged decode attention, ours beside FlashInfer (paged) and SDPA (contiguous), in one process and in turn.

    python3 b4.py LIBRARY RESULTS.jsonl [--sizes 1x512,64x4k] [--sweep] [--block 16]

A shape's KV lies in blocks of shuffled ids inside one pool (--pool-gb: of that size); every byte that no row owns is NaN.
The 20 calls of a graph take turns over 200 MB of KV, or 20 copies of it, so that small shapes do not read the L2 again and
again (1x512 does). Outputs are compared with float64. --sweep adds every cluster size and the batch-invariant table.
"""
import argparse
import ctypes
import math

import torch
from harness import BF16, F32, I32, AttentionArm, Graph, Ours, emit, gpu, in_turn, launch_floor

H, HKV, HD = 32, 8, 128
SIZES = "1x512,1x4k,1x32k,8x4k,64x512,256x512,64x4k,8x32k,256x4k,64x16k"
CALLS = 20


def number(text):
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


class Shape:
    """rows requests of length tokens; `sets` copies of their KV in one pool."""

    def __init__(self, rows, length, block, pool_gb=0):
        self.rows, self.length, self.block = rows, length, block
        self.blocks_per_row = (length + block - 1) // block
        self.kv_bytes = rows * length * 2 * HKV * HD * 2
        self.sets = max(1, min(CALLS, math.ceil(200e6 / self.kv_bytes)))
        n = self.blocks_per_row * rows
        # Blocks that nobody owns.
        spare = max(8, n // 16, int(pool_gb * 1e9 / self.sets / (block * 2 * HKV * HD * 2)) - n)
        self.num_blocks = 1 + n + spare
        self.pool = torch.full((self.sets, self.num_blocks, 2, block, HKV, HD), float("nan"), dtype=BF16, device="cuda")
        ids = torch.randperm(self.num_blocks - 1)[:n] + 1
        self.table = ids.to(I32).cuda().view(rows, self.blocks_per_row)
        last = length - (self.blocks_per_row - 1) * block
        for s in range(self.sets):
            for r in range(rows):
                part = torch.randn(self.blocks_per_row, 2, block, HKV, HD, dtype=BF16, device="cuda")
                part[-1, :, last:] = float("nan")
                self.pool[s, self.table[r].long()] = part
        self.q = torch.randn(rows, H, HD, dtype=BF16, device="cuda")

    def reference(self, s, row):
        kv = self.pool[s, self.table[row].long()].double()  # [blocks, 2, block, HKV, HD]
        k, v = (kv[:, i].reshape(-1, HKV, HD)[: self.length].transpose(0, 1) for i in (0, 1))
        q = self.q[row].double().view(HKV, H // HKV, HD)
        return (torch.softmax(q @ k.transpose(1, 2) / math.sqrt(HD), -1) @ v).reshape(H, HD)


class OursArm:
    def __init__(self, ours, shape, cluster=0, batch_invariant=0):
        r, dev = shape.rows, {"dtype": I32, "device": "cuda"}
        self.q, self.out = shape.q.to(F32), torch.full((r, H, HD), float("nan"), dtype=F32, device="cuda")
        columns = shape.blocks_per_row
        table = torch.zeros(r + 1, columns, **dev)
        table[1:] = shape.table
        width = torch.full((r + 1,), columns, **dev)
        width[0] = 0
        zeros, iota = torch.zeros(r + 1, **dev), torch.arange(r + 1, **dev)
        length = torch.full((r,), shape.length, **dev)
        self.keep = [table, width, zeros, iota, length, length - 1, iota + 1, torch.tensor([r], **dev),
                     *ours.attention_lists([(i + 1, 1, shape.length - 1, shape.length - 1) for i in range(r)])]
        entry = HKV * HD * 2
        self.arms = []
        for s in range(shape.sets):
            p = [t.data_ptr() for t in self.keep]
            self.arms.append(AttentionArm(
                self.q.data_ptr(), self.out.data_ptr(), shape.pool[s].data_ptr(), p[0], p[1], p[2], p[5], p[3], p[6],
                p[3], p[4], p[2], p[7], p[8], p[9], 2 * entry * shape.block, 0, entry * shape.block, entry, r, r, H,
                HKV, HD, shape.block, columns, columns * shape.block, cluster, batch_invariant, 1 / math.sqrt(HD)))
        self.lib = ours.lib

    def call(self, s):
        self.lib.bz_attention(ctypes.byref(self.arms[s]))


class FlashInferArm:
    def __init__(self, shape):
        import flashinfer
        r = shape.rows
        self.shape, self.out = shape, torch.empty(r, H, HD, dtype=BF16, device="cuda")
        self.workspace = torch.zeros(512 << 20, dtype=torch.uint8, device="cuda")
        indptr = torch.arange(r + 1, dtype=I32, device="cuda") * shape.blocks_per_row
        last = torch.full((r,), shape.length - (shape.blocks_per_row - 1) * shape.block, dtype=I32, device="cuda")
        indices = shape.table.reshape(-1).contiguous()
        self.w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self.workspace, "NHD", use_cuda_graph=True, use_tensor_cores=True, paged_kv_indptr_buffer=indptr.clone(),
            paged_kv_indices_buffer=indices.clone(), paged_kv_last_page_len_buffer=last.clone())
        self.w.plan(indptr, indices, last, H, HKV, HD, shape.block, q_data_type=BF16, kv_data_type=BF16)

    def call(self, s):
        self.w.run(self.shape.q, self.shape.pool[s], out=self.out)


class SdpaArm:
    """On a contiguous copy: what a cache without blocks would allow. A KV head's query heads are one longer query."""

    def __init__(self, shape, backend, kv=None):
        self.backend = backend
        self.kv = kv
        if kv is None:
            self.kv = torch.empty(shape.sets, 2, shape.rows, HKV, shape.length, HD, dtype=BF16, device="cuda").normal_()
        self.q = shape.q.view(shape.rows, HKV, H // HKV, HD)

    def call(self, s):
        k, v = self.kv[s]
        with torch.nn.attention.sdpa_kernel(self.backend):
            self.out = torch.nn.functional.scaled_dot_product_attention(self.q, k, v)


class ContiguousArm(OursArm):
    """Ours with the blocks in order: what the scatter costs."""

    def __init__(self, ours, shape):
        table = shape.table
        shape.table = (torch.arange(shape.rows * shape.blocks_per_row, device="cuda", dtype=I32) + 1).view_as(table)
        super().__init__(ours, shape)
        shape.table = table


def graph(stream, arm, sets):
    return Graph(stream, [lambda s=i % sets: arm.call(s) for i in range(CALLS)])


def check(out, shape):
    worst = 0.0
    for row in {0, shape.rows // 2, shape.rows - 1}:
        want = shape.reference((CALLS - 1) % shape.sets, row)
        worst = max(worst, ((out[row].double() - want).norm() / want.norm()).item())
    return worst


def run(ours, args, rows, length):
    shape = Shape(rows, length, args.block, args.pool_gb)
    arms = {"ours": OursArm(ours, shape), "ours_contiguous": ContiguousArm(ours, shape)}
    backends = torch.nn.attention.SDPBackend
    arms["sdpa_flash"] = SdpaArm(shape, backends.FLASH_ATTENTION)
    arms["sdpa_cudnn"] = SdpaArm(shape, backends.CUDNN_ATTENTION, arms["sdpa_flash"].kv)
    if args.flashinfer:
        arms["flashinfer"] = FlashInferArm(shape)
    if args.sweep:
        arms["ours_invariant"] = OursArm(ours, shape, 0, 1)
        for c in (1, 2, 4, 8, 16):
            arms[f"cluster{c}"] = OursArm(ours, shape, c)
    graphs, errors = {}, {}
    for name, arm in arms.items():
        try:
            graphs[name] = graph(ours.stream, arm, shape.sets)
            graphs[name].replay()
            if hasattr(arm, "out") and not name.startswith("sdpa") and name != "ours_contiguous":
                errors[name] = check(arm.out, shape)
        except Exception as e:  # a peer that does not run must not end the run of the others
            print(f"# {name}: {type(e).__name__}: {e}", flush=True)
            graphs.pop(name, None)
    graphs["empty"] = launch_floor(ours.stream)
    times = in_turn(graphs, args.rounds)
    record = {"bench": "B4", "shape": f"{rows}x{length}", "block": args.block, "kv_bytes": shape.kv_bytes,
              "pool_bytes": shape.pool.numel() * 2, "us": {k: round(v[0], 2) for k, v in times.items()},
              "quartiles": {k: [round(x, 2) for x in v[1:]] for k, v in times.items()},
              "TBs": {k: round(shape.kv_bytes / v[0] / 1e6, 3) for k, v in times.items() if k != "empty"},
              "error": errors}
    emit(args.results, record)
    print(f"{record['shape']:>9} " + " ".join(f"{k} {v}" for k, v in record["us"].items()) +
          " | err " + " ".join(f"{k} {v:.1e}" for k, v in errors.items()), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("library")
    p.add_argument("results")
    p.add_argument("--sizes", default=SIZES)
    p.add_argument("--block", type=int, default=16)
    p.add_argument("--pool-gb", type=float, default=0)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--sweep", action="store_true")
    p.add_argument("--no-flashinfer", dest="flashinfer", action="store_false")
    args = p.parse_args()
    torch.manual_seed(1)
    ours = Ours(args.library)
    emit(args.results, {"bench": "B4", "gpu": gpu(), "torch": torch.__version__})
    for size in args.sizes.split(","):
        rows, length = size.split("x")
        run(ours, args, number(rows), number(length))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
