"""Has the model call a function through the `openai` package, and answer with what it returned.

    pip install openai
    python tools.py "Is it raining in Oslo?"
"""

import json
import os
import sys

import openai
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam


def get_weather(city: str, unit: str) -> str:
    return json.dumps({"city": city, "temperature": 7, "unit": unit, "sky": "rain"})


TOOLS: list[ChatCompletionToolParam] = [{"type": "function", "function": {
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object",
                   "properties": {"city": {"type": "string", "maxLength": 40},
                                  "unit": {"enum": ["C", "F"]}},
                   "required": ["city", "unit"], "additionalProperties": False}}}]

server = os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")
client = openai.OpenAI(base_url=f"http://{server}/v1", api_key=os.environ.get("API_KEY", "none"))
model = client.models.list().data[0].id
messages: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": " ".join(sys.argv[1:]) or "Is it raining in Oslo?"}]

# "required": the answer is calls, with arguments that the schema accepts, whatever the model.
answer = client.chat.completions.create(
    model=model, messages=messages, tools=TOOLS, tool_choice="required",
    parallel_tool_calls=False, seed=7, max_completion_tokens=200)
message = answer.choices[0].message
messages.append({"role": "assistant", "content": message.content or "", "tool_calls": [
    {"id": call.id, "type": "function",
     "function": {"name": call.function.name, "arguments": call.function.arguments}}
    for call in message.tool_calls or [] if call.type == "function"]})
for call in message.tool_calls or []:
    if call.type == "function":
        arguments = json.loads(call.function.arguments)
        print(f"{call.function.name}({arguments})")
        messages.append({"role": "tool", "tool_call_id": call.id,
                         "content": get_weather(**arguments)})
answer = client.chat.completions.create(
    model=model, messages=messages, tools=TOOLS, tool_choice="none", seed=7,
    max_completion_tokens=100)
print(answer.choices[0].message.content)
