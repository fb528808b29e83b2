#!/usr/bin/env python3
"""Load on a real server process: 256 clients at once that stream, leave, send garbage and read slowly. No good request fails, each
answer is the one that its prompt gets alone, every block is back afterwards, memory stays flat, and the process ends cleanly.

usage: load_test.py BLOCKZERO [sanitized]     BLOCKZERO_LOAD_SECONDS=120 for a long run; 15 by default
"""
import asyncio
import collections
import json
import os
import random
import re
import sys
import time
import unittest

from server_process import PATIENCE, ServerProcess, eventually

BLOCKZERO = ""
SANITIZED = False
SECONDS = float(os.environ.get("BLOCKZERO_LOAD_SECONDS", "15"))
CLIENTS = 256
GROWTH_MB = 24  # of the server's resident memory, over the second half of the run

LAST_CHUNK = b"\n\n\r\n0\r\n\r\n"  # the end of the last event and of its chunk, then the empty chunk
PROMPTS = ["The capital of France is", "One, two, three,", "Once upon a time", "Water boils at", "def main():", "Q: Why?\nA:",
           "The list of planets:", "In 1969,"]


def http(body, headers=""):
    body = body if isinstance(body, bytes) else body.encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n").encode() + body


def hundred_megabytes():
    yield b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n"
    for _ in range(100):
        yield b"x" * (1 << 20)


# Name -> (pieces to send, status of the last answer).
MALFORMED = {
    'response_format {"json_object":false}': ([http('{"prompt":"x","response_format":{"json_object":false}}')], 400),
    "wrong nesting": ([http('{"prompt":[[[1]]]}')], 400),
    "brackets that cross": ([http('{"prompt":["x"}]')], 400),
    "a huge integer": ([http('{"prompt":"x","max_tokens":' + "9" * 400 + "}")], 400),
    "a huge number": ([http('{"prompt":"x","temperature":1e999}')], 400),
    "NaN": ([http('{"prompt":"x","temperature":NaN}')], 400),
    "deep JSON": ([http('{"prompt":' + "[" * 100_000)], 400),
    "invalid UTF-8": ([http(b'{"prompt":"\xff\xfe\xc0\x80"}')], 400),
    "a foreign Origin": ([http('{"prompt":"x"}', "Origin: https://evil.example\r\n")], 403),
    "pipelined garbage": ([b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n\x00\x01\x02garbage\r\n\r\n"], 400),
    "no HTTP": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"], 400),
}
RARE = {"a 100 MB body": (list(hundred_megabytes()), 413)}


class Load:
    def __init__(self, server, answers):
        self.server = server
        self.answers = answers  # (prompt, max_tokens) -> its text when alone
        self.counts = collections.Counter()
        self.bad = []  # what should not have happened
        self.end = time.monotonic() + SECONDS

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 20)

    async def client(self, number):
        dice = random.Random(number)
        while time.monotonic() < self.end:
            roll = dice.random()
            if roll < 0.1:
                await self.malformed(*dice.choice(list(MALFORMED.items())))
            elif roll < 0.2:
                await self.leave(dice)
            else:
                await self.good(dice, slow=number == 0)

    async def good(self, dice, slow=False):
        prompt, max_tokens = dice.choice(list(self.answers))
        reader, writer = await self.connect()
        writer.write(http(request(prompt, max_tokens)))
        raw = b""
        # A slow reader takes a few bytes at a time.
        while piece := await reader.read(200 if slow else 65536):
            raw += piece
            if raw.endswith(LAST_CHUNK) or not raw.startswith(b"HTTP/1.1 200"[:len(raw)]):
                break
            if slow:
                await asyncio.sleep(0.02)
        writer.close()
        self.counts["slow" if slow else "good"] += 1
        text = streamed_text(raw)
        if text != self.answers[prompt, max_tokens]:
            self.bad.append(f"{prompt!r} {max_tokens}: {text!r}, alone {self.answers[prompt, max_tokens]!r}: {raw[:200]!r}")

    async def leave(self, dice):
        reader, writer = await self.connect()
        writer.write(http(request(dice.choice(PROMPTS), 200)))
        if dice.random() < 0.7:
            for _ in range(dice.randrange(1, 12)):
                await reader.readline()
        writer.transport.abort()
        self.counts["left"] += 1

    async def malformed(self, name, case):
        pieces, status = case
        reader, writer = await self.connect()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass  # the answer is still there to read
        raw = b""
        try:
            while piece := await asyncio.wait_for(reader.read(65536), 1 if raw else PATIENCE):
                raw += piece
                if raw.count(b"HTTP/1.1 ") > name.count("pipelined") and raw.endswith(b"}"):
                    break
        except (ConnectionError, asyncio.TimeoutError):
            pass
        writer.transport.abort()
        self.counts[name] += 1
        statuses = re.findall(rb"HTTP/1.1 (\d+) ", raw)
        if not statuses or int(statuses[-1]) != status:
            self.bad.append(f"{name}: {raw[:300]!r}")

    async def watch(self):
        """Memory half way and at the end, MB; each rare case once."""
        for name, case in RARE.items():
            await self.malformed(name, case)
        await asyncio.sleep(max(0.0, self.end - SECONDS / 2 - time.monotonic()))
        half = resident_mb(self.server.process.pid)
        await asyncio.sleep(max(0.0, self.end - time.monotonic()))
        return half, resident_mb(self.server.process.pid)

    async def run(self):
        watch = asyncio.create_task(self.watch())
        await asyncio.gather(*(self.client(i) for i in range(CLIENTS)))
        return await watch


def request(prompt, max_tokens):
    # The seed: what the null device makes tokens of.
    return json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "seed": 5, "ignore_eos": True,
                       "stream": True})


