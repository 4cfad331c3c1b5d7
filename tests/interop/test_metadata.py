"""Metadata that a client may send; custom_metadata of gRPC's list, of which the server echoes
nothing."""

import grpc
from lowkey.v1 import admin_pb2, admin_pb2_grpc

import made_requests as made
from running_server import LONG_S, InteropTest

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class MetadataTest(InteropTest):
    def stats(self, metadata):
        return self.admin.Stats(admin_pb2.StatsRequest(), timeout=LONG_S, metadata=metadata)

    def assert_all_calls_take(self, metadata):
        answer, call = self.admin.Stats.with_call(admin_pb2.StatsRequest(), timeout=LONG_S,
                                                  metadata=metadata)
        self.assertTrue(answer.version)
        sent = {key for key, _ in metadata}
        seen = {key for key, _ in (*call.initial_metadata(), *call.trailing_metadata())}
        self.assertFalse(sent & seen)
        events = list(self.generation.GenerateStream(made.generate(4),
                                                     metadata=metadata))
        self.assertEqual(made.n_tokens(events), 4)

    def test_custom_metadata(self):
        self.assert_all_calls_take((("x-grpc-test-echo-initial", "test_initial_metadata_value"),
                                    ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")))

    def test_ascii(self):
        printable = "".join(map(chr, range(0x20, 0x7f))).strip()
        self.assert_all_calls_take((("a", ""), ("b_c-d.e", printable), ("twice", "1"),
                                    ("twice", "2")))

    def test_binary(self):
        self.assert_all_calls_take(tuple(
            [("all-bin", bytes(range(256))), ("empty-bin", b""), ("comma-bin", b",,=")] +
            [("sizes-bin", b"\xff" * n) for n in range(1, 6)]))

    def test_many(self):
        self.assert_all_calls_take(tuple((f"key-{i}", f"value {i}") for i in range(80)))
        # The same and others again: the client's table of fields turns over.
        for i in range(300):
            self.stats([(f"key-{i % 40}", f"{i}" * 20), ("same", "value")])

    def test_long(self):
        self.assert_all_calls_take((("long", "x" * 15000),))

    def test_too_long(self):
        # The client knows the bound from the server's SETTINGS.
        for n_bytes in (17000, 60000):
            self.assert_fails(EXHAUSTED, lambda: self.stats([("long", "x" * n_bytes)]))
        self.assert_channel_works()

    def test_too_many(self):
        # These the client sends: they are within the bound of bytes.
        for _ in range(20):
            error = self.assert_fails(EXHAUSTED, lambda: self.stats(
                [(f"k{i}", "v") for i in range(120)]))
            self.assertIn("metadata", error.details())
        self.assert_channel_works()

    def test_names_of_clients(self):
        channel = self.open_channel(("grpc.primary_user_agent", "someone/1.0 (test)"),
                                    ("grpc.default_authority", "lowkey.example:443"))
        self.assertTrue(admin_pb2_grpc.AdminStub(channel).Stats(admin_pb2.StatsRequest(),
                                                                timeout=LONG_S).version)
