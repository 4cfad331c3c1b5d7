"""Trains a small classifier of ListOps expressions with one mechanism, and tests it.

ListOps is the task of Long Range Arena: operators MAX, MIN, MED and SM (the sum modulo 10) are
nested over digits, and an expression's class is its value. The model reads the expression causally
and answers at the last token, the bracket that closes the expression. Expressions are generated
during the training; the test set is the same for every --seed.
The command continues from its checkpoint after SIGTERM or SIGINT.
"""

import argparse
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .checkpoint import save_state
from .model import Llama, ModelConfig
from .optimizer import make_optimizers
from .progress import Progress, watch_stop_signals
from .train import RATES, rate_factor

EXAMPLE = """example:
  python3 -m training listops --mechanism taylorshift --examples 4e4 --output out/listops
"""
N_CLASSES = 10
OPERATORS = ("[MAX", "[MIN", "[MED", "[SM")
# A digit's token is its value.
VOCABULARY = (*map(str, range(N_CLASSES)), *OPERATORS, "]", "<pad>")
CLOSE, PAD = VOCABULARY.index("]"), VOCABULARY.index("<pad>")
NO_TARGET = -1

# The trees of Long Range Arena: an argument is an operator with this probability, and nodes of the
# last depth are digits.
OPERATOR_SHARE = 0.25
MAX_DEPTH = 10
MAX_ARGUMENTS = 10

# The first number of a generator's seed.
TRAIN, VALIDATION, TEST = range(3)
VALIDATION_EXAMPLES = 500
# Batches that are generated at once: grouped by length, they hold little padding.
POOL_BATCHES = 64


