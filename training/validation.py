"""Perplexity on held-out stories."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from .data import encode_stories, read_stories

IGNORED = -100
SCORED_AT_ONCE = 4096  # tokens


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
        bos_id = tokenizer.bos_id()
        # Some tokenizers have no bos, and some end with it.
        self.ignored_id = IGNORED if bos_id in (None, tokenizer.eos_id()) else bos_id

    @staticmethod
    def batches(stream: np.ndarray, window_tokens: int):
        """Yields tokens and targets [n_windows, window_tokens]; the last window may be shorter."""
        n_whole = (len(stream) - 1) // window_tokens
        n_at_once = max(1, SCORED_AT_ONCE // window_tokens)
        for first in range(0, n_whole, n_at_once):
            n = min(n_at_once, n_whole - first)
            part = stream[first * window_tokens : (first + n) * window_tokens + 1]
            yield part[:-1].reshape(n, -1), part[1:].reshape(n, -1)
        rest = stream[n_whole * window_tokens :]
        if len(rest) > 1:
            yield rest[None, :-1], rest[None, 1:]

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
        for windows in self.batches(stream, window_tokens):
            tokens, targets = (torch.from_numpy(x).to(model.device) for x in windows)
            targets = targets.masked_fill(targets == self.ignored_id, IGNORED).flatten()
            logits = model(tokens, mechanism).flatten(0, 1)
            nats += F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum").item()
            n_scored += int((targets != IGNORED).sum())
        share = (len(stream) - 1) / (len(self.tokens) - 1)
        return Score(mechanism, n_scored, round(self.n_bytes * share), nats)


def fits(model, mechanism: str, window: int) -> bool:
    """Whether a mechanism can take windows of that many tokens."""
    return mechanism != "super" or window <= model.config.alignment_tokens


def perplexity_ratios(
    model, mechanism: str, stories: ValidationSet, windows: list[int], max_tokens: int | None = None
) -> dict[int, float]:
    """Returns the perplexity over the standard's by window, for the windows that fit."""
    ratios = {}
    for window in windows:
        if fits(model, mechanism, window):
            own, standard = (
                stories.score(model, m, window, max_tokens) for m in (mechanism, "standard")
            )
            ratios[window] = own.perplexity / standard.perplexity
    return ratios
