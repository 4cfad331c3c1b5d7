"""Connections to a replica's server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

# The server lets a connection have 100 calls at once; a channel would hold more of them back itself,
# where neither the server's limits nor its Stats know of them.
MAX_CALLS = 90
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1),
           ("grpc.enable_http_proxy", 0))


class Channels:
    """As many channels to one port as its calls need, and one for questions about the server itself,
    which wait for no call."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._n_calls: dict[grpc.aio.Channel, int] = {}
        self.control = self._open()
        self.is_closed = False

    def _open(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self._address, options=OPTIONS)

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Gives a channel for one call."""
        free = (channel for channel, n_calls in self._n_calls.items() if n_calls < MAX_CALLS)
        channel = next(free, None) or self._open()
        self._n_calls[channel] = self._n_calls.get(channel, 0) + 1
        try:
            yield channel
        finally:
            self._n_calls[channel] -= 1
            if self._n_calls[channel] == 0 and len(self._n_calls) > 1 and not self.is_closed:
                del self._n_calls[channel]
                await channel.close()

    async def close(self) -> None:
        """Ends all calls: they are cancelled."""
        self.is_closed = True
        await asyncio.gather(self.control.close(), *(channel.close() for channel in self._n_calls))
