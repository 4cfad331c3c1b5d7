"""Adapts a checkpoint to a mechanism: the trunk stays, the mechanism's tensors are trained.

Two stages. Transfer: each layer's attention learns to give the standard's output for the same
input. Then next tokens: half cross entropy, half distance to the unchanged model's predictions.
atp gets low-rank changes of wq, wk and wv, trained with its compressed cache in the loop (the
paper's protocol); other mechanisms get full projections, or low-rank ones with --lora.
The command continues from its checkpoint after SIGTERM or SIGINT, and at the end writes the
mechanism into the model's bundle, with measured perplexity ratios.
"""

import argparse
import os
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F

from .checkpoint import bundle_folder, load_model, save_state, write_mechanism
from .compiled import compile_pieces
from .data import Mixture, parse_source
from .model import Llama
from .optimizer import make_optimizers
from .progress import Progress, watch_stop_signals
from .text import load_tokenizer
from .validation import ValidationSet, perplexity_ratios

EXAMPLE = """example:
  python3 -m training adapt --model models/tales --mechanism atp --rank 16 --tokens 4e5 \\
      --source tales.txt=1,1 --validation val.txt --output out/atp
"""
RATES = {"matrix": 0.01, "other": 0.001, "temperature": 0.1, "alignment": 0.001}
LORA_RATE = 0.001
WARMUP_STEPS = 10
DECAY_SHARE = 0.8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, help="Hugging Face folder or GGUF file")
    add("--mechanism", required=True,
        choices=("atp", "taylorshift", "optimised", "efficient", "super"))  # fmt: skip
    add("--source", type=parse_source, action="append", required=True, help="PATH=START,END")
    add("--validation", type=Path, required=True, help="held-out stories")
    add("--validation-tokens", type=int, help="measure on so many of them (default: all)")
    add("--output", type=Path, required=True, help="folder of the checkpoint and the log")
    add("--tokens", type=float, required=True, help="tokens of the second stage")
    add("--transfer-tokens", type=float, default=0, help="tokens of the first stage (default: 0)")
    add("--windows", type=int, nargs="+", default=[512, 2048],
        help="window lengths, in this order over the training (default: 512 2048)")  # fmt: skip
    add("--measure", type=int, nargs="+",
        help="windows of the measured perplexity ratios (default: those of --windows)")  # fmt: skip
    add("--batch-tokens", type=int, default=4096, help="tokens per step (default: 4096)")
    add("--part-tokens", type=int, default=2048,
        help="tokens computed at once, as memory allows (default: 2048)")  # fmt: skip
    add("--lora", type=int, default=32, help="rank of low-rank changes (default: 32)")
    add("--rank", type=int, default=16, help="atp: principal keys a block (default: 16)")
    add("--block", type=int, default=128, help="atp: tokens a block (default: 128)")
    add("--window-blocks", type=int, default=1,
        help="atp: closed blocks that are read exactly (default: 1)")  # fmt: skip
    add("--score-dim", type=int, default=16, help="taylorshift: (default: 16)")
    add("--window-tokens", type=int, default=128, help="taylorshift: exact window (default: 128)")
    add("--alignment-tokens", type=int, default=512, help="super: longest sequence (default: 512)")
    add("--rate", type=float, help="peak rate of the matrices (default: 0.01, low-rank: 0.001)")
    add("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    add("--minutes", type=float,
        help="of steps: end then, the rates' schedule and the stages shortened to fit")  # fmt: skip
    add("--compile", action="store_true", help="use torch.compile (faster, needs a C++ compiler)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--seed", type=int, default=1, help="of new weights and data order (default: 1)")


def load_for(args: argparse.Namespace) -> Llama:
    """Loads the model with the mechanism's weights, from its bundle or new; only those train."""
    model = load_model(
        args.model,
        mechanisms=("standard", args.mechanism),
        only=("standard", args.mechanism),
        atp_rank=args.rank,
        atp_block=args.block,
        atp_window=args.window_blocks,
        lora_rank=args.lora,
        score_dim=args.score_dim,
        window_tokens=args.window_tokens,
        alignment_tokens=args.alignment_tokens,
    ).to(args.device)
    for name, weight in model.named_parameters():
        weight.requires_grad_(f".attention.{args.mechanism}." in name)
    return model


def make_adapter_optimizers(model: Llama, mechanism: str, rate: float | None):
    if mechanism in model.config.lora_mechanisms:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=rate or LORA_RATE, weight_decay=0.0)
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
        return [optimizer]
    return make_optimizers(model, {**RATES, "matrix": rate or RATES["matrix"]})


