"""Answers under a schema are valid by another library's judgment. INTEROP_MODEL names another model,
INTEROP_SCHEMAS how many of the schemas are asked for."""

import functools
import json
import os
import pathlib

import grpc
import jsonschema
from lowkey.v1 import generation_pb2, generation_pb2_grpc

from running_server import LONG_S, InteropTest, RunningServer, shared_server

SCHEMAS = pathlib.Path(__file__).parent.parent / "server/grammar/schema/schemas.jsonl"
MODEL = os.environ.get("INTEROP_MODEL")


@functools.cache
def server():
    return RunningServer("--model", MODEL) if MODEL else shared_server()


class StructuredOutputTest(InteropTest):
    def setUp(self):
        super().setUp()
        channel = server().channel()
        self.addCleanup(channel.close)
        self.generation = generation_pb2_grpc.GenerationStub(channel)

    def answer(self, **fields):
        request = generation_pb2.GenerateRequest(
            text="Answer with JSON: ", max_new_tokens=150,
            response_format=generation_pb2.ResponseFormat(**fields))
        request.sampling.temperature = 1
        request.sampling.seed = 5
        answer = self.generation.Generate(request, timeout=LONG_S)
        is_complete = answer.final.choices[0].reason == generation_pb2.FINISH_REASON_STOP_TOKEN
        return answer.choices[0].text, is_complete

    def test_complete_answers_are_valid(self):
        lines = [json.loads(line) for line in SCHEMAS.read_text().splitlines()]
        wanted = [line["schema"] for line in lines if "refused" not in line]
        n_asked = int(os.environ.get("INTEROP_SCHEMAS", "40"))
        kind = jsonschema.Draft202012Validator
        n_complete = 0
        for schema in wanted[::max(1, len(wanted) // n_asked)]:
            text, is_complete = self.answer(json_schema=json.dumps(schema))
            if is_complete:
                n_complete += 1
                kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text))
        print(f"{n_complete} complete answers, all valid")
        self.assertGreater(n_complete, 5)

    def test_unsupported_keywords_are_named(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.answer(json_schema='{"not": {}}')
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("#/not: this keyword is not supported", caught.exception.details())

    def test_every_other_form(self):
        Choice = generation_pb2.ResponseFormat.Choice
        self.assertIn(self.answer(choice=Choice(texts=["yes", "no"]))[0], ("yes", "no"))
        self.assertRegex(self.answer(regex="[a-c]{3}-[0-9]")[0], "^[a-c]{3}-[0-9]$")
        self.assertRegex(self.answer(grammar='root ::= "x" [0-9]+ "."')[0], r"^x[0-9]+\.?$")
        text, is_complete = self.answer(json_object={})
        self.assertTrue(text.lstrip().startswith("{"))
        if is_complete:
            self.assertIsInstance(json.loads(text), dict)
