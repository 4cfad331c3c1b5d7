#!/usr/bin/env python3
"""Simulates how many prompt tokens replicas find in their prefix caches, by number of replicas.

    python3 bench/prefix_affinity.py [--conversations 4000] [--seed 1] [--replicas 1,2,4,8,16,64]

Conversations of a made-up service arrive at random: 20 applications of unequal popularity, each with
a system prompt of its own; questions and answers of log-normal lengths; a user comes back after a
log-normal pause. Every turn sends the whole conversation again. A replica keeps pages of 64 tokens
and drops those that were used longest ago. Policies: "least loaded" looks at loads alone, "first
page" sends prompts with an equal first page to the same replica, "conversation" those with an equal
beginning up to the first question; both as deploy/ray does it, overflow included.
"""

import argparse
import collections
import heapq
import math
import pathlib
import random
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "deploy" / "ray"))
from lowkey_ray import affinity  # noqa: E402
from lowkey_ray.prompts import PAGE_TOKENS  # noqa: E402

POLICIES = ("least loaded", "first page", "conversation")
N_APPLICATIONS = 20
PREFILL_TOKENS_PER_S = 2000.0
DECODE_TOKENS_PER_S = 20.0


class Turn(NamedTuple):
    time: float
    application: int
    conversation: int
    system_tokens: int
    prompt_tokens: int
    answer_tokens: int


def make_trace(n_conversations: int, per_s: float, rng: random.Random) -> list[Turn]:
    def tokens(median: float, sigma: float, most: int) -> int:
        return min(most, max(1, round(rng.lognormvariate(math.log(median), sigma))))

    systems = [tokens(400, 0.8, 3000) for _ in range(N_APPLICATIONS)]
    popularity = [1 / (rank + 1) for rank in range(N_APPLICATIONS)]
    turns, now = [], 0.0
    for conversation in range(n_conversations):
        now += rng.expovariate(per_s)
        application = rng.choices(range(N_APPLICATIONS), popularity)[0]
        length, time = systems[application], now
        while True:
            length += tokens(40, 1.2, 2000)
            answer = tokens(180, 0.9, 1500)
            if length + answer > 8192:
                break
            turns.append(Turn(time, application, conversation, systems[application], length, answer))
            length += answer
            if rng.random() > 0.72:  # 3.6 turns in the mean
                break
            time += answer / DECODE_TOKENS_PER_S + rng.lognormvariate(math.log(30), 1)
    return sorted(turns)


class Replica:
    """A prefix cache of a bounded number of pages, and a count of running requests."""

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self.pages: collections.OrderedDict[tuple[int, int, int], None] = collections.OrderedDict()
        self.n_running = 0

    def find(self, turn: Turn) -> int:
        """Returns the tokens of the prompt that are cached; keeps those of prompt and answer."""
        pages = [self._page(turn, index)
                 for index in range((turn.prompt_tokens + turn.answer_tokens) // PAGE_TOKENS)]
        # The last token is computed in any case.
        n_whole = (turn.prompt_tokens - 1) // PAGE_TOKENS
        n_found = 0
        while n_found < n_whole and pages[n_found] in self.pages:
            n_found += 1
        for page in reversed(pages):  # a page is of no use without those before it
            self.pages[page] = None
            self.pages.move_to_end(page)
        while len(self.pages) > self.n_pages:
            self.pages.popitem(last=False)
        return n_found * PAGE_TOKENS

    @staticmethod
    def _page(turn: Turn, index: int) -> tuple[int, int, int]:
        is_shared = (index + 1) * PAGE_TOKENS <= turn.system_tokens
        return (turn.application, -1 if is_shared else turn.conversation, index)


def key_of(policy: str, turn: Turn) -> bytes:
    if policy == "first page":
        return f"application {turn.application}".encode()
    if policy == "conversation":
        return f"conversation {turn.conversation}".encode()
    return b""


class Result(NamedTuple):
    hit_rate: float
    busiest: float  # the most loaded replica's requests over the mean


def simulate(trace: list[Turn], policy: str, n_replicas: int, n_pages: int) -> Result:
    replicas = {str(index): Replica(n_pages) for index in range(n_replicas)}
    counts: collections.Counter[str] = collections.Counter()
    ends: list[tuple[float, str]] = []
    n_found = n_prompt = 0
    for turn in trace:
        while ends and ends[0][0] <= turn.time:
            replicas[heapq.heappop(ends)[1]].n_running -= 1
        loads = {name: float(replica.n_running) for name, replica in replicas.items()}
        name = affinity.order(key_of(policy, turn), loads)[0]
        found = replicas[name].find(turn)
        n_found += found
        n_prompt += turn.prompt_tokens
        replicas[name].n_running += 1
        counts[name] += 1
        time = (turn.prompt_tokens - found) / PREFILL_TOKENS_PER_S + turn.answer_tokens / DECODE_TOKENS_PER_S
        heapq.heappush(ends, (turn.time + time, name))
    return Result(n_found / n_prompt, max(counts.values()) * n_replicas / len(trace))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=4000)
    parser.add_argument("--per-second", type=float, default=1.0, help="conversations that begin")
    parser.add_argument("--cache-tokens", type=int, default=200_000, help="of a replica's prefix cache")
    parser.add_argument("--replicas", default="1,2,4,8,16,64")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    random.seed(flags.seed)
    trace = make_trace(flags.conversations, flags.per_second, random.Random(flags.seed))
    n_tokens = sum(turn.prompt_tokens for turn in trace)
    print(f"{len(trace)} turns of {flags.conversations} conversations, {n_tokens / len(trace):.0f} prompt "
          f"tokens a turn; {flags.cache_tokens} tokens of cache a replica")
    pages = flags.cache_tokens // PAGE_TOKENS
    print(f"{'replicas':>8} {'one, with all the cache':>24}" + "".join(f"{p:>26}" for p in POLICIES))
    for n_replicas in map(int, flags.replicas.split(",")):
        one = simulate(trace, "least loaded", 1, n_replicas * pages).hit_rate
        row = f"{n_replicas:>8} {one:>23.1%} "
        for policy in POLICIES:
            result = simulate(trace, policy, n_replicas, pages)
            row += f"{result.hit_rate:>10.1%} {result.hit_rate / one:>5.0%}, {result.busiest:>4.2f} x"
        print(row, flush=True)
    print("a policy's columns: prompt tokens found; of the one replica's; requests of the busiest "
          "replica over the mean")


if __name__ == "__main__":
    main()
