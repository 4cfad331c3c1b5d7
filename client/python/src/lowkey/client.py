"""The synchronous client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import grpc
from typing_extensions import Self, Unpack

from . import _answers, _channel, _requests, results
from .errors import InternalError, error_of
from .options import Attention, ChatOptions, GenerateOptions, MessageLike, Tls
from .v1 import admin_pb2, generation_pb2 as pb, models_pb2

Prompt = str | Sequence[int]


class Stream(Iterator[results.Delta]):
    """Text and tokens as they are generated, and the whole answer at the end.

        with client.stream("Once upon a time") as stream:
            for delta in stream:
                print(delta.text, end="")
        print(stream.result.usage)

    `close`, or leaving the `with` block early, cancels the request in the server.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._gathered = _answers.Gathered()
        self._result: results.Generation | None = None
        self._is_closed = False

    def __next__(self) -> results.Delta:
        while not self._is_closed:
            try:
                event = next(self._call)
            except StopIteration:
                self._is_closed = True
                if self._result is None:
                    raise InternalError("the stream ended without its final event",
                                        code=grpc.StatusCode.INTERNAL) from None
            except grpc.RpcError as error:
                was_closed, self._is_closed = self._is_closed, True
                if not was_closed:
                    raise error_of(error, self._result) from error
            else:
                if event.HasField("delta"):
                    delta = _answers.delta_of(event.delta)
                    self._gathered.add(delta)
                    return delta
                if event.HasField("final"):
                    self._result = self._gathered.finish(event.final)
                else:
                    self._gathered.prompt_logprobs = _answers.prompt_logprobs_of(
                        event.prompt_logprobs)
        raise StopIteration

    @property
    def result(self) -> results.Generation:
        """The whole answer. RuntimeError before the stream's end."""
        if self._result is None:
            raise RuntimeError("the stream has not ended: iterate over it first, or call finish()")
        return self._result

    def finish(self) -> results.Generation:
        """Reads what is left, and returns the whole answer."""
        for _ in self:
            pass
        return self.result

    def close(self) -> None:
        """Ends the iteration, and cancels the request if it still runs."""
        self._is_closed = True
        self._call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._call.cancel()


class Client:
    """Calls a lowkey server. Thread-safe; one client serves a whole program.

    `address` is "HOST:PORT". `token` is sent with every call, over TLS or to this machine only.
    `tls` is None for a server that speaks in clear. `timeout` is the time in seconds that a call
    may take unless it says otherwise; None: no limit.
    """

    def __init__(self, address: str = "127.0.0.1:50051", *, token: str | None = None,
                 tls: Tls | None = None, timeout: float | None = None,
                 channel_options: Sequence[tuple[str, Any]] = ()) -> None:
        self._metadata = _channel.metadata_of(address, token, tls)
        self._timeout = timeout
        options = (*_channel.options_of(address), *channel_options)
        self._channel = (grpc.insecure_channel(address, options=options) if tls is None else
                         grpc.secure_channel(address, _channel.credentials_of(tls),
                                             options=options))

    def close(self) -> None:
        """Closes the connection, and cancels what runs."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> results.Generation:
        """Continues a text, or token ids."""
        request = _requests.prompt_request(prompt, options)
        return _answers.generation_of(self._call(_channel.GENERATE, request, options))

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Continues a text, or token ids, and gives the text as it comes."""
        return self._stream(_requests.prompt_request(prompt, options), options)

    def chat(self, messages: Sequence[MessageLike],
             **options: Unpack[ChatOptions]) -> results.Generation:
        """Answers a conversation, which the model's chat template writes."""
        request = _requests.chat_request(messages, options)
        return _answers.generation_of(self._call(_channel.GENERATE, request, options))

    def chat_stream(self, messages: Sequence[MessageLike],
                    **options: Unpack[ChatOptions]) -> Stream:
        """Answers a conversation, and gives the text as it comes."""
        return self._stream(_requests.chat_request(messages, options), options)

    def score(self, context: Prompt, continuations: Sequence[str] | Sequence[Sequence[int]], *,
              attention: str | Attention | None = None, model: str = "",
              timeout: float | None = None) -> results.Scores:
        """Returns the log-probability of each continuation after the context."""
        request = _requests.score_request(context, continuations, attention, model)
        return _answers.scores_of(self._call(_channel.SCORE, request, {"timeout": timeout}))

    def tokenize(self, text: str | Sequence[MessageLike], *, add_bos: bool | None = None,
                 model: str = "", tools: Sequence[Mapping[str, Any]] | None = None,
                 template_variables: Mapping[str, Any] | None = None,
                 timeout: float | None = None) -> results.Tokenization:
        """Returns the token ids of a text or a conversation, as the model would read them."""
        request = _requests.tokenize_request(
            text, add_bos, model, {"tools": tools, "template_variables": template_variables})
        return _answers.tokenization_of(
            self._call(_channel.TOKENIZE, request, {"timeout": timeout}))

    def detokenize(self, token_ids: Sequence[int], *, model: str = "",
                   timeout: float | None = None) -> str:
        """Returns the text of token ids."""
        request = pb.DetokenizeRequest(model=model, token_ids=token_ids)
        response: pb.DetokenizeResponse = self._call(_channel.DETOKENIZE, request,
                                                     {"timeout": timeout})
        return response.text

    def models(self, *, timeout: float | None = None) -> tuple[results.ModelInfo, ...]:
        """Returns the served models with their limits, mechanisms and defaults."""
        response: models_pb2.ListModelsResponse = self._call(
            _channel.LIST_MODELS, models_pb2.ListModelsRequest(), {"timeout": timeout})
        return tuple(_answers.model_of(model) for model in response.models)

    def model(self, name: str = "", *, timeout: float | None = None) -> results.ModelInfo:
        """Returns one model; the only one if no name is given."""
        return _answers.model_of(self._call(
            _channel.GET_MODEL, models_pb2.GetModelRequest(name=name), {"timeout": timeout}))

    def stats(self, *, timeout: float | None = None) -> results.Stats:
        """Returns the server's counters."""
        return _answers.stats_of(self._call(_channel.STATS, admin_pb2.StatsRequest(),
                                            {"timeout": timeout}))

    def drain(self, *, timeout: float | None = None) -> int:
        """Ends the server once its requests are done; returns how many there are."""
        response: admin_pb2.DrainResponse = self._call(_channel.DRAIN, admin_pb2.DrainRequest(),
                                                       {"timeout": timeout})
        return response.unfinished_requests

    def _call(self, method: tuple[str, Any, Any], request: Any, options: Mapping[str, Any]) -> Any:
        path, request_kind, response_kind = method
        call: Any = self._channel.unary_unary(
            path, request_serializer=request_kind.SerializeToString,
            response_deserializer=response_kind.FromString)
        try:
            return call(request, timeout=self._seconds(options), metadata=self._metadata)
        except grpc.RpcError as error:
            raise error_of(error) from error

    def _stream(self, request: pb.GenerateRequest, options: Mapping[str, Any]) -> Stream:
        path, request_kind, response_kind = _channel.STREAM
        call: Any = self._channel.unary_stream(
            path, request_serializer=request_kind.SerializeToString,
            response_deserializer=response_kind.FromString)
        return Stream(call(request, timeout=self._seconds(options), metadata=self._metadata))

    def _seconds(self, options: Mapping[str, Any]) -> float | None:
        timeout = options.get("timeout")
        return self._timeout if timeout is None else timeout
