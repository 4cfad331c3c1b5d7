"""A rolling restart of two plain servers behind Debian's haproxy, by deploy/haproxy_replicas.cfg."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import clients
import load
import paths

N_REQUESTS = int(os.environ.get("RAY_REQUESTS", "300"))
BINARY = os.environ.get("RAY_SERVER", str(paths.ROOT / "build" / "lowkey"))


class Server:
    def __init__(self, port: int) -> None:
        self._port = port
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [BINARY, "serve", "--json", "--profile", "none", "--threads", "1", "--drain-delay", "2",
             "--port", str(self._port), "--model", str(paths.ROOT / "models" / "tales")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        json.loads(self.process.stdout.readline())

    def stop(self) -> int:
        """Returns the exit code of a server that drained."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(clients.LONG_S)
        self.process.stdout.close()
        return code


@unittest.skipUnless(shutil.which("haproxy"), "there is no haproxy")
class RollingRestart(unittest.TestCase):
    def setUp(self) -> None:
        self.port, *ports = clients.free_ports(3)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.servers = {}
        for name, port in zip(("one", "two"), ports):
            self.servers[name] = Server(port)
            self.addCleanup(self.servers[name].stop)
        text = (paths.ROOT / "deploy" / "haproxy_replicas.cfg").read_text()
        for written, used in (("127.0.0.1:8080", f"127.0.0.1:{self.port}"),
                              ("127.0.0.1:50051", f"127.0.0.1:{ports[0]}"),
                              ("127.0.0.1:50052", f"127.0.0.1:{ports[1]}"),
                              ("/run/haproxy/lowkey.sock", str(self.folder / "socket"))):
            self.assertIn(written, text)
            text = text.replace(written, used)
        (self.folder / "haproxy.cfg").write_text(text)
        balancer = subprocess.Popen(["haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")])
        self.addCleanup(balancer.wait)
        self.addCleanup(balancer.terminate)
        clients.wait_for(lambda: all(self.is_up(name) for name in self.servers), "both are up")

    def tell(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / "socket"))
            connection.sendall(command.encode() + b"\n")
            answer = b""
            while part := connection.recv(65536):
                answer += part
        return answer.decode()

    def is_up(self, name: str) -> bool:
        if not (self.folder / "socket").exists():
            return False
        rows = [line.split(",") for line in self.tell("show stat").splitlines()]
        states = {row[1]: row[17] for row in rows if len(row) > 17 and row[0] == "lowkey"}
        return states.get(name, "").startswith("UP")

    def test_nothing_is_lost(self) -> None:
        n_restarts = 0
        with load.Load(self.port, self.port, n_tokens=60) as running:
            while running.outcomes.total() < N_REQUESTS:
                for name, server in self.servers.items():
                    self.assertEqual(0, server.stop())
                    server.start()
                    clients.wait_for(lambda: self.is_up(name), f"{name} is up again")
                n_restarts += 1
                running.wait(8)
        print(f"\n{n_restarts} restarts of both servers: {dict(running.outcomes)}", flush=True)
        self.assertEqual({load.SAME: running.outcomes.total()}, dict(running.outcomes), running.details)


if __name__ == "__main__":
    unittest.main()
