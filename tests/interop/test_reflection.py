"""Reflection: what grpcurl and grpcio-reflection do without any .proto file."""

import queue

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha import reflection_pb2 as v1alpha_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc as v1alpha_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import \
    ProtoReflectionDescriptorDatabase
from lowkey.v1 import generation_pb2
from reflection.v1 import reflection_pb2 as v1_pb2
from reflection.v1 import reflection_pb2_grpc as v1_grpc

from running_server import LONG_S, InteropTest

SERVICES = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection", "inference.GRPCInferenceService",
            "lowkey.v1.Admin", "lowkey.v1.Generation", "lowkey.v1.Models"]


class ReflectionStream:
    """Asks on one stream, as grpcurl does, and adds the files to a pool of its own."""

    def __init__(self, channel, pb2, pb2_grpc):
        self._pb2 = pb2
        self._requests = queue.Queue()
        stub = pb2_grpc.ServerReflectionStub(channel)
        self._answers = stub.ServerReflectionInfo(iter(self._requests.get, None), timeout=LONG_S)
        self._files = {}
        self.pool = descriptor_pool.DescriptorPool()

    def ask(self, **request):
        self._requests.put(self._pb2.ServerReflectionRequest(**request))
        answer = next(self._answers)
        assert answer.original_request == self._pb2.ServerReflectionRequest(**request)
        return answer

    def end(self):
        """Returns what came after the last answer, and the status."""
        self._requests.put(None)
        return list(self._answers), self._answers.code()

    def services(self):
        return [s.name for s in self.ask(list_services="*").list_services_response.service]

    def find_symbol(self, name):
        answer = self.ask(file_containing_symbol=name)
        data = answer.file_descriptor_response.file_descriptor_proto
        assert data, answer.error_response
        self._add(self._keep(data))
        return self.pool

    def _keep(self, data):
        files = [descriptor_pb2.FileDescriptorProto.FromString(one) for one in data]
        for file in files:
            self._files.setdefault(file.name, file)
        return files[0].name

    def _add(self, name):
        if name not in self._files:
            self._keep(self.ask(file_by_filename=name)
                       .file_descriptor_response.file_descriptor_proto)
        for dependency in self._files[name].dependency:
            self._add(dependency)
        self.pool.AddSerializedFile(self._files[name].SerializeToString())


class ReflectionTest(InteropTest):
    def versions(self):
        for pb2, pb2_grpc in ((v1_pb2, v1_grpc), (v1alpha_pb2, v1alpha_grpc)):
            with self.subTest(pb2.DESCRIPTOR.package):
                yield ReflectionStream(self.channel, pb2, pb2_grpc)

    def call_by_descriptors(self, pool, path, request):
        """Returns the answer as JSON; the messages' types are those of the pool alone."""
        service, method = path.split("/")
        method = pool.FindServiceByName(service).methods_by_name[method]
        request = json_format.ParseDict(
            request, message_factory.GetMessageClass(method.input_type)())
        answer_type = message_factory.GetMessageClass(method.output_type)
        make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        answer = make(f"/{path}", response_deserializer=answer_type.FromString)(
            request.SerializeToString(), timeout=LONG_S)
        if method.server_streaming:
            return [json_format.MessageToDict(event) for event in answer]
        return json_format.MessageToDict(answer)

    def call_methods(self, pool):
        ids = self.call_by_descriptors(pool, "lowkey.v1.Generation/Tokenize", {"text": "a cat"})
        text = self.call_by_descriptors(pool, "lowkey.v1.Generation/Detokenize",
                                        {"tokenIds": ids["tokenIds"]})
        self.assertEqual(text["text"].strip(), "a cat")
        events = self.call_by_descriptors(
            pool, "lowkey.v1.Generation/GenerateStream",
            {"text": "Once", "maxNewTokens": 5, "ignoreEos": True,
             "sampling": {"temperature": 0.5, "seed": "7", "logitBias": {"5": 1.5}}})
        self.assertEqual(events[-1]["final"]["seed"], "7")
        self.assertTrue(self.call_by_descriptors(pool, "lowkey.v1.Admin/Stats", {})["version"])
        self.assertEqual(len(self.call_by_descriptors(
            pool, "lowkey.v1.Models/ListModels", {})["models"]), 1)
        self.assertEqual(self.call_by_descriptors(pool, "grpc.health.v1.Health/Check", {}),
                         {"status": "SERVING"})

    def test_every_service_is_described_and_called(self):
        for stream in self.versions():
            self.assertEqual(stream.services(), SERVICES)
            for name in SERVICES:
                pool = stream.find_symbol(name)
                for method in pool.FindServiceByName(name).methods:
                    # Each of its types is found by its name, too.
                    stream.find_symbol(method.input_type.full_name)
                    stream.find_symbol(method.output_type.full_name)
                    stream.find_symbol(method.full_name)
            self.call_methods(stream.pool)
            self.assertEqual(stream.end(), ([], grpc.StatusCode.OK))

    def test_descriptors_are_those_of_the_proto_files(self):
        for stream in self.versions():
            pool = stream.find_symbol("lowkey.v1.GenerateRequest")
            ours = generation_pb2.DESCRIPTOR
            theirs = pool.FindFileByName("lowkey/v1/generation.proto")
            protos = [descriptor_pb2.FileDescriptorProto() for _ in range(2)]
            ours.CopyToProto(protos[0])
            theirs.CopyToProto(protos[1])
            self.assertEqual(protos[0], protos[1])
            stream.end()

    def test_what_is_not_there(self):
        for stream in self.versions():
            for request in ({"file_containing_symbol": "lowkey.v1.Other"},
                            {"file_by_filename": "other.proto"},
                            {"all_extension_numbers_of_type": "lowkey.v1.Other"},
                            {"file_containing_extension": {
                                "containing_type": "lowkey.v1.Token", "extension_number": 5}}):
                self.assertEqual(stream.ask(**request).error_response.error_code,
                                 grpc.StatusCode.NOT_FOUND.value[0])
            # The stream goes on.
            self.assertEqual(stream.ask(
                all_extension_numbers_of_type="lowkey.v1.Token"
            ).all_extension_numbers_response.base_type_name, "lowkey.v1.Token")
            self.assertEqual(stream.services(), SERVICES)
            stream.end()

    def test_empty_stream(self):
        for stream in self.versions():
            self.assertEqual(stream.end(), ([], grpc.StatusCode.OK))

    def test_ping_pong(self):
        for stream in self.versions():
            for _ in range(500):
                stream.ask(file_by_filename="lowkey/v1/admin.proto")
            self.assertEqual(stream.end(), ([], grpc.StatusCode.OK))

    def test_requests_all_at_once(self):
        requests = [v1_pb2.ServerReflectionRequest(list_services=str(i)) for i in range(500)]
        answers = v1_grpc.ServerReflectionStub(self.channel).ServerReflectionInfo(
            iter(requests), timeout=LONG_S)
        self.assertEqual([a.original_request.list_services for a in answers],
                         [str(i) for i in range(500)])

    def test_database_of_grpcio_reflection(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        self.assertEqual(sorted(database.get_services()), SERVICES)
        pool = descriptor_pool.DescriptorPool(database)
        for name in SERVICES:
            self.assertTrue(pool.FindServiceByName(name).methods)
        self.assertEqual(pool.FindMessageTypeByName("lowkey.v1.GenerateRequest").fields_by_name[
            "text"].containing_oneof.name, "input")
        self.call_methods(pool)
        with self.assertRaises(KeyError):
            pool.FindMessageTypeByName("lowkey.v1.Other")