class Adaptation:
    """Model, optimizers, data and counters: everything a checkpoint holds."""

    def __init__(self, args: argparse.Namespace):
        torch.manual_seed(args.seed)
        self.args = args
        self.model = load_for(args)
        self.tokenizer = load_tokenizer(args.model)
        self.data = Mixture(args.source, self.tokenizer, args.seed)
        self.optimizers = make_adapter_optimizers(self.model, args.mechanism, args.rate)
        self.n_tokens = self.n_steps = 0
        self.elapsed_s = 0.0
        self.path = args.output / "checkpoint.pt"

    @property
    def total_tokens(self) -> float:
        return self.args.transfer_tokens + self.args.tokens

    @property
    def progress(self) -> float:
        """From 0 to 1, by the tokens or by the time, whichever is further."""
        by_time = self.elapsed_s / (60 * self.args.minutes) if self.args.minutes else 0.0
        by_tokens = self.n_tokens / self.total_tokens if self.total_tokens else 1.0
        return max(by_tokens, by_time)

    @property
    def transfer_share(self) -> float:
        return self.args.transfer_tokens / self.total_tokens if self.total_tokens else 0.0

    @property
    def transferring(self) -> bool:
        return self.progress < self.transfer_share

    def stage_progress(self) -> float:
        if self.transferring:
            return self.progress / self.transfer_share
        return (self.progress - self.transfer_share) / (1 - self.transfer_share)

    def own_weights(self) -> dict[str, torch.Tensor]:
        return {name: w.detach() for name, w in self.model.named_parameters() if w.requires_grad}

    def save(self) -> None:
        state = {
            "config": asdict(self.model.config),
            "weights": self.own_weights(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "data": self.data.state(),
            "n_tokens": self.n_tokens,
            "n_steps": self.n_steps,
            "elapsed_s": self.elapsed_s,
        }
        save_state(self.path, state)

    def load(self) -> None:
        state = torch.load(self.path, weights_only=False, map_location=self.args.device)
        if state["config"] != asdict(self.model.config):
            raise ValueError(f"{self.path}: made for {state['config']}, not {self.model.config}")
        self.model.load_state_dict(state["weights"], strict=False)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.data.load_state(state["data"])
        self.n_tokens, self.n_steps = state["n_tokens"], state["n_steps"]
        self.elapsed_s = state.get("elapsed_s", 0.0)

    def set_rates(self, progress: float) -> None:
        factor = min(1.0, (self.n_steps + 1) / WARMUP_STEPS, (1 - progress) / DECAY_SHARE)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = max(factor, 0.0) * group["peak_lr"]

    def step(self) -> float:
        """Takes one step and returns its loss."""
        start_s = time.monotonic()
        args, progress = self.args, self.stage_progress()
        self.set_rates(progress)
        window = args.windows[min(int(progress * len(args.windows)), len(args.windows) - 1)]
        n_seqs = max(1, args.part_tokens // window)
        n_parts = max(1, args.batch_tokens // (n_seqs * window))
        loss_of = self.transfer_loss if self.transferring else self.next_token_loss
        total = torch.zeros((), device=args.device)
        for _ in range(n_parts):
            tokens, targets = self.data.batch(n_seqs, window, progress)
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = loss_of(tokens.to(args.device), targets.to(args.device)) / n_parts
            loss.backward()
            total += loss.detach()
            self.n_tokens += tokens.numel()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.n_steps += 1
        loss = total.item()
        self.elapsed_s += time.monotonic() - start_s
        return loss

    def next_token_loss(self, tokens, targets):
        """Half cross entropy, half distance to the unchanged model."""
        model = self.model
        with torch.no_grad():
            teacher = model.hidden(tokens, "standard")
        own = model.hidden(tokens, self.args.mechanism)
        return model.distillation(own, teacher, targets.flatten())

    def transfer_loss(self, tokens, targets):
        """The mean over layers of the relative squared error of the attention's output."""
        model, shape = self.model, tuple(tokens.shape)
        loss = 0.0
        with torch.no_grad():
            x = F.embedding(tokens.flatten(), model.embedding)
        for layer in model.layers:
            with torch.no_grad():
                normed = layer.attention_norm(x)
                wanted = layer.attention["standard"](normed, shape, model.rope)
                after = layer.feed_forward(x + wanted)
            got = layer.attention[self.args.mechanism](normed, shape, model.rope)
            loss = loss + (got - wanted).square().mean() / wanted.square().mean()
            x = after
        return loss / len(model.layers)


def train(run: Adaptation, progress: Progress, stopping: list) -> None:
    while run.progress < 1 and not stopping:
        stage = "transfer" if run.transferring else "next token"
        loss = run.step()
        progress.update(run.n_tokens, {stage: [loss]}, run.progress)
        if run.n_steps % 50 == 0:
            run.save()


def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")  # TF32, on devices that have it
    args.output.mkdir(parents=True, exist_ok=True)
    if args.compile:
        compile_pieces()
    run = Adaptation(args)
    progress = Progress(args.output / "log.txt", total=run.total_tokens, unit="tokens")
    if run.path.exists():
        run.load()
        progress.start(run.n_tokens, run.progress)
        progress.line(f"continuing from step {run.n_steps}")
    stopping = watch_stop_signals()
    stories = ValidationSet(args.validation, run.tokenizer)

    def measure() -> dict[int, float]:
        windows = sorted(set(args.measure or args.windows))
        with torch.compiler.set_stance("force_eager" if args.compile else "default"):
            return perplexity_ratios(
                run.model, args.mechanism, stories, windows, args.validation_tokens
            )

    if run.n_steps == 0:
        progress.line(f"perplexity ratio before: {measure()}")
        progress.start(0)
    train(run, progress, stopping)
    run.save()
    if stopping:
        return
    ratios = measure()
    progress.line(f"perplexity ratio after: {ratios}")
    write_mechanism(run.model, args.mechanism, bundle_folder(args.model), ratios)
