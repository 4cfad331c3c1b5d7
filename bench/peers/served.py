"""Servers as child processes, and clients that send one request after another."""
import http.client
import json
import socket
import statistics
import subprocess
import threading
import time

TOKENS_IN, TOKENS_OUT = 128, 64
READY_LIMIT_S = 900


def memory_of(pid):
    """Returns the resident memory of a process, now and at most, in MiB (mapped files included)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {"rss_mib": int(lines["VmRSS"].split()[0]) / 1024,
            "peak_rss_mib": int(lines["VmHWM"].split()[0]) / 1024}


class Server:
    """A server that runs while the `with` block does."""

    def __init__(self, command):
        self.command, self.process, self.begin = command, None, 0.0

    def __enter__(self):
        self.begin = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def memory(self):
        return memory_of(self.process.pid)

    def ready(self):
        """Waits until the server answers; returns how long that took and its memory then."""
        self.wait_until_ready()
        return {"ready_ms": 1e3 * (time.monotonic() - self.begin), **self.memory()}

    def wait_until_ready(self):
        raise NotImplementedError


class Lowkey(Server):
    address = ""

    def wait_until_ready(self):
        for line in self.process.stdout:
            if line.startswith("{") and "ready_ms" in line:
                self.address = f"127.0.0.1:{json.loads(line)['port']}"
                return
        raise OSError(f"{self.command[0]} serve: exit code {self.process.wait()}")


class LlamaServer(Server):
    def __init__(self, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        super().__init__([*command, "--host", "127.0.0.1", "--port", str(self.port),
                          "--log-disable"])

    def wait_until_ready(self):
        while time.monotonic() < self.begin + READY_LIMIT_S:
            if self.process.poll() is not None:
                raise OSError(f"{self.command[0]}: exit code {self.process.returncode}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.005)
        raise OSError(f"{self.command[0]}: not ready after {READY_LIMIT_S} s")

    def complete(self, connection, ids):
        """Generates TOKENS_OUT tokens; returns the milliseconds until the prompt was read."""
        body = json.dumps({"prompt": ids, "n_predict": TOKENS_OUT, "ignore_eos": True,
                           "temperature": 0, "cache_prompt": False})
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise OSError(f"llama-server: HTTP {answer.status}: {text[:200]!r}")
        answer = json.loads(text)
        if answer["tokens_predicted"] != TOKENS_OUT:
            raise OSError(f"llama-server: {answer['tokens_predicted']} tokens generated, "
                          f"expected {TOKENS_OUT}")


def closed_loop(server, n_clients, n_requests):
    """Runs clients that share n_requests; returns the output tokens per second of all."""
    errors, lock, left = [], threading.Lock(), list(range(n_requests))
    seconds = []

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=READY_LIMIT_S)
        try:
            while True:
                with lock:
                    if not left or errors:
                        return
                    i = left.pop()
                begin = time.monotonic()
                server.complete(connection, [(t * 7919 + i * 104729 + 3) % 30000
                                             for t in range(TOKENS_IN)])
                seconds.append(time.monotonic() - begin)
        except (OSError, http.client.HTTPException) as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise OSError(str(errors[0]))
    return {"output_tokens_per_s": n_requests * TOKENS_OUT / (time.monotonic() - begin),
            "end_to_end_p50_ms": 1e3 * statistics.median(seconds)}
