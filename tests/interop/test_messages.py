"""Sizes of messages, and compression."""

from concurrent import futures

import grpc
from lowkey.v1 import generation_pb2

import made_requests as made
from running_server import LONG_S, InteropTest

MAX_BYTES = made.MAX_MESSAGE_BYTES


class MessageSizeTest(InteropTest):
    def tokenize(self, data, channel=None):
        call = (channel or self.channel).unary_unary(
            "/lowkey.v1.Generation/Tokenize",
            response_deserializer=generation_pb2.TokenizeResponse.FromString)
        return call(data, timeout=LONG_S).token_ids

    def test_every_size_about_those_of_frames_and_windows(self):
        request = generation_pb2.TokenizeRequest(text=made.STORY)
        expected = self.tokenize(request.SerializeToString())
        for around in (100, 16 << 10, 64 << 10, 65535, 1 << 20):
            for n_bytes in range(around - 7, around + 8):
                self.assertEqual(self.tokenize(made.padded(request, n_bytes)), expected)

    def test_4_mib_and_no_byte_more(self):
        request = generation_pb2.TokenizeRequest(text=made.STORY)
        expected = self.tokenize(request.SerializeToString())
        self.assertEqual(self.tokenize(made.padded(request, MAX_BYTES)), expected)
        for n_bytes in (MAX_BYTES + 1, 16 << 20, 100 << 20):
            error = self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED,
                                      lambda: self.tokenize(made.padded(request, n_bytes)))
            self.assertIn(str(n_bytes), error.details())
        self.assertEqual(self.tokenize(made.padded(request, MAX_BYTES)), expected)

    def test_large_messages_at_once_on_one_connection(self):
        request = generation_pb2.TokenizeRequest(text=made.STORY)
        expected = self.tokenize(request.SerializeToString())
        for n_calls in (2, 12):  # what a connection's messages may hold together
            data = made.padded(request, 2 * MAX_BYTES // n_calls)
            with futures.ThreadPoolExecutor(n_calls) as pool:
                for ids in pool.map(self.tokenize, [data] * 36):
                    self.assertEqual(ids, expected)

    def test_larger_messages_at_once_are_served_or_refused_for_now(self):
        request = generation_pb2.TokenizeRequest(text=made.STORY)
        expected = self.tokenize(request.SerializeToString())
        data = made.padded(request, MAX_BYTES)

        def attempt(_):
            try:
                return self.tokenize(data)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                self.assertIn("try again", error.details())
                return None
        with futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(attempt, range(36)))
        self.assertIn(expected, answers)
        self.assertIn(None, answers)
        self.assertEqual(self.tokenize(data), expected)

    def test_too_large_message_among_streams_leaves_them_whole(self):
        streams = [self.generation.GenerateStream(made.generate(200))
                   for _ in range(4)]
        data = made.padded(generation_pb2.TokenizeRequest(text="a"), 8 << 20)
        for _ in range(4):
            self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.tokenize(data))
        for stream in streams:
            self.assertEqual(made.n_tokens(list(stream)), 200)


class CompressionTest(InteropTest):
    def test_compressed_requests_are_unimplemented(self):
        text = made.STORY * 100  # worth compressing
        for algorithm, name in ((grpc.Compression.Gzip, "gzip"),
                                (grpc.Compression.Deflate, "deflate")):
            error = self.assert_fails(
                grpc.StatusCode.UNIMPLEMENTED, lambda: self.generation.Tokenize(
                    generation_pb2.TokenizeRequest(text=text), timeout=LONG_S,
                    compression=algorithm))
            self.assertIn(f"grpc-encoding: {name}", error.details())
            self.assert_fails(
                grpc.StatusCode.UNIMPLEMENTED, lambda: list(self.generation.GenerateStream(
                    made.generate(text=text), compression=algorithm)))
        self.assert_channel_works()

    def test_channel_that_compresses(self):
        channel = self.open_channel(compression=grpc.Compression.Gzip)
        call = channel.unary_unary("/lowkey.v1.Generation/Tokenize")
        data = generation_pb2.TokenizeRequest(text=made.STORY * 100).SerializeToString()
        for _ in range(10):
            self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: call(data, timeout=LONG_S))
