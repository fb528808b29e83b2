#!/usr/bin/env python3
"""The `openai` Python client against a real server process: completes, chats and streams, sync and async.

usage: openai_client_test.py BLOCKZERO       exit code 77: the client is not installed
"""
import asyncio
import sys
import unittest

try:
    import openai
except ImportError:
    print("skipped: the Python package 'openai' is not installed")
    sys.exit(77)

from server_process import ServerProcess

BLOCKZERO = ""
PROMPT = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 24, "temperature": 0}


class OpenAIClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(BLOCKZERO, "--api-key", "secret")
        settings = {"base_url": f"http://127.0.0.1:{cls.server.port}/v1", "api_key": "secret", "max_retries": 0}
        cls.client = openai.OpenAI(**settings)
        cls.settings = settings

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.stop()
        cls.server.kill()
        assert code == 0, code

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["smollm2"])
        self.assertEqual(self.client.models.retrieve("smollm2").id, "smollm2")

    def test_completes(self):
        answer = self.client.completions.create(**PROMPT)
        self.assertIn(" Paris", answer.choices[0].text)
        self.assertEqual(answer.usage.total_tokens, 9)

    def test_completes_as_a_stream(self):
        text = "".join(event.choices[0].text for event in self.client.completions.create(**PROMPT, stream=True))
        self.assertIn(" Paris", text)

    def test_chats(self):
        answer = self.client.chat.completions.create(**CHAT)
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_chats_as_a_stream(self):
        text, usage = "", None
        for event in self.client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}):
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.delta.content or ""
        self.assertIn("Paris", text)
        self.assertGreater(usage.completion_tokens, 0)

    def test_choices(self):
        answer = self.client.completions.create(**{**PROMPT, "temperature": 1, "max_tokens": 12}, n=3, seed=5)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertEqual(len({c.text for c in answer.choices}), 3)
        alone = [self.client.completions.create(**{**PROMPT, "temperature": 1, "max_tokens": 12}, seed=5 + i)
                 for i in range(3)]
        self.assertEqual([c.text for c in answer.choices], [a.choices[0].text for a in alone])
        self.assertEqual(answer.usage.prompt_tokens, 5)
        best = self.client.completions.create(**{**PROMPT, "temperature": 1, "max_tokens": 12}, best_of=3, seed=5,
                                              logprobs=0)
        mean = lambda scores: sum(scores.token_logprobs) / len(scores.token_logprobs)
        scored = [self.client.completions.create(**{**PROMPT, "temperature": 1, "max_tokens": 12}, seed=5 + i,
                                                 logprobs=0).choices[0] for i in range(3)]
        self.assertEqual(best.choices[0].text, max(scored, key=lambda c: mean(c.logprobs)).text)
        texts = ["", "", ""]
        for event in self.client.completions.create(**{**PROMPT, "temperature": 1, "max_tokens": 12}, n=3, seed=5,
                                                    stream=True):
            for choice in event.choices:
                texts[choice.index] += choice.text
        self.assertEqual(texts, [c.text for c in answer.choices])

    def test_logprobs(self):
        answer = self.client.completions.create(**PROMPT, logprobs=3, echo=True)
        choice = answer.choices[0]
        scores = choice.logprobs
        self.assertTrue(choice.text.startswith(PROMPT["prompt"]))
        self.assertEqual("".join(scores.tokens), choice.text)
        self.assertIsNone(scores.token_logprobs[0])
        for token, logprob, top, offset in list(zip(scores.tokens, scores.token_logprobs, scores.top_logprobs,
                                                    scores.text_offset))[1:]:
            self.assertLessEqual(logprob, 0)
            self.assertEqual(top[token], logprob)
            self.assertEqual(choice.text[offset:offset + len(token)], token)
        for token, top in list(zip(scores.tokens, scores.top_logprobs))[-PROMPT["max_tokens"]:]:
            self.assertEqual(token, max(top, key=top.get))  # greedy
        chat = self.client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2)
        content = chat.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(t.bytes) for t in content).decode(), chat.choices[0].message.content)
        self.assertEqual([t.token for t in content], [t.top_logprobs[0].token for t in content])

    def test_penalties(self):
        ask = {**PROMPT, "max_tokens": 48, "logprobs": 0}
        plain = self.client.completions.create(**ask).choices[0].logprobs.tokens
        answer = self.client.completions.create(**ask, frequency_penalty=2, presence_penalty=2,
                                                extra_body={"repetition_penalty": 1.5, "ignore_eos": True})
        tokens = answer.choices[0].logprobs.tokens
        self.assertEqual(len(tokens), 48)
        self.assertGreater(len(set(tokens)), len(set(plain)))  # it repeats itself less

    def test_async(self):
        async def ask():
            async with openai.AsyncOpenAI(**self.settings) as client:
                plain = await asyncio.gather(*(client.chat.completions.create(**CHAT) for _ in range(4)))
                text = ""
                async for event in await client.completions.create(**PROMPT, stream=True):
                    text += event.choices[0].text
                return [p.choices[0].message.content for p in plain], text
        chats, text = asyncio.run(ask())
        for chat in chats:
            self.assertIn("Paris", chat)
        self.assertIn(" Paris", text)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.completions.create(**{**PROMPT, "model": "other"})
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(**{**PROMPT, "max_tokens": -1})
        self.assertEqual(caught.exception.param, "max_tokens")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(**{**self.settings, "api_key": "wrong"}).models.list()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    BLOCKZERO = sys.argv.pop(1)
    unittest.main()
