"""What the templates are given: messages, tools, variables."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a place; <b>\"now\"</b> & caf\u00e9 \u2603",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "A town"},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def message(role, content=None, **more):
    return {"role": role, **({} if content is None else {"content": content}), **more}


SHORT = [message("user", "  Hello <|im_end|> there \n")]
LONG = [
    message("system", " You are kind. "),
    message("user", "What is 2+2?"),
    message("assistant", "<think>\nadd\n</think>\n\nFour."),
    message("user", "And 3+3? \u00e9\u4e2d\U0001f600"),
]
CALLS = [
    message("user", "Weather in Oslo?"),
    message("assistant", tool_calls=[
        {"type": "function", "id": "call00001",
         "function": {"name": "weather", "arguments": {"place": "Oslo \"x\"", "n": 1, "r": 1.5, "ok": True, "no": None}}}]),
    message("tool", "{\"t\": -3}", tool_call_id="call00001", name="weather"),
    message("assistant", "It is cold."),
    message("user", "Thanks"),
]
TWO_CALLS = [
    message("user", "Both?"),
    message("assistant", "Sure.", tool_calls=[
        {"id": "call00001", "function": {"name": "now", "arguments": {}}},
        {"id": "call00002", "function": {"name": "now", "arguments": "{}"}}]),
    message("tool", "1", tool_call_id="call00001"),
    message("tool", "2", tool_call_id="call00002"),
]
BAD_TURNS = [message("user", "a"), message("user", "b")]


def chat(messages, tools=None, add_generation_prompt=True, **more):
    return {"messages": messages, "tools": tools, "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": "<s>", "eos_token": "</s>", **more}


CONVERSATIONS = {
    "short": chat(SHORT),
    "short_without_prompt": chat(SHORT, add_generation_prompt=False),
    "long": chat(LONG),
    "tools": chat(LONG, TOOLS),
    "calls": chat(CALLS, TOOLS),
    "two_calls": chat(TWO_CALLS, TOOLS),
    "bad_turns": chat(BAD_TURNS),
    "no_thinking": chat(SHORT, enable_thinking=False, date_string="1 Jan 2000"),
}
