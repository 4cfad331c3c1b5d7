"""Unary calls by the synchronous client; empty_unary and large_unary of gRPC's list."""

from lowkey.v1 import admin_pb2, generation_pb2, models_pb2

import made_requests as made
from running_server import LONG_S, InteropTest


class UnaryTest(InteropTest):
    def test_tokenize_and_detokenize_are_inverse(self):
        text = "Once upon a time, a café had 日本 tea 😀."
        ids = self.generation.Tokenize(generation_pb2.TokenizeRequest(text=text, add_bos=False),
                                       timeout=LONG_S).token_ids
        answer = self.generation.Detokenize(generation_pb2.DetokenizeRequest(token_ids=ids),
                                            timeout=LONG_S)
        self.assertEqual(answer.text, text)

    def test_generate_gives_its_choices_and_its_report(self):
        answer = self.generation.Generate(made.generate(12, n=3))
        self.assertEqual([len(choice.tokens) for choice in answer.choices], [12] * 3)
        self.assertEqual(answer.final.usage.generated_tokens, 36)
        self.assertEqual(answer.final.attention.mechanism, "standard")

    def test_score_finds_the_likelier_continuation(self):
        answer = self.generation.Score(made.score())
        self.assertEqual(answer.best, 0)
        self.assertGreater(answer.scores[0].logprob, answer.scores[1].logprob)

    def test_models_are_described(self):
        models = self.models.ListModels(models_pb2.ListModelsRequest(), timeout=LONG_S).models
        self.assertEqual(len(models), 1)
        model = self.models.GetModel(models_pb2.GetModelRequest(name=models[0].name),
                                     timeout=LONG_S)
        self.assertEqual(model, models[0])
        self.assertEqual(model.limits.context_tokens, made.CONTEXT_TOKENS)
        self.assertEqual(model.limits.max_message_bytes, made.MAX_MESSAGE_BYTES)

    def test_stats_count_requests(self):
        before = self.server.await_idle()
        self.generation.Generate(made.generate())
        after = self.server.await_idle()
        self.assertEqual(after.finished_requests, before.finished_requests + 1)
        self.assertEqual(after.generated_tokens, before.generated_tokens + 16)

    def test_futures_and_calls_with_metadata(self):
        futures = [self.generation.Generate.future(made.generate(8, text=f"Story {i}"))
                   for i in range(8)]
        for future in futures:
            self.assertEqual(len(future.result().choices[0].tokens), 8)
        answer, call = self.admin.Stats.with_call(admin_pb2.StatsRequest(), timeout=LONG_S)
        self.assertTrue(answer.version)
        self.assertTrue(call.code().name == "OK" and call.details() == "")

    def test_empty_unary(self):
        # Both messages have no bytes.
        call = self.channel.unary_unary("/lowkey.v1.Generation/Detokenize")
        for _ in range(20):
            self.assertEqual(call(b"", timeout=LONG_S), b"")

    def test_large_unary(self):
        # 1 MiB goes, and well over 1 MiB comes back.
        text = "Once upon a time, there was a cat. " * 30000
        text = text[:1 << 20]
        request = generation_pb2.TokenizeRequest(text=text, add_bos=False)
        channel = self.open_channel(("grpc.max_receive_message_length", 32 << 20))
        tokenize = channel.unary_unary(
            "/lowkey.v1.Generation/Tokenize",
            request_serializer=generation_pb2.TokenizeRequest.SerializeToString)
        data = tokenize(request, timeout=LONG_S)
        answer = generation_pb2.TokenizeResponse.FromString(data)
        self.assertGreater(len(data), 1 << 20)
        self.assertEqual(len(answer.pieces), len(answer.token_ids))
        self.assertEqual("".join(answer.pieces).replace("▁", " ").strip(), text.strip())
