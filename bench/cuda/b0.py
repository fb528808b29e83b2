"""B0, the part that a library measures: matrix products on random data, reading by a sum.

    python3 b0.py CALIBRATION RESULTS.jsonl        CALIBRATION: the program cuda_b0
"""
import json
import subprocess
import sys

import torch
from harness import BF16, Graph, emit, gpu, in_turn


def main():
    record = json.loads(subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout)
    n, stream = 8192, torch.cuda.Stream()
    a, b = (torch.randn(n, n, device="cuda").to(BF16) for _ in range(2))
    big = torch.randn(1 << 30, device="cuda")
    graphs = {"bf16": Graph(stream, [lambda: a @ b] * 5), "sum": Graph(stream, [lambda: big.sum()] * 5)}
    fp8 = [t.to(torch.float8_e4m3fn) for t in (a, b.t().contiguous())]
    one = torch.ones((), device="cuda")
    graphs["fp8"] = Graph(stream, [lambda: torch._scaled_mm(fp8[0], fp8[1].t(), one, one, out_dtype=BF16)] * 5)
    us = {k: v[0] for k, v in in_turn(graphs).items()}
    record.update({"machine": gpu(), "torch": torch.__version__,
                   "torch_sum_TBs": round(4 * big.numel() / us["sum"] / 1e6, 3),
                   "bf16_8192_TFLOPs": round(2 * n**3 / us["bf16"] / 1e6, 1),
                   "fp8_8192_TFLOPs": round(2 * n**3 / us["fp8"] / 1e6, 1)})
    emit(sys.argv[2], record)
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
