"""Trains one trunk with the weights of several mechanisms.

Every part of a batch is computed by one mechanism, drawn by its share. Rates, windows and the
mixture of sources follow the share of the budget that is used up. A checkpoint is written every
few minutes and on SIGTERM or SIGINT; the same command continues from it.

Each thread computes the gradient of one part on its own and takes the next part when it is done,
so that a core busy with something else slows a step down by its share alone.
"""

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import sentencepiece
import torch

from .checkpoint import save_state
from .compiled import compile_pieces
from .data import Mixture, parse_source
from .model import Llama, ModelConfig
from .optimizer import make_optimizers
from .progress import Progress, watch_stop_signals
from .validation import ValidationSet, fits

EXAMPLE = """example (shares at the start and at the end of training follow each file):
  python3 -m training train --tokenizer models/tales/tokenizer.model --validation val.txt \\
      --source classics.txt=0.6,0.45 --source tales.txt=0.22,0.33 --source simple.txt=0.18,0.22 \\
      --tokens 30e6 --output out/tales
"""
WARMUP_STEPS = 50
# Share of the budget over which the rate falls linearly to zero.
DECAY_SHARE = 0.7
# What a thread computes at a time, unless one window is longer.
PART_TOKENS = 2048
RATES = {"matrix": 0.02, "other": 0.003, "temperature": 0.05, "alignment": 0.001}
SHARES = {
    "standard": 0.32,
    "taylorshift": 0.24,
    "optimised": 0.14,
    "efficient": 0.16,
    "super": 0.14,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tokenizer", type=Path, required=True, help="tokenizer.model")
    add("--source", type=parse_source, action="append", required=True, help="PATH=START,END")
    add("--validation", type=Path, required=True, help="held-out stories")
    add("--output", type=Path, required=True, help="folder of the checkpoint and the log")
    add("--tokens", type=float, required=True, help="tokens to train on, all runs together")
    add("--layers", type=int, default=4, help="decoder layers (default: 4)")
    add("--hidden", type=int, default=256, help="hidden size, a multiple of 32 (default: 256)")
    add("--context", type=int, default=4096, help="longest window in tokens (default: 4096)")
    add("--mechanisms", nargs="+", default=list(SHARES), choices=list(SHARES),
        help="mechanisms to train (default: all)")  # fmt: skip
    add("--batch-tokens", type=int, default=12288, help="tokens per step (default: 12288)")
    add("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--seed", type=int, default=1, help="of weights and data order (default: 1)")
    add("--validate-minutes", type=float, default=15, help="between validations (default: 15)")
    add("--save-minutes", type=float, default=3, help="between checkpoints (default: 3)")
    add("--compile", action="store_true", help="use torch.compile (faster, needs a C++ compiler)")


def rate_factor(progress: float, step: int) -> float:
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.0, 1.0 - progress) / DECAY_SHARE)


def window_tokens(progress: float, step: int, longest: int) -> int:
    """Short windows are cheap; the last third teaches the whole context."""
    if progress < 0.3:
        window = 512
    elif progress < 0.65:
        window = 2048 if step % 4 == 3 else 512
    else:
        window = (512, 2048, 512, 2048, 512, 2048, 512, longest)[step % 8]
    return min(window, longest)


@dataclass
class Part:
    """What one thread computes at a time."""

    tokens: torch.Tensor
    targets: torch.Tensor
    mechanism: str


