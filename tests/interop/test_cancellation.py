"""Cancellation by the client; cancel_after_begin and cancel_after_first_response of gRPC's list."""

import queue

import grpc
from lowkey.v1 import generation_pb2_grpc
from reflection.v1 import reflection_pb2, reflection_pb2_grpc

import made_requests as made
from running_server import LONG_S, InteropTest, eventually

CANCELLED = grpc.StatusCode.CANCELLED


class CancellationTest(InteropTest):
    def setUp(self):
        super().setUp()
        self.before = self.server.await_idle()

    def assert_ended_in_the_server(self, n_requests=1):
        after = self.server.await_idle()
        self.assertEqual(after.cancelled_requests - self.before.cancelled_requests, n_requests)
        self.assertEqual(after.finished_requests, self.before.finished_requests)
        self.assertEqual(after.cache_bytes_used, 0)

    def await_running(self):
        eventually(lambda: self.server.stats().running_requests, "a request runs")

    def test_unary_call(self):
        call = self.generation.Generate.future(made.endless(n=8))
        self.await_running()
        self.assertTrue(call.cancel())
        self.assertEqual(call.code(), CANCELLED)
        self.assert_ended_in_the_server()

    def test_cancel_after_first_response(self):
        stream = self.generation.GenerateStream(made.endless(n=8))
        next(stream)
        stream.cancel()
        self.assert_fails(CANCELLED, lambda: list(stream))
        self.assertEqual(stream.code(), CANCELLED)
        self.assert_ended_in_the_server()
        self.assert_channel_works()

    def test_cancel_before_the_first_response(self):
        for _ in range(100):
            stream = self.generation.GenerateStream(made.generate())
            stream.cancel()
            self.assertEqual(stream.code(), CANCELLED)
        self.assertEqual(self.server.await_idle().cache_bytes_used, 0)
        self.assert_channel_works()

    def test_cancel_one_of_several(self):
        streams = [self.generation.GenerateStream(made.generate(300))
                   for _ in range(6)]
        first = [next(stream) for stream in streams]
        streams[2].cancel()
        for i in (0, 1, 3, 4, 5):
            self.assertEqual(made.n_tokens([first[i], *streams[i]]), 300)
        after = self.server.await_idle()
        self.assertEqual(after.finished_requests - self.before.finished_requests, 5)
        self.assertEqual(after.cancelled_requests - self.before.cancelled_requests, 1)

    def test_closed_channel_ends_its_calls(self):
        channel = self.open_channel()
        stub = generation_pb2_grpc.GenerationStub(channel)
        streams = [stub.GenerateStream(made.endless()) for _ in range(3)]
        for stream in streams:
            next(stream)
        channel.close()
        for stream in streams:
            self.assert_fails(CANCELLED, lambda s=stream: list(s))
        self.assert_ended_in_the_server(3)

    def test_stream_of_both_sides(self):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        for n_requests in (0, 1):  # cancel_after_begin, cancel_after_first_response
            requests = queue.Queue()
            call = stub.ServerReflectionInfo(iter(requests.get, None), timeout=LONG_S)
            for _ in range(n_requests):
                requests.put(reflection_pb2.ServerReflectionRequest(list_services="*"))
                self.assertTrue(next(call).list_services_response.service)
            call.cancel()
            requests.put(None)
            self.assertEqual(call.code(), CANCELLED)
        self.assert_channel_works()
