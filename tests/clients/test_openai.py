"""The `openai` package, sync and async, as its users call it."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import httpx
import openai

from served import LONG_S, Server, shared_server, without_proxies

without_proxies()
PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Tell me a tale."}]


def client_of(server, **options):
    return openai.OpenAI(base_url=server.url, api_key="none", timeout=LONG_S, **options)


class TestOpenAi(unittest.TestCase):
    def setUp(self):
        self.server = shared_server()
        self.client = client_of(self.server, max_retries=0)

    def test_models(self):
        ids = [model.id for model in self.client.models.list()]
        self.assertIn(self.server.model, ids)
        self.assertIn(self.server.model + "@atp", ids)
        one = self.client.models.retrieve(self.server.model + "@atp")
        self.assertEqual(one.lowkey["mechanism"], "atp")

    def test_completion_stream_is_the_whole(self):
        for extra in ({}, {"n": 3}, {"logprobs": 2}, {"echo": True}, {"stop": ["time", "girl"]}):
            with self.subTest(extra=extra):
                arguments = dict(model=self.server.model, prompt=PROMPT, max_tokens=24, seed=7,
                                 **extra)
                whole = self.client.completions.create(**arguments)
                texts = {}
                usage = None
                stream = self.client.completions.create(
                    **arguments, stream=True, stream_options={"include_usage": True})
                for chunk in stream:
                    usage = chunk.usage or usage
                    for choice in chunk.choices:
                        texts[choice.index] = texts.get(choice.index, "") + choice.text
                self.assertEqual([texts[c.index] for c in whole.choices],
                                 [c.text for c in whole.choices])
                self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_chat_stream_is_the_whole(self):
        arguments = dict(model=self.server.model, messages=MESSAGES, max_completion_tokens=24,
                         seed=3, n=2)
        whole = self.client.chat.completions.create(**arguments)
        texts = {}
        ends = {}
        for chunk in self.client.chat.completions.create(**arguments, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                ends[choice.index] = choice.finish_reason
        for choice in whole.choices:
            self.assertEqual(texts[choice.index], choice.message.content)
            self.assertEqual(ends[choice.index], choice.finish_reason)

    def test_chat_logprobs(self):
        answer = self.client.chat.completions.create(
            model=self.server.model, messages=MESSAGES, max_tokens=4, logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), answer.usage.completion_tokens)
        self.assertEqual(len(entries[0].top_logprobs), 3)
        self.assertEqual(bytes(b for e in entries for b in e.bytes).decode().strip(),
                         answer.choices[0].message.content.strip())

    def test_attention_is_chosen_and_reported(self):
        answer = self.client.completions.create(
            model=self.server.model, prompt=PROMPT, max_tokens=4,
            extra_body={"lowkey": {"attention": {"mechanism": "atp", "rank": "1/4"}}})
        self.assertEqual(answer.lowkey["attention"]["mechanism"], "atp")
        named = self.client.completions.create(model=self.server.model + "@taylorshift",
                                               prompt=PROMPT, max_tokens=4)
        self.assertEqual(named.lowkey["attention"]["mechanism"], "taylorshift")

    def test_response_stream_is_the_whole(self):
        arguments = dict(model=self.server.model, input="Tell me a tale.", instructions="Be brief.",
                         max_output_tokens=24, temperature=0, metadata={"k": "v"})
        whole = self.client.responses.create(**arguments)
        self.assertEqual(whole.object, "response")
        self.assertIn(whole.status, ("completed", "incomplete"))
        self.assertTrue(whole.output_text)
        self.assertEqual(whole.metadata, {"k": "v"})
        self.assertEqual(whole.usage.total_tokens,
                         whole.usage.input_tokens + whole.usage.output_tokens)
        text = ""
        numbers = []
        for event in self.client.responses.create(**arguments, stream=True):
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
        self.assertEqual(numbers, list(range(len(numbers))))
        self.assertIn(event.type, ("response.completed", "response.incomplete"))
        self.assertEqual(event.response.output_text, text)
        self.assertEqual(text, whole.output_text)

    def test_response_events_are_accumulated(self):
        with self.client.responses.stream(model=self.server.model, input=MESSAGES,
                                          max_output_tokens=8, temperature=0) as stream:
            text = "".join(event.delta for event in stream
                           if event.type == "response.output_text.delta")
        whole = self.client.responses.create(model=self.server.model, input=MESSAGES,
                                             max_output_tokens=8, temperature=0)
        self.assertEqual(text, whole.output_text)

    def test_response_goes_on_with_its_own_output(self):
        tool = {"type": "function", "name": "get_weather", "strict": True,
                "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}},
                               "required": ["city"], "additionalProperties": False}}
        arguments = dict(model=self.server.model, tools=[tool], max_output_tokens=200,
                         temperature=0)
        asked = [{"role": "user", "content": "Is it raining in Oslo?"}]
        first = self.client.responses.create(input=asked, tool_choice="required",
                                             parallel_tool_calls=False, **arguments)
        call, = [item for item in first.output if item.type == "function_call"]
        self.assertEqual(call.name, "get_weather")
        self.assertEqual(json.loads(call.arguments), {"city": "Oslo"})
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
        second = self.client.responses.create(input=[*asked, *first.output, output],
                                              tool_choice="none", **arguments)
        self.assertTrue(second.output_text)
        form = {"format": {"type": "json_schema", "name": "weather",
                           "schema": tool["parameters"]}}
        parsed = self.client.responses.create(model=self.server.model, input=asked, text=form,
                                              max_output_tokens=200)
        self.assertEqual(json.loads(parsed.output_text), {"city": "Oslo"})

    def test_responses_are_not_kept(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(model=self.server.model, input="x",
                                         previous_response_id="resp_1")
        self.assertEqual(caught.exception.code, "unsupported_parameter")
        self.assertEqual(caught.exception.param, "previous_response_id")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve("resp_1")

    def test_same_seed_same_text(self):
        arguments = dict(model=self.server.model, prompt=PROMPT, max_tokens=16, seed=11)
        texts = {self.client.completions.create(**arguments).choices[0].text for _ in range(3)}
        self.assertEqual(len(texts), 1)

    def test_same_tokens_as_grpc(self):
        address = self.server.root.removeprefix("http://")
        done = subprocess.run(
            [os.environ["CLIENTS_SERVER"], "generate", "--server", address, "--seed", "7",
             "--temperature", "1", "--max-new-tokens", "24", "--json", PROMPT],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=LONG_S)
        answer = self.client.completions.create(model=self.server.model, prompt=PROMPT,
                                                max_tokens=24, seed=7, temperature=1)
        self.assertEqual(json.loads(done.stdout)["choices"][0]["text"], answer.choices[0].text)

    def test_errors_are_typed(self):
        def complete(**more):
            return self.client.completions.create(
                **{"model": self.server.model, "prompt": PROMPT, "max_tokens": 1, **more})

        with self.assertRaises(openai.BadRequestError) as caught:
            complete(temperature=9)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertEqual(caught.exception.code, "invalid_value")
        with self.assertRaises(openai.NotFoundError) as caught:
            complete(model="gpt-4o")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(max_tokens=1000000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(extra_body={"tempreature": 1})
        self.assertEqual(caught.exception.code, "unknown_parameter")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model=self.server.model, input="x")

    def test_stream_that_is_left_is_cancelled(self):
        before = self.cancelled()
        stream = self.client.completions.create(model=self.server.model, prompt=PROMPT,
                                                max_tokens=3000, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        for _ in range(3000):
            if self.cancelled() > before:
                return
        self.fail("the request was not cancelled")

    def cancelled(self):
        text = httpx.get(self.server.root + "/metrics", timeout=LONG_S).text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith("vllm:request_success_total") and "abort" in line)

    def test_async_streams_at_once(self):
        async def run():
            client = openai.AsyncOpenAI(base_url=self.server.url, api_key="none", timeout=LONG_S)

            async def one(seed):
                arguments = dict(model=self.server.model, prompt=PROMPT, max_tokens=16, seed=seed)
                text = ""
                async for chunk in await client.completions.create(**arguments, stream=True):
                    text += chunk.choices[0].text
                whole = await client.completions.create(**arguments)
                self.assertEqual(text, whole.choices[0].text)

            await asyncio.gather(*[one(seed) for seed in range(8)])
            await client.close()

        asyncio.run(run())

    def test_several_prompts(self):
        answer = self.client.completions.create(model=self.server.model,
                                                prompt=["Once", "Lily", "The cat"], n=2,
                                                max_tokens=4)
        self.assertEqual([c.index for c in answer.choices], list(range(6)))


WEATHER = {"type": "function", "function": {
    "name": "get_weather",
    "parameters": {"type": "object",
                   "properties": {"city": {"type": "string", "maxLength": 12},
                                  "unit": {"enum": ["C", "F"]}},
                   "required": ["city", "unit"], "additionalProperties": False}}}
STOP = {"type": "function", "function": {"name": "stop_now"}}


class TestForcedCalls(unittest.TestCase):
    """A model that was never taught tools calls them all the same."""

    def setUp(self):
        self.server = shared_server()
        self.client = client_of(self.server, max_retries=0)

    def ask(self, choice, server=None, **more):
        client = self.client if server is None else client_of(server, max_retries=0)
        return client.chat.completions.create(
            model=self.server.model, messages=MESSAGES, tools=[WEATHER, STOP], tool_choice=choice,
            **{"max_tokens": 200, **more})

    def check(self, call):
        arguments = json.loads(call.function.arguments)
        if call.function.name == "stop_now":
            self.assertEqual(arguments, {})
            return
        self.assertEqual(call.function.name, "get_weather")
        self.assertEqual(set(arguments), {"city", "unit"})
        self.assertLessEqual(len(arguments["city"]), 12)
        self.assertIn(arguments["unit"], ["C", "F"])

    def test_required(self):
        for seed in range(4):
            for choice in self.ask("required", seed=seed, n=4, parallel_tool_calls=False).choices:
                self.assertEqual(choice.finish_reason, "tool_calls")
                self.assertIsNone(choice.message.content)
                (call,) = choice.message.tool_calls
                self.check(call)

    def test_required_in_parallel(self):
        # The demo model goes on calling until it is cut off, within its last call.
        n_calls = 0
        for choice in self.ask("required", seed=1, n=4).choices:
            calls = choice.message.tool_calls
            if choice.finish_reason == "length":
                calls = calls[:-1]
            n_calls += len(calls)
            for call in calls:
                self.check(call)
        self.assertGreater(n_calls, 4)

    def test_named(self):
        named = {"type": "function", "function": {"name": "get_weather"}}
        choice = self.ask(named, seed=1).choices[0]
        self.assertEqual(choice.finish_reason, "stop")
        (call,) = choice.message.tool_calls
        self.assertEqual(call.function.name, "get_weather")
        self.check(call)

    def test_stream_is_the_whole(self):
        whole = self.ask("required", seed=3, parallel_tool_calls=False).choices[0]
        name = arguments = ""
        for chunk in self.ask("required", seed=3, parallel_tool_calls=False, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        (call,) = whole.message.tool_calls
        self.assertEqual((name, arguments), (call.function.name, call.function.arguments))

    def test_the_loop_closes(self):
        message = self.ask("required", seed=3, parallel_tool_calls=False).choices[0].message
        (call,) = message.tool_calls
        messages = [*MESSAGES, message,
                    {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        answer = self.client.chat.completions.create(
            model=self.server.model, messages=messages, tools=[WEATHER, STOP], tool_choice="none",
            max_tokens=8)
        self.assertIsNone(answer.choices[0].message.tool_calls)

    def test_the_server_says_the_format(self):
        server = Server("--tool-format", "hermes")
        try:
            choice = self.ask("required", server, seed=3, parallel_tool_calls=False).choices[0]
            self.check(choice.message.tool_calls[0])
            # The first token begins the mark of the format, not an object.
            tops = self.ask("required", server, seed=3, logprobs=True, max_tokens=1).choices[0]
            self.assertIn(tops.logprobs.content[0].token.strip()[:1], ("", "<"))
        finally:
            server.stop()

    def test_the_example_runs(self):
        example = pathlib.Path(__file__).resolve().parents[2] / "client/python/examples/tools.py"
        output = subprocess.run(
            [sys.executable, example], capture_output=True, text=True, timeout=LONG_S,
            env={**os.environ, "LOWKEY_SERVER": self.server.root.removeprefix("http://")})
        self.assertEqual(output.returncode, 0, output.stderr)
        self.assertRegex(output.stdout, r"^get_weather\(\{'city': ")

    def test_tools_that_the_template_does_not_take_are_refused(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask("auto")
        self.assertEqual(caught.exception.param, "tools")

    def test_schemas_are_refused_by_the_tool(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=self.server.model, messages=MESSAGES,
                                                tools=[tool], tool_choice="required")
        self.assertEqual(caught.exception.param, "tools[0].function.parameters")


class TestTokens(unittest.TestCase):
    """Bearer tokens are API keys."""

    def test_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokens.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"tenants": [{"name": "a", "tokens": [{"token": "a" * 32}]},
                                       {"name": "b", "tokens": [{"token": "b" * 32,
                                                                 "rights": ["read"]}]}]}, file)
            os.chmod(path, 0o600)
            server = Server("--tokens", path)
            try:
                self.check(server)
            finally:
                server.stop()

    def check(self, server):
        def complete(key):
            client = openai.OpenAI(base_url=server.url, api_key=key, max_retries=0)
            return client.completions.create(model=server.model, prompt="a", max_tokens=1)

        self.assertEqual(complete("a" * 32).usage.completion_tokens, 1)
        with self.assertRaises(openai.AuthenticationError) as caught:
            complete("c" * 32)
        self.assertEqual(caught.exception.code, "invalid_api_key")
        with self.assertRaises(openai.PermissionDeniedError):
            complete("b" * 32)


if __name__ == "__main__":
    unittest.main()