def parse_lengths(text: str) -> tuple[int, int]:
    """Parses LOW,HIGH."""
    numbers = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if len(numbers) != 2 or not 4 <= numbers[0] <= numbers[1]:
        raise argparse.ArgumentTypeError(f"{text}: expected LOW,HIGH with 4 <= LOW <= HIGH")
    return numbers[0], numbers[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--mechanism", required=True, choices=("standard", "taylorshift"))
    add("--output", type=Path, required=True, help="folder of checkpoint, log and results.json")
    add("--examples", type=float, required=True, help="examples to train on, all runs together")
    add("--minutes", type=float, help="of steps: end then, the rates' schedule shortened to fit")
    add("--lengths", type=parse_lengths, default=(500, 2000),
        help="tokens of an expression, LOW,HIGH (default: 500,2000)")  # fmt: skip
    add("--supervise", choices=("all", "answer"), default="answer",
        help="loss of the answer, or the mean over all brackets (default: answer)")  # fmt: skip
    add("--layers", type=int, default=4, help="decoder layers (default: 4)")
    add("--hidden", type=int, default=64, help="hidden size, a multiple of heads (default: 64)")
    add("--heads", type=int, default=2, help="attention heads (default: 2)")
    add("--batch-examples", type=int, default=4, help="examples per step (default: 4)")
    add("--part-tokens", type=int, default=4096,
        help="tokens computed at once, as memory allows (default: 4096)")  # fmt: skip
    add("--test-examples", type=int, default=2000, help="examples of the test (default: 2000)")
    add("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--seed", type=int, default=1, help="of weights and training examples (default: 1)")
    add("--validate-minutes", type=float, default=15, help="between validations (default: 15)")
    add("--save-minutes", type=float, default=3, help="between checkpoints (default: 3)")


def evaluate(operator: str, values: list[int]) -> int:
    """Returns an operator's value; a median between two digits is rounded down."""
    if operator == "[MAX":
        return max(values)
    if operator == "[MIN":
        return min(values)
    if operator == "[SM":
        return sum(values) % N_CLASSES
    values, half = sorted(values), len(values) // 2
    return (values[half] + values[~half]) // 2


def draw_tree(rng: np.random.Generator, lengths: tuple[int, int]) -> list[np.ndarray]:
    """Returns the numbers of arguments of each depth's nodes, from left to right; 0 is a digit.

    Trees are drawn until the tokens of one are within lengths.
    """
    low, high = lengths
    while True:
        levels: list[np.ndarray] = []
        n_nodes, n_tokens = 1, 0
        while n_nodes and n_tokens <= high:
            n_arguments = rng.integers(2, MAX_ARGUMENTS + 1, n_nodes)
            if levels:
                share = OPERATOR_SHARE if len(levels) < MAX_DEPTH - 1 else 0.0
                n_arguments *= rng.random(n_nodes) < share
            levels.append(n_arguments)
            n_tokens += n_nodes + np.count_nonzero(n_arguments)
            n_nodes = n_arguments.sum()
        if low <= n_tokens <= high:
            return levels


@dataclass
class Example:
    """An expression: its tokens, and at each closing bracket the value of what it closes."""

    tokens: list[int]
    targets: list[int]

    @property
    def answer(self) -> int:
        return self.targets[-1]


def draw_example(rng: np.random.Generator, lengths: tuple[int, int]) -> Example:
    levels = draw_tree(rng, lengths)
    n_nodes = sum(len(level) for level in levels)
    digits = iter(rng.integers(N_CLASSES, size=n_nodes).tolist())
    operators = iter(rng.integers(len(OPERATORS), size=n_nodes).tolist())
    nodes = [iter(level.tolist()) for level in levels]
    example = Example([], [])

    def write(token: int, target: int = NO_TARGET) -> None:
        example.tokens.append(token)
        example.targets.append(target)

    def write_node(depth: int) -> int:
        """Writes the next node of a depth and returns its value."""
        n_arguments = next(nodes[depth])
        if not n_arguments:
            value = next(digits)
            write(value)
            return value
        operator = next(operators)
        write(N_CLASSES + operator)
        value = evaluate(OPERATORS[operator], [write_node(depth + 1) for _ in range(n_arguments)])
        write(CLOSE, value)
        return value

    write_node(0)
    return example


def draw_examples(seed: tuple[int, ...], n: int, lengths: tuple[int, int]) -> list[Example]:
    """Returns n examples in order of length."""
    rng = np.random.default_rng(seed)
    return sorted((draw_example(rng, lengths) for _ in range(n)), key=lambda e: len(e.tokens))


@dataclass
class Part:
    """Padded examples: tokens and targets [n, longest], the last token's place [n]."""

    tokens: Tensor
    targets: Tensor
    ends: Tensor


def make_part(examples: list[Example], device: str) -> Part:
    shape = (len(examples), max(len(example.tokens) for example in examples))
    tokens, targets = torch.full(shape, PAD), torch.full(shape, NO_TARGET)
    for i, example in enumerate(examples):
        tokens[i, : len(example.tokens)] = torch.tensor(example.tokens)
        targets[i, : len(example.targets)] = torch.tensor(example.targets)
    ends = torch.tensor([len(example.tokens) - 1 for example in examples])
    return Part(tokens.to(device), targets.to(device), ends.to(device))


def parts_of(examples: list[Example], part_tokens: int, device: str) -> Iterator[Part]:
    """Cuts examples in order of length into parts of at most part_tokens, or one example."""
    part: list[Example] = []
    for example in examples:
        if part and (len(part) + 1) * len(example.tokens) > part_tokens:
            yield make_part(part, device)
            part = []
        part.append(example)
    yield make_part(part, device)


class Run:
    """Model, optimizers and counters: everything a checkpoint holds.

    The number of steps says which examples are next, so that no generator's state is kept.
    """

    def __init__(self, args: argparse.Namespace):
        torch.manual_seed(args.seed)
        self.args = args
        head_dim = args.hidden // args.heads
        config = ModelConfig(
            vocab_size=len(VOCABULARY), hidden_dim=args.hidden, n_layers=args.layers,
            n_heads=args.heads, n_kv_heads=args.heads, head_dim=head_dim, ffn_dim=3 * args.hidden,
            max_tokens=args.lengths[1], tied=False, mechanisms=(args.mechanism,),
            score_dim=head_dim, window_tokens=0,
        )  # fmt: skip
        self.model = Llama(config).to(args.device)
        self.optimizers = make_optimizers(self.model, RATES)
        self.settings = asdict(config) | {
            name: getattr(args, name) for name in ("lengths", "supervise", "batch_examples", "seed")
        }
        self.pool: tuple[int, list[list[Example]]] = (-1, [])
        self.n_steps = self.n_tokens = 0
        self.elapsed_s = 0.0
        self.path = args.output / "checkpoint.pt"

    @property
    def progress(self) -> float:
        """From 0 to 1, by the examples or by the time, whichever is further."""
        by_time = self.elapsed_s / (60 * self.args.minutes) if self.args.minutes else 0.0
        return max(self.n_steps * self.args.batch_examples / self.args.examples, by_time)

    def save(self) -> None:
        state = {
            "settings": self.settings,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "n_steps": self.n_steps,
            "n_tokens": self.n_tokens,
            "elapsed_s": self.elapsed_s,
        }
        save_state(self.path, state)

    def load(self) -> None:
        state = torch.load(self.path, weights_only=True, map_location=self.args.device)
        if state["settings"] != self.settings:
            raise ValueError(f"{self.path}: made for {state['settings']}, not {self.settings}")
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.n_steps, self.n_tokens = state["n_steps"], state["n_tokens"]
        self.elapsed_s = state["elapsed_s"]

    def next_batch(self) -> list[Example]:
        """Returns the step's examples, which are of similar lengths."""
        args, n = self.args, self.args.batch_examples
        pool, place = divmod(self.n_steps, POOL_BATCHES)
        if pool != self.pool[0]:
            seed = (TRAIN, args.seed, pool)
            examples = draw_examples(seed, POOL_BATCHES * n, args.lengths)
            order = np.random.default_rng(seed).permutation(POOL_BATCHES)
            self.pool = (pool, [examples[i * n : (i + 1) * n] for i in order])
        return self.pool[1][place]

    def logits(self, part: Part) -> Tensor:
        """Returns the ten answers' logits at every token, [n, longest, 10]."""
        return self.model(part.tokens, self.args.mechanism)[..., :N_CLASSES]

    def losses(self, part: Part) -> dict[str, Tensor]:
        """Returns each example's cross entropy of the answer, and its mean over all brackets."""
        targets = part.targets
        by_token = F.cross_entropy(
            self.logits(part).mT, targets, ignore_index=NO_TARGET, reduction="none"
        )
        every = by_token.sum(1) / (targets != NO_TARGET).sum(1)
        return {"answer": by_token.gather(1, part.ends[:, None])[:, 0], "all": every}

    def step(self) -> dict[str, list[float]]:
        """Takes one step and returns its losses by what they supervise."""
        start_s, args = time.monotonic(), self.args
        factor = rate_factor(self.progress, self.n_steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * group["peak_lr"]
        sums = dict.fromkeys(sorted({"answer", args.supervise}), 0.0)
        for part in parts_of(self.next_batch(), args.part_tokens, args.device):
            losses = self.losses(part)
            (losses[args.supervise].sum() / args.batch_examples).backward()
            self.n_tokens += int((part.ends + 1).sum())
            for name in sums:
                sums[name] += losses[name].sum().item() / args.batch_examples
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.n_steps += 1
        self.elapsed_s += time.monotonic() - start_s
        return {name: [loss] for name, loss in sums.items()}

    @torch.no_grad()
    def test(self, split: int, n: int) -> dict:
        """Measures the answers to n examples; the fields are those of results.json."""
        examples = draw_examples((split,), n, self.args.lengths)
        answers: list[int] = []
        for part in parts_of(examples, self.args.part_tokens, self.args.device):
            rows = torch.arange(len(part.ends), device=part.ends.device)
            answers += self.logits(part)[rows, part.ends].argmax(-1).tolist()
        right = [int(a == example.answer) for a, example in zip(answers, examples, strict=True)]
        frequent, n_frequent = Counter(e.answer for e in examples).most_common(1)[0]
        return {
            "mechanism": self.args.mechanism,
            "accuracy": sum(right) / n,
            "interval": wilson_interval(sum(right), n),
            "examples": n,
            "most_frequent_class": frequent,
            "most_frequent_accuracy": n_frequent / n,
            "right": right,
        }


def wilson_interval(n_right: int, n: int) -> tuple[float, float]:
    """Returns the 95% interval of a share (Wilson 1927)."""
    z, share = 1.96, n_right / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * (share * (1 - share) / n + (z / (2 * n)) ** 2) ** 0.5 / (1 + z * z / n)
    return middle - half, middle + half


def describe(results: dict) -> str:
    low, high = results["interval"]
    return (
        f"accuracy {results['accuracy']:.2%} of {results['examples']} examples "
        f"(95% interval {low:.2%} to {high:.2%}); always answering "
        f"{results['most_frequent_class']}: {results['most_frequent_accuracy']:.2%}"
    )


def train(run: Run, progress: Progress, stopping: list) -> None:
    save_at_s = validate_at_s = run.elapsed_s
    while run.progress < 1 and not stopping:
        losses = run.step()
        progress.update(run.n_tokens, losses, run.progress)
        if run.elapsed_s - save_at_s > 60 * run.args.save_minutes:
            save_at_s = run.elapsed_s
            run.save()
        if run.elapsed_s - validate_at_s > 60 * run.args.validate_minutes:
            validate_at_s = run.elapsed_s
            progress.line(f"validation: {describe(run.test(VALIDATION, VALIDATION_EXAMPLES))}")


def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")  # TF32, on devices that have it
    args.output.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    progress = Progress(args.output / "log.txt", total=args.examples, unit="tokens")
    if run.path.exists():
        run.load()
        progress.line(f"continuing from step {run.n_steps}, {run.n_tokens / 1e6:.2f} M tokens")
    progress.start(run.n_tokens, run.progress)
    stopping = watch_stop_signals()
    train(run, progress, stopping)
    run.save()
    if stopping:
        return
    progress.line(
        f"done: {run.n_steps} steps, {run.n_steps * args.batch_examples} examples, "
        f"{run.n_tokens} tokens, {run.elapsed_s / 60:.0f} minutes"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # the checkpoint has all of the training
    results = run.test(TEST, args.test_examples)
    (args.output / "results.json").write_text(json.dumps(results) + "\n", encoding="utf-8")
    progress.line(f"{args.mechanism}, test: {describe(results)}")
