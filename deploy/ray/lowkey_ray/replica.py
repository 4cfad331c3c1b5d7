"""A replica: one `lowkey serve` on loopback, and the way of requests to it."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import grpc
import yarl
from ray import serve

from lowkey_ray.calls import End, Head, HttpCall, Item, RpcCall, lost
from lowkey_ray.channels import Channels
from lowkey_ray.process import ServerProcess
from lowkey_ray.prompts import stats_of
from lowkey_ray.settings import Model

HEALTH_TIMEOUT_S = 5.0
SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse with the status SERVING
# A body with more bytes is no refusal.
MAX_REFUSAL_BYTES = 64 * 1024
# Fields of one connection, and those that the next sender writes itself.
HOP_FIELDS = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer",
                        "transfer-encoding", "upgrade", "date", "server", "content-length"})


class Replica:
    """The callable of a model's deployment."""

    async def __init__(self, model: Model) -> None:  # type: ignore[misc]
        self._model = model
        self._name = serve.get_replica_context().replica_id.unique_id
        self._token = _token(model)
        self._channels: Channels | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None))
        self._server = ServerProcess(model.command(), model.start_timeout_s, self._connect)
        await self._server.start()
        if self._server.model != model.name:
            await self._server.stop(0)
            raise ValueError(f"name: {model.name!r}, expected {self._server.model!r}, the name that "
                             f"the server gives {model.path}")

    async def __del__(self) -> None:
        # Ray has let the replica's requests end by now.
        await self._server.stop(self._model.grace_s)
        await self._session.close()

    async def check_health(self) -> None:
        """Raises unless grpc.health.v1 says SERVING. Ray replaces a replica that keeps raising.

        A server that has died and is being started again gets the time that starting takes.
        """
        if self._server.failure:
            raise RuntimeError(self._server.failure)
        if self._server.port == 0:
            return
        answer = await self._ask("/grpc.health.v1.Health/Check")
        if answer != SERVING:
            raise RuntimeError(f"grpc.health.v1 answered {answer!r}, expected SERVING")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return await self._stats()

    async def record_routing_stats(self) -> dict[str, float]:
        """Returns the same, and where the server is: for those who look into a cluster."""
        return {**await self._stats(), "pid": self._server.pid, "port": self._server.port}

    async def http(self, call: HttpCall) -> AsyncIterator[Item]:
        """Yields the answer's head, then its body; an End where the answer breaks off."""
        if self._server.port == 0:
            yield lost(self._name, "the server starts again", is_absent=True)
            return
        url = yarl.URL(f"http://127.0.0.1:{self._server.port}{call.target}", encoded=True)
        try:
            async with self._session.request(call.method, url, headers=call.headers, data=call.body,
                                             allow_redirects=False) as answer:
                fields = tuple((name, value) for name, value in answer.headers.items()
                               if name.lower() not in HOP_FIELDS)
                if answer.status in (429, 503):
                    text = await answer.content.read(MAX_REFUSAL_BYTES)
                    is_refused = answer.status == 503 or b'"queue_full"' in text
                    yield Head(self._name, answer.status, fields, text, is_refused)
                else:
                    yield Head(self._name, answer.status, fields, answer.content.read_nowait())
                async for chunk in answer.content.iter_any():
                    yield chunk
        except aiohttp.ClientConnectorError:
            yield lost(self._name, "the server cannot be reached", is_absent=True)
        except aiohttp.ClientError:
            yield lost(self._name, "the server died")

    async def rpc(self, call: RpcCall) -> AsyncIterator[Item]:
        """Yields the answer's messages, then its End."""
        channels = self._channels
        if self._server.port == 0 or channels is None:
            yield lost(self._name, "the server starts again", is_absent=True)
            return
        try:
            async with channels.channel() as channel:
                if call.is_stream:
                    stream: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                        call.method)
                    answer = stream(call.message, metadata=call.metadata, timeout=call.timeout_s)
                    try:
                        async for message in answer:
                            yield message
                    finally:
                        answer.cancel()  # the reader may have left; changes nothing about an end
                else:
                    unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                        call.method)
                    yield await unary(call.message, metadata=call.metadata, timeout=call.timeout_s)
            yield End(self._name, 0)
        except grpc.aio.AioRpcError as error:
            yield self._end_of(error)
        except asyncio.CancelledError:
            # Channels that were closed because their server died cancel their calls too.
            if not channels.is_closed:
                raise
            yield lost(self._name, "the server died")

    def _end_of(self, error: grpc.aio.AioRpcError) -> End:
        details = error.details() or ""
        trailers = tuple((key, value) for key, value in error.trailing_metadata() or ()
                         if not key.startswith("grpc-") or key == "grpc-status-details-bin")
        is_full = (error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                   and details.startswith("queue"))
        is_away = error.code() is grpc.StatusCode.UNAVAILABLE and details.startswith(
            ("draining", "failed to connect"))
        return End(self._name, int(error.code().value[0]), details, trailers, is_full or is_away,
                   is_away)

    async def _connect(self, port: int) -> None:
        before, self._channels = self._channels, Channels(port)
        if before is not None:
            await before.close()

    async def _ask(self, method: str) -> bytes:
        """Returns the server's answer to an empty message."""
        assert self._channels is not None
        metadata = [("authorization", f"Bearer {self._token}")] if self._token else None
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = (
            self._channels.control.unary_unary(method))
        return await unary(b"", metadata=metadata, timeout=HEALTH_TIMEOUT_S)

    async def _stats(self) -> dict[str, float]:
        if self._server.port == 0:
            return {"running": 0.0, "waiting": 0.0}
        stats = stats_of(await self._ask("/lowkey.v1.Admin/Stats"))
        return {"running": float(stats.running), "waiting": float(stats.waiting)}


def _token(model: Model) -> str:
    if not model.token_file:
        return ""
    with open(model.token_file, encoding="ascii") as file:
        return file.read().strip()
