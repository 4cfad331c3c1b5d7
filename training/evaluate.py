#!/usr/bin/env python3
"""Perplexity of an exported story model on held-out stories, and sample continuations.

Computed in float32 from the folder's bf16 weights.
"""

import argparse
import json
import os
from pathlib import Path

import sentencepiece
import torch
from safetensors.torch import load_file

from model import Llama, ModelConfig
from validation import ValidationSet

EXAMPLE = """example:
  %(prog)s --model model/ --validation val.txt --prompt "Once upon a time" --temperature 0.7
"""


def load_model(folder: Path) -> Llama:
    """Loads a folder that export.py wrote."""
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = ModelConfig(
        vocab_size=fields["vocab_size"],
        hidden_dim=fields["hidden_size"],
        n_layers=fields["num_hidden_layers"],
        n_heads=fields["num_attention_heads"],
        n_kv_heads=fields["num_key_value_heads"],
        head_dim=fields["head_dim"],
        ffn_dim=fields["intermediate_size"],
        rope_theta=fields["rope_theta"],
        norm_eps=fields["rms_norm_eps"],
        max_tokens=fields["max_position_embeddings"],
    )
    weights = load_file(folder / "model.safetensors")
    model = Llama(config)
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in weights.items()})
    return model.eval().requires_grad_(False)


def choose(logits: torch.Tensor, temperature: float, top_p: float) -> int:
    """Draws from the fewest likeliest tokens that hold top_p; temperature 0 takes the likeliest."""
    if temperature == 0:
        return int(logits.argmax())
    probabilities, ids = (logits / temperature).softmax(-1).sort(descending=True)
    before = probabilities.cumsum(-1) - probabilities
    probabilities[before >= top_p] = 0
    return int(ids[torch.multinomial(probabilities, 1)])


def continue_text(model: Llama, tokenizer, prompt: str, args: argparse.Namespace) -> str:
    """Generates without a cache: slow, simple, and independent of what it is compared with."""
    tokens = tokenizer.encode(prompt, add_bos=True)
    for _ in range(args.max_new_tokens):
        logits = model(torch.tensor([tokens[-model.config.max_tokens :]]))[0, -1]
        token = choose(logits, args.temperature, args.top_p)
        if token == tokenizer.eos_id():
            break
        tokens.append(token)
    return tokenizer.decode(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="folder that export.py wrote")
    add("--validation", type=Path, help="held-out stories")
    add("--windows", type=int, nargs="+", default=[512, 2048], help="tokens (default: 512 2048)")
    add("--prompt", action="append", default=[], help="text to continue; may be repeated")
    add("--max-new-tokens", type=int, default=200, help="(default: 200)")
    add("--temperature", type=float, default=0.7, help="0 is greedy (default: 0.7)")
    add("--top-p", type=float, default=0.95, help="(default: 0.95)")
    add("--seed", type=int, default=1, help="(default: 1)")
    add("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    model = load_model(args.model)
    tokenizer = sentencepiece.SentencePieceProcessor(str(args.model / "tokenizer.model"))
    if args.validation:
        stories = ValidationSet(args.validation, tokenizer)
        for window in args.windows:
            score = stories.score(model, window)
            print(
                f"window {window}: perplexity {score.perplexity:.2f} over {score.n_tokens} tokens, "
                f"{score.bits_per_byte:.3f} bits per byte over {score.n_bytes} bytes"
            )
    for prompt in args.prompt:
        print(f"\n{continue_text(model, tokenizer, prompt, args)}")


if __name__ == "__main__":
    main()
