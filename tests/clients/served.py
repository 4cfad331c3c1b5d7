"""Starts `lowkey serve` with the demo model for clients of OpenAI's API."""

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import tempfile
import urllib.request

# Nothing may take longer.
LONG_S = 300
# Any template will do: the demo model continues texts and was not taught conversations.
TEMPLATE = ("{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


class Server:
    """A server on a free port of 127.0.0.1. A template, if given, stands for TEMPLATE; None: that of
    the model."""

    def __init__(self, *flags, template=TEMPLATE):
        self._log = tempfile.TemporaryFile()
        self._template = ""
        if template is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as file:
                file.write(template)
            self._template = file.name
            flags = ("--chat-template", self._template, *flags)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOWKEY_")}
        command = [os.environ["CLIENTS_SERVER"], "serve", "--json", "--profile", "none",
                   "--threads", "1", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self._log, env=environment)
        is_ready = select.select([self.process.stdout], [], [], LONG_S)[0]
        line = self.process.stdout.readline() if is_ready else b""
        if not line:
            self.process.kill()
            self._log.seek(0)
            raise AssertionError(f"the server did not start: {self._log.read()}")
        ready = json.loads(line)
        self.model = ready["model"]
        self.root = f"http://127.0.0.1:{ready['port']}"
        self.url = self.root + "/v1"

    def post(self, path, body):
        """Posts as no library does it."""
        request = urllib.request.Request(self.root + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=LONG_S) as answer:
            return json.load(answer)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if os.path.exists(self._template):
            os.unlink(self._template)


@functools.cache
def shared_server():
    """The server of all tests that leave it as it is."""
    server = Server()
    atexit.register(server.stop)
    return server


def without_proxies():
    """Clients would send requests for 127.0.0.1 to the proxy of the environment."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]
