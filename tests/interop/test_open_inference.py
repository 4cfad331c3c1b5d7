"""The Open Inference Protocol by tritonclient, which nobody has told about this server."""

import queue

import numpy
import tritonclient.grpc as triton
from google.protobuf import descriptor_pb2
from lowkey.v1 import admin_pb2, admin_pb2_grpc
from lowkey.v1 import generation_pb2 as pb
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

import made_requests as made
from reflection.v1 import reflection_pb2, reflection_pb2_grpc
from running_server import LONG_S, InteropTest, eventually, start_for

MODEL = "tales"
SAMPLING = '{"temperature": "0.9", "seed": 11, "ignore_eos": true, "max_tokens": %d}'


def texts(name, *values):
    tensor = triton.InferInput(name, [len(values)], "BYTES")
    tensor.set_data_from_numpy(numpy.array([v.encode() for v in values], dtype=numpy.object_))
    return tensor


def scalar(name, value, datatype, dtype):
    tensor = triton.InferInput(name, [1], datatype)
    tensor.set_data_from_numpy(numpy.array([value], dtype=dtype))
    return tensor


def flag(name, value=True):
    return scalar(name, value, "BOOL", bool)


def story(n_tokens=40, is_streamed=False, *more):
    return [texts("text_input", made.STORY), flag("stream", is_streamed),
            flag("exclude_input_in_output"), texts("sampling_parameters", SAMPLING % n_tokens),
            *more]


class TritonStream:
    """A stream whose answers are read one by one."""

    def __init__(self, test, **arguments):
        self.client = triton.InferenceServerClient(test.server.address)
        self._answers = queue.Queue()
        self.client.start_stream(lambda result, error: self._answers.put((result, error)),
                                 **arguments)
        test.addCleanup(self.client.close)

    def send(self, inputs, **arguments):
        self.client.async_stream_infer(MODEL, inputs, **arguments)

    def next(self):
        """Returns the next answer; raises if it is an error."""
        result, error = self._answers.get(timeout=LONG_S)
        if error is not None:
            raise error
        return result

    def answers(self):
        """Returns the answers up to the first last one."""
        answers = [self.next()]
        while not is_final(answers[-1]):
            answers.append(self.next())
        return answers


def is_final(answer):
    return answer.get_response().parameters["triton_final_response"].bool_param


def id_of(answer):
    return answer.get_response().id


def text_of(*answers):
    parts = [a.as_numpy("text_output") for a in answers]
    return b"".join(part[0] for part in parts if part is not None).decode()


