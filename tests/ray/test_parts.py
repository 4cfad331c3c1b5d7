"""The parts of deploy/ray that need no cluster."""

import asyncio
import contextlib
import json
import logging
import os
import pathlib
import tempfile
import types
import typing
import unittest

import paths  # noqa: F401
import start
from lowkey_ray import bodies, channels, gateway, process, scaling, services, settings
from ray.serve._private import http_util
from ray.serve.config import HTTPOptions


class Details(unittest.TestCase):
    def test_trailers_come_back(self) -> None:
        trailers = (("grpc-status-details-bin", b"\x00\xff"), ("other", "text"))
        packed = services.pack_details("queue: full", trailers)
        self.assertEqual(("queue: full", trailers), services.unpack_details(packed))
        self.assertEqual("plain", services.pack_details("plain", ()))
        self.assertEqual(("plain", ()), services.unpack_details("plain"))

    def test_trailers_that_were_cut_are_dropped(self) -> None:
        packed = services.pack_details("queue: full", (("a-bin", b"x" * 100),))
        for length in range(len("queue: full"), len(packed)):
            self.assertEqual(("queue: full", ()), services.unpack_details(packed[:length]))


class Scaling(unittest.TestCase):
    def test_requests_are_divided_by_the_target(self) -> None:
        context = types.SimpleNamespace(
            aggregated_metrics={"running": {"a": 6.0, "b": 2.0}, "waiting": {"a": 10.0}},
            total_queued_requests=2.0, config=types.SimpleNamespace(target_ongoing_requests=4.0))
        self.assertEqual((5.0, {}), scaling.by_requests(context))
        context.aggregated_metrics = None
        self.assertEqual((0.5, {}), scaling.by_requests(context))


class Settings(unittest.TestCase):
    def read(self, content: object) -> list[settings.Model]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(content, file)
            file.flush()
            return settings.read_file(file.name)

    def test_a_file_is_read(self) -> None:
        model, = self.read({"models": [{"name": "m", "path": "/m", "threads": 4, "device": "cuda:0",
                                        "aliases": ["a"], "flags": ["--cache-bytes", "2G"]}]})
        command = " ".join(model.command())
        for part in ("serve", "--host 127.0.0.1", "--port 0", "--model /m", "--threads 4",
                     "--device cuda:0", "--model-alias a", "--cache-bytes 2G"):
            self.assertIn(part, command)

    def test_errors_name_the_field(self) -> None:
        for content, word in (([], "models"), ({"models": []}, "models"),
                              ({"models": [{"name": "m"}]}, "path"),
                              ({"models": [{"name": "m", "path": "/m", "thread": 1}]}, "thread"),
                              ({"models": [{"name": "m", "path": "/m"}] * 2}, "its own name")):
            with self.subTest(content), self.assertRaisesRegex(ValueError, word):
                self.read(content)


class Bodies(unittest.IsolatedAsyncioTestCase):
    """What a proxy behind WithBody sees of a request."""

    END: typing.ClassVar[dict[str, object]] = {"type": "http.disconnect"}

    async def pass_on(self, length: bytes, *messages: dict[str, object],
                      kind: str = "http") -> list[object]:
        """Returns the body that came along, if the proxy was called, and all messages after it."""
        left = list(messages)
        seen: list[object] = []

        async def receive() -> dict[str, object]:
            return left.pop(0)

        async def proxy(scope: dict[str, object], receive: object, _send: object) -> None:
            seen.append(scope.get(bodies.BODY))
            while seen[-1] != self.END:
                seen.append(await receive())

        async def send(_message: object) -> None:
            self.fail("nothing is answered here")

        scope = {"type": kind, "headers": [(b"host", b"h"), (b"content-length", length)]}
        await bodies.WithBody(proxy)(scope, receive, send)
        return seen

    @staticmethod
    def part(body: bytes, more: bool = False) -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": more}

    async def test_a_small_body_comes_along(self) -> None:
        whole = [b"abcd", self.part(b"abcd"), self.END]
        for parts in ([self.part(b"abcd")], [self.part(b"ab", True), self.part(b"cd")],
                      [*(self.part(bytes([x]), True) for x in b"abcd"), self.part(b"")]):
            self.assertEqual(whole, await self.pass_on(b"4", *parts, self.END))
        most = b"x" * bodies.MAX_BYTES
        self.assertEqual([most, self.part(most), self.END],
                         await self.pass_on(b"65536", self.part(most), self.END))

    async def test_other_bodies_are_left_alone(self) -> None:
        parts = [self.part(b"ab", True), self.part(b"cd"), self.END]
        for length in (b"65537", b"", b"-1", b"4x", b"9" * 5000, b"0"):
            self.assertEqual([None, *parts], await self.pass_on(length, *parts), length)
        self.assertEqual([None, self.END], await self.pass_on(b"4", self.END, kind="websocket"))

    async def test_a_body_that_is_longer_than_its_head_says_is_left_to_the_gateway(self) -> None:
        large = b"x" * bodies.MAX_BYTES
        self.assertEqual(
            [None, self.part(large + b"y", True), self.part(b"z"), self.END],
            await self.pass_on(b"4", self.part(large, True), self.part(b"y", True), self.part(b"z"),
                               self.END))

    async def test_a_client_that_leaves_before_its_body_ends_is_forgotten(self) -> None:
        self.assertEqual([], await self.pass_on(b"4", self.part(b"ab", True), self.END))

    def test_rays_proxies_find_it(self) -> None:
        options = http_util.configure_http_middlewares(HTTPOptions())
        self.assertIn(bodies.WithBody, [middleware.cls for middleware in options.middlewares])


