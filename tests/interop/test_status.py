"""Statuses, their messages and their details; status_code_and_message, special_status_message,
unimplemented_method and unimplemented_service of gRPC's list."""

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from lowkey.v1 import generation_pb2, generation_pb2_grpc, models_pb2

import made_requests as made
from running_server import LONG_S, InteropTest, eventually, start_for

SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


class StatusTest(InteropTest):
    def assert_generate_fails(self, code, words, request):
        """Both the unary and the streaming method say so."""
        for method in (self.generation.Generate,
                       lambda *a, **k: list(self.generation.GenerateStream(*a, **k))):
            error = self.assert_fails(code, lambda: method(request))
            self.assertIn(words, error.details())

    def test_requests_that_are_refused(self):
        code = grpc.StatusCode
        self.assert_generate_fails(code.INVALID_ARGUMENT, "input",
                                   generation_pb2.GenerateRequest())
        self.assert_generate_fails(code.INVALID_ARGUMENT, "temperature",
                                   made.generate(sampling={"temperature": 3}))
        self.assert_generate_fails(code.OUT_OF_RANGE, "max_new_tokens",
                                   made.generate(made.CONTEXT_TOKENS + 1))
        self.assert_generate_fails(code.NOT_FOUND, "model", made.generate(model="other"))
        self.assert_generate_fails(code.FAILED_PRECONDITION, "lasso",
                                   made.generate(attention={"mechanism": "lasso"}))
        self.assert_channel_works()

    def test_id_of_a_running_request_already_exists(self):
        running = self.generation.GenerateStream(made.endless(request_id="twin"))
        next(running)
        self.assert_generate_fails(grpc.StatusCode.ALREADY_EXISTS, "twin",
                                   made.generate(request_id="twin"))
        running.cancel()

    def test_status_code_and_message(self):
        error = self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.models.GetModel(
            models_pb2.GetModelRequest(name="absent"), timeout=LONG_S))
        self.assertRegex(error.details(), '^model: "absent" is not served, expected ".+"$')

    def test_special_status_message(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        error = self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: health.Check(
            health_pb2.HealthCheckRequest(service=SPECIAL), timeout=LONG_S))
        self.assertEqual(error.details(), f"service: {SPECIAL} is not served here")

    def test_long_status_message_is_cut(self):
        error = self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.models.GetModel(
            models_pb2.GetModelRequest(name="日" * 1300), timeout=LONG_S))
        self.assertRegex(error.details(), '^model: "日{100,400}[.]{3}$')

    def test_unimplemented_method_and_service(self):
        for path in ("/lowkey.v1.Generation/Unknown", "/lowkey.v1.Unknown/Generate",
                     "/grpc.testing.TestService/UnimplementedCall", "/x"):
            unary, stream = self.channel.unary_unary(path), self.channel.unary_stream(path)
            requests, both = self.channel.stream_unary(path), self.channel.stream_stream(path)
            for call in (lambda **k: unary(b"request", **k),
                         lambda **k: list(stream(b"request", **k)),
                         lambda **k: requests(iter([b"1", b"2"]), **k),
                         lambda **k: list(both(iter([b"1", b"2"]), **k))):
                error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED,
                                          lambda: call(timeout=LONG_S))
                self.assertIn(path, error.details())
        self.assert_channel_works()

    def test_unary_method_takes_exactly_one_message(self):
        message = generation_pb2.TokenizeRequest(text="a").SerializeToString()
        for messages in ([], [message, message]):
            call = self.channel.stream_unary("/lowkey.v1.Generation/Tokenize")
            error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED,
                                      lambda: call(iter(messages), timeout=LONG_S))
            self.assertIn("message", error.details())
        self.assert_channel_works()

    def test_bytes_that_are_no_message(self):
        for data, words in ((b"\xff\xff", "malformed"), (b"\x12\x02\xc3\x28", "UTF-8")):
            error = self.assert_fails(
                grpc.StatusCode.INVALID_ARGUMENT,
                lambda: self.channel.unary_unary("/lowkey.v1.Generation/Tokenize")(
                    data, timeout=LONG_S))
            self.assertIn(words, error.details())


class RetryInfoTest(InteropTest):
    def setUp(self):
        self.server = start_for(self, "--max-running", "1", "--max-queued", "1")
        self.channel = self.open_channel()
        self.generation = generation_pb2_grpc.GenerationStub(self.channel)

    def test_full_queue_says_when_to_try_again(self):
        running = self.generation.GenerateStream(made.endless())
        next(running)
        waiting = self.generation.Generate.future(made.endless())
        eventually(lambda: self.server.stats().waiting_requests == 1, "it waits")
        error = self.assert_fails(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            lambda: self.generation.Generate(made.generate()))
        # It checks that code and message are the same in both places.
        status = rpc_status.from_call(error)
        self.assertEqual([d.TypeName() for d in status.details], ["google.rpc.RetryInfo"])
        info = error_details_pb2.RetryInfo()
        self.assertTrue(status.details[0].Unpack(info))
        self.assertGreater(info.retry_delay.ToNanoseconds(), 0)
        self.assertIsNone(rpc_status.from_call(self.assert_fails(
            grpc.StatusCode.INVALID_ARGUMENT, lambda: self.generation.Generate(
                generation_pb2.GenerateRequest()))))
        waiting.cancel()
        running.cancel()
