"""Starts `lowkey serve` with the demo model, and connects official clients to it."""

import atexit
import functools
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

import grpc
from lowkey.v1 import admin_pb2, admin_pb2_grpc, generation_pb2_grpc, models_pb2_grpc

# Nothing may take longer, but for generations: the server refuses deadlines that it cannot keep,
# and on a busy machine those are many.
LONG_S = 300
CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # each channel has a connection of its own
)
# A client that otherwise takes in megabytes ahead of its reader.
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536))


def eventually(condition, what):
    """Returns the first true result of `condition`."""
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.01)
    raise AssertionError(f"{what}: not so after {LONG_S} s")


class RunningServer:
    """A server on a free port of 127.0.0.1."""

    def __init__(self, *flags):
        self._flags = flags
        self._log = tempfile.TemporaryFile()
        self.port = 0
        self.process = None
        self.start()

    def start(self):
        """Starts the process; again on the same port if it ran before."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOWKEY_")}
        command = [os.environ["INTEROP_SERVER"], "serve", "--json", "--profile", "none",
                   "--threads", "1", "--max-wait", "3600", "--port", str(self.port),
                   *self._flags]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self._log, env=environment)
        is_ready = select.select([self.process.stdout], [], [], LONG_S)[0]
        line = self.process.stdout.readline() if is_ready else b""
        if not line:
            self.process.kill()
            raise AssertionError(f"the server did not start: {self.log()}")
        self.port = json.loads(line)["port"]

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def log(self):
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def channel(self, *options, **arguments):
        return grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS + options, **arguments)

    def aio_channel(self, *options):
        return grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS + options)

    def stats(self):
        with self.channel() as channel:
            return admin_pb2_grpc.AdminStub(channel).Stats(admin_pb2.StatsRequest(),
                                                           timeout=LONG_S)

    def gauge(self, name):
        """Returns a value of the page for Prometheus, which is on the same port."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.address}/metrics", timeout=LONG_S) as answer:
            text = answer.read().decode()
        return float(re.search(rf"^{name}{{.*}} (.*)$", text, re.M)[1])

    def await_idle(self):
        """Returns the counters once no request runs or waits."""
        def idle():
            stats = self.stats()
            return None if stats.running_requests or stats.waiting_requests else stats
        return eventually(idle, "no request runs")

    def signal(self, number):
        self.process.send_signal(number)

    def exit_code(self):
        return self.process.wait(LONG_S)

    def stop(self):
        """Ends the process at once, if it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._log.close()


@functools.cache
def shared_server():
    """The server of all tests that leave it as it is."""
    server = RunningServer()
    atexit.register(server.stop)
    return server


class InteropTest(unittest.TestCase):
    """A test with a channel to the shared server."""

    def setUp(self):
        self.server = shared_server()
        self.channel = self.open_channel()
        self.generation = generation_pb2_grpc.GenerationStub(self.channel)
        self.models = models_pb2_grpc.ModelsStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)

    def open_channel(self, *options, **arguments):
        channel = self.server.channel(*options, **arguments)
        self.addCleanup(channel.close)
        return channel

    def assert_fails(self, code, call):
        """Returns the error of `call()`, which must have this code."""
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        return raised.exception

    def assert_channel_works(self, channel=None):
        stub = admin_pb2_grpc.AdminStub(channel or self.channel)
        self.assertTrue(stub.Stats(admin_pb2.StatsRequest(), timeout=LONG_S).version)


def start_for(test, *flags):
    """Starts a server that ends with the test."""
    server = RunningServer(*flags)
    test.addCleanup(server.stop)
    return server


def stop_by_signal(server):
    server.signal(signal.SIGTERM)
    return server.exit_code()
