"""What a call may ask for. A field that is None, or left out, takes the server's default."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from .v1 import generation_pb2

Attention = generation_pb2.AttentionOptions
"""How attention is computed: lowkey.Attention(mechanism="atp", rank="1/4").

Every field but `mechanism` belongs to one mechanism, and is refused with another one; "auto" takes
all of them. generation.proto has ranges and meanings.
"""


@dataclasses.dataclass(frozen=True)
class ResponseFormat:
    """The form of every answer: set one of these (docs/structured_output.md)."""

    json_object: bool = False
    json_schema: str | Mapping[str, Any] | None = None
    """A JSON Schema, as text or as the object."""
    regex: str | None = None
    choice: Sequence[str] = ()
    grammar: str | None = None


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A function that the model asked for."""

    name: str
    arguments_json: str
    id: str = ""


@dataclasses.dataclass(frozen=True)
class Message:
    """A message of a conversation. `role` is "system", "user", "assistant" or "tool"."""

    role: str
    content: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Sequence[ToolCall] = ()


MessageLike = Message | Mapping[str, Any]
"""A Message, or a mapping with its fields: {"role": "user", "content": "Hello"}."""


@dataclasses.dataclass(frozen=True)
class Tls:
    """How to reach a server that speaks TLS. Every field is PEM, as bytes or as a file's path.

    `authority` signed the server's certificate; None: the authorities that gRPC brings.
    `certificate` and `key` are the client's own, for a server that asks for them.
    """

    authority: bytes | str | None = None
    certificate: bytes | str | None = None
    key: bytes | str | None = None


class RequestOptions(TypedDict, total=False):
    """Options that every request for tokens takes."""

    model: str
    """Name of a served model; the only one if it is left out."""
    attention: str | Attention | None
    """A mechanism's name, or a mechanism with options."""
    timeout: float | None
    """Seconds until the call ends with DeadlineExceededError [the client's `timeout`]."""


class GenerateOptions(RequestOptions, total=False):
    """Options of generate, stream, chat and chat_stream; `GenerateRequest` has their ranges."""

    max_new_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    """Token ids and what is added to their logits."""
    seed: int | None
    """The same seed and request give the same tokens."""
    stop: str | Sequence[str]
    """Texts that generation ends before."""
    stop_token_ids: Sequence[int]
    ignore_eos: bool | None
    logprobs: int | None
    """Log-probabilities of generated tokens, with this many alternatives."""
    prompt_logprobs: int | None
    n: int | None
    """Choices to generate."""
    priority: int | None
    request_id: str
    prefix_marks: Sequence[int]
    draft: str | None
    """"off" or "lookup"."""
    response_format: ResponseFormat | None


class ChatOptions(GenerateOptions, total=False):
    """Options of chat and chat_stream."""

    tools: Sequence[Mapping[str, Any]] | None
    """Tools, as the model's template expects them."""
    template_variables: Mapping[str, Any] | None
    """Further variables for the template, such as {"enable_thinking": False}."""


def message_of(message: MessageLike) -> Message:
    """Returns the message. ValueError: a mapping with unknown keys or without a role."""
    if isinstance(message, Message):
        return message
    names = {field.name for field in dataclasses.fields(Message)}
    unknown = sorted(set(message) - names)
    if unknown or "role" not in message:
        raise ValueError(f"message: keys {sorted(message)}, expected role and of {sorted(names)}")
    fields = dict(message)
    fields["tool_calls"] = tuple(_tool_call_of(call) for call in message.get("tool_calls") or ())
    return Message(**fields)


def _tool_call_of(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    # {"id", "type", "function": {"name", "arguments"}}, as OpenAI's clients write it.
    function = call.get("function", call)
    arguments = function.get("arguments_json", function.get("arguments", "{}"))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return ToolCall(name=function["name"], arguments_json=arguments, id=call.get("id") or "")
