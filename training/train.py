#!/usr/bin/env python3
"""Trains the story model for a given time.

The learning rate, the window length and the mixture of sources follow the share of the time budget
that is used up, so a run ends fully annealed at any speed. Checkpoints are written every few
minutes and when the process is told to stop (SIGTERM, SIGINT); the same command continues.

Each thread computes the gradient of a small part of the batch on its own and takes the next part
when it is done, so that a core busy with something else slows the step down by its share alone.
"""

import argparse
import copy
import math
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import sentencepiece
import torch

from data import Mixture, parse_source
from model import Llama, ModelConfig
from optimizer import make_optimizers
from validation import ValidationSet

EXAMPLE = """example, a quick try (shares at the start and at the end of training follow each file):
  %(prog)s --tokenizer model/tokenizer.model --validation val.txt --minutes 5 \\
      --source classics.txt=0.6,0.3 --source tales.txt=0.2,0.35 --source simple.txt=0.2,0.35 \\
      --output run/
"""
WARMUP_STEPS = 50
# Share of the budget over which the rate falls linearly to zero.
DECAY_SHARE = 0.7
LOG_STEPS = 20
# What a thread computes at a time, unless one window is longer.
PART_TOKENS = 512


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tokenizer", type=Path, required=True, help="tokenizer.model")
    add("--source", type=parse_source, action="append", required=True, help="PATH=START,END")
    add("--validation", type=Path, required=True, help="held-out stories")
    add("--output", type=Path, required=True, help="folder of the checkpoint and the log")
    add("--minutes", type=float, required=True, help="time budget, all runs together")
    add("--layers", type=int, default=6, help="decoder layers (default: 6)")
    add("--batch-tokens", type=int, default=4096, help="tokens per step (default: 4096)")
    add("--muon-lr", type=float, default=0.02, help="rate of the matrices (default: 0.02)")
    add("--adam-lr", type=float, default=0.003, help="rate of everything else (default: 0.003)")
    add("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    add("--seed", type=int, default=1, help="of weights and data order (default: 1)")
    add("--validate-minutes", type=float, default=10, help="between validations (default: 10)")
    add("--save-minutes", type=float, default=3, help="between checkpoints (default: 3)")
    add("--compile", action="store_true", help="use torch.compile (faster, needs a C++ compiler)")
    return parser.parse_args()


def rate_factor(progress: float, step: int) -> float:
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.0, 1.0 - progress) / DECAY_SHARE)


def window_tokens(progress: float, step: int, max_tokens: int) -> int:
    """Short windows are cheap; the last fifth, three steps of four, teaches the whole context."""
    if progress < 0.5:
        return min(256, max_tokens)
    if progress < 0.8 or step % 4 == 0:
        return min(512, max_tokens)
    return max_tokens


