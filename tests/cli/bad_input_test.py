#!/usr/bin/env python3
"""Bad input to the command line: one line on stderr that names what is wrong, exit code 2, in bounded time and memory.

usage: bad_input_test.py BLOCKZERO [sanitized]     (address sanitizers reserve more than the limit)
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

from gguf_builder import TinyLlama

BLOCKZERO = ""
MAX_MEMORY = 4 << 30


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.good = cls.write("good.gguf", TinyLlama().bytes())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, data):
        path = os.path.join(cls.folder.name, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def call(self, *args, env=None):
        return subprocess.run([BLOCKZERO, *args], capture_output=True, text=True, timeout=60, check=False,
                              preexec_fn=limit_memory, env={**os.environ, **(env or {})})

    def refused(self, *args, says, env=None):
        """One line that holds each of `says`; exit 2; nothing on stdout."""
        done = self.call(*args, env=env)
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(lines), 1, done.stderr)
        for part in says:
            self.assertIn(part, lines[0])

    def refused_by_all(self, path, *says):
        """`run`, `serve` and `plan` alike refuse a model file."""
        for command in (["run", path, "-p", "x"], ["serve", path, "--port", "0"], ["plan", path]):
            with self.subTest(command[0]):
                self.refused(*command, says=[os.path.basename(path), *says])

    def test_bench_of_random_weights(self):
        shape = {"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}
        good = self.write("config.json", json.dumps(shape).encode())
        done = self.call("bench", "engine", good, "--random", "--new", "4", "--repeats", "1", "--rows", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["decode_tok_s"], 0)
        for changes, says in (({"model_type": "mamba"}, "model_type"), ({"hidden_size": 0}, "hidden_size"),
                              ({"num_hidden_layers": "two"}, "num_hidden_layers")):
            bad = self.write("bad.json", json.dumps({**shape, **changes}).encode())
            self.refused("bench", "engine", bad, "--random", says=["bad.json", says])
        for key, value in (("model_type", 3), ("rope_theta", "x"), ("rope_theta", -1), ("tie_word_embeddings", "x"),
                           ("rms_norm_eps", 0), ("num_attention_heads", 65), ("vocab_size", 1 << 30)):
            bad = self.write("bad.json", json.dumps({**shape, key: value}).encode())
            self.refused("bench", "engine", bad, "--random", says=["bad.json", key])
        huge = {**shape, "hidden_size": 65536, "num_hidden_layers": 65536, "intermediate_size": 65536}
        self.refused("bench", "engine", self.write("bad.json", json.dumps(huge).encode()), "--random",
                     says=["bad.json", "memory"])
        self.refused("bench", "engine", self.write("no.json", b"[1"), "--random", says=["no.json"])
        os.mkdir(os.path.join(self.folder.name, "empty"))
        self.refused("bench", "engine", os.path.join(self.folder.name, "empty"), "--random", says=["empty/config.json"])
        # What a config leaves out may be null; a vocabulary may be small.
        nulls = {**shape, "vocab_size": 100, "rope_theta": None, "rms_norm_eps": None, "tie_word_embeddings": None}
        done = self.call("bench", "engine", self.write("nulls.json", json.dumps(nulls).encode()), "--random", "--new", "4",
                         "--repeats", "1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_bench_of_what_does_not_fit(self):
        for option, value in (("--rows", "0"), ("--prompt", "2147483647"), ("--new", "1"), ("--churn", "1e-12"),
                              ("--churn", "nan"), ("--churn", "0.6"), ("--repeats", "0")):
            self.refused("bench", "engine", self.good, option, value, says=[option])
        self.refused("bench", "engine", self.good, "--prompt", "60", "--max-model-len", "64", says=["64", "max_tokens"])
        self.refused("bench", "engine", self.good, "--prompt", "90", "--max-model-len", "64", says=["64", "prompt"])

    def test_devices_that_are_not_there(self):
        for device in ("tpu", "cuda:x", "cuda:-1"):
            self.refused("run", self.good, "-p", "x", "--device", device, says=["--device", device, "no such device"])
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("a GPU: tests/device says what is refused there")
        # A build without CUDA, or one with it and no driver or GPU.
        self.refused("run", self.good, "-p", "x", "--device", "cuda:0", says=["--device cuda:0", "use", "cpu"])

    def test_replay_of_what_is_no_record(self):
        for data in (b"", b"{}", b'{"record": 3}', b'{"record": "blockzero fault 1"}', b'{"record": "blockzero fault 2"}',
                     b'{"record": "blockzero fault 1", "failed": 1, "options": {"model'):
            self.refused("replay", self.write("record.json", data), says=["record.json", "no fault record"])
        self.refused("replay", os.path.join(self.folder.name, "none.json"), says=["none.json"])
        self.refused("replay", self.folder.name, says=[self.folder.name, "folder"])

    def tiny_with(self, **changes):
        tiny = TinyLlama()
        for key, v in changes.items():
            tiny.metadata[key.replace("__", ".")] = v
        return self.write("changed.gguf", tiny.bytes())

    def test_the_good_file_runs(self):
        done = self.call("run", self.good, "-p", "ab", "-n", "3", "--ignore-eos", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"null_block_clean":true', done.stdout)

    def test_the_summary_has_a_line_of_its_own_behind_the_answer(self):
        done = subprocess.run([BLOCKZERO, "run", self.good, "-p", "ab", "-n", "3", "--ignore-eos"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=True)
        self.assertRegex(done.stdout, rb"\nblockzero: \d+ prompt tokens at ")

    def test_files_that_are_no_model(self):
        self.refused_by_all(os.path.join(self.folder.name, "missing.gguf"), "no such file")
        self.refused_by_all(self.write("empty.gguf", b""))
        self.refused_by_all(self.write("magic.gguf", b"GGML" + TinyLlama().bytes()[4:]), "magic")
        self.refused_by_all(self.write("folder.gguf", b"GGUF\x03"))
        self.refused_by_all(self.folder.name)

    def test_a_fifo_does_not_hang(self):
        path = os.path.join(self.folder.name, "fifo.gguf")
        os.mkfifo(path)
        self.refused_by_all(path, "not a regular file")
        for command in (["inspect", path], ["replay", path], ["bench", "engine", path, "--random"],
                        ["serve", self.good, "--port", "0", "--access-log", path]):  # without a reader
            self.refused(*command, says=["fifo.gguf"])

    def test_a_full_disk_is_no_success(self):
        for command in (["run", self.good, "-p", "ab", "-n", "2"], ["run", self.good, "-p", "ab", "-n", "2", "--json"],
                        ["inspect", self.good], ["plan", self.good, "--json"], ["sim", "--steps", "10"], ["--help"],
                        ["serve", "--help"], ["--version"]):
            with self.subTest(" ".join(command)), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([BLOCKZERO, *command], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stderr.count("error: standard output cannot be written"), 1, done.stderr)

    def test_configs(self):
        config = os.path.join(self.folder.name, "config.json")
        self.write("config.json", b'{"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64,'
                   b' "num_attention_heads": 4, "max_position_embeddings": 512}')
        done = self.call("plan", config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"max_model_len": 512', done.stdout)
        self.refused("run", config, "-p", "x", says=["config.json", "'qwen3'", "not supported yet"])
        for length in ("513", "-1"):
            self.refused("plan", config, "--max-model-len", length, says=["--max-model-len", "512"])
        self.refused("plan", self.good, "--speculative-tokens", "2", says=["--speculative-tokens"])
        for bad in (b"", b"{", b"[]", b'{"model_type": 3}', b'{"model_type": "none"}', b'{"model_type": "qwen3"}',
                    b'{"model_type": "qwen3", "num_hidden_layers": 9999999999999999999999}', b"[" * 100000):
            self.write("config.json", bad)
            self.refused("plan", config, says=["config.json"])
        os.remove(config)

    def test_a_truncated_file_at_many_places(self):
        data = TinyLlama().bytes()
        for size in [4, 8, 16, 23, 24, 100, 1000, len(data) // 2, len(data) - 40]:
            path = self.write(f"cut{size}.gguf", data[:size])
            self.refused("plan", path, says=[os.path.basename(path)])
        self.refused_by_all(self.write("cut.gguf", data[: len(data) - 4096]))

    def test_counts_that_claim_more_than_is_there(self):
        data = bytearray(TinyLlama().bytes())
        for offset in (8, 16):
            huge = bytearray(data)
            huge[offset:offset + 8] = (1 << 60).to_bytes(8, "little")
            self.refused_by_all(self.write("huge.gguf", bytes(huge)))

    def test_values_that_parse_but_make_no_sense(self):
        cases = {
            "llama__block_count": [0, 1_000_000], "llama__context_length": [0, 0xFFFFFFFF], "llama__embedding_length": [0, 63, 1 << 31],
            "llama__attention__head_count": [0, 3, 1 << 30], "llama__attention__head_count_kv": [0, 3, 8],
            "llama__attention__layer_norm_rms_epsilon": [float("nan"), -1.0, float("inf")],
            "llama__rope__freq_base": [float("nan"), 0.0, -5.0], "llama__rope__dimension_count": [0, 7, 1000],
            "llama__vocab_size": [0, 300], "llama__feed_forward_length": [0, 64], "tokenizer__ggml__eos_token_id": [100_000],
            "general__architecture": ["mamba", ""],
        }
        for key, values in cases.items():
            for v in values:
                with self.subTest(f"{key}={v}"):
                    self.refused_by_all(self.tiny_with(**{key: v}))

    def test_a_missing_or_misshapen_tensor(self):
        tiny = TinyLlama()
        del tiny.shapes["blk.1.ffn_up.weight"]
        self.refused_by_all(self.write("missing_tensor.gguf", tiny.bytes()), "blk.1.ffn_up.weight")
        tiny = TinyLlama()
        tiny.shapes["blk.0.attn_q.weight"] = [64, 32]
        self.refused_by_all(self.write("shape.gguf", tiny.bytes()), "blk.0.attn_q.weight")

    def test_heads_that_the_kernels_do_not_have(self):
        for heads, kv_heads, head_dim in ((1, 1, 512), (32, 1, 16)):
            tiny = TinyLlama()
            tiny.metadata |= {"llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads,
                              "llama.attention.key_length": head_dim, "llama.attention.value_length": head_dim,
                              "llama.rope.dimension_count": head_dim}
            for i in range(2):
                p = f"blk.{i}."
                tiny.shapes |= {p + "attn_q.weight": [64, heads * head_dim], p + "attn_k.weight": [64, kv_heads * head_dim],
                                p + "attn_v.weight": [64, kv_heads * head_dim], p + "attn_output.weight": [heads * head_dim, 64]}
            path = self.write("heads.gguf", tiny.bytes())
            for command in (["run", path, "-p", "ab"], ["serve", path, "--port", "0"]):
                with self.subTest(command[0]):
                    self.refused(*command, says=["heads.gguf", f"{heads} query heads", f"{head_dim} elements"])

    def test_options(self):
        m = self.good
        self.refused("run", m, "-p", "ab", "--threads", "-1", says=["--threads"])
        self.refused("run", m, "-p", "ab", "--threads", "1000000", says=["--threads"])
        self.refused("run", m, "-p", "ab", "--null-guard", "soft", says=["--null-guard", "read-only"])
        self.refused("run", m, "-p", "ab", "--graphs", "some", says=["--graphs"])
        self.refused("run", m, "-p", "ab", "--kv-cache-dtype", "fp3", says=["--kv-cache-dtype"])
        self.refused("run", m, "-p", "ab", "--kv-cache-bytes", "lots", says=["--kv-cache-bytes"])
        self.refused("run", m, "-p", "ab", "--kv-cache-bytes", "1K", says=["--kv-cache-bytes"])
        self.refused("run", m, "-p", "ab", "--kv-cache-bytes", "900000G", says=["--kv-cache-bytes"])
        self.refused("run", m, "-p", "ab", "--max-model-len", "100000", says=["--max-model-len"])
        self.refused("run", m, "-p", "ab", "--device", "tpu", says=["--device"])
        self.refused("serve", m, "--read-seconds", "0", says=["--read-seconds"])
        self.refused("serve", m, "--port", "0", "--access-log", "/no/such/log", says=["--access-log /no/such/log"])
        self.refused("serve", m, "--config", "/no/such/file", says=["--config /no/such/file"])
        self.refused("serve", m, "--config", self.folder.name, says=["--config " + self.folder.name, "folder"])
        self.refused("serve", m, "--config", "/dev/zero", says=["--config /dev/zero"])
        for option in ("--read-seconds", "--idle-seconds", "--write-seconds"):
            self.refused("serve", m, option, "nan", says=[option, "nan"])
        self.refused("bench", "single", "--timeout", "nan", says=["--timeout", "nan"])
        for option in ("--host", "--api-key", "--config", "--cors-origins"):  # as of an unset shell variable
            self.refused("serve", m, option, "", says=[option])
        for origin in ("app.example", "https://app.example/"):
            self.refused("serve", m, "--cors-origins", origin, says=["--cors-origins", origin])
        for command in (["run", m, "-p", "ab"], ["serve", m], ["sim"]):
            for seed in ("-1", "99999999999999999999", "1.5"):
                self.refused(*command, "--seed=" + seed, says=["--seed", seed])
        self.refused("run", m, "-p", "ab", "--system", "ab", says=["--system", "--chat"])
        self.refused("sim", "--steps", "0", says=["--steps"])
        self.refused("sim", "--seeds", "many", says=["--seeds"])
        self.refused("run", m, "-p", "ab", "--no-such-option", says=["--no-such-option"])
        self.refused("run", m, says=["--prompt"])
        self.refused("run", m, "-p", "ab", "--system", "Be brief.", says=["--system", "--chat"])
        self.refused("run", m, "-p", "ab", "-n", "many", says=["--max-tokens"])
        self.refused("frobnicate", says=["frobnicate"])
        self.refused("run", m, "-p", "ab", env={"BLOCKZERO_ISA": "mmx"}, says=["BLOCKZERO_ISA"])

    def test_more_threads_than_the_system_has_room_for(self):
        if MAX_MEMORY == resource.RLIM_INFINITY:
            self.skipTest("no limit under sanitizers")
        self.refused("run", self.good, "-p", "ab", "--threads", "1000", says=["1000 threads", "--threads"])

    def test_requests_that_cannot_be_served(self):
        m = self.good
        self.refused("run", m, "-p", "", says=["prompt"])
        self.refused("run", m, "-p", "ab", "-n", "0", says=["max_tokens"])
        self.refused("run", m, "-p", "ab", "-n", "-5", says=["max_tokens"])
        self.refused("run", m, "-p", "x" * 300, says=["prompt", "256"])
        self.refused("run", m, "-p", "ab", "-n", "300", says=["max_tokens", "256"])
        self.refused("run", m, "-p", "ab", "--temp", "-1", says=["temperature"])
        self.refused("run", m, "-p", "ab", "--temp", "nan", says=["temperature"])
        self.refused("run", m, "-p", "ab", "--top-p", "0", says=["top_p"])
        self.refused("run", m, "-p", "ab", "--top-k", "-3", says=["top_k"])
        self.refused("run", m, "-p", "ab", "--min-p", "1.5", says=["min_p"])
        self.refused("run", m, "-p", "ab", "--chat", says=["chat_template"])


if __name__ == "__main__":
    BLOCKZERO = os.path.abspath(sys.argv.pop(1))
    if sys.argv[1:] == ["sanitized"]:
        MAX_MEMORY = resource.RLIM_INFINITY
        sys.argv.pop()
    unittest.main(verbosity=1)