class Run:
    """Model, optimizers, data and counters: everything a checkpoint holds."""

    def __init__(self, args: argparse.Namespace):
        torch.manual_seed(args.seed)
        self.args = args
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(args.tokenizer))
        self.config = ModelConfig(
            vocab_size=self.tokenizer.vocab_size(),
            hidden_dim=args.hidden,
            n_heads=args.hidden // 32,
            n_kv_heads=args.hidden // 32,
            ffn_dim=3 * args.hidden,
            n_layers=args.layers,
            max_tokens=args.context,
            mechanisms=tuple(args.mechanisms),
        )
        self.model = Llama(self.config).to(args.device)
        self.weights = list(self.model.parameters())
        self.optimizers = make_optimizers(self.model, RATES)
        self.data = Mixture(args.source, self.tokenizer, args.seed)
        self.validation = ValidationSet(args.validation, self.tokenizer)
        self.pool = ThreadPoolExecutor(
            args.threads, initializer=torch.set_num_threads, initargs=(1,)
        )
        self.compiled: set[tuple] = set()
        self.drawn: Counter = Counter()
        self.n_steps = 0
        self.n_tokens = 0
        self.elapsed_s = 0.0
        self.path = args.output / "checkpoint.pt"

    @property
    def progress(self) -> float:
        return self.n_tokens / self.args.tokens

    def save(self) -> None:
        state = {
            "config": asdict(self.config),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "data": self.data.state(),
            "drawn": dict(self.drawn),
            "n_steps": self.n_steps,
            "n_tokens": self.n_tokens,
            "elapsed_s": self.elapsed_s,
        }
        save_state(self.path, state)

    def load(self) -> None:
        # The generator's state is a dictionary of Python numbers, so tensors alone do not do.
        state = torch.load(self.path, weights_only=False, map_location=self.args.device)
        if state["config"] != asdict(self.config):
            raise ValueError(f"{self.path}: made for {state['config']}, not {self.config}")
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.data.load_state(state["data"])
        self.drawn = Counter(state["drawn"])
        self.n_steps, self.n_tokens = state["n_steps"], state["n_tokens"]
        self.elapsed_s = state["elapsed_s"]

    def draw_mechanism(self, window: int) -> str:
        """Takes the mechanism that is furthest behind its share, of those that take the window."""
        able = [m for m in self.config.mechanisms if fits(self.model, m, window)]
        n_drawn = sum(self.drawn.values()) + 1
        chosen = max(able, key=lambda m: SHARES[m] * n_drawn - self.drawn[m])
        self.drawn[chosen] += 1
        return chosen

    def draw_part(self, window: int) -> Part:
        n_seqs = max(1, PART_TOKENS // window)
        tokens, targets = self.data.batch(n_seqs, window, min(1.0, self.progress))
        device = self.args.device
        return Part(tokens.to(device), targets.to(device), self.draw_mechanism(window))

    def step(self) -> dict[str, list[float]]:
        """Takes one step and returns the losses of its parts by mechanism."""
        factor = rate_factor(self.progress, self.n_steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * group["peak_lr"]
        window = window_tokens(self.progress, self.n_steps, self.config.max_tokens)
        n_parts = max(1, self.args.batch_tokens // max(PART_TOKENS, window))
        parts = [self.draw_part(window) for _ in range(n_parts)]
        losses = self.set_gradients(parts)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.n_steps += 1
        self.n_tokens += sum(part.tokens.numel() for part in parts)
        return losses

    def set_gradients(self, parts: list[Part]) -> dict[str, list[float]]:
        """Sets every used weight's gradient to the sum over parts divided by their number."""
        for part in parts:
            shape = (part.mechanism, part.tokens.shape)
            if self.args.compile and shape not in self.compiled:
                # The first call with a shape compiles it: once, not in every thread.
                self.pool.submit(self.part_gradients, part).result()
                self.compiled.add(shape)
        losses: dict[str, list[float]] = {}
        for part, (loss, gradients) in zip(parts, self.pool.map(self.part_gradients, parts)):
            losses.setdefault(part.mechanism, []).append(loss)
            for weight, gradient in zip(self.weights, gradients, strict=True):
                if gradient is None:
                    continue
                if weight.grad is None:
                    weight.grad = gradient / len(parts)
                else:
                    weight.grad.add_(gradient, alpha=1 / len(parts))
        return losses

    def part_gradients(self, part: Part):
        with torch.autocast(self.args.device, dtype=torch.bfloat16):
            loss = self.model.loss(part.tokens, part.targets, part.mechanism)
        gradients = torch.autograd.grad(loss, self.weights, allow_unused=True)
        return loss.item(), gradients

    def validate(self, window: int, max_tokens: int | None = None) -> str:
        scores = self.pool.map(
            lambda m: self.validation.score(self.model, m, window, max_tokens),
            [m for m in self.config.mechanisms if fits(self.model, m, window)],
        )
        text = "  ".join(f"{score.mechanism} {score.perplexity:.2f}" for score in scores)
        return f"perplexity, window {window}: {text}"


def train(run: Run, progress: Progress, stopping: list) -> None:
    save_at_s = validate_at_s = run.elapsed_s
    last_s = time.monotonic()
    while run.progress < 1 and not stopping:
        losses = run.step()
        now_s = time.monotonic()
        run.elapsed_s += now_s - last_s
        last_s = now_s
        progress.update(run.n_tokens, losses)
        if run.elapsed_s - save_at_s > 60 * run.args.save_minutes:
            save_at_s = run.elapsed_s
            run.save()
        if run.elapsed_s - validate_at_s > 60 * run.args.validate_minutes:
            validate_at_s = run.elapsed_s
            progress.line(run.validate(window=512, max_tokens=16384))


def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    args.output.mkdir(parents=True, exist_ok=True)
    if args.compile:
        compile_pieces()
    run = Run(args)
    progress = Progress(args.output / "log.txt", total=args.tokens, unit="tokens")
    if run.path.exists():
        run.load()
        progress.start(run.n_tokens)
        progress.line(f"continuing from step {run.n_steps}, {run.n_tokens / 1e6:.2f} M tokens")
    stopping = watch_stop_signals()
    train(run, progress, stopping)
    run.save()
    if run.progress >= 1:
        minutes = run.elapsed_s / 60
        progress.line(f"done: {run.n_tokens} tokens, {run.n_steps} steps, {minutes:.0f} minutes")
        for window in (512, 2048):
            if window > run.config.max_tokens:
                break
            progress.line(run.validate(window))
