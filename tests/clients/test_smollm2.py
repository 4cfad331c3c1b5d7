"""A model of real size, whose file CLIENTS_SMOLLM2 names, answers in the form of pydantic's models."""

import os
import unittest
from typing import Annotated, Literal

import openai
from pydantic import BaseModel, Field

from served import LONG_S, Server, without_proxies

without_proxies()
THINGS = ["kettle", "tent", "bicycle", "pillow", "lamp", "radio", "umbrella", "chair", "clock", "pen",
          "piano", "shovel", "mirror", "candle", "blender", "ladder", "carpet", "scarf", "drill",
          "guitar", "basket", "camera", "globe", "stapler", "hammock"]


class Review(BaseModel):
    product: str = Field(min_length=1, max_length=40)
    stars: int = Field(ge=1, le=5)
    mood: Literal["glad", "neutral", "cross"]
    reasons: list[Annotated[str, Field(max_length=80)]] = Field(min_length=1, max_length=3)
    would_buy_again: bool


class TestPydantic(unittest.TestCase):
    def test_a_hundred_answers_are_valid(self):
        server = Server("--model", os.environ["CLIENTS_SMOLLM2"], template=None)
        self.addCleanup(server.stop)
        client = openai.OpenAI(base_url=server.url, api_key="none", timeout=LONG_S, max_retries=0)
        reviews = []
        for seed, thing in enumerate(THINGS):
            answer = client.chat.completions.parse(
                model=server.model, response_format=Review, n=4, seed=seed, temperature=0.8,
                max_tokens=400,
                messages=[{"role": "user", "content": f"Write a short review of a {thing} as JSON."}])
            reviews += [choice.message.parsed for choice in answer.choices]
        self.assertEqual(len(reviews), 100)
        self.assertEqual([review for review in reviews if not isinstance(review, Review)], [])


if __name__ == "__main__":
    unittest.main()
