"""One `lowkey serve`: started, watched, started again when it dies, and drained at the end."""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

LOG = logging.getLogger("ray.serve")

# Deaths in a row, each soon after a start, after which the replica is given up.
MAX_DEATHS = 5
SOON_S = 60.0
LONGEST_PAUSE_S = 5.0
# Servers can keep all cores busy, with more threads than Ray's processes have: these come first, so
# that what they pass on does not wait for computation.
NICENESS = 5


class ServerProcess:
    """`on_start` is awaited with the port whenever a new server is ready."""

    def __init__(self, command: Sequence[str], start_timeout_s: float,
                 on_start: Callable[[int], Awaitable[None]]) -> None:
        self._command = command
        self._start_timeout_s = start_timeout_s
        self._on_start = on_start
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._n_deaths = 0
        self._ending = False
        self.model = ""  # the name that the server gives the model
        self.port = 0  # 0 while there is no server that listens
        self.failure = ""  # why there will be no server any more

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Returns once the server is ready. RuntimeError if it does not become so in time."""
        await self._start_once()
        self._watch = asyncio.create_task(self._keep())
        self._watch.add_done_callback(self._note_end)

    async def stop(self, timeout_s: float) -> None:
        """Drains the server; kills it after `timeout_s`."""
        self._ending = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()

    def _note_end(self, watch: asyncio.Task[None]) -> None:
        if not watch.cancelled() and watch.exception() is not None:
            self.failure = f"nobody watches the server: {watch.exception()!r}"
            self.port = 0

    async def _start_once(self) -> None:
        # The kernel ends the server when this process dies without a word. A server outlives no
        # replica: nobody would stop it, and it would keep cores from the replica that follows.
        self._process = process = await asyncio.create_subprocess_exec(
            "nice", "-n", str(NICENESS), "setpriv", "--pdeathsig", "KILL", "--", *self._command,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=_environment())
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), self._start_timeout_s)
            ready = json.loads(line)
            self.model, port = ready["model"], int(ready["port"])
        except (asyncio.TimeoutError, ValueError, KeyError, TypeError) as error:
            if process.returncode is None:
                process.kill()
            await process.wait()
            raise RuntimeError(f"{' '.join(self._command)}: not ready after at most "
                               f"{self._start_timeout_s:g} s ({error!r}); its log says why") from None
        await self._on_start(port)
        self.port = port

    async def _keep(self) -> None:
        while not self._ending:
            began = time.monotonic()
            assert self._process is not None and self._process.stdout is not None
            while await self._process.stdout.read(65536):
                pass
            code = await self._process.wait()
            self.port = 0
            if self._ending:
                return
            self._n_deaths = 1 if time.monotonic() - began > SOON_S else self._n_deaths + 1
            LOG.error("the server died with %s, %d deaths in a row", code, self._n_deaths)
            await self._start_again()

    async def _start_again(self) -> None:
        while not self._ending:
            if self._n_deaths >= MAX_DEATHS:
                self.failure = f"the server died {self._n_deaths} times in a row"
                self._ending = True
                return
            if self._n_deaths > 1:
                await asyncio.sleep(min(0.1 * 2**self._n_deaths, LONGEST_PAUSE_S))
            try:
                await self._start_once()
                return
            except (RuntimeError, OSError) as error:  # no memory for a process, say
                LOG.error("%s", error)
                self._n_deaths += 1


def _environment() -> dict[str, str]:
    """Returns this process's environment less what Ray set for itself."""
    return {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OMP_NUM_THREADS", "PYTHONPATH")}
