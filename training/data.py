"""Token windows from story files, drawn from several sources in changing shares.

A story file is plain UTF-8 text, its stories separated by a line that says <|endoftext|>.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

SEPARATOR = "<|endoftext|>"


def read_stories(path: Path) -> list[str]:
    """Returns the stories of one file, without the separators and the blank space around them."""
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    stories = (story.strip() for story in text.split(SEPARATOR))
    return [story for story in stories if story]


def encode_stories(path: Path, tokenizer) -> list[np.ndarray]:
    """Returns each story as bos (where the model has one), text, eos."""
    encoded = tokenizer.encode(read_stories(path), add_bos=True, add_eos=True)
    return [np.array(story, dtype=np.uint32) for story in encoded]


class StorySource:
    """One file's stories end to end, in a new order every epoch, read in consecutive windows.

    The order depends on the seed and the epoch alone, so (epoch, offset) is the whole state.
    """

    def __init__(self, stories: list[np.ndarray], seed: int):
        self.stories = stories
        self.seed = seed
        self.seek(epoch=0, offset=0)

    def seek(self, epoch: int, offset: int) -> None:
        self.epoch = epoch
        self.offset = offset
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.stories))
        self.tokens = np.concatenate([self.stories[i] for i in order])

    def next_window(self, n_tokens: int) -> np.ndarray:
        """Returns n_tokens inputs and, one place on, their targets: n_tokens + 1 in all."""
        parts = []
        missing = n_tokens + 1
        while missing > 0:
            part = self.tokens[self.offset : self.offset + missing]
            parts.append(part)
            missing -= len(part)
            self.offset += len(part)
            if self.offset == len(self.tokens):
                self.seek(self.epoch + 1, offset=0)
        # The last target is the next window's first input.
        if self.offset > 0:
            self.offset -= 1
        return np.concatenate(parts)


@dataclass(frozen=True)
class SourceOption:
    """A file with its share of the tokens at the start and at the end of training."""

    path: Path
    start_share: float
    end_share: float


def parse_source(text: str) -> SourceOption:
    """Parses PATH=START,END; raises ValueError otherwise."""
    path, _, shares = text.rpartition("=")
    start, end = (float(share) for share in shares.split(","))
    if not path or start < 0 or end < 0:
        raise ValueError(f"{text}: expected PATH=START,END with shares of at least 0")
    return SourceOption(Path(path), start, end)


class Mixture:
    def __init__(self, options: list[SourceOption], tokenizer, seed: int):
        self.options = options
        self.rng = np.random.default_rng(seed)
        self.sources = [
            StorySource(encode_stories(option.path, tokenizer), seed + i)
            for i, option in enumerate(options)
        ]

    def batch(
        self, n_seqs: int, n_tokens: int, progress: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns tokens and targets, both [n_seqs, n_tokens]; progress runs from 0 to 1."""
        shares = np.array(
            [o.start_share + progress * (o.end_share - o.start_share) for o in self.options]
        )
        chosen = self.rng.choice(len(self.sources), size=n_seqs, p=shares / shares.sum())
        windows = [self.sources[i].next_window(n_tokens) for i in chosen]
        rows = torch.from_numpy(np.stack(windows).astype(np.int64))
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def state(self) -> dict:
        return {
            "rng": self.rng.bit_generator.state,
            "places": [(source.epoch, source.offset) for source in self.sources],
        }

    def load_state(self, state: dict) -> None:
        self.rng.bit_generator.state = state["rng"]
        for source, (epoch, offset) in zip(self.sources, state["places"], strict=True):
            source.seek(epoch, offset)
