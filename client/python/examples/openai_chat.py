"""Talks to the same port through the `openai` package, over HTTP.

    pip install openai
    python openai_chat.py "Who wrote Faust?"
"""

import os
import sys

import openai

server = os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")
client = openai.OpenAI(base_url=f"http://{server}/v1", api_key=os.environ.get("API_KEY", "none"))
model = client.models.list().data[0].id
stream = client.chat.completions.create(
    model=model, max_completion_tokens=100, seed=7, stream=True,
    messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "Who are you?"}],
    # Fields that only lowkey has.
    extra_body={"lowkey": {"attention": {"mechanism": "atp", "rank": "1/4"}}})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