class Run:
    """Model, average, optimizers, data and clock: everything a checkpoint holds."""

    def __init__(self, args: argparse.Namespace):
        torch.manual_seed(args.seed)
        self.args = args
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(args.tokenizer))
        self.config = ModelConfig(vocab_size=self.tokenizer.vocab_size(), n_layers=args.layers)
        self.model = Llama(self.config)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.weights = list(self.model.parameters())
        self.pool = ThreadPoolExecutor(
            args.threads, initializer=torch.set_num_threads, initargs=(1,)
        )
        self.optimizers = make_optimizers(self.model, self.pool, args.muon_lr, args.adam_lr)
        self.data = Mixture(args.source, self.tokenizer, args.seed)
        self.validation = ValidationSet(args.validation, self.tokenizer)
        self.loss = self.model.loss
        if args.compile:
            self.loss = torch.compile(self.loss, dynamic=False)
        self.compiled_windows: set[int] = set()
        self.n_steps = 0
        self.n_tokens = 0
        self.elapsed_s = 0.0
        self.path = args.output / "checkpoint.pt"

    @property
    def progress(self) -> float:
        return self.elapsed_s / (60 * self.args.minutes)

    def save(self) -> None:
        """Replaces the checkpoint atomically."""
        state = {
            "config": asdict(self.config),
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "data": self.data.state(),
            "n_steps": self.n_steps,
            "n_tokens": self.n_tokens,
            "elapsed_s": self.elapsed_s,
        }
        partial = self.path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.path)

    def load(self) -> None:
        # The generator's state is a dictionary of Python numbers, so tensors alone do not do.
        state = torch.load(self.path, weights_only=False)
        if state["config"] != asdict(self.config):
            raise ValueError(f"{self.path}: made for {state['config']}, not {self.config}")
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.data.load_state(state["data"])
        self.n_steps, self.n_tokens = state["n_steps"], state["n_tokens"]
        self.elapsed_s = state["elapsed_s"]

    def step(self) -> float:
        """Takes one step and returns its loss."""
        factor = rate_factor(self.progress, self.n_steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * group["peak_lr"]
        n_tokens = window_tokens(self.progress, self.n_steps, self.config.max_tokens)
        n_seqs = max(1, PART_TOKENS // n_tokens)
        n_parts = max(self.args.threads, self.args.batch_tokens // (n_seqs * n_tokens))
        parts = [self.data.batch(n_seqs, n_tokens, min(1.0, self.progress)) for _ in range(n_parts)]
        loss = self.set_gradients(parts)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.n_steps += 1
        self.n_tokens += n_parts * n_seqs * n_tokens
        self.update_average()
        return loss

    def set_gradients(self, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """Sets every weight's gradient to the parts' mean, and returns the mean loss."""
        window = parts[0][0].shape[1]
        if window not in self.compiled_windows:
            # The first call with a shape compiles it: once, not in every thread.
            self.pool.submit(self.part_gradients, parts[0]).result()
            self.compiled_windows.add(window)
        loss = 0.0
        for part_loss, gradients in self.pool.map(self.part_gradients, parts):
            loss += part_loss / len(parts)
            for weight, gradient in zip(self.weights, gradients, strict=True):
                if weight.grad is None:
                    weight.grad = gradient / len(parts)
                else:
                    weight.grad.add_(gradient, alpha=1 / len(parts))
        return loss

    def part_gradients(self, part: tuple[torch.Tensor, torch.Tensor]):
        loss = self.loss(*part)
        return loss.item(), torch.autograd.grad(loss, self.weights)

    @torch.no_grad()
    def update_average(self) -> None:
        """Averages over the last tenth of the run, at most over some hundred steps."""
        weight = 1.0 / min(1 + self.n_steps / 10, 100)
        for average, current in zip(self.average.parameters(), self.model.parameters()):
            average.lerp_(current, weight)

    def validate(self, max_tokens: int | None) -> str:
        models = (self.model, self.average)
        scores = self.pool.map(lambda m: self.validation.score(m, 512, max_tokens), models)
        last, averaged = (score.perplexity for score in scores)
        return f"validation perplexity {last:.2f}, of the averaged weights {averaged:.2f}"


class Log:
    """Prints lines with the time and keeps them in a file."""

    def __init__(self, path: Path):
        self.file = path.open("a", encoding="utf-8", buffering=1)

    def __call__(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {text}"
        print(line, flush=True)
        self.file.write(line + "\n")


def progress_line(run: Run, losses: list[float], tokens_per_s: float) -> str:
    left_min = max(0.0, run.args.minutes - run.elapsed_s / 60)
    return (
        f"step {run.n_steps}  {run.n_tokens / 1e6:.2f} M tokens  {tokens_per_s:.0f} tokens/s  "
        f"loss {math.fsum(losses) / len(losses):.3f}  {100 * run.progress:.1f} %  "
        f"{left_min:.0f} min left"
    )


def train(run: Run, log: Log, stopping: list) -> None:
    losses: list[float] = []
    log_at_s, log_at_tokens = run.elapsed_s, run.n_tokens
    save_at_s = validate_at_s = run.elapsed_s
    last_s = time.monotonic()
    while run.progress < 1 and not stopping:
        losses.append(run.step())
        now_s = time.monotonic()
        run.elapsed_s += now_s - last_s
        last_s = now_s
        if len(losses) == LOG_STEPS:
            speed = (run.n_tokens - log_at_tokens) / (run.elapsed_s - log_at_s)
            log(progress_line(run, losses, speed))
            losses, log_at_s, log_at_tokens = [], run.elapsed_s, run.n_tokens
        if run.elapsed_s - save_at_s > 60 * run.args.save_minutes:
            save_at_s = run.elapsed_s
            run.save()
        if run.elapsed_s - validate_at_s > 60 * run.args.validate_minutes:
            validate_at_s = run.elapsed_s
            log(run.validate(max_tokens=32768))


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    args.output.mkdir(parents=True, exist_ok=True)
    log = Log(args.output / "log.txt")
    run = Run(args)
    if run.path.exists():
        run.load()
        log(f"continuing from step {run.n_steps}")
    stopping: list = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.append(True))
    train(run, log, stopping)
    run.save()
    if run.progress >= 1:
        log(f"done, {run.n_tokens} tokens in {run.n_steps} steps; {run.validate(max_tokens=None)}")


if __name__ == "__main__":
    main()
