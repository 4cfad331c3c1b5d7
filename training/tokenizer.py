"""Trains the SentencePiece vocabulary of the story model.

Byte-pair encoding with byte fallback and no normalization, so that decoding gives back exactly
the text that was encoded. Lines are not sentences here: newlines reach the trainer and get pieces.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from .data import read_stories

EXAMPLE = """example:
  python3 -m training tokenizer --text stories/*.txt --output model/tokenizer.model
"""
# The trainer drops longer sentences; paragraphs are cut below it.
MAX_SENTENCE_CHARS = 1000


def sentences(paths: list[Path]) -> Iterator[str]:
    """Yields the stories' paragraphs, each with the newline that ends it."""
    for path in paths:
        for story in read_stories(path):
            for line in story.splitlines(keepends=True):
                yield from cut_at_spaces(line)


def cut_at_spaces(line: str) -> Iterator[str]:
    """Cuts a long line in front of spaces, so that no word is split."""
    while len(line) > MAX_SENTENCE_CHARS:
        cut = line.rfind(" ", 1, MAX_SENTENCE_CHARS)
        if cut <= 0:
            cut = MAX_SENTENCE_CHARS
        yield line[:cut]
        line = line[cut:].removeprefix(" ")
    if line:
        yield line


def train(paths: list[Path], vocab_size: int, output: Path) -> None:
    with output.open("wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(paths),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            character_coverage=1.0,
            split_digits=True,
            add_dummy_prefix=True,
            remove_extra_whitespaces=False,
            normalization_rule_name="identity",
            allow_whitespace_only_pieces=True,
            max_sentence_length=16 * MAX_SENTENCE_CHARS,
            unk_id=0,
            bos_id=1,
            eos_id=2,
            pad_id=-1,
            unk_surface=" \u2047 ",
        )


def check_round_trip(paths: list[Path], model: Path) -> tuple[int, int]:
    """Returns (bytes, tokens) of all stories; raises ValueError if one is not decoded exactly."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    n_bytes = n_tokens = 0
    for path in paths:
        for story in read_stories(path):
            ids = processor.encode(story)
            if processor.decode(ids) != story:
                raise ValueError(f"{path}: changed by encoding and decoding: {story[:60]!r}")
            n_bytes += len(story.encode("utf-8"))
            n_tokens += len(ids)
    return n_bytes, n_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--text", type=Path, nargs="+", required=True, help="story files")
    add("--vocab-size", type=int, default=4096, help="pieces (default: 4096)")
    add("--output", type=Path, required=True, help="the tokenizer.model to write")


def main(args: argparse.Namespace) -> None:
    args.output.parent.mkdir(parents=True, exist_ok=True)
    train(args.text, args.vocab_size, args.output)
    n_bytes, n_tokens = check_round_trip(args.text, args.output)
    print(f"{n_bytes} bytes, {n_tokens} tokens, {n_bytes / n_tokens:.2f} bytes per token")
