"""A `blockzero serve` process on a free loopback port, for tests: started, waited for, and always ended."""
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

PATIENCE = float(os.environ.get("BLOCKZERO_TEST_PATIENCE", "60"))  # seconds for anything


def model_path():
    folder = os.environ.get("BLOCKZERO_MODEL_DIR") or os.path.expanduser("~/.cache/blockzero/models")
    path = os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.exists(path):
        raise SystemExit(f"{path} is missing (./dev demo fetches it; BLOCKZERO_MODEL_DIR names its folder)")
    return path


class ServerProcess:
    def __init__(self, blockzero, *options, env=None):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        command = [blockzero, "serve", model_path(), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.kill()
            raise

    def _wait_for_port(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = re.search(r"serving .* at http://[^:]+:(\d+)/", self.read_log())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError("the server did not start:\n" + self.read_log())

    def read_log(self):
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()

    def stop(self, number=signal.SIGTERM):
        """Sends the signal and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()

    # --- requests ---

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def request(self, method, path, body=None, headers=None):
        """(status, parsed or plain body). `body`: bytes as they are, anything else as JSON."""
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            data = response.read()
            is_json = response.getheader("Content-Type", "").startswith("application/json")
            return response.status, json.loads(data) if is_json else data.decode()
        finally:
            connection.close()

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def get(self, path, headers=None):
        return self.request("GET", path, None, headers)

    def stream(self, path, body):
        """The events of a streamed answer, [DONE] checked and left out."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("Content-Type").startswith("text/event-stream")
            events = response.read().decode().split("\n\n")
        finally:
            connection.close()
        assert events[-1] == "" and events[-2] == "data: [DONE]", events[-2:]
        assert all(event.startswith("data: ") for event in events[:-1])
        return [json.loads(event[len("data: "):]) for event in events[:-2]]

    def metric(self, name, labels=""):
        text = self.get("/metrics")[1]
        for line in text.splitlines():
            if line.startswith("blockzero:" + name + "{") and labels in line:
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name} {labels}")


def eventually(condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
