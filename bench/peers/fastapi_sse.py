"""B13's peer: the same answers as our server's over the same mock engine, from FastAPI on uvicorn (with uvloop and httptools), built as
Python servers of language models are: an engine gives every running request a token a step, through a queue per request, and a
streaming response turns each into an event. The engine is a task of the same event loop, so nothing crosses threads.

fastapi_sse.py STEP_US LOOP HTTP      asyncio h11: what pip installs; uvloop httptools: uvicorn[standard]. Prints its port; ends
with its stdin
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
import time

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

STEP_SECONDS = int(sys.argv[1]) / 1e6


class MockEngine:
    def __init__(self):
        self.running = {}  # queue -> [prompt, tokens made, tokens wanted]

    def submit(self, prompt: str, max_tokens: int) -> asyncio.Queue:
        queue = asyncio.Queue()
        self.running[queue] = [prompt, 0, max_tokens]
        return queue

    async def run(self):
        due = time.monotonic()
        while True:
            for queue, state in list(self.running.items()):
                prompt, made, wanted = state
                state[1] = made + 1
                finished = made + 1 == wanted
                queue.put_nowait((prompt[made % len(prompt)], finished))
                if finished:
                    del self.running[queue]
            due = max(due + STEP_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())


engine = MockEngine()


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI):
    task = asyncio.create_task(engine.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


async def events(prompt: str, max_tokens: int):
    queue = engine.submit(prompt, max_tokens)
    finished = False
    while not finished:
        text, finished = await queue.get()
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "length" if finished else None}
        event = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "mock", "choices": [choice]}
        yield f"data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"


@app.post("/v1/completions")
async def completions(request: Request):
    body = await request.json()
    return StreamingResponse(events(body["prompt"], body["max_tokens"]), media_type="text/event-stream")


@app.get("/v1/models")
async def models():
    return {"object": "list", "data": [{"id": "mock", "object": "model"}]}


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, loop=sys.argv[2], http=sys.argv[3])
    uvicorn.Server(config).run(sockets=[listener])
