"""Pings by which a client keeps a connection alive."""

import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from running_server import InteropTest


class KeepaliveTest(InteropTest):
    def watch(self, interval_ms):
        """A stream on which nothing comes after its first message, and the client's pings."""
        self.channel = self.open_channel(("grpc.keepalive_time_ms", interval_ms),
                                         ("grpc.keepalive_timeout_ms", 60000),
                                         ("grpc.http2.max_pings_without_data", 0))
        watch = health_pb2_grpc.HealthStub(self.channel).Watch(health_pb2.HealthCheckRequest())
        next(watch)
        return watch

    def test_client_that_pings_too_often_is_told(self):
        watch = self.watch(100)
        error = self.assert_fails(grpc.StatusCode.UNAVAILABLE, lambda: next(watch))
        self.assertIn("too_many_pings", error.details())
        self.assert_channel_works()  # over a new connection

    def test_client_that_pings_every_10_s_is_served(self):
        # The first ping is free, and the third that comes too early would end the connection.
        watch = self.watch(10000)
        has_ended = threading.Event()
        watch.add_callback(has_ended.set)
        self.assertFalse(has_ended.wait(46))
        watch.cancel()
