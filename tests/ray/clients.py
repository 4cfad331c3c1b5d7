"""Clients of OpenAI's API and of lowkey.v1."""

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

import grpc

# Nothing may take longer.
LONG_S = 300

# A proxy of the environment would get what is for 127.0.0.1.
for name in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy"):
    os.environ.pop(name, None)
    os.environ.pop(name.upper(), None)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = LONG_S) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {timeout_s} s")
        time.sleep(0.5)


def completion(prompt: str, n_tokens: int, seed: int = 1, model: str = "tales") -> dict[str, object]:
    return {"model": model, "prompt": prompt, "max_tokens": n_tokens, "seed": seed,
            "temperature": 1, "ignore_eos": True}


def request(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
    with contextlib.closing(connection):
        connection.request(method, path, data, {"content-type": "application/json"} if data else {})
        answer = connection.getresponse()
        return answer.status, answer.read()


class Events:
    """A stream of events over HTTP."""

    def __init__(self, port: int, body: dict[str, object]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
        self._connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}),
                                 {"content-type": "application/json"})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def __iter__(self) -> Iterator[str]:
        """Yields the data of events."""
        for line in self._answer:
            if line.startswith(b"data: "):
                yield line[6:].strip().decode()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


@contextlib.contextmanager
def channel(port: int) -> Iterator[grpc.Channel]:
    # Channels to one address share a connection unless they are told not to.
    with grpc.insecure_channel(f"127.0.0.1:{port}",
                               options=[("grpc.use_local_subchannel_pool", 1)]) as opened:
        yield opened


def unary(port: int, method: str, message: bytes) -> bytes:
    with channel(port) as opened:
        answer: bytes = opened.unary_unary(method)(message, timeout=LONG_S)
        return answer


def stream(port: int, method: str, message: bytes, timeout: float = LONG_S) -> list[bytes]:
    with channel(port) as opened:
        return list(opened.unary_stream(method)(message, timeout=timeout))
