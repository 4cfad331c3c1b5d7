"""Reads the messages of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar

from . import results
from .v1 import admin_pb2, generation_pb2 as pb, models_pb2

T = TypeVar("T")

_REASONS = {
    pb.FINISH_REASON_STOP_TOKEN: results.FinishReason.STOP_TOKEN,
    pb.FINISH_REASON_STOP_TEXT: results.FinishReason.STOP_TEXT,
    pb.FINISH_REASON_LENGTH: results.FinishReason.LENGTH,
    pb.FINISH_REASON_CANCELLED: results.FinishReason.CANCELLED,
    pb.FINISH_REASON_DEADLINE: results.FinishReason.DEADLINE,
    pb.FINISH_REASON_ERROR: results.FinishReason.ERROR,
}


def read(kind: type[T], message: Any, **given: Any) -> T:
    """Makes a dataclass of the message's fields of the same names; an unset optional field is None.
    `given` are the fields that need more."""
    values = dict(given)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in values:
            continue
        value = getattr(message, field.name)
        if message.DESCRIPTOR.fields_by_name[field.name].has_presence:
            value = value if message.HasField(field.name) else None
        elif not isinstance(value, (str, bytes, int, float, bool)):
            value = tuple(value)  # a repeated field of numbers or texts
        values[field.name] = value
    return kind(**values)


def tokens_of(tokens: Iterable[pb.Token]) -> tuple[results.Token, ...]:
    return tuple(read(results.Token, token, top_logprobs=tuple(
        read(results.TokenLogprob, top) for top in token.top_logprobs)) for token in tokens)


def delta_of(delta: pb.ChoiceDelta) -> results.Delta:
    return results.Delta(delta.choice, delta.text, tokens_of(delta.tokens))


def prompt_logprobs_of(message: pb.PromptLogprobs) -> tuple[results.PromptToken, ...]:
    return tuple(results.PromptToken(entry.position, tokens_of([entry.token])[0])
                 for entry in message.tokens)


class Gathered:
    """Puts the events of a stream together."""

    def __init__(self) -> None:
        self.prompt_logprobs: tuple[results.PromptToken, ...] = ()
        self._texts: dict[int, list[str]] = {}
        self._tokens: dict[int, list[results.Token]] = {}

    def add(self, delta: results.Delta) -> None:
        self._texts.setdefault(delta.choice, []).append(delta.text)
        self._tokens.setdefault(delta.choice, []).extend(delta.tokens)

    def finish(self, final: pb.FinalEvent) -> results.Generation:
        choices = tuple(
            results.Choice(
                index=finish.choice, text="".join(self._texts.get(finish.choice, ())),
                tokens=tuple(self._tokens.get(finish.choice, ())),
                finish_reason=_REASONS.get(finish.reason, results.FinishReason.UNSPECIFIED),
                stop_text=finish.stop_text if finish.HasField("stop_text") else None,
                generated_tokens=finish.generated_tokens)
            for finish in final.choices)
        crossovers = tuple(
            results.Crossover(getattr(entry, "from"), entry.to, entry.prompt_tokens)
            for entry in final.attention.crossovers)
        return results.Generation(
            request_id=final.request_id, model=final.model, choices=choices,
            usage=read(results.Usage, final.usage), timings=read(results.Timings, final.timings),
            seed=final.seed,
            attention=read(results.AttentionReport, final.attention, crossovers=crossovers),
            prompt_logprobs=self.prompt_logprobs)


def generation_of(response: pb.GenerateResponse) -> results.Generation:
    gathered = Gathered()
    gathered.prompt_logprobs = prompt_logprobs_of(response.prompt_logprobs)
    for delta in response.choices:
        gathered.add(delta_of(delta))
    return gathered.finish(response.final)


def scores_of(response: pb.ScoreResponse) -> results.Scores:
    scores = tuple(results.Score(score.logprob, tokens_of(score.tokens), score.greedy)
                   for score in response.scores)
    return results.Scores(scores, response.best, read(results.Usage, response.usage))


def tokenization_of(response: pb.TokenizeResponse) -> results.Tokenization:
    return read(results.Tokenization, response)


def measured_of(measured: models_pb2.MeasuredQuality) -> results.MeasuredQuality:
    def shares(of: Iterable[models_pb2.MeasuredShare]) -> tuple[results.MeasuredShare, ...]:
        return tuple(read(results.MeasuredShare, share) for share in of)

    return read(results.MeasuredQuality, measured,
                perplexity_ratios=ratios_of(measured.perplexity_ratios),
                recalled_digits=shares(measured.recalled_digits),
                copied_tokens=shares(measured.copied_tokens))


def ratios_of(ratios: Iterable[models_pb2.PerplexityRatio]) -> tuple[results.PerplexityRatio, ...]:
    return tuple(read(results.PerplexityRatio, ratio) for ratio in ratios)


def model_of(model: models_pb2.Model) -> results.ModelInfo:
    defaults = results.Defaults(
        sampling=read(results.Sampling, model.defaults.sampling),
        attention=model.defaults.attention,
        max_new_tokens=model.defaults.max_new_tokens, draft=model.defaults.draft)
    mechanisms = tuple(
        read(results.Mechanism, mechanism, perplexity_ratios=ratios_of(mechanism.perplexity_ratios),
             measured=tuple(measured_of(quality) for quality in mechanism.measured))
        for mechanism in model.mechanisms)
    return read(results.ModelInfo, model,
                architecture=read(results.Architecture, model.architecture),
                limits=read(results.Limits, model.limits), mechanisms=mechanisms,
                defaults=defaults)


def stats_of(response: admin_pb2.StatsResponse) -> results.Stats:
    return read(results.Stats, response)
