"""Server streaming by the synchronous client."""

import threading
from concurrent import futures

from lowkey.v1 import generation_pb2_grpc

import made_requests as made
from running_server import LONG_S, SMALL_WINDOW, InteropTest, eventually


class StreamingTest(InteropTest):
    def test_stream_gives_what_the_unary_call_gives(self):
        request = made.generate(60, sampling={"temperature": 0.9, "seed": 11})
        events = list(self.generation.GenerateStream(request))
        answer = self.generation.Generate(request)
        self.assertEqual(made.n_tokens(events), 60)
        self.assertEqual(made.text_of(events), answer.choices[0].text)
        self.assertEqual(events[-1].final.usage, answer.final.usage)

    def test_150_streams_on_one_channel(self):
        # 100 may be open on a connection; the client holds the others back.
        expected = list(self.generation.GenerateStream(made.generate(24)))
        all_open = threading.Barrier(150)

        def stream(_):
            all_open.wait(LONG_S)
            return list(self.generation.GenerateStream(made.generate(24)))

        with futures.ThreadPoolExecutor(150) as pool:
            for events in pool.map(stream, range(150)):
                self.assertEqual(made.n_tokens(events), 24)
                self.assertEqual(made.text_of(events), made.text_of(expected))

    def test_30_channels_with_streams(self):
        channels = [self.open_channel() for _ in range(30)]

        def stream(channel):
            stub = generation_pb2_grpc.GenerationStub(channel)
            return list(stub.GenerateStream(made.generate(24)))

        with futures.ThreadPoolExecutor(30) as pool:
            for events in pool.map(stream, channels):
                self.assertEqual(made.n_tokens(events), 24)

    def test_reader_that_pauses_pauses_its_request_and_gets_all_of_it(self):
        stub = generation_pb2_grpc.GenerationStub(self.open_channel(*SMALL_WINDOW))
        # 1 MB: far more than connection, client and server hold back for a reader.
        stream = stub.GenerateStream(made.generate(400, n=8, logprobs=20))
        first = next(stream)
        eventually(lambda: self.server.gauge("lowkey:num_streams_paused") == 1, "it pauses")
        self.assertEqual(self.server.stats().running_requests, 1)
        # Others are served meanwhile, also on the same connection.
        self.assertEqual(len(stub.Generate(made.generate(8)).choices[0].tokens), 8)
        self.assertEqual(made.n_tokens([first, *stream]), 8 * 400)
