"""The gateway, which Ray's proxies or HAProxy call: it chooses the model's deployment and passes
answers on."""

import dataclasses
import ipaddress
import json
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import grpc
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.grpc_util import RayServegRPCContext
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from lowkey_ray import bodies, prompts, services
from lowkey_ray.calls import (MAX_BODY_BYTES, Call, End, Head, HttpCall, Item, RpcCall, lost)
from lowkey_ray.replica import HOP_FIELDS

# A replica's other pages show that replica alone, or are for its operator.
PATHS = ("/v1/", "/tokenize", "/detokenize", "/tokenizer_info", "/version", "/lowkey/v1/score")
# Ray's proxy has other metadata of its own.
METADATA = ("authorization", "traceparent", "tracestate")
MAX_ATTEMPTS = 4  # of a request
Handle = DeploymentHandle[Any]
ELSEWHERE = "callers of other machines need a service with --tokens or --insecure"
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Raw(bytes):
    """A message that Ray asks to serialize itself."""

    def SerializeToString(self) -> bytes:
        return bytes(self)


class Failed(Exception):
    """A gRPC call that fails; its status is in the call's context."""


class Gateway:
    """The callable of the ingress deployment."""

    def __init__(self, models: Mapping[str, Handle], names: Mapping[str, str], is_open: bool) -> None:
        """`names` has the model of each name that requests may use. Unless it is open, callers of
        the proxies' own machines alone are answered."""
        self._models = {name: handle.options(stream=True) for name, handle in models.items()}
        self._names = dict(names)
        self._is_open = is_open

    # HTTP.

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        if not path.startswith(PATHS):
            return _error(404, "unsupported_endpoint", f"{request.method} {path}: there is no such path")
        if not self._is_open and not is_here(request.client.host if request.client else ""):
            return _error(403, "insufficient_permissions", ELSEWHERE)
        body = await _body(request)
        if body is None:
            return _error(413, "request_too_large", f"the body has over {MAX_BODY_BYTES} bytes")
        if path == "/v1/models" and len(self._models) > 1:
            return await self._list_models(request)
        reading = prompts.read_json(request.headers.get("authorization", ""), body)
        name = reading.model
        if path.startswith("/v1/models/"):
            name = urllib.parse.unquote(path.removeprefix("/v1/models/"))
        model = self._model_of(name)
        if model is None:
            return _error(404, "model_not_found",
                          f"model: {name!r:.200}, expected one of {', '.join(sorted(self._names))}")
        return await self._answer(self._models[model], _http_call(request, reading.key, body))

    async def _answer(self, handle: Handle, call: HttpCall) -> Response:
        items = _attempts(handle, "http", call)
        first = await anext(items)
        if not isinstance(first, Head):
            await items.aclose()
            return _error(503, "unavailable", first.details if isinstance(first, End) else "")
        fields = {name.lower(): value for name, value in first.headers}
        is_events = fields.get("content-type", "").startswith("text/event-stream")
        response = StreamingResponse(_body_of(first, items, is_events), status_code=first.status)
        response.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1"))
                                for name, value in first.headers]
        return response

    async def _list_models(self, request: Request) -> Response:
        """Joins the lists of all models; an error of one is the answer."""
        listed: list[Any] = []
        for handle in self._models.values():
            answer = await self._answer(handle, _http_call(request, b"", b""))
            if answer.status_code != 200 or not isinstance(answer, StreamingResponse):
                return answer
            parts = [part async for part in answer.body_iterator if isinstance(part, bytes)]
            listed += json.loads(b"".join(parts))["data"]
        return JSONResponse({"object": "list", "data": listed})

    def _model_of(self, name: str) -> str | None:
        """Returns the model of a name, or NAME@MECHANISM. A sole model judges names itself."""
        if len(self._models) == 1:
            return next(iter(self._models))
        return self._names.get(name) or self._names.get(name.rpartition("@")[0])

    # lowkey.v1. Ray finds a method by its name.

    async def Generate(self, message: bytes, grpc_context: RayServegRPCContext) -> Raw:
        return await self._unary("lowkey.v1.Generation", "Generate", message, grpc_context)

    async def Score(self, message: bytes, grpc_context: RayServegRPCContext) -> Raw:
        return await self._unary("lowkey.v1.Generation", "Score", message, grpc_context)

    async def Tokenize(self, message: bytes, grpc_context: RayServegRPCContext) -> Raw:
        return await self._unary("lowkey.v1.Generation", "Tokenize", message, grpc_context)

    async def Detokenize(self, message: bytes, grpc_context: RayServegRPCContext) -> Raw:
        return await self._unary("lowkey.v1.Generation", "Detokenize", message, grpc_context)

    async def GetModel(self, message: bytes, grpc_context: RayServegRPCContext) -> Raw:
        return await self._unary("lowkey.v1.Models", "GetModel", message, grpc_context)

    async def ListModels(self, message: bytes, grpc_context: RayServegRPCContext) -> Raw:
        self._check(grpc_context)
        call = _rpc_call("lowkey.v1.Models", "ListModels", b"", message, grpc_context)
        answers = [await _only(_attempts(handle, "rpc", call), grpc_context)
                   for handle in self._models.values()]
        return Raw(b"".join(answers))  # protobuf: messages in a row are one with all their fields

    async def GenerateStream(self, message: bytes,
                             grpc_context: RayServegRPCContext) -> AsyncIterator[Raw]:
        handle, key = self._read("GenerateStream", message, grpc_context)
        call = _rpc_call("lowkey.v1.Generation", "GenerateStream", key, message, grpc_context)
        items = _attempts(handle, "rpc", call)
        try:
            async for item in items:
                if isinstance(item, bytes):
                    yield Raw(item)
                elif isinstance(item, End) and item.code:
                    _fail(grpc_context, item)
        finally:
            await items.aclose()

    async def _unary(self, service: str, method: str, message: bytes,
                     context: RayServegRPCContext) -> Raw:
        handle, key = self._read(method, message, context)
        call = _rpc_call(service, method, key, message, context)
        return Raw(await _only(_attempts(handle, "rpc", call), context))

    def _check(self, context: RayServegRPCContext) -> None:
        address = context.peer().removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
        if not self._is_open and not is_here(urllib.parse.unquote(address).strip("[]")):
            _fail(context, End("", int(grpc.StatusCode.PERMISSION_DENIED.value[0]), ELSEWHERE))

    def _read(self, method: str, message: bytes,
              context: RayServegRPCContext) -> tuple[Handle, bytes]:
        self._check(context)
        metadata = dict(context.invocation_metadata())
        reading = prompts.read_grpc(method, str(metadata.get("authorization", "")), message)
        model = self._model_of(reading.model)
        if model is None:
            code = grpc.StatusCode.NOT_FOUND if reading.model else grpc.StatusCode.INVALID_ARGUMENT
            _fail(context, End("", int(code.value[0]), f"model: {reading.model!r:.200}, expected "
                               f"one of {', '.join(sorted(self._models))}"))
        assert model is not None
        return self._models[model], reading.key


