"""Traces, as OpenTelemetry's own definitions read them: a collector takes OTLP over HTTP."""

import http.server
import json
import threading

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto_json.collector.trace.v1 import trace_service
from lowkey.v1 import generation_pb2_grpc

import made_requests as made
from running_server import InteropTest, start_for, stop_by_signal

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
IDS = ("traceId", "spanId", "parentSpanId")


class Collector:
    """Takes posts on a free port and keeps their bodies."""

    def __init__(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.posts.append((self.path, self.headers["content-type"], body))
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.posts = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def parsed(body):
    """The message, which must have no field that OpenTelemetry does not know. protobuf's own JSON
    has bytes in base64, and OTLP's has ids in hexadecimal digits."""
    message = json.loads(body)
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in IDS:
                    if name in span:
                        value = json_format.MessageToDict(
                            trace_pb2.Span(trace_id=bytes.fromhex(span[name])))["traceId"]
                        span[name] = value
    return json_format.ParseDict(message, trace_service_pb2.ExportTraceServiceRequest())


def value_of(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(v) for v in value.array_value.values]
    return getattr(value, kind)


def attributes_of(message):
    return {a.key: value_of(a.value) for a in message.attributes}


class TracesTest(InteropTest):
    def setUp(self):
        self.collector = Collector()
        self.addCleanup(self.collector.stop)
        self.server = start_for(self, "--otlp", self.collector.url, "--log-requests")

    def spans(self):
        """Ends the server and returns its resource's attributes and its spans."""
        self.assertEqual(stop_by_signal(self.server), 0)
        resource, spans = {}, []
        for path, content_type, body in self.collector.posts:
            self.assertEqual(path, "/v1/traces")
            self.assertEqual(content_type, "application/json")
            # OpenTelemetry's reader of OTLP's JSON agrees.
            read = trace_service.ExportTraceServiceRequest.from_dict(json.loads(body))
            self.assertEqual(read.to_dict(), json.loads(body))
            for of_resource in parsed(body).resource_spans:
                resource = attributes_of(of_resource.resource)
                for of_scope in of_resource.scope_spans:
                    self.assertEqual(of_scope.scope.name, "lowkey")
                    spans += of_scope.spans
        return resource, spans

    def test_a_stream_in_its_callers_trace(self):
        with self.server.channel() as channel:
            stub = generation_pb2_grpc.GenerationStub(channel)
            metadata = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),
                        ("tracestate", "congo=t61rcWkgMzE"))
            events = list(stub.GenerateStream(made.generate(6), metadata=metadata))
        resource, spans = self.spans()
        self.assertEqual(resource["service.name"], "lowkey")
        self.assertTrue(resource["service.version"])
        self.assertEqual([s.name for s in spans], ["GenerateStream", "queue", "prefill", "decode"])
        server = spans[0]
        self.assertEqual(server.kind, trace_pb2.Span.SPAN_KIND_SERVER)
        self.assertEqual(server.trace_id.hex(), TRACE_ID)
        self.assertEqual(server.parent_span_id.hex(), PARENT_ID)
        self.assertEqual(server.trace_state, "congo=t61rcWkgMzE")
        self.assertEqual(server.flags, 0x301)
        self.assertEqual(server.status.code, trace_pb2.Status.STATUS_CODE_UNSET)
        for span in spans[1:]:
            self.assertEqual(span.trace_id.hex(), TRACE_ID)
            self.assertEqual(span.parent_span_id, server.span_id)
            self.assertLessEqual(server.start_time_unix_nano, span.start_time_unix_nano)
            self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano)
            self.assertLessEqual(span.end_time_unix_nano, server.end_time_unix_nano)
        self.assertEqual(len({s.span_id for s in spans}), 4)
        attributes = attributes_of(server)
        timings = events[-1].final.timings
        self.assertEqual(attributes["gen_ai.usage.output_tokens"], 6)
        self.assertEqual(attributes["gen_ai.usage.input_tokens"],
                         events[-1].final.usage.prompt_tokens)
        self.assertEqual(attributes["gen_ai.response.finish_reasons"], ["length"])
        self.assertEqual(attributes["gen_ai.request.model"], "tales")
        self.assertEqual(attributes["lowkey.attention.mechanism"], "standard")
        self.assertAlmostEqual(attributes["lowkey.ttft_ms"], timings.ttft_us / 1000)
        self.assertIn(f'"trace_id":"{TRACE_ID}"', self.server.log())

    def test_errors_and_traces_that_begin_here(self):
        with self.server.channel() as channel:
            stub = generation_pb2_grpc.GenerationStub(channel)
            with self.assertRaises(grpc.RpcError):
                stub.Generate(made.generate(4, n=9))
            stub.Score(made.score(), metadata=(("traceparent", "not a trace"),))
            stub.Score(made.score(), metadata=(("traceparent",
                                                f"00-{TRACE_ID}-{PARENT_ID}-00"),))
        _, spans = self.spans()
        self.assertEqual([s.name for s in spans], ["Generate", "Score"])
        for span in spans:
            self.assertEqual(span.parent_span_id, b"")
            self.assertNotEqual(span.trace_id.hex(), TRACE_ID)
        self.assertEqual(attributes_of(spans[0])["error.type"], "INVALID_ARGUMENT")
