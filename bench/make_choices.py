#!/usr/bin/env python3
"""Makes questions for `lowkey eval choice` out of stories: which sentence comes next?

    bench/make_choices.py held_out.txt --words 700 --questions 200 > choices.jsonl

Stories are plain UTF-8 text with a line <|endoftext|> between them. A question's prompt is the
--words before a sentence (less where a story is shorter, at least half as many), its choices are
that sentence and three of the same story, outside of the prompt, that are nearly as long, in an
order drawn by --seed.
"""

import argparse
import json
import random
import re
import sys
from pathlib import Path

SENTENCE_WORDS = range(6, 40)
WRONG_CHOICES = 3


def sentences_of(story: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\"'])", " ".join(story.split()))


def question(story: list[str], n_words: int, rng: random.Random) -> dict | None:
    """Returns a question about a sentence of the story, None where the story is too short."""
    lengths = [len(sentence.split()) for sentence in story]
    before = [sum(lengths[:i]) for i in range(len(story))]
    usable = [i for i in range(len(story)) if lengths[i] in SENTENCE_WORDS]
    asked = [i for i in usable if 2 * before[i] >= n_words]
    if not asked:
        return None
    right = rng.choice(asked)
    first = next(i for i in range(right) if before[right] - before[i] <= n_words)
    others = sorted((i for i in usable if not first <= i <= right),
                    key=lambda i: (abs(lengths[i] - lengths[right]), rng.random()))  # fmt: skip
    if len(others) < WRONG_CHOICES:
        return None
    chosen = [right, *others[:WRONG_CHOICES]]
    rng.shuffle(chosen)
    return {
        "prompt": " ".join(story[first:right]),
        "choices": [" " + story[i] for i in chosen],
        "answer": chosen.index(right),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stories", type=Path)
    parser.add_argument("--words", type=int, default=700, help="of a prompt (default: 700)")
    parser.add_argument("--questions", type=int, default=200, help="(default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    text = args.stories.read_text(encoding="utf-8")
    stories = [sentences_of(story) for story in text.split("<|endoftext|>")]
    n_made = 0
    while n_made < args.questions:
        made = [q for q in (question(s, args.words, rng) for s in stories) if q]
        if not made:
            print(f"{args.stories}: no story has {args.words // 2} words", file=sys.stderr)
            return 1
        for one in made[: args.questions - n_made]:
            print(json.dumps(one, ensure_ascii=False))
        n_made += len(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
