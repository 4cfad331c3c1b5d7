"""Deadlines; timeout_on_sleeping_server of gRPC's list. test_wire.py has the server's own."""

import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lowkey.v1 import admin_pb2, generation_pb2, generation_pb2_grpc

import made_requests as made
from running_server import LONG_S, SMALL_WINDOW, InteropTest, start_for

DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED


class DeadlineTest(InteropTest):
    def test_deadline_that_is_past_at_the_start(self):
        for timeout in (-0.1, -3600):
            self.assert_fails(DEADLINE_EXCEEDED, lambda: self.generation.Tokenize(
                generation_pb2.TokenizeRequest(text="a"), timeout=timeout))
        self.assert_channel_works()

    def test_far_deadlines(self):
        for timeout in (0x7fffffff, 1e9, 86400, None):
            self.assertTrue(self.admin.Stats(admin_pb2.StatsRequest(), timeout=timeout).version)

    def test_timeout_on_sleeping_server(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=0.2)
        self.assert_fails(DEADLINE_EXCEEDED, lambda: list(watch))
        silent = self.channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        never = threading.Event()
        self.addCleanup(never.set)
        requests = (request for request in [b""] if never.wait())
        self.assert_fails(DEADLINE_EXCEEDED, lambda: list(silent(requests, timeout=0.2)))
        self.assert_channel_works()


class PassedDeadlineTest(InteropTest):
    """On a new server, which has no forecast to refuse a deadline by."""

    def setUp(self):
        self.server = start_for(self)
        self.generation = generation_pb2_grpc.GenerationStub(self.open_channel(*SMALL_WINDOW))

    def test_stream_past_its_deadline_ends_here_and_in_the_server(self):
        # It pauses for its reader, who reads one event, and so cannot end before.
        stream = self.generation.GenerateStream(made.endless(n=8, logprobs=20), timeout=5)
        next(stream)
        self.assertEqual(stream.code(), DEADLINE_EXCEEDED)
        stats = self.server.await_idle()
        self.assertEqual((stats.finished_requests, stats.cancelled_requests), (0, 1))
        self.assertEqual(stats.cache_bytes_used, 0)

    def test_unary_call_past_its_deadline_ends_here_and_in_the_server(self):
        self.assert_fails(DEADLINE_EXCEEDED, lambda: self.generation.Generate(
            made.endless(n=8, logprobs=20), timeout=0.3))
        stats = self.server.await_idle()
        self.assertEqual((stats.finished_requests, stats.cache_bytes_used), (0, 0))
