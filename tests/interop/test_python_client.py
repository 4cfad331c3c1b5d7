"""The package of client/python against a server; the synchronous client."""

import dataclasses
import gc
import os
import pathlib
import tempfile
import threading
import unittest
import unittest.mock

import grpc
import lowkey
from lowkey.v1 import admin_pb2, generation_pb2, models_pb2

import made_requests as made
from running_server import LONG_S, shared_server, start_for
from test_credentials import make_certificates, make_tokens, token

# Writes "user: Hello" and so on, and an assistant's turn at the end.
CHAT_TEMPLATE = ("{% for message in messages %}{{ message.role }}: {{ message.content }}\n"
                 "{% endfor %}{% if tools %}{{ tools | length }} tools {{ mood }}{% endif %}"
                 "assistant:")


class PythonClientTest(unittest.TestCase):
    def setUp(self):
        self.server = shared_server()
        self.client = lowkey.Client(self.server.address, timeout=LONG_S)
        self.addCleanup(self.client.close)

    def test_generate_gives_a_typed_answer(self):
        answer = self.client.generate(made.STORY, max_new_tokens=12, ignore_eos=True, n=3, seed=7,
                                      temperature=0.8, logprobs=2, prompt_logprobs=1)
        self.assertEqual(len(answer.choices), 3)
        self.assertEqual([len(choice.tokens) for choice in answer.choices], [12] * 3)
        self.assertEqual({choice.finish_reason for choice in answer.choices},
                         {lowkey.FinishReason.LENGTH})
        self.assertEqual(answer.text, answer.choices[0].text)
        self.assertEqual(answer.seed, 7)
        self.assertEqual(answer.usage.generated_tokens, 36)
        self.assertEqual(answer.attention.mechanism, "standard")
        self.assertEqual(answer.attention.cache_share, 1)
        self.assertIsNone(answer.attention.rank)
        self.assertGreater(answer.timings.ttft_us, 0)
        first = answer.choices[0].tokens[0]
        self.assertLess(first.logprob, 0)
        self.assertEqual(len(first.top_logprobs), 2)
        self.assertEqual([entry.position for entry in answer.prompt_logprobs],
                         list(range(1, answer.usage.prompt_tokens)))

    def test_the_same_seed_gives_the_same_tokens(self):
        options = {"max_new_tokens": 20, "temperature": 1.0, "seed": 11}
        whole = self.client.generate(made.STORY, **options)
        ids = self.client.tokenize(made.STORY).token_ids
        self.assertEqual(self.client.generate(ids, **options).choices, whole.choices)
        with self.client.stream(made.STORY, **options) as stream:
            text = "".join(delta.text for delta in stream)
        self.assertEqual(text, whole.text)
        self.assertEqual(stream.result.choices, whole.choices)
        self.assertEqual(self.client.stream(made.STORY, **options).finish().choices, whole.choices)

    def test_attention_by_name_and_with_options(self):
        answer = self.client.generate(made.STORY, attention="taylorshift", max_new_tokens=4)
        self.assertEqual(answer.attention.mechanism, "taylorshift")
        attention = lowkey.Attention(mechanism="atp", rank="8", block_tokens=64, window_blocks=0,
                                     merge=False)
        answer = self.client.generate(made.STORY, attention=attention, max_new_tokens=300,
                                      ignore_eos=True)
        self.assertEqual((answer.attention.mechanism, answer.attention.rank), ("atp", 8))
        self.assertGreater(answer.attention.compressed_blocks, 0)
        attention = lowkey.Attention(mechanism="auto", allowed=["standard", "taylorshift"])
        self.assertIn(self.client.generate(made.STORY, attention=attention,
                                           max_new_tokens=4).attention.mechanism,
                      ("standard", "taylorshift"))

    def test_forms_of_answers(self):
        form = lowkey.ResponseFormat(choice=["yes", "no"])
        self.assertIn(self.client.generate(made.STORY, response_format=form).text, ("yes", "no"))
        form = lowkey.ResponseFormat(json_schema={"type": "integer", "minimum": 7, "maximum": 9})
        self.assertIn(int(self.client.generate(made.STORY, response_format=form).text), (7, 8, 9))
        with self.assertRaises(TypeError):
            self.client.generate(made.STORY, response_format=lowkey.ResponseFormat())

    def test_stops(self):
        whole = self.client.generate(made.STORY, max_new_tokens=40).text
        stop = whole[10:14]
        answer = self.client.generate(made.STORY, max_new_tokens=40, stop=stop)
        self.assertEqual(answer.text, whole[:whole.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, lowkey.FinishReason.STOP_TEXT)
        self.assertEqual(answer.choices[0].stop_text, stop)
        self.assertEqual(self.client.generate(made.STORY, max_new_tokens=40,
                                              stop=["not there", stop]).text, answer.text)

    def test_score(self):
        answer = self.client.score(made.STORY, [", there was", " xylophone qua"])
        self.assertEqual(answer.best, 0)
        self.assertGreater(answer.scores[0].logprob, answer.scores[1].logprob)
        ids = self.client.tokenize(made.STORY).token_ids
        by_ids = self.client.score(ids, [[token.token_id for token in score.tokens]
                                         for score in answer.scores], attention="standard")
        self.assertEqual(by_ids.scores[0].logprob, answer.scores[0].logprob)
        for continuations in ("text", [[1]], ["a", [1]]):
            with self.assertRaises(TypeError):
                self.client.score(made.STORY, continuations)

    def test_tokenize_and_detokenize_are_inverse(self):
        text = "Once upon a time, a café had 日本 tea 😀."
        tokens = self.client.tokenize(text, add_bos=False)
        self.assertEqual(len(tokens.token_ids), len(tokens.pieces))
        self.assertEqual(self.client.detokenize(tokens.token_ids), text)
        self.assertEqual(len(self.client.tokenize(text).token_ids), len(tokens.token_ids) + 1)
        # The answer is longer than gRPC's own limit.
        self.assertGreater(len(self.client.tokenize("a b " * 250_000).token_ids), 400_000)

    def test_models_and_stats(self):
        (model,) = self.client.models()
        self.assertEqual(self.client.model(), model)
        self.assertEqual(self.client.model(model.name), model)
        self.assertEqual(model.limits.context_tokens, made.CONTEXT_TOKENS)
        self.assertIn("atp", [mechanism.name for mechanism in model.mechanisms])
        self.assertEqual(model.defaults.attention.mechanism, "standard")
        self.assertEqual(model.defaults.attention.rank, "0.25")
        self.assertEqual(model.defaults.sampling.temperature, 0)
        self.assertIsNone(model.architecture.sliding_window)
        self.assertFalse(model.has_chat)
        stats = self.client.stats()
        self.assertEqual(stats.version, lowkey.__version__)
        self.assertGreater(stats.cache_bytes_total, 0)

    def test_closing_a_stream_cancels_it(self):
        def close(stream):
            stream.close()

        def leave_the_block(stream):
            with stream:
                pass

        def fail_in_the_block(stream):
            with self.assertRaises(KeyError), stream:
                raise KeyError

        def forget(stream):
            del stream

        for end in (close, leave_the_block, fail_in_the_block, forget):
            before = self.server.await_idle()
            stream = self.client.stream(made.STORY, max_new_tokens=4000, ignore_eos=True)
            self.assertTrue(next(stream).tokens)
            end(stream)
            if end is not forget:
                self.assertEqual(list(stream), [])
                with self.assertRaises(RuntimeError):
                    stream.result
            del stream
            gc.collect()
            after = self.server.await_idle()
            self.assertEqual(after.cancelled_requests, before.cancelled_requests + 1, end)

    def test_a_stream_ends_once(self):
        stream = self.client.stream(made.STORY, max_new_tokens=2)
        with self.assertRaises(RuntimeError):
            stream.result
        stream.finish()
        self.assertEqual(list(stream), [])
        stream.close()
        self.assertTrue(stream.result.text)

    def test_many_threads_share_a_client(self):
        answers = {}

        def generate(seed):
            answers[seed] = self.client.generate(made.STORY, max_new_tokens=8, temperature=1,
                                                 seed=seed)
        threads = [threading.Thread(target=generate, args=(seed,)) for seed in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answer.seed for answer in answers.values()), list(range(12)))


