"""What clients see of a server that stops: by Admin.Drain from loopback, by SIGTERM."""

import signal

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lowkey.v1 import admin_pb2, admin_pb2_grpc, generation_pb2_grpc

import made_requests as made
from running_server import LONG_S, SMALL_WINDOW, InteropTest, eventually, start_for

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
N_TOKENS = 150


class DrainTest(InteropTest):
    def start(self, *flags):
        self.server = start_for(self, "--grace", str(LONG_S), *flags)
        self.channel = self.open_channel()
        self.generation = generation_pb2_grpc.GenerationStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def begin_streams(self):
        """Streams that are running, of which some are on connections of their own."""
        stubs = [self.generation] * 4 + [
            generation_pb2_grpc.GenerationStub(self.open_channel()) for _ in range(2)]
        streams = [stub.GenerateStream(made.generate(N_TOKENS)) for stub in stubs]
        return [([next(stream)], stream) for stream in streams]

    def assert_all_whole(self, streams):
        for events, stream in streams:
            events += stream
            self.assertEqual(made.n_tokens(events), N_TOKENS)
            self.assertEqual(stream.code(), grpc.StatusCode.OK)

    def error_of_generate(self):
        """None as long as the server, which has told its health, has not gone on to refuse."""
        try:
            self.generation.Generate(made.generate(1))
        except grpc.RpcError as error:
            return error
        return None

    def test_drain_by_rpc(self):
        self.start()
        # Its reader keeps the server from ending before everything below was looked at.
        stub = generation_pb2_grpc.GenerationStub(self.open_channel(*SMALL_WINDOW))
        held = stub.GenerateStream(made.generate(400, n=8, logprobs=20))
        first = next(held)
        watch = self.health.Watch(health_pb2.HealthCheckRequest())
        self.assertEqual(next(watch).status, SERVING)
        streams = self.begin_streams()
        answer = self.admin.Drain(admin_pb2.DrainRequest(), timeout=LONG_S)
        self.assertGreaterEqual(answer.unfinished_requests, 1)
        self.assertEqual(next(watch).status, NOT_SERVING)
        self.assertEqual(self.health.Check(health_pb2.HealthCheckRequest(), timeout=LONG_S).status,
                         NOT_SERVING)
        for method in (self.generation.Generate,
                       lambda *a, **k: list(self.generation.GenerateStream(*a, **k)),
                       lambda *a, **k: self.generation.Score(made.score())):
            error = self.assert_fails(UNAVAILABLE, lambda: method(made.generate()))
            self.assertIn("draining", error.details())
        # New connections are told the same.
        other = generation_pb2_grpc.GenerationStub(self.open_channel())
        self.assert_fails(UNAVAILABLE, lambda: other.Generate(made.generate()))
        self.assert_all_whole(streams)
        self.assertEqual(made.n_tokens([first, *held]), 8 * 400)
        self.assert_fails(UNAVAILABLE, lambda: next(watch))
        self.assertEqual(self.server.exit_code(), 0)

    def test_drain_by_signal(self):
        self.start()
        streams = self.begin_streams()
        watch = self.health.Watch(health_pb2.HealthCheckRequest())
        self.assertEqual(next(watch).status, SERVING)
        self.server.signal(signal.SIGTERM)
        self.assertEqual(next(watch).status, NOT_SERVING)
        error = eventually(self.error_of_generate, "generations are refused")
        self.assertEqual(error.code(), UNAVAILABLE)
        self.assert_all_whole(streams)
        self.assertEqual(self.server.exit_code(), 0)
        self.assert_fails(UNAVAILABLE,
                          lambda: self.generation.Generate(made.generate()))

    def test_what_outlives_the_grace_period_gets_its_final_event(self):
        self.start("--grace", "0")
        stream = self.generation.GenerateStream(made.endless(n=8, logprobs=20))
        events = [next(stream)]
        self.server.signal(signal.SIGTERM)
        with self.assertRaises(grpc.RpcError) as raised:
            for event in stream:
                events.append(event)
        self.assertEqual(raised.exception.code(), UNAVAILABLE)
        self.assertIn("grace", raised.exception.details())
        self.assertEqual(events[-1].WhichOneof("event"), "final")
        self.assertEqual(self.server.exit_code(), 0)

    def test_channel_finds_the_next_server(self):
        self.start()
        self.assert_channel_works()
        for _ in range(3):
            self.server.signal(signal.SIGTERM)
            self.assertEqual(self.server.exit_code(), 0)
            call = self.admin.Stats.future(admin_pb2.StatsRequest(), timeout=LONG_S,
                                           wait_for_ready=True)
            self.server.process.stdout.close()
            self.server.start()
            self.assertEqual(call.result().finished_requests, 0)
