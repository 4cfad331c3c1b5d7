"""Makes the messages of requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .options import (Attention, ChatOptions, GenerateOptions, MessageLike, ResponseFormat,
                      message_of)
from .v1 import generation_pb2 as pb

Prompt = str | Sequence[int]

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
             "frequency_penalty", "logit_bias", "seed")
_PLAIN = ("max_new_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "n", "priority", "draft",
          "model", "request_id")
_LISTS = ("stop_token_ids", "prefix_marks")
_ELSEWHERE = ("attention", "timeout", "stop", "tools", "template_variables", "response_format")


def attention_options(attention: str | Attention | None) -> pb.AttentionOptions | None:
    """Returns None where the server's default is wanted."""
    if attention is None:
        return None
    if isinstance(attention, str):
        return pb.AttentionOptions(mechanism=attention)
    return attention


def response_format(form: ResponseFormat | None) -> pb.ResponseFormat | None:
    """Returns None for any text. TypeError unless the format sets exactly one form."""
    if form is None:
        return None
    schema = form.json_schema
    forms: dict[str, Any] = {
        "json_object": pb.ResponseFormat.JsonObject() if form.json_object else None,
        "json_schema": schema if schema is None or isinstance(schema, str) else json.dumps(schema),
        "regex": form.regex,
        "choice": pb.ResponseFormat.Choice(texts=form.choice) if form.choice else None,
        "grammar": form.grammar,
    }
    given = {name: value for name, value in forms.items() if value is not None}
    if len(given) != 1:
        raise TypeError(f"response_format: {len(given)} forms, expected one of {', '.join(forms)}")
    return pb.ResponseFormat(**given)


def chat_message(messages: Sequence[MessageLike], options: Mapping[str, Any]) -> pb.Chat:
    """Returns the conversation with its tools and variables."""
    chat = pb.Chat()
    for message in map(message_of, messages):
        chat.messages.append(pb.ChatMessage(
            role=message.role, content=message.content, name=message.name,
            tool_call_id=message.tool_call_id,
            tool_calls=[pb.ToolCall(id=call.id, name=call.name, arguments_json=call.arguments_json)
                        for call in message.tool_calls]))
    if options.get("tools"):
        chat.tools_json = json.dumps(list(options["tools"]))
    if options.get("template_variables"):
        chat.variables_json = json.dumps(dict(options["template_variables"]))
    return chat


def generate_request(options: GenerateOptions | ChatOptions) -> pb.GenerateRequest:
    """Returns a request without its input. TypeError: an option that there is not."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(_SAMPLING + _PLAIN + _LISTS + _ELSEWHERE))
    if unknown:
        raise TypeError(f"unknown options: {', '.join(unknown)}")
    stop = given.get("stop", ())
    sampling = {name: given[name] for name in _SAMPLING if name in given}
    return pb.GenerateRequest(
        sampling=pb.SamplingOptions(**sampling) if sampling else None,
        attention=attention_options(given.get("attention")),
        response_format=response_format(given.get("response_format")),
        stop=[stop] if isinstance(stop, str) else list(stop),
        **{name: given[name] for name in _PLAIN + _LISTS if name in given})


def prompt_request(prompt: Prompt, options: GenerateOptions) -> pb.GenerateRequest:
    """Returns the request to continue a text or token ids."""
    request = generate_request(options)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
        request.token_ids.SetInParent()
    return request


def chat_request(messages: Sequence[MessageLike], options: ChatOptions) -> pb.GenerateRequest:
    """Returns the request to answer a conversation."""
    request = generate_request(options)
    request.chat.CopyFrom(chat_message(messages, options))
    return request


def score_request(context: Prompt, continuations: Sequence[str] | Sequence[Sequence[int]],
                  attention: str | Attention | None, model: str) -> pb.ScoreRequest:
    """Returns the request; TypeError unless context and continuations are of one kind."""
    request = pb.ScoreRequest(model=model, attention=attention_options(attention))
    is_text = isinstance(context, str)
    if isinstance(continuations, str) or any(isinstance(c, str) != is_text for c in continuations):
        raise TypeError("continuations: expected a list of texts for a text, else of token ids")
    if isinstance(context, str):
        request.text = context
        request.continuation_texts.extend(str(text) for text in continuations)
        return request
    request.token_ids.ids.extend(context)
    request.token_ids.SetInParent()
    for ids in continuations:
        request.continuation_token_ids.add().ids.extend(int(token_id) for token_id in ids)
    return request


def tokenize_request(text: str | Sequence[MessageLike], add_bos: bool | None, model: str,
                     options: Mapping[str, Any]) -> pb.TokenizeRequest:
    """Returns the request for a text or a conversation."""
    if isinstance(text, str):
        return pb.TokenizeRequest(model=model, text=text, add_bos=add_bos)
    return pb.TokenizeRequest(model=model, chat=chat_message(text, options))
