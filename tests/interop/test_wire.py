"""What official clients keep to themselves: calls sent by h2, another implementation of HTTP/2.

The server must end a call at its deadline without the client's help, bound metadata by itself, and
say goodbye to connections that are open while it stops."""

import base64
import signal
import socket
import unittest

import h2.config
import h2.connection
import h2.events
import h2.settings
from google.rpc import status_pb2
from lowkey.v1 import generation_pb2

import made_requests as made
from running_server import LONG_S, shared_server, start_for

OK, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 4, 8, 12, 13


def framed(data, is_compressed=False):
    return bytes([is_compressed]) + len(data).to_bytes(4, "big") + data


# h2 takes a GOAWAY as the connection's end; its streams may go on (RFC 9113, section 6.8).
h2.connection.H2ConnectionStateMachine._transitions[
    (h2.connection.ConnectionState.CLIENT_OPEN, h2.connection.ConnectionInputs.RECV_GOAWAY)] = (
        None, h2.connection.ConnectionState.CLIENT_OPEN)


class Call:
    """What came of one stream."""

    def __init__(self):
        self.head, self.trailers, self.body, self.reset, self.is_over = {}, {}, b"", None, False

    @property
    def status(self):
        return int({**self.head, **self.trailers}["grpc-status"])

    @property
    def message(self):
        return {**self.head, **self.trailers}.get("grpc-message", "")

    def messages(self):
        at, messages = 0, []
        while at < len(self.body):
            n_bytes = int.from_bytes(self.body[at + 1:at + 5], "big")
            messages.append(self.body[at + 5:at + 5 + n_bytes])
            at += 5 + n_bytes
        return messages