class OpenInferenceTest(InteropTest):
    def setUp(self):
        super().setUp()
        self.client = triton.InferenceServerClient(self.server.address)
        self.addCleanup(self.client.close)
        request = made.generate(40, sampling={"temperature": 0.9, "seed": 11})
        self.expected = self.generation.Generate(request).choices[0].text

    def test_state_and_descriptions(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready(MODEL))
        self.assertFalse(self.client.is_model_ready("other"))
        server = self.client.get_server_metadata()
        self.assertEqual(server.name, "lowkey")
        self.assertEqual(list(server.extensions), ["model_configuration", "statistics"])
        model = self.client.get_model_metadata(MODEL)
        self.assertEqual([(t.name, t.datatype) for t in model.inputs][:2],
                         [("text_input", "BYTES"), ("input_ids", "INT32")])
        config = self.client.get_model_config(MODEL).config
        self.assertTrue(config.model_transaction_policy.decoupled)
        self.assertEqual([t.name for t in config.input], [t.name for t in model.inputs])
        index = self.client.get_model_repository_index()
        self.assertEqual([(m.name, m.state) for m in index.models], [(MODEL, "READY")])
        with self.assertRaisesRegex(InferenceServerException, "NOT_FOUND.*other"):
            self.client.get_model_metadata("other")
        with self.assertRaisesRegex(InferenceServerException, "UNIMPLEMENTED"):
            self.client.load_model(MODEL)
        with self.assertRaisesRegex(InferenceServerException, "UNIMPLEMENTED"):
            self.client.get_system_shared_memory_status()

    def test_infer_gives_what_generate_gives(self):
        answer = self.client.infer(
            MODEL, story(40, False, flag("return_finish_reason"), flag("return_num_input_tokens"),
                         flag("return_num_output_tokens"), flag("return_cumulative_logprob")),
            request_id="mine", priority=3, timeout=LONG_S * 1_000_000)
        self.assertEqual(text_of(answer), self.expected)
        self.assertEqual(id_of(answer), "mine")
        self.assertEqual(answer.as_numpy("finish_reason")[0], b"length")
        self.assertEqual(answer.as_numpy("num_output_tokens")[0], 40)
        self.assertGreater(answer.as_numpy("num_input_tokens")[0], 1)
        self.assertLess(answer.as_numpy("cumulative_logprob")[0], 0)
        self.assertEqual(answer.get_response().parameters["seed"].string_param, "11")

    def test_prompt_stands_before_the_text_unless_excluded(self):
        answer = self.client.infer(MODEL, [texts("text_input", made.STORY),
                                           texts("sampling_parameters", SAMPLING % 40)])
        self.assertEqual(text_of(answer), made.STORY + self.expected)

    def test_names_of_tensorrt_llm(self):
        answer = self.client.infer(MODEL, [
            texts("text_input", made.STORY), flag("exclude_input_in_output"),
            scalar("max_tokens", 4, "INT32", numpy.int32),
            scalar("temperature", 0.9, "FP32", numpy.float32),
            scalar("random_seed", 11, "UINT64", numpy.uint64),
            scalar("top_k", 0, "INT32", numpy.int32), scalar("top_p", 1, "FP32", numpy.float32),
            texts("stop_words", "The End"), flag("return_num_output_tokens")])
        self.assertTrue(self.expected.startswith(text_of(answer)))
        self.assertEqual(answer.as_numpy("num_output_tokens")[0], 4)

    def test_token_ids_give_what_their_text_gives(self):
        ids = self.generation.Tokenize(pb.TokenizeRequest(text=made.STORY)).token_ids
        tensor = triton.InferInput("input_ids", [len(ids)], "INT32")
        tensor.set_data_from_numpy(numpy.array(ids, dtype=numpy.int32))
        answer = self.client.infer(MODEL, [tensor, texts("sampling_parameters", SAMPLING % 40)])
        self.assertEqual(text_of(answer), self.expected)

    def test_requested_outputs_alone_are_answered(self):
        answer = self.client.infer(MODEL, story(4), outputs=[
            triton.InferRequestedOutput("num_output_tokens")])
        self.assertEqual([o.name for o in answer.get_response().outputs], ["num_output_tokens"])

    def test_attention_is_a_parameter(self):
        answer = self.client.infer(MODEL, story(4), parameters={
            "attention": "atp", "attention_rank": "1/8", "attention_block_tokens": 64})
        parameters = answer.get_response().parameters
        self.assertEqual(parameters["attention"].string_param, "atp")
        self.assertTrue(parameters["attention_approximate"].bool_param)

    def test_errors_name_the_input(self):
        with self.assertRaisesRegex(InferenceServerException, "INVALID_ARGUMENT.*bad_words"):
            self.client.infer(MODEL, story(4, False, texts("bad_words", "x")))
        with self.assertRaisesRegex(InferenceServerException, "ModelStreamInfer"):
            self.client.infer(MODEL, story(4, True))

    def test_decoupled_stream_gives_what_generate_gives(self):
        stream = TritonStream(self)
        stream.send(story(40, True, flag("return_num_output_tokens")), request_id="s")
        answers = stream.answers()
        self.assertGreater(len(answers), 2)
        self.assertEqual(text_of(*answers), self.expected)
        self.assertEqual({id_of(a) for a in answers}, {"s"})
        self.assertEqual(sum(a.as_numpy("num_output_tokens")[0] for a in answers), 40)
        stream.client.stop_stream()

    def test_empty_final_response(self):
        stream = TritonStream(self)
        stream.send(story(40, True), enable_empty_final_response=True)
        answers = stream.answers()
        self.assertEqual(len(answers[-1].get_response().outputs), 0)
        self.assertEqual(text_of(*answers), self.expected)
        # One that is not streamed.
        stream.send(story(40, False), enable_empty_final_response=True)
        answers = stream.answers()
        self.assertEqual([len(a.get_response().outputs) for a in answers], [1, 0])
        self.assertEqual(text_of(*answers), self.expected)

    def test_64_requests_on_one_stream(self):
        stream = TritonStream(self)
        for i in range(64):
            stream.send(story(40, i % 2 == 0), request_id=str(i))
        parts = {str(i): [] for i in range(64)}
        n_open = 64
        while n_open > 0:
            answer = stream.next()
            parts[id_of(answer)].append(answer)
            n_open -= is_final(answer)
        for answers in parts.values():
            self.assertEqual(text_of(*answers), self.expected)

    def test_stop_stream_waits_for_what_is_in_flight(self):
        stream = TritonStream(self)
        for i in range(4):
            stream.send(story(40, True), request_id=str(i))
        stream.client.stop_stream()  # half-closes, then reads to the end
        n_final = 0
        while n_final < 4:
            n_final += is_final(stream.next())

    def test_failed_request_leaves_the_stream_open(self):
        stream = TritonStream(self)
        stream.send(story(4, True, texts("bad_words", "x")))
        with self.assertRaisesRegex(InferenceServerException, "INVALID_ARGUMENT.*bad_words"):
            stream.next()
        stream.send(story(40, True))
        self.assertEqual(text_of(*stream.answers()), self.expected)

    def test_failed_request_ends_the_stream_where_asked_for(self):
        stream = TritonStream(self, headers={"triton_grpc_error": "true"})
        stream.send(story(4, True, texts("bad_words", "x")))
        with self.assertRaises(InferenceServerException) as raised:
            stream.next()
        self.assertIn("INVALID_ARGUMENT", raised.exception.status())

    def test_cancelled_stream_ends_its_requests(self):
        before = self.server.await_idle().cancelled_requests
        stream = TritonStream(self)
        for _ in range(3):
            stream.send(story(made.CONTEXT_TOKENS - 16, True))
        stream.next()
        eventually(lambda: self.server.stats().running_requests == 3, "three run")
        stream.client.stop_stream(cancel_requests=True)
        self.assertEqual(self.server.await_idle().cancelled_requests, before + 3)

    def test_cancelled_call_ends_its_request(self):
        before = self.server.await_idle().cancelled_requests
        results = queue.Queue()
        call = self.client.async_infer(MODEL, story(made.CONTEXT_TOKENS - 16),
                                       lambda result, error: results.put(error))
        eventually(lambda: self.server.stats().running_requests == 1, "it runs")
        call.cancel()
        self.assertIn("cancelled", str(results.get(timeout=LONG_S)).lower())
        self.assertEqual(self.server.await_idle().cancelled_requests, before + 1)

    def test_statistics_count(self):
        def counts():
            (stats,) = self.client.get_inference_statistics(MODEL).model_stats
            times = stats.inference_stats
            return numpy.array([times.success.count, times.fail.count, stats.inference_count])

        before = counts()
        self.client.infer(MODEL, story(4))
        with self.assertRaises(InferenceServerException):
            self.client.infer(MODEL, story(-4))
        self.assertEqual(list(counts() - before), [1, 1, 1])

    def test_drained_server_is_live_and_not_ready(self):
        server = start_for(self)
        client = triton.InferenceServerClient(server.address)
        self.addCleanup(client.close)
        # The server exits once nothing is in flight.
        call = client.async_infer(MODEL, story(made.CONTEXT_TOKENS - 16), lambda result, error: None)
        eventually(lambda: server.stats().running_requests == 1, "it runs")
        with server.channel() as channel:
            admin_pb2_grpc.AdminStub(channel).Drain(admin_pb2.DrainRequest(), timeout=LONG_S)
        self.assertTrue(client.is_server_live())
        self.assertFalse(client.is_server_ready())
        self.assertFalse(client.is_model_ready(MODEL))
        with self.assertRaisesRegex(InferenceServerException, "UNAVAILABLE"):
            client.infer(MODEL, story(4))
        call.cancel()


