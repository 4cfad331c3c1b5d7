"""lowkey.v1 for Ray's gRPC servers, which find `add_lowkey` by its name.

Messages pass as bytes. Two things that Ray's proxy drops are carried along: what is left of a call's
deadline goes to the replica as metadata, and trailers of a failed call come back in its details.
"""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from lowkey_ray.calls import Trailers

# Each service's methods, and whether they stream. Admin is left out: its methods are for one server,
# and Drain would end whichever happened to be asked.
METHODS = {
    "lowkey.v1.Generation": {"Generate": False, "GenerateStream": True, "Score": False,
                             "Tokenize": False, "Detokenize": False},
    "lowkey.v1.Models": {"ListModels": False, "GetModel": False},
}
DEADLINE_KEY = "lowkey-deadline-s"
# Between details and trailers; lowkey's details have no control characters.
SEPARATOR = "\x00"


def pack_details(details: str, trailers: Trailers) -> str:
    if not trailers:
        return details
    values = [[key, base64.b64encode(value.encode() if isinstance(value, str) else value).decode()]
              for key, value in trailers]
    return details + SEPARATOR + json.dumps(values)


def unpack_details(packed: str) -> tuple[str, Trailers]:
    details, _, text = packed.partition(SEPARATOR)
    try:
        values = [(key, base64.b64decode(value)) for key, value in json.loads(text)] if text else []
    except ValueError:  # Ray cuts details that are long
        values = []
    return details, tuple((key, value if key.endswith("-bin") else value.decode())
                          for key, value in values)


def add_lowkey(_servicer: object, server: grpc.Server) -> None:
    """Registers the methods. Ray's server puts its own functions in the place of these."""
    for service, methods in METHODS.items():
        handlers: dict[str, Any] = {name: _Handler(*(_STREAM if streams else _UNARY)(_unused))
                                    for name, streams in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


def _unused(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    raise NotImplementedError


_UNARY: Any = grpc.unary_unary_rpc_method_handler
_STREAM: Any = grpc.unary_stream_rpc_method_handler
_Plain: Any = type(grpc.unary_unary_rpc_method_handler(_unused))


class _Handler(_Plain):  # type: ignore[misc]
    """A handler whose functions, Ray's included, get a _Context."""

    def _replace(self, **fields: Any) -> "_Handler":
        for name, wrap in (("unary_unary", _wrap_unary), ("unary_stream", _wrap_stream)):
            if name in fields:
                fields[name] = wrap(fields[name])
        replaced: _Handler = super()._replace(**fields)
        return replaced


def _wrap_unary(function: Callable[..., Awaitable[bytes]]) -> Callable[..., Awaitable[bytes]]:
    async def unary(request: bytes, context: Any) -> bytes:
        return await function(request, _Context(context))
    return unary


def _wrap_stream(function: Callable[..., AsyncIterator[bytes]]) -> Callable[..., AsyncIterator[bytes]]:
    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for message in function(request, _Context(context)):
            yield message
    return stream


class _Context:
    """A servicer's context that tells its deadline, and finds trailers in its details."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def invocation_metadata(self) -> list[tuple[str, str | bytes]]:
        pairs = [(key, value) for key, value in self._context.invocation_metadata() or ()
                 if key != DEADLINE_KEY]
        left_s = self._context.time_remaining()
        return pairs if left_s is None else [*pairs, (DEADLINE_KEY, f"{left_s:.3f}")]

    def set_details(self, packed: str) -> None:
        details, trailers = unpack_details(packed)
        self._context.set_details(details)
        if trailers:
            self._context.set_trailing_metadata((*self._context.trailing_metadata(), *trailers))