def is_here(address: str) -> bool:
    """Returns whether an address is of the machine itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


async def _attempts(handle: Handle, method: str, call: Call) -> AsyncGenerator[Item, None]:
    """Yields a replica's answer. A refusal is answered by another replica, once; where replicas
    have no server, by up to MAX_ATTEMPTS.

    A request whose replica died is not tried again: it may be what the replica died of.
    """
    n_full = 0
    while True:
        stream = getattr(handle, method).remote(call)
        try:
            first = await anext(stream)
            if getattr(first, "is_refused", False):
                n_full += not getattr(first, "is_absent", False)
                if n_full < 2 and len(call.avoid) + 1 < MAX_ATTEMPTS:
                    call = dataclasses.replace(call, avoid=(*call.avoid, first.replica))
                    continue
            yield first
            async for item in stream:
                yield item
        except RayActorError:
            yield lost("", "the replica died")
        except (BackPressureError, DeploymentUnavailableError) as error:
            yield lost("", error.message)
        finally:
            stream.cancel()  # changes nothing about an answer that has ended
        return


async def _only(items: AsyncIterator[Item], context: RayServegRPCContext) -> bytes:
    """Returns the one message of an answer."""
    answer = b""
    async for item in items:
        if isinstance(item, bytes):
            answer = item
        elif isinstance(item, End) and item.code:
            _fail(context, item)
    return answer


async def _body_of(head: Head, items: AsyncGenerator[Item, None],
                   is_events: bool) -> AsyncIterator[bytes]:
    try:
        if head.body:
            yield head.body
        async for item in items:
            if isinstance(item, bytes):
                yield item
            elif isinstance(item, End) and is_events:
                yield b"data: " + json.dumps(_error_object(503, "unavailable", item.details)
                                             ).encode() + b"\n\n"
            elif isinstance(item, End):
                raise ConnectionError(item.details)  # the body stays incomplete
    finally:
        await items.aclose()


def _fail(context: RayServegRPCContext, end: End) -> None:
    context.set_code(CODES.get(end.code, grpc.StatusCode.UNKNOWN))
    context.set_details(services.pack_details(end.details or "no details", end.trailers))
    raise Failed(end.details)


def _rpc_call(service: str, method: str, key: bytes, message: bytes,
              context: RayServegRPCContext) -> RpcCall:
    metadata = dict(context.invocation_metadata())
    left = metadata.get(services.DEADLINE_KEY)
    return RpcCall(key, (), f"/{service}/{method}", message,
                   tuple((name, metadata[name]) for name in METADATA if name in metadata),
                   float(left) if left else None, services.METHODS[service][method])


def _http_call(request: Request, key: bytes, body: bytes) -> HttpCall:
    query = request.url.query
    target = request.scope.get("raw_path", request.url.path.encode()).decode("latin-1")
    fields = tuple((name, value) for name, value in request.headers.items()
                   if name not in HOP_FIELDS and name != "expect")
    return HttpCall(key, (), request.method, f"{target}?{query}" if query else target, fields, body)


async def _body(request: Request) -> bytes | None:
    """Returns the body; None if it is too large."""
    came_along: bytes | None = request.scope.pop(bodies.BODY, None)
    if came_along is not None:
        return came_along
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _error_object(status: int, code: str, message: str) -> dict[str, object]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _error(status: int, code: str, message: str) -> Response:
    headers = {"retry-after": "1"} if status == 503 else {}
    return JSONResponse(_error_object(status, code, message), status, headers)


def gateway_deployment(n_replicas: int) -> serve.Deployment:
    """Returns the gateway's deployment: one replica a machine where there are as many machines."""
    spread: dict[str, Any] = {"max_replicas_per_node": 1} if n_replicas > 1 else {}
    deployment: serve.Deployment = serve.deployment(
        name="Gateway", num_replicas=n_replicas, max_ongoing_requests=4096,
        graceful_shutdown_timeout_s=3600, ray_actor_options={"num_cpus": 0},
        **spread)(Gateway)
    return deployment
