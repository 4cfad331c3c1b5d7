"""Lets Ray's proxy for HTTP send a request's body to the gateway together with its head.

Ray by itself sends the head alone, and the gateway asks the proxy for the body, by a call that the
first token waits for. Ray finds `middlewares` by the variable in ray.env. HAProxy's gateways listen
themselves and have no proxy.
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowkey_ray.calls import MAX_BODY_BYTES

BODY = "lowkey.body"  # in the scope of a request


class WithBody:
    """Reads bodies before the proxy sees the request. One that is too large, or that its client
    breaks off, is left to the gateway."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        size = 0
        while size <= MAX_BODY_BYTES and (not read or read[-1].get("more_body")):
            read.append(await receive())
            size += len(read[-1].get("body", b""))
        if size <= MAX_BODY_BYTES and read[-1]["type"] == "http.request":
            scope = {**scope, BODY: b"".join(message.get("body", b"") for message in read)}
            read = [{"type": "http.request", "body": b"", "more_body": False}]

        async def rest() -> Message:
            return read.pop(0) if read else await receive()

        await self._app(scope, rest, send)


def middlewares() -> list[Middleware]:
    return [Middleware(WithBody)]
