"""Perplexity on held-out stories."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from .data import encode_stories, read_stories

IGNORED = -100


@dataclass(frozen=True)
class Score:
    mechanism: str
    n_tokens: int
    n_bytes: int
    nats: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats / self.n_tokens)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.n_bytes


class ValidationSet:
    """The stories end to end. Every token but bos is predicted once: eos counts, bos does not."""

    def __init__(self, path: Path, tokenizer):
        self.tokens = np.concatenate(encode_stories(path, tokenizer)).astype(np.int64)
        self.n_bytes = sum(len(story.encode("utf-8")) for story in read_stories(path))
        self.bos_id = tokenizer.bos_id()

    @torch.no_grad()
    def score(
        self, model, mechanism: str, window_tokens: int, max_tokens: int | None = None
    ) -> Score:
        """Scores windows that do not overlap, in float32; with max_tokens only the first ones.

        The first token of a window sees no context but the one before it. n_bytes of a partial
        score is in proportion to its tokens.
        """
        stream = self.tokens[: (max_tokens or len(self.tokens)) + 1]
        nats = 0.0
        n_scored = 0
        for start in range(0, len(stream) - 1, window_tokens):
            row = torch.from_numpy(stream[start : start + window_tokens + 1])
            targets = row[1:].masked_fill(row[1:] == self.bos_id, IGNORED)
            logits = model(row[None, :-1], mechanism)[0]
            nats += F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum").item()
            n_scored += int((targets != IGNORED).sum())
        share = (len(stream) - 1) / (len(self.tokens) - 1)
        return Score(mechanism, n_scored, round(self.n_bytes * share), nats)


def fits(model, mechanism: str, window: int) -> bool:
    """Whether a mechanism can take windows of that many tokens."""
    return mechanism != "super" or window <= model.config.alignment_tokens


def perplexity_ratios(
    model, mechanism: str, stories: ValidationSet, windows: list[int]
) -> dict[int, float]:
    """Returns the perplexity over the standard's by window, for the windows that fit."""
    ratios = {}
    for window in windows:
        if fits(model, mechanism, window):
            own, standard = (stories.score(model, m, window) for m in (mechanism, "standard"))
            ratios[window] = own.perplexity / standard.perplexity
    return ratios
