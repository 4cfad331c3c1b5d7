"""Lets Ray's proxy for HTTP send a small request's body to the gateway together with its head.

Ray by itself sends the head alone, and the gateway asks the proxy for the body, by a call that the
first token waits for. Ray finds `middlewares` by the variable in ray.env, and every application of
the cluster gets its requests through them: they see what they would see otherwise, and BODY in the
scope besides. With HAProxy the gateways are their own proxies, where this changes nothing.
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = "lowkey.body"  # the key in a request's scope; clients set no keys there
# Larger bodies are asked for: their prompts take far longer than the call.
MAX_BYTES = 64 * 1024


class WithBody:
    """Reads bodies of a known and small length before the proxy sees the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not 0 < _length(scope) <= MAX_BYTES:
            await self._app(scope, receive, send)
            return
        body = bytearray()
        is_whole = False
        while not is_whole and len(body) <= MAX_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # nobody is left who could be answered
            body += message.get("body", b"")
            is_whole = not message.get("more_body", False)
        read: list[Message] = [
            {"type": "http.request", "body": bytes(body), "more_body": not is_whole}]
        if is_whole:
            scope = {**scope, BODY: read[0]["body"]}

        async def read_then_receive() -> Message:
            return read.pop() if read else await receive()

        await self._app(scope, read_then_receive, send)


def _length(scope: Scope) -> int:
    """Returns what the head says of the body's length, 0 where it says nothing that is small."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 9:
            return int(value)
    return 0


def middlewares() -> list[Middleware]:
    return [Middleware(WithBody)]