class PythonClientErrorsTest(unittest.TestCase):
    def setUp(self):
        self.server = shared_server()
        self.client = lowkey.Client(self.server.address)
        self.addCleanup(self.client.close)

    def test_refusals_have_their_class_and_name_the_field(self):
        for kind, words, options in (
                (lowkey.InvalidArgumentError, "temperature", {"temperature": 3}),
                (lowkey.OutOfRangeError, "max_new_tokens", {"max_new_tokens": 5000}),
                (lowkey.NotFoundError, "other", {"model": "other"}),
                (lowkey.FailedPreconditionError, "lasso", {"attention": "lasso"})):
            for call in (self.client.generate,
                         lambda *a, **k: self.client.stream(*a, **k).finish()):
                with self.assertRaises(kind) as raised:
                    call(made.STORY, **options)
                self.assertIn(words, raised.exception.message)
                self.assertIsInstance(raised.exception, lowkey.LowkeyError)
                self.assertIsNone(raised.exception.partial)
                self.assertIn(raised.exception.code.name, str(raised.exception))
        with self.assertRaises(lowkey.FailedPreconditionError):
            self.client.chat([{"role": "user", "content": "Hello"}])

    def test_options_that_there_are_not(self):
        with self.assertRaisesRegex(TypeError, "max_tokens"):
            self.client.generate(made.STORY, max_tokens=4)
        with self.assertRaisesRegex(ValueError, "message: keys"):
            self.client.chat([{"role": "user", "text": "Hello"}])
        with self.assertRaisesRegex(ValueError, "expected role"):
            self.client.chat([{"content": "Hello"}])

    def test_a_stream_past_its_deadline_keeps_what_came(self):
        stream = self.client.stream(made.STORY, max_new_tokens=4000, ignore_eos=True, timeout=0.3)
        with self.assertRaises(lowkey.DeadlineExceededError) as raised:
            for _ in stream:
                pass
        partial = raised.exception.partial
        if partial is not None:  # the client's own clock may be the first to ring
            self.assertEqual(partial.choices[0].finish_reason, lowkey.FinishReason.DEADLINE)

    def test_no_server(self):
        with lowkey.Client("127.0.0.1:1") as client, self.assertRaises(lowkey.UnavailableError):
            client.stats(timeout=5)

    def test_a_running_id(self):
        with self.client.stream(made.STORY, max_new_tokens=4000, ignore_eos=True,
                                request_id="twin") as stream:
            next(stream)
            with self.assertRaises(lowkey.AlreadyExistsError):
                self.client.generate(made.STORY, request_id="twin")


class PythonClientCredentialsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        make_certificates(cls.folder)
        make_tokens(cls.folder)

    def file(self, name):
        return str(self.folder / name)

    def client(self, server, **arguments):
        client = lowkey.Client(server.address, **arguments)
        self.addCleanup(client.close)
        return client

    def test_tls_and_tokens(self):
        server = start_for(self, "--tokens", self.file("tokens.json"), "--tls-cert",
                           self.file("server.pem"), "--tls-key", self.file("server.key"))
        tls = lowkey.Tls(authority=self.file("ca.pem"))
        client = self.client(server, token=token("all"), tls=tls)
        self.assertTrue(client.generate(made.STORY, max_new_tokens=2).text)
        by_bytes = lowkey.Tls(authority=(self.folder / "ca.pem").read_bytes())
        with self.assertRaises(lowkey.PermissionDeniedError):
            self.client(server, token=token("read"), tls=by_bytes).generate(made.STORY)
        with self.assertRaises(lowkey.UnauthenticatedError):
            self.client(server, tls=tls).stats()
        with self.assertRaises(lowkey.UnavailableError):
            self.client(server, tls=lowkey.Tls(self.file("other-ca.pem"))).stats(timeout=5)

    def test_client_certificates(self):
        server = start_for(self, "--tls-cert", self.file("server.pem"), "--tls-key",
                           self.file("server.key"), "--tls-client-ca", self.file("ca.pem"))
        tls = lowkey.Tls(self.file("ca.pem"), self.file("client.pem"), self.file("client.key"))
        self.assertTrue(self.client(server, tls=tls).stats().version)

    def test_quotas_say_when_to_try_again(self):
        server = start_for(self, "--tokens", self.file("tokens.json"))
        client = self.client(server, token=token("slow"))
        with self.assertRaises(lowkey.ResourceExhaustedError) as raised:
            for _ in range(100):
                client.generate(made.STORY, max_new_tokens=30, ignore_eos=True)
        self.assertGreater(raised.exception.retry_after, 0)
        self.assertIn("try again after", str(raised.exception))

    def test_no_proxy_stands_before_this_machine(self):
        with unittest.mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:1",
                                                   "no_proxy": ""}):
            with lowkey.Client(shared_server().address, timeout=LONG_S) as client:
                self.assertTrue(client.models())

    def test_tokens_do_not_travel_in_clear(self):
        for address in ("server:50051", "10.0.0.1:50051", "[fd00::1]:50051", "dns:///server:50051",
                        "localhost.example:50051"):
            with self.assertRaisesRegex(ValueError, "another machine"):
                lowkey.Client(address, token="secret")
        for address in ("localhost:1", "127.0.0.1:1", "[::1]:1", "dns:///localhost:1", "unix:/x"):
            lowkey.Client(address, token="secret").close()


