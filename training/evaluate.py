"""Measures a model by mechanism: perplexity by window, multiple choice, retrieval, samples.

Everything is computed in float32 from the files' weights, without a cache: slow, simple, and
independent of the server it is compared with.
"""

import argparse
import json
import os
import random
from pathlib import Path

import torch

from .checkpoint import load_model
from .data import read_stories
from .model import Llama
from .text import load_tokenizer
from .validation import ValidationSet, fits

EXAMPLE = """examples:
  python3 -m training evaluate --model models/tales --validation val.txt --windows 512 2048
  python3 -m training evaluate --model models/tales --prompt "Once upon a time" --temperature 0.7
  python3 -m training evaluate --model smollm2 --retrieval 20 --validation val.txt --windows 1024

A line of a --choices file: {"context": "...", "choices": ["...", "..."], "answer": 0}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, help="Hugging Face folder or GGUF file")
    add("--mechanisms", nargs="+", help="default: all that the bundle has, and standard")
    add("--validation", type=Path, help="held-out stories: perplexity, and filler of --retrieval")
    add("--windows", type=int, nargs="+", default=[512, 2048], help="tokens (default: 512 2048)")
    add("--max-tokens", type=int, help="score only so many tokens (default: all)")
    add("--choices", type=Path, help="JSON lines of multiple-choice questions")
    add("--retrieval", type=int, default=0, help="generated retrieval questions a window")
    add("--json", type=Path, help="file for the results")
    add("--rank", type=int, help="atp: principal keys a block (default: the adapters')")
    add("--block", type=int, help="atp: tokens a block (default: the adapters')")
    add("--window-blocks", type=int, help="atp: closed blocks that are read exactly (default: 1)")
    add("--prompt", action="append", default=[], help="text to continue; may be repeated")
    add("--max-new-tokens", type=int, default=200, help="(default: 200)")
    add("--temperature", type=float, default=0.7, help="0 is greedy (default: 0.7)")
    add("--top-p", type=float, default=0.95, help="(default: 0.95)")
    add("--seed", type=int, default=1, help="(default: 1)")
    add("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")


def draw(logits: torch.Tensor, temperature: float, top_p: float) -> int:
    """Draws from the fewest likeliest tokens that hold top_p; temperature 0 takes the likeliest."""
    if temperature == 0:
        return int(logits.argmax())
    probabilities, ids = (logits / temperature).softmax(-1).sort(descending=True)
    before = probabilities.cumsum(-1) - probabilities
    probabilities[before >= top_p] = 0
    return int(ids[torch.multinomial(probabilities, 1)])


def continue_text(model: Llama, mechanism: str, tokenizer, prompt: str, args) -> str:
    tokens = tokenizer.encode(prompt, add_bos=True)
    for _ in range(args.max_new_tokens):
        if not fits(model, mechanism, len(tokens)):
            break
        window = torch.tensor([tokens[-model.config.max_tokens :]], device=model.device)
        token = draw(model(window, mechanism)[0, -1], args.temperature, args.top_p)
        if token == tokenizer.eos_id():
            break
        tokens.append(token)
    return tokenizer.decode(tokens)


def choice_is_right(model: Llama, mechanism: str, tokenizer, question: dict) -> bool:
    """Whether the right choice has the highest log probability per token after the context."""
    scores = []
    context = tokenizer.encode(question["context"], add_bos=True)
    for choice in question["choices"]:
        # A token may join the end of the context with the beginning of the choice.
        tokens = tokenizer.encode(question["context"] + choice, add_bos=True)
        n_common = len(os.path.commonprefix([context, tokens[:-1]]))
        row = torch.tensor(tokens, device=model.device)
        logits = model(row[None, :-1], mechanism)[0, n_common - 1 :]
        targets = row[n_common:]
        scores.append(logits.log_softmax(-1).gather(1, targets[:, None]).mean().item())
    return scores.index(max(scores)) == question["answer"]


def accuracy(model: Llama, mechanism: str, tokenizer, questions: list[dict]) -> float:
    right = sum(choice_is_right(model, mechanism, tokenizer, q) for q in questions)
    return right / len(questions)


RETRIEVAL_WORDS = ("apple", "river", "candle", "garden", "silver", "window", "button", "mountain")


def retrieval_questions(n: int, n_tokens: int, filler: str, tokenizer, seed: int) -> list[dict]:
    """Questions for a word that was named somewhere before; each has at most n_tokens."""
    rng = random.Random(seed)
    words = filler.split()
    words_per_token = len(words) / len(tokenizer.encode(filler))
    questions = []
    for _ in range(n):
        answer = rng.randrange(len(RETRIEVAL_WORDS))
        n_words = int((n_tokens - 40) * words_per_token)
        start = rng.randrange(max(1, len(words) - n_words))
        text = words[start : start + n_words]
        fact = f"The secret word is {RETRIEVAL_WORDS[answer]}."
        place = rng.random()
        choices = [f" {word}" for word in RETRIEVAL_WORDS]
        while True:
            at = int(place * len(text))
            context = " ".join([*text[:at], fact, *text[at:]])
            context += " Do you remember? The secret word is"
            n = max(len(tokenizer.encode(context + choice, add_bos=True)) for choice in choices)
            if n <= n_tokens or not text:
                break
            del text[-max(1, int((n - n_tokens) * words_per_token)) :]
        questions.append({"context": context, "choices": choices, "answer": answer})
    return questions


def report(results: list[dict], **fields) -> None:
    results.append(fields)
    print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in fields.items()))


def measure(model: Llama, tokenizer, args: argparse.Namespace) -> list[dict]:
    results: list[dict] = []
    mechanisms = args.mechanisms or model.config.mechanisms
    stories = ValidationSet(args.validation, tokenizer) if args.validation else None
    choices = []
    if args.choices:
        choices = [
            json.loads(line) for line in args.choices.read_text("utf-8").splitlines() if line
        ]
    for mechanism in mechanisms:
        for window in args.windows:
            if stories is None or not fits(model, mechanism, window):
                continue
            score = stories.score(model, mechanism, window, args.max_tokens)
            report(
                results, mechanism=mechanism, window=window, perplexity=score.perplexity,
                bits_per_byte=score.bits_per_byte, tokens=score.n_tokens,
            )  # fmt: skip
            if args.retrieval:
                filler = " ".join(read_stories(args.validation))
                asked = retrieval_questions(args.retrieval, window, filler, tokenizer, args.seed)
                share = accuracy(model, mechanism, tokenizer, asked)
                report(results, mechanism=mechanism, window=window, retrieval_accuracy=share)
        if choices:
            share = accuracy(model, mechanism, tokenizer, choices)
            report(results, mechanism=mechanism, choice_accuracy=share)
    return results


@torch.no_grad()
def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    changes = {
        "atp_rank": args.rank, "atp_block": args.block, "atp_window": args.window_blocks
    }  # fmt: skip
    changes = {name: value for name, value in changes.items() if value is not None}
    model = load_model(args.model, **changes).to(args.device)
    tokenizer = load_tokenizer(args.model)
    results = measure(model, tokenizer, args)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for mechanism in args.mechanisms or model.config.mechanisms:
        for prompt in args.prompt:
            text = continue_text(model, mechanism, tokenizer, prompt, args)
            print(f"\n[{mechanism}]\n{text}")
