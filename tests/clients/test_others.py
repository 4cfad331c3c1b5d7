"""LangChain and LiteLLM, which speak OpenAI's API through libraries of their own."""

import os
import unittest
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no request elsewhere

import litellm
import pydantic
from langchain_openai import ChatOpenAI, OpenAI

from served import LONG_S, shared_server, without_proxies

without_proxies()
MESSAGES = [{"role": "user", "content": "Tell me a tale."}]


class TestLangChain(unittest.TestCase):
    def setUp(self):
        self.server = shared_server()

    def test_chat(self):
        model = ChatOpenAI(model=self.server.model, base_url=self.server.url, api_key="none",
                           timeout=LONG_S, max_tokens=16, seed=5, max_retries=0)
        whole = model.invoke("Tell me a tale.")
        streamed = "".join(chunk.content for chunk in model.stream("Tell me a tale."))
        self.assertEqual(whole.content, streamed)
        self.assertGreater(whole.usage_metadata["output_tokens"], 0)

    def test_completion(self):
        model = OpenAI(model=self.server.model, base_url=self.server.url, api_key="none",
                       timeout=LONG_S, max_tokens=16, seed=5, max_retries=0)
        self.assertEqual(model.invoke("Once upon"), "".join(model.stream("Once upon")))


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str = pydantic.Field(max_length=12)
    unit: Literal["C", "F"]
    days: int | None = pydantic.Field(default=None, ge=1, le=9)


class TestLangChainTools(unittest.TestCase):
    def setUp(self):
        server = shared_server()
        self.model = ChatOpenAI(model=server.model, base_url=server.url, api_key="none",
                                timeout=LONG_S, max_tokens=200, seed=5, max_retries=0)

    def test_any_tool(self):
        bound = self.model.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False)
        (call,) = bound.invoke("Tell me a tale.").tool_calls
        self.assertEqual(call["name"], "Weather")
        Weather(**call["args"])

    def test_structured_output_by_a_named_tool(self):
        structured = self.model.with_structured_output(Weather, method="function_calling")
        self.assertIsInstance(structured.invoke("Tell me a tale."), Weather)


class TestLiteLlm(unittest.TestCase):
    def setUp(self):
        self.server = shared_server()

    def arguments(self, provider, **more):
        return dict(model=f"{provider}/{self.server.model}", api_base=self.server.url,
                    api_key="none", messages=MESSAGES, max_tokens=16, seed=5, timeout=LONG_S,
                    num_retries=0, max_retries=0, **more)

    def test_stream_is_the_whole(self):
        for provider in ("openai", "hosted_vllm"):
            with self.subTest(provider=provider):
                whole = litellm.completion(**self.arguments(provider))
                stream = litellm.completion(**self.arguments(provider), stream=True)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
                self.assertEqual(text, whole.choices[0].message.content)

    def test_exceptions_by_status(self):
        for provider in ("openai", "hosted_vllm"):
            with self.subTest(provider=provider):
                with self.assertRaises(litellm.BadRequestError):
                    litellm.completion(**self.arguments(provider, temperature=9))
                with self.assertRaises(litellm.NotFoundError):
                    litellm.completion(**{**self.arguments(provider),
                                          "model": f"{provider}/nobody"})


if __name__ == "__main__":
    unittest.main()
