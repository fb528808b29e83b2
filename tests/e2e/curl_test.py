#!/usr/bin/env python3
"""Every curl line of README.md and docs/ works as written against a `blockzero serve` process; so do the config file of the docs and
the access log.

usage: curl_test.py BLOCKZERO
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from server_process import PATIENCE, ServerProcess, eventually

BLOCKZERO = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def curl_lines():
    return [(page.name, line) for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()
            if line.startswith("curl ")]


class Documented(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.log = pathlib.Path(cls.folder.name) / "access.jsonl"
        cls.server = ServerProcess(BLOCKZERO, "--threads", "1", "--access-log", str(cls.log))

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.folder.cleanup()

    def run_line(self, line):
        """Runs it in a shell, with this server's port; --fail turns a refusal into an exit code."""
        command = line.replace("curl ", "curl --fail ", 1).replace("localhost:8000", f"127.0.0.1:{self.server.port}")
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_every_line(self):
        lines = curl_lines()
        self.assertGreater(len(lines), 10)
        for page, line in lines:
            with self.subTest(f"{page}: {line}"):
                answer = self.run_line(line)
                if '"stream":true' in line:
                    self.assertTrue(answer.endswith("data: [DONE]\n\n"), answer)
                elif "/metrics" in line:
                    self.assertIn("blockzero:null_block_clean", answer)
                else:
                    self.assertIsInstance(json.loads(answer), dict)

    def test_every_route_is_documented(self):
        text = " ".join(line for _, line in curl_lines())
        source = (ROOT / "src/server/routes.cc").read_text(encoding="utf-8")
        routes = set(re.findall(r'\{"(/[^"]*)", "(?:GET|POST)"', source)) - {"/", "/v1/models/"}
        self.assertGreater(len(routes), 8)
        for route in routes:
            self.assertRegex(text, f"localhost:8000{re.escape(route)}( |$)")

    def test_the_access_log_has_a_line_for_each_answer(self):
        status, answer = self.server.post("/v1/completions", {"prompt": "One two", "max_tokens": 3, "temperature": 0},
                                          {"X-Request-Id": "from-the-test"})
        self.assertEqual(status, 200)

        def record():
            lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
            return next((line for line in lines if line["id"] == "from-the-test"), None)
        self.assertTrue(eventually(record))
        for name, value in {"method": "POST", "path": "/v1/completions", "status": 200, "cut_off": False,
                            "completion_tokens": 3,
                            "prompt_tokens": answer["usage"]["prompt_tokens"]}.items():
            self.assertEqual(record()[name], value)
        self.assertGreaterEqual(record()["ms"] * 1000, record()["first_token_us"])


class ConfigFile(unittest.TestCase):
    def write(self, text):
        file = tempfile.NamedTemporaryFile("w", suffix=".conf")
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return file.name

    def test_the_documented_one(self):
        text = (ROOT / "docs/server.md").read_text(encoding="utf-8").split("# serve.conf\n")[1].split("```")[0]
        text = text.replace("/var/log/blockzero/access.jsonl", tempfile.gettempdir() + "/bz_config_test.jsonl")
        server = ServerProcess(BLOCKZERO, "--threads", "1", "--config", self.write(text))  # --port 0 wins over it
        self.addCleanup(server.kill)
        self.assertNotEqual(server.port, 8000)
        allowed = server.get("/health", {"Origin": "https://app.example"})
        self.assertEqual(allowed[0], 200)
        self.assertEqual(server.get("/health", {"Origin": "https://other.example"})[0], 403)
        self.assertEqual(server.metric("kv_cache_bytes") // (1 << 30), 1)  # just under 2 GiB

    def test_unknown_keys_are_one_line(self):
        done = subprocess.run([BLOCKZERO, "serve", "x.gguf", "--config", self.write("prot = 1\n")], capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        self.assertIn("'prot'", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    BLOCKZERO = sys.argv.pop(1)
    unittest.main()
