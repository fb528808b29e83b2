"""What the GPU benchmarks share: our ops in this process, arms in CUDA graphs, timed in turn."""
import ctypes
import json
import statistics
import subprocess

import torch

BF16, F32, I32 = torch.bfloat16, torch.float32, torch.int32


class Ours:
    """The library built from arms.cc. Its stream is where every arm of a run is captured."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.bz_stream.restype = self.lib.bz_slabs.restype = ctypes.c_void_p
        self.lib.bz_slabs.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        self.lib.bz_upload.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self.lib.bz_zero_rows.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p]
        self.stream = torch.cuda.ExternalStream(self.lib.bz_stream())

    def slabs(self, stride, blocks, guard):
        """Base of block 0 in slabs of the engine's own memory; guard 0 off, 1 read-only, 2 hard."""
        return self.lib.bz_slabs(stride, blocks, guard)

    def upload(self, address, tensor):
        host = tensor.cpu().contiguous()
        self.lib.bz_upload(address, host.data_ptr(), host.numel() * host.element_size())

    def attention_lists(self, tokens):
        """What prepare lists of tokens, (table row, query_len, position, num_computed) each: (tokens, counts)."""
        size = 5  # ints of an ops::AttentionToken
        listed, entry = [[] for _ in range(4)], (ctypes.c_int32 * size)()
        for t, token in enumerate(tokens):
            listed[self.lib.bz_attention_token(entry, t, *token)].append(list(entry))
        padded = [c + [[0] * size] * (len(tokens) - len(c)) for c in listed]
        counts = [len(c) for c in listed] + [0, 0]  # and no claims
        return [torch.tensor(x, dtype=I32, device="cuda") for x in (padded, counts)]

    def zero_rows(self, out, seq_len):
        self.lib.bz_zero_rows(out.data_ptr(), out.shape[0], out[0].numel(), seq_len.data_ptr())


class AttentionArm(ctypes.Structure):
    _fields_ = ([(n, ctypes.c_void_p) for n in (
        "q", "out", "base", "table", "width", "first", "positions", "token_row", "row_index", "query_start", "seq_len",
        "first_visible", "num_valid_rows", "class_tokens", "class_counts")]
        + [(n, ctypes.c_int64) for n in ("block_stride", "k_offset", "v_offset", "entry_bytes")]
        + [(n, ctypes.c_int32) for n in ("rows", "tokens", "heads", "kv_heads", "head_dim", "block_size", "columns",
                                         "max_position", "cluster", "batch_invariant")]
        + [("scale", ctypes.c_float)])


class Graph:
    """Calls captured once, one after another; microseconds of one of them."""

    def __init__(self, stream, calls):
        self.stream, self.n = stream, len(calls)
        with torch.cuda.stream(stream):
            for call in calls[:2]:  # lazy set-up, outside the capture
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            for call in calls:
                call()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay(self):
        with torch.cuda.stream(self.stream):
            self.graph.replay()
        torch.cuda.synchronize()

    def us(self):
        with torch.cuda.stream(self.stream):
            self.begin.record()
            self.graph.replay()
            self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e3 / self.n


def in_turn(graphs, rounds=9):
    """Medians of all arms, timed A B ... B A ...: {name: (median, lower quartile, upper quartile)}."""
    for g in graphs.values():
        g.us()
    times = {name: [] for name in graphs}
    for r in range(rounds):
        for name in list(graphs)[:: 1 if r % 2 == 0 else -1]:
            times[name].append(graphs[name].us())
    return {name: (statistics.median(t), *statistics.quantiles(t, n=4)[::2]) for name, t in times.items()}


def difference(a, b, rounds, before):
    """What graph a costs over graph b: (median a, median b, median of a - b within a round, its quartiles).
    before(): called ahead of every timing."""
    pairs = []
    for r in range(rounds + 1):
        times = [(before(), g.us())[1] for g in ((a, b) if r % 2 == 0 else (b, a))]
        pairs.append(times if r % 2 == 0 else times[::-1])
    pairs = pairs[1:]  # the first warms up
    cost = [x - y for x, y in pairs]
    return (*(statistics.median(x) for x in zip(*pairs)), statistics.median(cost), statistics.quantiles(cost, n=4)[::2])


class ColdL2:
    """Reads so much else that nothing of before is left in the L2, as between the layers and steps of a model."""

    def __init__(self, stream, megabytes=256):
        self.stream, self.other = stream, torch.ones(megabytes << 18, device="cuda")

    def __call__(self):
        with torch.cuda.stream(self.stream):
            self.other.sum()


def launch_floor(stream, n=20):
    """What a graph of n nothings costs, per node: the smallest kernel of the same run."""
    x = torch.zeros(1, device="cuda")
    return Graph(stream, [lambda: x.fill_(1.0)] * n)


def gpu():
    """Name, driver and clocks as seen."""
    q = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm"
    try:
        out = subprocess.run(["nvidia-smi", f"--query-gpu={q}", "--format=csv,noheader"], capture_output=True, text=True)
        return out.stdout.strip().split("\n")[0]
    except OSError:
        return torch.cuda.get_device_name()


def emit(path, record):
    with open(path, "a") as f:
        f.write(json.dumps(record) + "\n")