class CompatibilityTest(InteropTest):
    """The server's descriptors are a part of those that tritonclient was built from."""

    def files(self):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        request = reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="inference.GRPCInferenceService")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=LONG_S)
        data = answer.file_descriptor_response.file_descriptor_proto
        return [descriptor_pb2.FileDescriptorProto.FromString(file) for file in data]

    @staticmethod
    def shape(field):
        return (field.number, field.label, field.type, field.type_name,
                field.HasField("oneof_index"))

    def messages(self, file_or_message, prefix=""):
        nested = getattr(file_or_message, "message_type", None)
        for message in file_or_message.nested_type if nested is None else nested:
            yield prefix + message.name, message
            yield from self.messages(message, prefix + message.name + ".")

    def test_names_numbers_and_types_are_the_public_ones(self):
        theirs = {}
        methods = {}
        for module in (service_pb2, model_config_pb2):
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            theirs.update(self.messages(file))
            for service in file.service:
                methods.update({m.name: m for m in service.method})
        n_fields = 0
        for file in self.files():
            self.assertEqual(file.package, "inference")
            for name, message in self.messages(file):
                fields = {f.name: self.shape(f) for f in theirs[name].field}
                for field in message.field:
                    self.assertEqual(self.shape(field), fields[field.name], f"{name}.{field.name}")
                    n_fields += 1
            for service in file.service:
                self.assertEqual({m.name for m in service.method}, set(methods))
                for method in service.method:
                    for attribute in ("input_type", "output_type", "client_streaming",
                                      "server_streaming"):
                        self.assertEqual(getattr(method, attribute),
                                         getattr(methods[method.name], attribute), method.name)
        self.assertGreater(n_fields, 150)
