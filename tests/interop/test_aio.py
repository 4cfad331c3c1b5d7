"""The asyncio client: the cases of the synchronous one's tests in which the two differ."""

import asyncio
import signal
import unittest

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from lowkey.v1 import admin_pb2, admin_pb2_grpc, generation_pb2, generation_pb2_grpc
from reflection.v1 import reflection_pb2, reflection_pb2_grpc

import made_requests as made
from running_server import LONG_S, SMALL_WINDOW, eventually, shared_server, start_for


async def rest_of(stream):
    events = []
    while (event := await stream.read()) is not grpc.aio.EOF:
        events.append(event)
    return events


class AioTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        asyncio.get_running_loop().set_debug(False)  # it logs tasks that take long
        await self.use(shared_server())

    async def use(self, server, *options):
        self.server = server
        self.channel = await self.open_channel(*options)
        self.generation = generation_pb2_grpc.GenerationStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    async def open_channel(self, *options):
        channel = self.server.aio_channel(*options)
        self.addAsyncCleanup(channel.close)
        return channel

    async def assert_fails(self, code, call):
        with self.assertRaises(grpc.aio.AioRpcError) as raised:
            await call
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        return raised.exception

    async def events_of(self, request, **options):
        return [event async for event in self.generation.GenerateStream(request, **options)]

    async def await_idle(self):
        return await asyncio.to_thread(self.server.await_idle)

    async def eventually(self, condition, what):
        """running_server.eventually, whose condition may wait, without stopping the loop."""
        await asyncio.to_thread(eventually, condition, what)

    async def test_unary_and_stream(self):
        request = made.generate(40, sampling={"temperature": 0.8, "seed": 3})
        events = await self.events_of(request)
        answer = await self.generation.Generate(request)
        self.assertEqual(made.n_tokens(events), 40)
        self.assertEqual(made.text_of(events), answer.choices[0].text)
        scores = await self.generation.Score(made.score())
        self.assertEqual(scores.best, 0)

    async def test_150_streams_on_one_channel(self):
        streams = await asyncio.gather(*(self.events_of(made.generate(24))
                                         for _ in range(150)))
        for events in streams:
            self.assertEqual(made.n_tokens(events), 24)
            self.assertEqual(made.text_of(events), made.text_of(streams[0]))

    async def test_statuses(self):
        code = grpc.StatusCode
        error = await self.assert_fails(code.INVALID_ARGUMENT, self.generation.Generate(
            generation_pb2.GenerateRequest()))
        self.assertIn("input", error.details())
        await self.assert_fails(code.OUT_OF_RANGE, self.events_of(made.generate(5000)))
        for path in ("/lowkey.v1.Generation/Unknown", "/other/Unknown"):
            await self.assert_fails(code.UNIMPLEMENTED, self.channel.unary_unary(path)(
                b"request", timeout=LONG_S))
        await self.assert_fails(code.UNIMPLEMENTED, self.generation.Tokenize(
            generation_pb2.TokenizeRequest(text=made.STORY * 100), timeout=LONG_S,
            compression=grpc.Compression.Gzip))
        error = await self.assert_fails(code.NOT_FOUND, self.health.Check(
            health_pb2.HealthCheckRequest(service="☺ 😈"), timeout=LONG_S))
        self.assertIn("☺ 😈", error.details())
        await self.assert_fails(code.RESOURCE_EXHAUSTED, self.admin.Stats(
            admin_pb2.StatsRequest(), timeout=LONG_S,
            metadata=[(f"k{i}", "v") for i in range(120)]))

    async def test_full_queue_says_when_to_try_again(self):
        await self.use(start_for(self, "--max-running", "1", "--max-queued", "1"))
        running = self.generation.GenerateStream(made.endless())
        await running.read()
        waiting = asyncio.ensure_future(self.events_of(made.endless()))
        await self.eventually(lambda: self.server.stats().waiting_requests, "a request waits")
        call = self.generation.Generate(made.generate())
        await self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED, call)
        status = await rpc_status.aio.from_call(call)
        self.assertEqual([d.TypeName() for d in status.details], ["google.rpc.RetryInfo"])
        waiting.cancel()
        running.cancel()

    async def test_metadata_and_messages(self):
        metadata = tuple([("all-bin", bytes(range(256)))] + [(f"k{i}", "v") for i in range(60)])
        answer = await self.admin.Stats(admin_pb2.StatsRequest(), timeout=LONG_S,
                                        metadata=metadata)
        self.assertTrue(answer.version)
        tokenize = self.channel.unary_unary("/lowkey.v1.Generation/Tokenize")
        request = generation_pb2.TokenizeRequest(text=made.STORY)
        expected = await tokenize(request.SerializeToString(), timeout=LONG_S)
        for answer in await asyncio.gather(*(
                tokenize(made.padded(request, made.MAX_MESSAGE_BYTES // 4), timeout=LONG_S)
                for _ in range(8))):
            self.assertEqual(answer, expected)
        await self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED, tokenize(
            made.padded(request, made.MAX_MESSAGE_BYTES + 1), timeout=LONG_S))

    async def test_deadlines(self):
        exceeded = grpc.StatusCode.DEADLINE_EXCEEDED
        await self.use(start_for(self), *SMALL_WINDOW)
        stream = self.generation.GenerateStream(made.endless(n=8, logprobs=20), timeout=5)
        await stream.read()
        self.assertEqual(await stream.code(), exceeded)
        stats = await self.await_idle()
        self.assertEqual((stats.finished_requests, stats.cancelled_requests), (0, 1))
        await self.assert_fails(exceeded, self.admin.Stats(admin_pb2.StatsRequest(), timeout=-1))

    async def test_cancellation(self):
        before = await self.await_idle()
        stream = self.generation.GenerateStream(made.endless(n=8))
        await stream.read()
        self.assertTrue(stream.cancel())
        self.assertEqual(await stream.code(), grpc.StatusCode.CANCELLED)
        # A task that is cancelled cancels its call.
        task = asyncio.ensure_future(self.events_of(made.endless(n=8)))
        await self.eventually(lambda: self.server.stats().running_requests, "a request runs")
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        after = await self.await_idle()
        self.assertEqual(after.cancelled_requests, before.cancelled_requests + 2)
        self.assertEqual(after.cache_bytes_used, 0)

    async def test_reader_that_pauses_gets_everything(self):
        await self.use(self.server, *SMALL_WINDOW)
        stream = self.generation.GenerateStream(made.generate(400, n=8, logprobs=20))
        events = [await stream.read()]
        await self.eventually(lambda: self.server.gauge("lowkey:num_streams_paused"), "it pauses")
        events += await rest_of(stream)
        self.assertEqual(made.n_tokens(events), 8 * 400)

    async def test_reflection(self):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        call = stub.ServerReflectionInfo(timeout=LONG_S)
        for name in ("lowkey.v1.Generation", "lowkey.v1.Admin"):
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
            answer = await call.read()
            self.assertTrue(answer.file_descriptor_response.file_descriptor_proto)
        await call.done_writing()
        self.assertEqual(await call.read(), grpc.aio.EOF)
        self.assertEqual(await call.code(), grpc.StatusCode.OK)

    async def first_error_of_generate(self):
        """The server refuses from a moment on that comes just after it has told its health."""
        for _ in range(1000):
            try:
                await self.generation.Generate(made.generate(1))
            except grpc.aio.AioRpcError as error:
                return error
        self.fail("generations are not refused")

    async def test_drain(self):
        await self.use(start_for(self, "--grace", str(LONG_S)))
        watch = self.health.Watch(health_pb2.HealthCheckRequest())
        statuses = [(await watch.read()).status]
        streams = [self.generation.GenerateStream(made.generate(200)) for _ in range(6)]
        first = [await stream.read() for stream in streams]
        self.server.signal(signal.SIGTERM)
        statuses.append((await watch.read()).status)
        self.assertEqual(statuses, [health_pb2.HealthCheckResponse.SERVING,
                                    health_pb2.HealthCheckResponse.NOT_SERVING])
        error = await self.first_error_of_generate()
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        for event, stream in zip(first, streams):
            self.assertEqual(made.n_tokens([event] + await rest_of(stream)), 200)
        self.assertEqual(await asyncio.to_thread(self.server.exit_code), 0)