class Callers(unittest.TestCase):
    def test_only_loopback_is_here(self) -> None:
        for address in ("127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"):
            self.assertTrue(gateway.is_here(address), address)
        for address in ("", "localhost", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "unix:x"):
            self.assertFalse(gateway.is_here(address), address)


class Hosts(unittest.TestCase):
    def test_without_tokens_only_loopback_is_listened_on(self) -> None:
        for host in ("0.0.0.0", "10.0.0.1", "::", "a-name"):
            with self.subTest(host), self.assertRaises(SystemExit):
                start.check_host(host, is_open=False)
            start.check_host(host, is_open=True)
        for host in ("127.0.0.1", "localhost", "::1"):
            start.check_host(host, is_open=False)


class Channels(unittest.IsolatedAsyncioTestCase):
    async def test_no_channel_has_more_calls_than_the_server_takes(self) -> None:
        group = channels.Channels(1)
        async with contextlib.AsyncExitStack() as calls:
            used = [await calls.enter_async_context(group.channel()) for _ in range(200)]
            for channel in used:
                self.assertLessEqual(used.count(channel), channels.MAX_CALLS)
            self.assertEqual(3, len(set(used)))
            self.assertNotIn(group.control, used)
        async with group.channel() as channel:
            self.assertIn(channel, used, "one stays open")
        await group.close()

    async def test_closing_cancels_calls(self) -> None:
        group = channels.Channels(1)
        with self.assertRaises(asyncio.CancelledError):
            async with group.channel() as channel:
                call = channel.unary_unary("/a/b")(b"", wait_for_ready=True)
                await asyncio.sleep(0.1)
                await group.close()
                await call
        self.assertTrue(group.is_closed)


logging.getLogger("ray.serve").setLevel(logging.CRITICAL)

# A server whose first lives end at once: it counts them in a file.
FLAKY = """#!/bin/sh
echo x >> {folder}/lives
echo '{{"event": "ready", "model": "m", "port": 1}}'
[ $(wc -l < {folder}/lives) -gt {deaths} ] && exec sleep 1000
exit 1
"""


class Process(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ports: list[int] = []

    async def started(self, n_deaths: int) -> process.ServerProcess:
        script = self.folder / "server"
        script.write_text(FLAKY.format(folder=self.folder, deaths=n_deaths))
        script.chmod(0o700)

        async def note(port: int) -> None:
            self.ports.append(port)

        server = process.ServerProcess([str(script)], 60, note)
        await server.start()
        return server

    def n_lives(self) -> int:
        return len((self.folder / "lives").read_text().split())

    async def until(self, condition: object) -> None:
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.05)

    async def test_a_server_computes_behind_the_processes_that_answer(self) -> None:
        server = await self.started(0)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        self.assertEqual(min(19, own + process.NICENESS),
                         os.getpriority(os.PRIO_PROCESS, server.pid))
        await server.stop(10)

    async def test_a_server_that_dies_is_started_again(self) -> None:
        server = await self.started(2)
        await self.until(lambda: self.n_lives() == 3 and server.port == 1)
        self.assertEqual("", server.failure)
        self.assertEqual([1, 1, 1], self.ports)
        pid = server.pid
        await server.stop(10)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    async def test_a_server_that_keeps_dying_is_given_up(self) -> None:
        server = await self.started(100)
        await self.until(lambda: server.failure)
        self.assertEqual(0, server.port)
        self.assertEqual(process.MAX_DEATHS, self.n_lives())

    async def test_a_watch_that_ends_is_a_failure(self) -> None:
        server = await self.started(1)

        def fail() -> None:
            raise ValueError("broken")

        server._start_once = fail  # type: ignore[method-assign, assignment]
        await self.until(lambda: server.failure)
        self.assertIn("broken", server.failure)
        self.assertEqual(0, server.port)

    async def test_a_server_that_does_not_start_is_an_error(self) -> None:
        async def note(_port: int) -> None:
            pass

        with self.assertRaisesRegex(RuntimeError, "not ready"):
            await process.ServerProcess(["false"], 60, note).start()
        with self.assertRaisesRegex(RuntimeError, "not ready"):
            await process.ServerProcess(["sleep", "100"], 0.2, note).start()


if __name__ == "__main__":
    unittest.main()
