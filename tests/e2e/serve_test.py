#!/usr/bin/env python3
"""`blockzero serve` with a real model: answers, streams, bad input, clients that leave, signals.

usage: serve_test.py BLOCKZERO
"""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from server_process import PATIENCE, ServerProcess, eventually, model_path

BLOCKZERO = ""
PARIS = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(BLOCKZERO, "--null-guard", "hard")

    @classmethod
    def tearDownClass(cls):
        log = cls.server.read_log()
        code = cls.server.stop()
        cls.server.kill()
        assert code == 0, f"exit {code}\n{log}"

    def tearDown(self):
        # Whatever a test did: nothing is left running, and the null block is clean.
        self.assertTrue(eventually(lambda: self.server.metric("num_requests_running") == 0))
        status, health = self.server.get("/health")
        self.assertEqual(status, 200, health)
        self.assertIs(health["null_block_clean"], True)

    def complete(self, **fields):
        status, answer = self.server.post("/v1/completions", {**PARIS, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def assert_refused(self, status, param, path, body, headers=None):
        got, answer = self.server.post(path, body, headers)
        self.assertEqual(got, status, answer)
        error = answer["error"]
        self.assertEqual(error["param"], param, answer)
        self.assertTrue(error["message"])
        return error


class Answers(Serving):
    def test_paris(self):
        answer = self.complete()
        self.assertIn(" Paris", answer["choices"][0]["text"])
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        usage = answer["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]), (5, 4, 9))

    @unittest.skipUnless(shutil.which("curl"), "needs curl")
    def test_the_documented_curl_line(self):
        line = ("curl -s localhost:8000/v1/completions -d '{\"model\":\"smollm2\",\"prompt\":\"The capital of France is\","
                "\"max_tokens\":4,\"temperature\":0}'")
        line = line.replace("localhost:8000", f"localhost:{self.server.port}")
        out = subprocess.run(line, shell=True, capture_output=True, timeout=PATIENCE, check=True).stdout
        self.assertIn(" Paris", json.loads(out)["choices"][0]["text"])

    def test_eight_at_once(self):
        alone = self.complete(max_tokens=12)["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.complete(max_tokens=12), range(8)))
        for answer in answers:
            self.assertEqual(answer["choices"][0]["text"], alone)
        self.assertIn(" Paris", alone)

    def test_a_stream_is_the_plain_answer_in_pieces(self):
        plain = self.complete(max_tokens=16)["choices"][0]["text"]
        events = self.server.stream("/v1/completions",
                                    {**PARIS, "max_tokens": 16, "stream_options": {"include_usage": True}})
        self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), plain)
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 16)

    def test_prompts_as_text_and_as_tokens(self):
        text = self.complete()["choices"][0]["text"]
        _, tokens = self.server.post("/tokenize", {"prompt": PARIS["prompt"]})
        self.assertEqual(tokens["count"], 5)
        answer = self.complete(prompt=[tokens["tokens"], PARIS["prompt"]])
        self.assertEqual([c["text"] for c in answer["choices"]], [text, text])
        _, back = self.server.post("/detokenize", {"tokens": tokens["tokens"]})
        self.assertEqual(back["prompt"], PARIS["prompt"])

    def test_chat(self):
        body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24,
                "temperature": 0}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        message = answer["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        self.assertIn("Paris", message["content"])
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")  # the model ends its turn
        events = self.server.stream("/v1/chat/completions", body)
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events), message["content"])

    def test_ignore_eos_goes_on(self):
        body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 40,
                "temperature": 0, "ignore_eos": True}
        _, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["completion_tokens"], 40)

    def test_stop_strings_and_tokens(self):
        whole = self.complete(max_tokens=16)["choices"][0]["text"]
        stop = whole[5:9]  # across tokens
        choice = self.complete(max_tokens=16, stop=stop)["choices"][0]
        self.assertEqual(choice["text"], whole[:whole.index(stop)])
        self.assertEqual(choice["finish_reason"], "stop")
        _, tokens = self.server.post("/tokenize", {"prompt": " Paris"})
        choice = self.complete(stop_token_ids=tokens["tokens"])["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]), ("", "stop"))

    def test_seeds(self):
        def text(seed):
            return self.complete(max_tokens=16, temperature=1.5, seed=seed)["choices"][0]["text"]
        self.assertEqual(text(1), text(1))
        self.assertNotEqual(text(1), text(2))

    def test_models(self):
        _, models = self.server.get("/v1/models")
        self.assertEqual([m["id"] for m in models["data"]], ["smollm2"])

    def test_the_page(self):
        status, page = self.server.get("/")
        self.assertEqual(status, 200)
        self.assertIn("<!doctype html>", page)


    def test_a_second_turn_computes_only_what_is_new(self):
        prompt = "A list of the first numbers: " + ", ".join(str(i) for i in range(150))
        first = self.complete(prompt=prompt)
        again = self.complete(prompt=prompt)
        self.assertEqual(again["choices"], first["choices"])
        details = again["usage"]["prompt_tokens_details"]
        self.assertGreater(details["cached_tokens"], again["usage"]["prompt_tokens"] // 2)


class BadInput(Serving):
    def test_each_names_its_field_and_harms_nobody(self):
        deep = b'{"prompt":' + b"[" * 100_000
        cases = {
            "malformed JSON": (400, None, b'{"prompt":'),
            "no object": (400, None, b"[]"),
            "empty body": (400, None, b""),
            "NaN": (400, None, b'{"prompt":"x","temperature":NaN}'),
            "number out of range": (400, None, b'{"prompt":"x","temperature":1e999}'),
            "deep JSON": (400, None, deep),
            "invalid UTF-8": (400, None, b'{"prompt":"\xff\xfe"}'),
            "a lone surrogate": (400, None, b'{"prompt":"\\ud800"}'),
            "prompt missing": (400, "prompt", {"max_tokens": 4}),
            "prompt of a wrong type": (400, "prompt", {"prompt": {"a": 1}}),
            "prompt of wrong nesting": (400, "prompt", {"prompt": [[[1]]]}),
            "prompt empty": (400, "prompt", {"prompt": ""}),
            "prompt with a token id outside": (400, "prompt", {"prompt": [1, 49152]}),
            "prompt over the context": (400, "prompt", {"prompt": [5] * 8192}),
            "text over the context": (400, "prompt", {"prompt": "one two three " * 4000}),
            "max_tokens negative": (400, "max_tokens", {"prompt": "x", "max_tokens": -1}),
            "max_tokens huge": (400, "max_tokens", {"prompt": "x", "max_tokens": 10**30}),
            "max_tokens over what is left": (400, "max_tokens", {"prompt": "x", "max_tokens": 8192}),
            "max_tokens of a wrong type": (400, "max_tokens", {"prompt": "x", "max_tokens": "4"}),
            "temperature": (400, "temperature", {"prompt": "x", "temperature": -1}),
            "response_format": (400, "response_format", {"prompt": "x", "response_format": {"json_object": False}}),
            "n": (400, "n", {"prompt": "x", "n": 0}),
            "unknown model": (404, "model", {"prompt": "x", "model": "gpt-5"}),
        }
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            good = pool.submit(self.complete, max_tokens=32)  # meanwhile
            for name, (status, param, body) in cases.items():
                with self.subTest(name):
                    self.assert_refused(status, param, "/v1/completions", body)
            self.assertIn(" Paris", good.result(PATIENCE)["choices"][0]["text"])
        self.assertIn(" Paris", self.complete()["choices"][0]["text"])

    def test_the_context_error_says_how_long_and_the_limit(self):
        error = self.assert_refused(400, "prompt", "/v1/completions", {"prompt": [5] * 9000})
        self.assertIn("9000", error["message"])
        self.assertIn("8192", error["message"])

    def test_chat(self):
        for name, param, body in [
            ("messages missing", "messages", {}),
            ("messages empty", "messages", {"messages": []}),
            ("role missing", "messages[0].role", {"messages": [{"content": "x"}]}),
            ("content of a wrong type", "messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
        ]:
            with self.subTest(name):
                self.assert_refused(400, param, "/v1/chat/completions", body)

    def test_a_foreign_origin(self):
        self.assert_refused(403, None, "/v1/completions", PARIS, {"Origin": "https://evil.example"})

    def test_a_100_megabyte_body(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n")
            try:
                for _ in range(100):
                    s.sendall(b"x" * (1 << 20))
            except ConnectionError:
                pass  # the answer is still there to read
            self.assertIn(b" 413 ", s.recv(1000).split(b"\r\n")[0])

    def test_pipelined_garbage(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as s:
            s.sendall(b"GET /health HTTP/1.1\r\n\r\n\x00\x01\x02\r\n\r\n")
            data = b""
            while chunk := s.recv(65536):
                data += chunk
        self.assertEqual(data.count(b"HTTP/1.1 200 "), 1)
        self.assertEqual(data.count(b"HTTP/1.1 400 "), 1)


class Leaving(Serving):
    def test_clients_that_leave_are_cancelled(self):
        for stream in (True, False):
            body = json.dumps({**PARIS, "max_tokens": 4000, "ignore_eos": True, "stream": stream})
            connections = []
            for _ in range(4):
                connection = self.server.connect()
                connection.request("POST", "/v1/completions", body)
                connections.append(connection)
            self.assertTrue(eventually(lambda: self.server.metric("num_requests_running") == 4))
            for connection in connections:
                connection.close()
            self.assertTrue(eventually(lambda: self.server.metric("num_requests_running") == 0))
        free, total = self.server.metric("kv_cache_blocks_free"), self.server.metric("kv_cache_blocks")
        self.assertEqual(free, total)
        self.assertIn(" Paris", self.complete()["choices"][0]["text"])


class Lives(unittest.TestCase):
    def start(self, *options):
        server = ServerProcess(BLOCKZERO, *options)
        self.addCleanup(server.kill)
        return server

    def test_sigterm_lets_running_answers_end(self):
        server = self.start()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.post, "/v1/completions", {**PARIS, "max_tokens": 64, "ignore_eos": True})
            self.assertTrue(eventually(lambda: server.metric("num_requests_running") == 1))
            server.process.send_signal(signal.SIGTERM)
            status, answer = running.result(PATIENCE)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["usage"]["completion_tokens"], 64)
        self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_the_drain_has_a_deadline(self):
        server = self.start("--drain-seconds", "0")
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**PARIS, "max_tokens": 8000, "ignore_eos": True}))
        self.assertTrue(eventually(lambda: server.metric("num_requests_running") == 1))
        self.assertEqual(server.stop(signal.SIGINT), 0)
        connection.close()

    def test_a_second_signal_ends_it_at_once(self):
        server = self.start()
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**PARIS, "max_tokens": 8000, "ignore_eos": True}))
        self.assertTrue(eventually(lambda: server.metric("num_requests_running") == 1))
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(eventually(lambda: "no new connections" in server.read_log()))
        begin = time.monotonic()
        self.assertNotEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - begin, 5)
        connection.close()

    def test_the_end_of_its_logs_reader_does_not_end_it(self):
        reading, writing = os.pipe()
        process = subprocess.Popen([BLOCKZERO, "serve", model_path(), "--port", "0", "--access-log", "-"],
                                   stdout=writing, stderr=writing)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(writing)
        log = b""
        while b"and /v1" not in log:
            log += os.read(reading, 4096)
        os.close(reading)
        port = int(re.search(rb"http://[^:]+:(\d+)/", log).group(1))
        for _ in range(2):  # the first answer's log line meets the closed pipe
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_an_access_log_on_a_full_disk_is_said_once(self):
        server = self.start("--access-log", "/dev/full")
        self.assertEqual([server.get("/health")[0] for _ in range(3)], [200, 200, 200])
        self.assertEqual(server.stop(), 0)
        self.assertEqual(server.read_log().count("warning: --access-log /dev/full: No space left"), 1)

    def test_a_cache_smaller_than_the_context_still_chats(self):
        server = self.start("--kv-cache-bytes", "6M", "--max-model-len", "1024")
        self.assertIn("the cache holds", server.read_log())
        status, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}],
                                                              "ignore_eos": True})
        self.assertEqual(status, 200, answer)
        whole = answer["usage"]["total_tokens"]
        self.assertLess(whole, 1024)
        for tokens, param in ((whole - 9, "max_tokens"), (whole, "prompt")):
            status, answer = server.post("/v1/completions", {"prompt": [100] * tokens, "max_tokens": 10})
            self.assertEqual((status, answer["error"]["param"]), (400, param))
            self.assertIn("--kv-cache-bytes", answer["error"]["message"])

    def test_api_keys(self):
        server = self.start("--api-key", "secret")
        self.assertEqual(server.post("/v1/completions", PARIS)[0], 401)
        self.assertEqual(server.post("/v1/completions", PARIS, {"Authorization": "Bearer secret"})[0], 200)
        self.assertEqual(server.get("/health")[0], 200)

    def assert_one_line(self, code, words, *arguments):
        out = subprocess.run([BLOCKZERO, "serve", *arguments], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(out.returncode, code, out.stderr)
        lines = [line for line in out.stderr.splitlines() if "error" in line]
        self.assertEqual(len(lines), 1, out.stderr)
        self.assertIn(words, lines[0])

    def test_a_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.assert_one_line(2, "--port " + port, model_path(), "--port", port)

    def test_bad_options(self):
        self.assert_one_line(2, "missing.gguf", "missing.gguf", "--port", "0")
        self.assert_one_line(2, "--host", model_path(), "--host", "256.0.0.1", "--port", "0")
        self.assert_one_line(2, "port", model_path(), "--port", "70000")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    BLOCKZERO = sys.argv.pop(1)
    unittest.main()