def streamed_text(raw):
    """The text of a whole chunked event stream; None if it is none."""
    if not raw.startswith(b"HTTP/1.1 200 ") or not raw.endswith(LAST_CHUNK):
        return None
    chunks = raw.split(b"\r\n\r\n", 1)[1]
    body = b""
    while chunks:
        size, chunks = chunks.split(b"\r\n", 1)
        body, chunks = body + chunks[:int(size, 16)], chunks[int(size, 16) + 2:]
    events = body.decode().split("\n\n")
    if events[-2:] != ["data: [DONE]", ""]:
        return None
    return "".join(json.loads(event[6:])["choices"][0]["text"] for event in events[:-2])


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024


class LoadTest(unittest.TestCase):
    def test_no_good_request_suffers_from_bad_ones(self):
        # The null device under sanitizers: they slow the model's arithmetic down twentyfold and find nothing new there.
        device = ["--device", "null"] if SANITIZED else ["--threads", "2"]
        server = ServerProcess(BLOCKZERO, *device, "--max-num-seqs", "64", "--kv-cache-bytes", "256M", "--max-model-len", "512",
                               env={"ASAN_OPTIONS": "quarantine_size_mb=16"})
        self.addCleanup(server.kill)
        answers = {}
        for prompt in PROMPTS:
            for max_tokens in (1, 7, 24):
                status, answer = server.post("/v1/completions", {**json.loads(request(prompt, max_tokens)), "stream": False})
                self.assertEqual(status, 200, answer)
                answers[prompt, max_tokens] = answer["choices"][0]["text"]
        load = Load(server, answers)
        half, end = asyncio.run(load.run())

        self.assertEqual(load.bad[:5], [])
        done = load.counts
        print(f"{SECONDS:.0f} s: " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())) +
              f"; memory {half:.0f} MB half way, {end:.0f} MB at the end", file=sys.stderr)
        self.assertGreater(done["good"], CLIENTS)
        for name in ["left", "slow", *RARE, *(MALFORMED if SECONDS >= 10 else [])]:
            self.assertGreater(done[name], 0, name)
        self.assertLess(end - half, GROWTH_MB)
        for gauge in ("num_requests_running", "num_requests_waiting"):
            self.assertTrue(eventually(lambda name=gauge: server.metric(name) == 0), gauge)
        self.assertEqual(server.metric("kv_cache_blocks_free"), server.metric("kv_cache_blocks"))
        self.assertEqual(server.metric("requests_failed_total"), 0)
        self.assertEqual(server.metric("null_block_clean"), 1)
        self.assertEqual(server.stop(), 0, server.read_log())  # a leak would make it another number


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    BLOCKZERO = sys.argv.pop(1)
    if "sanitized" in sys.argv:
        sys.argv.remove("sanitized")
        SANITIZED = True
    unittest.main()