class PythonClientChatTest(unittest.TestCase):
    def setUp(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as file:
            file.write(CHAT_TEMPLATE)
        self.addCleanup(os.unlink, file.name)
        self.server = start_for(self, "--chat-template", file.name)
        self.client = lowkey.Client(self.server.address, timeout=LONG_S)
        self.addCleanup(self.client.close)

    def test_messages_are_written_by_the_template(self):
        messages = [{"role": "system", "content": "Be brief."}, lowkey.Message("user", "Hello")]
        tokens = self.client.tokenize(messages)
        self.assertEqual(tokens.rendered_text, "system: Be brief.\nuser: Hello\nassistant:")
        self.assertTrue(self.client.model().has_chat)
        answer = self.client.chat(messages, max_new_tokens=8, seed=1)
        prompt = self.client.generate(tokens.token_ids, max_new_tokens=8, seed=1)
        self.assertEqual(answer.text, prompt.text)
        self.assertEqual(self.client.chat_stream(messages, max_new_tokens=8).finish().text,
                         answer.text)

    def test_tools_and_calls(self):
        call = {"id": "call_1", "type": "function",
                "function": {"name": "f", "arguments": {"x": 1}}}
        messages = [{"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": "4", "tool_call_id": "call_1"}]
        tokens = self.client.tokenize(messages, tools=[{"type": "function"}] * 2,
                                      template_variables={"mood": "glad"})
        self.assertIn("2 tools glad", tokens.rendered_text)

    def test_a_drained_server_ends(self):
        self.assertEqual(self.client.drain(), 0)
        self.assertEqual(self.server.exit_code(), 0)


class PythonClientTypesTest(unittest.TestCase):
    """The dataclasses have the fields of the messages that they stand for."""

    def assert_same_fields(self, kind, message, renamed=(), without=()):
        names = {field.name for field in dataclasses.fields(kind)}
        self.assertEqual(names - set(renamed), set(message.DESCRIPTOR.fields_by_name)
                         - set(dict(renamed).values()) - set(without), kind)

    def test_fields(self):
        for kind, message in (
                (lowkey.Usage, generation_pb2.Usage), (lowkey.Timings, generation_pb2.Timings),
                (lowkey.AttentionReport, generation_pb2.AttentionReport),
                (lowkey.Token, generation_pb2.Token), (lowkey.Delta, generation_pb2.ChoiceDelta),
                (lowkey.TokenLogprob, generation_pb2.TokenLogprob),
                (lowkey.Message, generation_pb2.ChatMessage),
                (lowkey.ToolCall, generation_pb2.ToolCall),
                (lowkey.Score, generation_pb2.ContinuationScore),
                (lowkey.Scores, generation_pb2.ScoreResponse),
                (lowkey.Tokenization, generation_pb2.TokenizeResponse),
                (lowkey.ModelInfo, models_pb2.Model), (lowkey.Limits, models_pb2.Limits),
                (lowkey.Architecture, models_pb2.Architecture),
                (lowkey.Mechanism, models_pb2.Mechanism), (lowkey.Defaults, models_pb2.Defaults),
                (lowkey.Stats, admin_pb2.StatsResponse)):
            self.assert_same_fields(kind, message)
        self.assert_same_fields(lowkey.Sampling, generation_pb2.SamplingOptions,
                                without=("seed", "logit_bias"))

    def test_options_are_fields_of_requests(self):
        options = set(lowkey.GenerateOptions.__annotations__) | set(
            lowkey.RequestOptions.__annotations__)
        fields = set(generation_pb2.GenerateRequest.DESCRIPTOR.fields_by_name) | set(
            generation_pb2.SamplingOptions.DESCRIPTOR.fields_by_name)
        inputs = {"text", "token_ids", "chat", "sampling"}
        later = fields - options - inputs
        self.assertEqual(options - fields, {"timeout"})
        self.assertEqual(later, set(), "fields of GenerateRequest without an option")
        self.assertEqual(set(lowkey.ChatOptions.__annotations__) - options,
                         {"tools", "template_variables"})

    def test_every_reason_has_a_name(self):
        names = {name.removeprefix("FINISH_REASON_").lower()
                 for name in generation_pb2.FinishReason.keys()}
        self.assertEqual(names, {reason.value for reason in lowkey.FinishReason})

    def test_details_of_strangers_are_passed_over(self):
        class Error:
            def code(self):
                return grpc.StatusCode.UNAVAILABLE

            def details(self):
                return None

            def trailing_metadata(self):
                return (("x", "y"), ("grpc-status-details-bin", b"\xff\xff\xff"))
        error = lowkey.errors.error_of(Error())
        self.assertIsInstance(error, lowkey.UnavailableError)
        self.assertIsNone(error.retry_after)


if __name__ == "__main__":
    unittest.main()
