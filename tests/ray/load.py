"""Streams in a loop, and what became of them."""

import collections
import http.client
import json
import threading

import grpc

import clients
import wire

PROMPTS = [f"Once upon a time there was a {animal} who" for animal in
           ("fox", "bear", "cat", "dog", "bird", "frog", "mouse", "horse")]
STREAM = "/lowkey.v1.Generation/GenerateStream"
SAME, CHANGED, UNAVAILABLE = "same", "changed", "unavailable"


class Load:
    """Clients that send one stream after another, half of them over HTTP.

    A stream is "same" if it has every token that it has on an idle server, "unavailable" if it ended
    with UNAVAILABLE, 503 or a closed connection, "changed" if it ended well with other tokens.
    """

    def __init__(self, http_port: int, grpc_port: int, n_clients: int = 4,
                 n_tokens: int = 100) -> None:
        self._http_port = http_port
        self._grpc_port = grpc_port
        self._n_tokens = n_tokens
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.details: set[str] = set()  # of streams that were not the same
        self._expected = [self._over_grpc(index)[1] for index in range(len(PROMPTS))]
        self._threads = [threading.Thread(target=self._run, args=(index,), daemon=True)
                         for index in range(n_clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(clients.LONG_S)

    def wait(self, n_more: int) -> None:
        """Returns after so many further streams."""
        until = self.outcomes.total() + n_more
        clients.wait_for(lambda: self.outcomes.total() >= until, f"{n_more} streams")

    def _run(self, client: int) -> None:
        number = client
        while not self._ended.is_set():
            number += 1
            index = number % len(PROMPTS)
            outcome, text = (self._over_http if client % 2 else self._over_grpc)(index)
            if outcome == SAME and text != self._expected[index]:
                outcome = CHANGED
            with self._lock:
                self.outcomes[outcome] += 1
                if outcome != SAME:
                    self.details.add(f"{outcome}: {text:.200}")

    def _over_grpc(self, index: int) -> tuple[str, str]:
        message = wire.generate(PROMPTS[index], self._n_tokens, seed=index)
        try:
            with clients.channel(self._grpc_port) as channel:
                events = channel.unary_stream(STREAM)(message, timeout=clients.LONG_S)
                return SAME, "".join(wire.event_text(event) for event in events)
        except grpc.RpcError as error:
            is_gone = error.code() is grpc.StatusCode.UNAVAILABLE
            return UNAVAILABLE if is_gone else error.code().name, f"gRPC: {error.details()}"

    def _over_http(self, index: int) -> tuple[str, str]:
        try:
            body = clients.completion(PROMPTS[index], self._n_tokens, seed=index)
            with clients.Events(self._http_port, body) as events:
                if events.status != 200:
                    return UNAVAILABLE if events.status == 503 else str(events.status), "HTTP: status"
                return self._read(events)
        except (OSError, http.client.HTTPException) as error:
            return UNAVAILABLE, f"HTTP: {error!r}"

    @staticmethod
    def _read(events: clients.Events) -> tuple[str, str]:
        text = ""
        for data in events:
            if data == "[DONE]":
                return SAME, text
            chunk = json.loads(data)
            if "error" in chunk:
                code = chunk["error"]["code"]
                return UNAVAILABLE if code == "unavailable" else code, f"HTTP: {data}"
            text += "".join(choice["text"] for choice in chunk["choices"])
        return UNAVAILABLE, "HTTP: the stream broke off"
