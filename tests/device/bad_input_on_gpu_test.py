#!/usr/bin/env python3
"""What a GPU machine refuses, by command line: one line on stderr that says what is wrong and the way out, exit code 2;
and what it does not refuse.

usage: bad_input_on_gpu_test.py BLOCKZERO     (skips, exit 77, where there is no GPU)
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BLOCKZERO = ""
SHAPE = {"model_type": "llama", "vocab_size": 512, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 4096}


def bench(config, *args, device="cuda:0", env=None):
    return subprocess.run([BLOCKZERO, "bench", "engine", config, "--random", "--new", "4", "--repeats", "1", "--json",
                           "--device", device, *args],
                          capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})})


def errors(done):
    return [line for line in done.stderr.splitlines() if re.search("error|fault|out of memory|not enough", line)]


class BadInputOnGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.config = cls.write_config("config.json", SHAPE)

    @classmethod
    def write_config(cls, name, shape):
        path = os.path.join(cls.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(shape, f)
        return path

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, *args, says, config=None, **call):
        done = bench(config or self.config, *args, **call)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(errors(done)), 1, done.stderr)
        for part in says:
            self.assertIn(part, errors(done)[0])

    def test_it_runs(self):
        done = bench(self.config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["null_block_clean"])

    def test_a_wide_model_runs(self):
        """Rows of the FFN that no multiprocessor's shared memory holds."""
        done = bench(self.write_config("wide.json", {**SHAPE, "intermediate_size": 61440}))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_rows_that_no_kernel_walks(self):
        narrow = self.write_config("narrow.json", {**SHAPE, "intermediate_size": 1000})
        self.refused(config=narrow, says=["ffn_down.weight", "rows of 1000 elements", "multiples of 32", "--device cpu"])

    def test_no_such_gpu(self):
        self.refused(device="cuda:99", says=["cuda:99", "use cuda:0"])

    def test_no_gpu_to_see(self):
        self.refused(says=["no usable NVIDIA driver or GPU", "--device cpu"], env={"CUDA_VISIBLE_DEVICES": ""})

    def test_a_cache_larger_than_the_gpu(self):
        for size in ("1024G", "200G"):
            self.refused("--kv-cache-bytes", size, says=["--kv-cache-bytes"])

    def test_a_cache_that_leaves_too_little(self):
        """Down to the MiB at which it runs: whatever is allocated last fails, a graph too. One line, never a fault."""
        free = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True)
        free_mib = int(free.stdout.split()[0])
        too_little, enough = 64, 4096
        while enough - too_little > 1:
            rest = (enough + too_little) // 2
            done = bench(self.config, "--kv-cache-bytes", f"{free_mib - rest}M")
            print(f"all but {rest} MiB: {(errors(done) or ['runs'])[0]}", file=sys.stderr)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            if done.returncode == 0:
                enough = rest
                continue
            too_little = rest
            self.assertEqual(len(errors(done)), 1, done.stderr)
            self.assertRegex(errors(done)[0], "--kv-cache-bytes|--graphs none")
        self.assertGreater(too_little, 64)
        self.assertLess(enough, 4096)


if __name__ == "__main__":
    BLOCKZERO = os.path.abspath(sys.argv.pop(1))
    if not os.path.exists("/dev/nvidia0"):
        print("no GPU")
        sys.exit(77)
    unittest.main(verbosity=2)