class Connection:
    """One connection in clear; the tests' thread reads and writes it."""

    def __init__(self, server):
        self._socket = socket.create_connection(("127.0.0.1", server.port), LONG_S)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        # So that nothing has to be acknowledged.
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        self.h2.increment_flow_control_window(1 << 24)
        self.calls, self.goaway, self.is_closed, self.n_settings = {}, None, False, 0
        self.flush()

    def close(self):
        self._socket.close()

    def flush(self):
        self._socket.sendall(self.h2.data_to_send())

    def begin(self, path, *fields, ends=False):
        stream = self.h2.get_next_available_stream_id()
        self.calls[stream] = Call()
        self.h2.send_headers(stream, [
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"),
            ("content-type", "application/grpc"), ("te", "trailers"), *fields], end_stream=ends)
        self.flush()
        return stream

    def send(self, stream, data, ends=True):
        """Sends some bytes, as windows allow."""
        while data and not self.calls[stream].is_over:
            n = min(len(data), self.h2.local_flow_control_window(stream), 16384)
            if n == 0:
                self.receive()
                continue
            self.h2.send_data(stream, data[:n])
            data = data[n:]
            self.flush()
        if ends and not self.calls[stream].is_over:
            self.h2.end_stream(stream)
            self.flush()

    def call(self, path, data, *fields):
        """Returns the whole call of one message."""
        stream = self.begin(path, *fields)
        self.send(stream, framed(data))
        return self.end_of(stream)

    def end_of(self, stream):
        while not self.calls[stream].is_over:
            self.receive()
        return self.calls[stream]

    def receive(self):
        data = self._socket.recv(65536)
        if not data:
            self.is_closed = True
            for call in self.calls.values():
                call.is_over = True
            return
        for event in self.h2.receive_data(data):
            self._take(event)
        self.flush()

    def _take(self, event):
        call = self.calls.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived):
            call.head = dict(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            call.trailers = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            call.body += event.data
        elif isinstance(event, h2.events.StreamEnded):
            call.is_over = True
        elif isinstance(event, h2.events.StreamReset):
            call.is_over = True
            call.reset = event.error_code
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = event
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            self.n_settings += 1

    def await_close(self):
        while not self.is_closed:
            self.receive()


TOKENIZE = "/lowkey.v1.Generation/Tokenize"
STREAM = "/lowkey.v1.Generation/GenerateStream"


class WireTest(unittest.TestCase):
    def setUp(self):
        self.server = shared_server()
        self.connection = self.connect()

    def connect(self):
        connection = Connection(self.server)
        self.addCleanup(connection.close)
        return connection

    def tokenize(self, *fields):
        return self.connection.call(
            TOKENIZE, generation_pb2.TokenizeRequest(text="a").SerializeToString(), *fields)

    def test_answers_are_of_one_form(self):
        call = self.tokenize()
        self.assertEqual((call.head[":status"], call.head["content-type"]),
                         ("200", "application/grpc"))
        self.assertEqual((call.status, len(call.messages())), (OK, 1))
        self.assertNotIn("grpc-status", call.head)
        # A refusal has neither body nor trailers.
        call = self.connection.call("/lowkey.v1.Generation/Unknown", b"")
        self.assertEqual((call.status, call.trailers, call.body), (UNIMPLEMENTED, {}, b""))

    def test_server_ends_a_stream_at_its_deadline(self):
        self.server = start_for(self)
        self.connection = self.connect()
        request = made.endless(n=8, logprobs=20)
        call = self.connection.call(STREAM, request.SerializeToString(), ("grpc-timeout", "500m"))
        self.assertEqual(call.status, DEADLINE_EXCEEDED)
        stats = self.server.await_idle()
        self.assertEqual((stats.finished_requests, stats.cache_bytes_used), (0, 0))

    def test_deadlines_that_are_past(self):
        for timeout in ("1n", "0m", "0S"):
            self.assertEqual(self.tokenize(("grpc-timeout", timeout)).status, DEADLINE_EXCEEDED)
            call = self.connection.call(STREAM, made.generate().SerializeToString(),
                                        ("grpc-timeout", timeout))
            self.assertEqual(call.status, DEADLINE_EXCEEDED)

    def test_every_unit_of_deadlines(self):
        for timeout in ("99999999H", "99999999M", "60S", "60000m", "60000000u", "99999999n"):
            call = self.tokenize(("grpc-timeout", timeout))
            # The last one is a tenth of a second.
            self.assertIn(call.status, (OK, DEADLINE_EXCEEDED) if timeout[-1] == "n" else (OK,))
        for timeout in ("", "1", "S", "-1S", "1.5S", "123456789S", "1s", "1 S"):
            self.assertEqual(self.tokenize(("grpc-timeout", timeout)).status, INTERNAL, timeout)

    def test_details_are_those_of_google_rpc(self):
        self.server = start_for(self, "--max-running", "1", "--max-queued", "1")
        self.connection = self.connect()
        streams = []
        for _ in range(3):
            streams.append(self.connection.begin(STREAM))
            self.connection.send(streams[-1], framed(made.endless().SerializeToString()))
        while not any(self.connection.calls[s].is_over for s in streams):
            self.connection.receive()
        refused = next(self.connection.calls[s] for s in streams
                       if self.connection.calls[s].is_over)
        self.assertEqual(refused.status, RESOURCE_EXHAUSTED)
        self.assertRegex(refused.head["grpc-retry-pushback-ms"], "^[1-9][0-9]*$")
        data = refused.head["grpc-status-details-bin"]
        self.assertNotIn("=", data)
        status = status_pb2.Status.FromString(base64.b64decode(data + "=" * (-len(data) % 4)))
        self.assertEqual(status.code, RESOURCE_EXHAUSTED)

    def test_metadata_that_the_server_refuses(self):
        for fields in ([("long", "x" * 17000)], [(f"k{i}", "v") for i in range(120)]):
            call = self.tokenize(*fields)
            self.assertEqual((call.head[":status"], call.status), ("200", RESOURCE_EXHAUSTED))
        self.assertEqual(self.tokenize(("long", "x" * 15000)).status, OK)

    def test_metadata_far_too_large_end_the_connection(self):
        self.connection.begin(TOKENIZE, *[(f"k{i}", "x" * 4000) for i in range(20)])
        self.connection.await_close()
        self.assertEqual((self.connection.goaway.error_code,
                          self.connection.goaway.additional_data),
                         (h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, b"header_fields_too_large"))

    def test_compressed_message_without_its_encoding(self):
        stream = self.connection.begin(TOKENIZE)
        self.connection.send(stream, framed(b"", is_compressed=True))
        self.assertEqual(self.connection.end_of(stream).status, INTERNAL)

    def test_encodings(self):
        for encoding in ("gzip", "deflate", "snappy", "x"):
            call = self.tokenize(("grpc-encoding", encoding))
            self.assertEqual(call.status, UNIMPLEMENTED)
            self.assertEqual(call.head["grpc-accept-encoding"], "identity")
        call = self.tokenize(("grpc-encoding", "identity"), ("grpc-accept-encoding", "gzip"))
        self.assertEqual(call.status, OK)
        self.assertNotIn("grpc-encoding", call.head)

    def test_body_that_ends_within_a_message(self):
        for data in (b"\0", b"\0\0\0\0\5", b"\0\0\0\0\5abc"):
            stream = self.connection.begin(TOKENIZE)
            self.connection.send(stream, data)
            self.assertEqual(self.connection.end_of(stream).status, INTERNAL)

    def test_body_byte_by_byte(self):
        stream = self.connection.begin(TOKENIZE)
        for byte in framed(generation_pb2.TokenizeRequest(text="a").SerializeToString()):
            self.connection.send(stream, bytes([byte]), ends=False)
        self.connection.send(stream, b"")
        self.assertEqual(self.connection.end_of(stream).status, OK)

    def test_too_large_message_is_refused_by_its_prefix(self):
        stream = self.connection.begin(TOKENIZE)
        n_bytes = made.MAX_MESSAGE_BYTES + 1
        self.connection.send(stream, b"\0" + n_bytes.to_bytes(4, "big"), ends=False)
        call = self.connection.end_of(stream)
        self.assertEqual(call.status, RESOURCE_EXHAUSTED)
        self.assertEqual(self.tokenize().status, OK)

    def test_content_types(self):
        for content_type, status in (("application/grpc", "200"), ("application/grpc+proto", "200"),
                                     ("application/grpc; a=b", "200"),
                                     ("application/grpc-web", "415"), ("text/html", "415")):
            stream = self.connection.h2.get_next_available_stream_id()
            self.connection.calls[stream] = Call()
            self.connection.h2.send_headers(stream, [
                (":method", "POST"), (":scheme", "http"), (":path", TOKENIZE),
                (":authority", "test"), ("content-type", content_type)])
            self.connection.send(stream, framed(b""))
            self.assertEqual(self.connection.end_of(stream).head[":status"], status, content_type)

    def test_settings(self):
        while self.connection.n_settings == 0:
            self.connection.receive()
        settings = self.connection.h2.remote_settings
        self.assertEqual((settings.max_concurrent_streams, settings.max_header_list_size),
                         (100, 16 << 10))

    def test_connection_is_drained(self):
        self.server = start_for(self)
        self.connection = self.connect()
        stream = self.connection.begin(STREAM)
        self.connection.send(stream, framed(made.generate(300).SerializeToString()))
        while not self.connection.calls[stream].body:
            self.connection.receive()
        idle = self.connect()
        self.server.signal(signal.SIGTERM)
        call = self.connection.end_of(stream)
        self.assertEqual(call.status, OK)
        events = [generation_pb2.GenerateEvent.FromString(one) for one in call.messages()]
        self.assertEqual(made.n_tokens(events), 300)
        for connection in (self.connection, idle):
            connection.await_close()
            self.assertEqual(connection.goaway.error_code, h2.errors.ErrorCodes.NO_ERROR)
        self.assertGreaterEqual(self.connection.goaway.last_stream_id, stream)
        self.assertEqual(self.server.exit_code(), 0)
