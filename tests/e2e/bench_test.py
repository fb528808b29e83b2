#!/usr/bin/env python3
"""`blockzero bench` against a `blockzero serve` process and against servers that are none.

usage: bench_test.py BLOCKZERO
"""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import xml.dom.minidom

from server_process import PATIENCE, ServerProcess

BLOCKZERO = ""


class PlainOpenAI(http.server.BaseHTTPRequestHandler):
    """The least that other servers offer: no /tokenize, no usage (or one without numbers), an answer that ends with the
    connection. Below /odd a model's name is a number."""

    def log_message(self, *_):
        pass

    def answer(self, status, content_type, body):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):  # noqa: N802
        self.answer(200, "application/json", '{"data":[{"id":%s}]}' % (7 if self.path.startswith("/odd") else '"other"'))

    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self.answer(404, "text/plain", "no such path")
        if body["max_tokens"] == 99:
            return self.answer(200, "text/event-stream", 'data: {"error":{"message":"too hot"}}\n\ndata: [DONE]\n\n')
        events = "".join('data: {"choices":[{"text":" word"}]}\n\n' for _ in range(body["max_tokens"]))
        if body["max_tokens"] == 5:
            events += 'data: {"choices":[],"usage":{"prompt_tokens":null,"completion_tokens":"many"}}\n\n'
        return self.answer(200, "text/event-stream", events + "data: [DONE]\n\n")


def bench(*arguments):
    return subprocess.run([BLOCKZERO, "bench", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


class AgainstServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(BLOCKZERO, "--threads", "1", "--max-num-seqs", "8")
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def run_ok(self, *arguments, in_len=24):
        done = bench(*arguments, "--url", self.url, "--in-len", str(in_len), "--out-len", "6")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_single(self):
        done = self.run_ok("single", "--rounds", "3")
        self.assertIn("round 3", done.stdout)
        self.assertIn("first token, ms", done.stdout)
        self.assertIn("1 of 1 requests", done.stderr)

    def test_batch(self):
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "run")
            done = self.run_ok("batch", "--concurrency", "1,4", "--seed-offset", "42", "--json", "--save", name)
            report = json.loads(done.stdout)
            with open(name + ".json", encoding="utf-8") as f:
                self.assertEqual(json.load(f), report)
            self.assertEqual(xml.dom.minidom.parse(name + ".svg").documentElement.tagName, "svg")
        self.assertTrue(report["exact_prompts"])
        self.assertEqual([level["concurrency"] for level in report["levels"]], [1, 4])
        for level in report["levels"]:
            self.assertEqual((level["requests"], level["failed"]), (2 * level["concurrency"], 0))
            self.assertEqual(level["prompt_tokens"], 24 * level["requests"])
            self.assertEqual(level["output_tokens"], 6 * level["requests"])
            for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
                times = level[name]
                self.assertTrue(0 < times["p50"] <= times["p90"] <= times["p99"] <= times["max"], level)
            self.assertLessEqual(level["ttft_ms"]["p50"], level["e2e_ms"]["p50"])

    def test_other_seeds_are_other_prompts(self):
        def computed(seed):
            before = self.server.metric("prompt_tokens_total")
            self.run_ok("batch", "--concurrency", "1", "--requests", "1", "--seed-offset", seed, in_len=150)
            return self.server.metric("prompt_tokens_total") - before
        self.assertEqual(computed("1000"), 150)
        self.assertEqual(computed("2000"), 150)
        self.assertLess(computed("1000"), 150)  # the prefix cache knows it

    def test_requests_that_fail_are_said(self):
        done = bench("single", "--url", self.url, "--rounds", "1", "--in-len", "8", "--out-len", "900000")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("1 of 1 requests failed", done.stderr)
        self.assertIn("max_tokens", done.stderr)


class AgainstOthers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PlainOpenAI)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_address[1]}"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def test_a_server_with_nothing_but_the_api(self):
        done = bench("batch", "--url", self.url + "/v1/", "--concurrency", "3", "--in-len", "5", "--out-len", "4", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("words", done.stderr)
        level = json.loads(done.stdout)["levels"][0]
        self.assertEqual((level["output_tokens"], level["failed"]), (24, 0))

    def test_a_server_whose_json_is_odd_neither_hangs_nor_ends_the_client(self):
        done = bench("single", "--url", self.url, "--rounds", "1", "--in-len", "5", "--out-len", "5", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["levels"][0]["output_tokens"], 5)
        done = bench("single", "--url", self.url + "/odd")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("/v1/models", done.stderr)

    def test_an_error_inside_the_stream(self):
        done = bench("single", "--url", self.url, "--in-len", "5", "--out-len", "99", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("too hot", done.stderr)

    def test_bad_options(self):
        for part, arguments in [
            ("https", ["single", "--url", "https://x"]),
            ("no server", ["single", "--url", "http://127.0.0.1:1"]),
            ("--rounds", ["single", "--rounds", "0"]),
            ("--concurrency", ["batch", "--concurrency", "4,none"]),
            ("subcommand", []),
            ("--save", ["single", "--url", self.url, "--out-len", "2", "--save", "/nowhere/at/all"]),
        ]:
            with self.subTest(part):
                done = bench(*arguments)
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                self.assertEqual((done.returncode, len(errors)), (2, 1), done.stderr)
                self.assertIn(part, errors[0])
                self.assertEqual(done.stdout, "")  # nothing was measured


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    BLOCKZERO = sys.argv.pop(1)
    unittest.main()
