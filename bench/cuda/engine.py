"""B6 to B8: the engine on a GPU without a server, beside llama.cpp and compiled transformers on the same GPU, in turn.

    python3 engine.py BLOCKZERO MODEL.gguf RESULTS.jsonl [--llama FOLDER] [--transformers]

MODEL.gguf: SmolLM2-135M-Instruct Q4_1. FOLDER: llama-bench and llama-batched-bench of a CUDA build.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from harness import emit, gpu

BANDWIDTH = 4.3e12  # bytes a second: what a copy moves on an H200; a read alone is 5 % faster (B0)
SHAPES = {
    "0.6B": {"vocab_size": 151936, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "tie_word_embeddings": True},
    "8B": {"vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "intermediate_size": 14336},
}
FIELDS = ("rows", "prompt", "new", "churn", "ops", "graphs", "decode_tok_s", "decode_tok_s_min", "decode_tok_s_max",
          "step_us", "host_us", "host_us_median", "host_us_p99", "device_busy_us", "device_idle", "prefill_tok_s",
          "ready_s", "steps_without_graph")
CHURN = ["--rows", "256", "--new", "400", "--churn", "0.02", "--repeats", "3"]
BATCH = ["--rows", "256", "--prompt", "256", "--new", "128", "--repeats", "3", "--kv-cache-bytes", "4G"]


def lines_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def gate(what, value, want, met):
    return {"kind": "gate", "what": what, "value": value, "want": want, "met": met}


class Bench:
    def __init__(self, args):
        self.args = args
        self.folder = tempfile.TemporaryDirectory()

    def shape(self, name):
        path = os.path.join(self.folder.name, f"{name}.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama", "max_position_embeddings": 8192, **SHAPES[name]}, f)
        return path

    def ours(self, model, *options):
        random = [] if model == self.args.model else ["--random"]
        return json.loads(lines_of([self.args.blockzero, "bench", "engine", model, *random, "--device", "cuda:0",
                                    "--json", *options]))

    def llama(self, program, *options):
        """Its JSON lines."""
        out = lines_of([os.path.join(self.args.llama, program), "-m", self.args.model, "-ngl", "99", *options])
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def llama_one_stream(self):
        rates = {("pp" if r["n_prompt"] else "tg"): r["avg_ts"]
                 for r in self.llama("llama-bench", "-fa", "1", "-p", "512", "-n", "128", "-r", "5", "-o", "jsonl")}
        return {"tg128": rates["tg"], "pp512": rates["pp"]}

    def llama_batch(self):
        runs = self.llama("llama-batched-bench", "-fa", "on", "-npp", "256", "-ntg", "128", "-npl", "1,32,256",
                          "-c", "98304", "--output-format", "jsonl")
        return {f"tg_{r['pl']}": r["speed_tg"] for r in runs}

    def row(self, key, name, run, checks=(), **more):
        record = {"bench": key, "name": name, **{f: run[f] for f in FIELDS if f in run}, **more}
        if checks:
            record["checks"] = list(checks)
        emit(self.args.results, record)
        print(json.dumps(record), flush=True)

    def b6(self):
        shapes = (("SmolLM2", self.args.model, "4G"), ("0.6B shape, random bf16", self.shape("0.6B"), "16G"))
        for name, model, cache in shapes:
            run = self.ours(model, *CHURN, "--kv-cache-bytes", cache)
            self.row("B6", f"{name}, 256 rows, 2 % churn", run, [
                gate("device idle", run["device_idle"], "<= 0.03", run["device_idle"] <= 0.03),
                gate("host us a step", run["host_us"], "<= 60", run["host_us"] <= 60)])

    def b7(self):
        one = [self.ours(self.args.model)]
        peer = {}
        if self.args.llama:
            turns = [self.llama_one_stream(), self.llama_one_stream()]
            one.append(self.ours(self.args.model))
            peer["llama_cpp_tok_s"] = statistics.mean(t["tg128"] for t in turns)
            peer["llama_cpp_prefill_tok_s"] = statistics.mean(t["pp512"] for t in turns)
        rates = [r["decode_tok_s"] for r in one]
        rate = statistics.mean(rates)
        self.row("B7", "SmolLM2 Q4_1, one stream", one[0], [gate("tok/s", round(rate, 1), ">= 2500", rate >= 2500)],
                 by_turn=rates, **peer)
        self.row("B7", "SmolLM2 Q4_1, one stream, --batch-invariant", self.ours(self.args.model, "--batch-invariant"))
        run = self.ours(self.shape("8B"), "--new", "64", "--repeats", "3")
        part = run["weight_bytes"] / (run["step_us"] * 1e-6) / BANDWIDTH
        self.row("B7", "Llama-3.1-8B shape, random bf16, one stream", run,
                 [gate("of 4.3 TB/s", round(part, 3), ">= 0.80", part >= 0.8)])
        self.row("B7", "0.6B shape, random bf16, one stream", self.ours(self.shape("0.6B"), "--new", "64"))
        if self.args.transformers:
            peer = {"rows": 1, "prompt": 32, "new": 200, "decode_tok_s": compiled_transformers()}
            self.row("B7", "compiled transformers: SmolLM2's shape, random bf16, one stream", peer)

    def b8(self):
        batch = [self.ours(self.args.model, *BATCH)]
        peer = {}
        if self.args.llama:
            turns = [self.llama_batch(), self.llama_batch()]
            batch.append(self.ours(self.args.model, *BATCH))
            peer = {f"llama_cpp_{k}_tok_s": statistics.mean(t[k] for t in turns) for k in turns[0]}
        rates = [r["decode_tok_s"] for r in batch]
        checks = []
        if peer:
            ratio = statistics.mean(rates) / peer["llama_cpp_tg_256_tok_s"]
            checks = [gate("x llama.cpp of the same run", round(ratio, 2), ">= 2.5", ratio >= 2.5)]
        self.row("B8", "SmolLM2 Q4_1, 256 rows", batch[0], checks, by_turn=rates, **peer)
        self.row("B8", "SmolLM2 Q4_1, 256 rows, --batch-invariant",
                 self.ours(self.args.model, *BATCH, "--batch-invariant"))
        for rows in ("16", "64"):
            self.row("B8", f"Llama-3.1-8B shape, random bf16, {rows} rows",
                     self.ours(self.shape("8B"), "--rows", rows, "--prompt", "512", "--new", "64", "--repeats", "2",
                               "--kv-cache-bytes", "16G"))


def compiled_transformers(new_tokens=200):
    """Tokens a second of a model in SmolLM2's shape: bf16, static cache, which generate() compiles; the best of three runs."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
                         num_key_value_heads=3, intermediate_size=1536, max_position_embeddings=8192,
                         tie_word_embeddings=True)
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    ids = torch.randint(100, 49000, (1, 32), device="cuda")
    rates = []
    for _ in range(5):  # the first compiles
        start = time.perf_counter()
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens,
                             min_new_tokens=new_tokens, do_sample=False, cache_implementation="static",
                             eos_token_id=None, pad_token_id=0)
        torch.cuda.synchronize()
        rates.append((out.shape[1] - ids.shape[1]) / (time.perf_counter() - start))
    return max(rates[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blockzero")
    parser.add_argument("model")
    parser.add_argument("results")
    parser.add_argument("--llama", help="folder of llama.cpp's programs")
    parser.add_argument("--transformers", action="store_true", help="compile and measure transformers too (a minute)")
    parser.add_argument("--only", choices=("b6", "b7", "b8"))
    bench = Bench(parser.parse_args())
    for part in ("b8", "b6", "b7"):
        if bench.args.only in (None, part):
            getattr(bench, part)()
            emit(bench.args.results, {"bench": part.upper(), "machine": gpu()})


if __name__ == "__main__":
    main()
