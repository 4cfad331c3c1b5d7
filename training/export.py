#!/usr/bin/env python3
"""Writes a checkpoint of train.py as a Hugging Face folder: bf16 weights, config, tokenizer."""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from model import ModelConfig

EXAMPLE = """example:
  %(prog)s --checkpoint run/checkpoint.pt --tokenizer model/tokenizer.model --output model/
"""


def model_fields(config: ModelConfig) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_dim,
        "initializer_range": 0.02,
        "intermediate_size": config.ffn_dim,
        "max_position_embeddings": config.max_tokens,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "num_key_value_heads": config.n_kv_heads,
        "rms_norm_eps": config.norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }


def added_token(content: str) -> dict:
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }


def tokenizer_fields(config: ModelConfig) -> dict:
    pieces = ("<unk>", "<s>", "</s>")
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": {str(i): added_token(piece) for i, piece in enumerate(pieces)},
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "legacy": False,
        "model_max_length": config.max_tokens,
        "pad_token": None,
        "sp_model_kwargs": {},
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
    }


def write_json(path: Path, fields: dict) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def export(checkpoint: Path, weights: str, tokenizer: Path, output: Path) -> None:
    state = torch.load(checkpoint, map_location="cpu", weights_only=False)
    config = ModelConfig(**state["config"])
    output.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"model.{name}": weight.to(torch.bfloat16).contiguous()
        for name, weight in state[weights].items()
    }
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})
    # Some versions of safetensors leave the file readable by its owner alone.
    (output / "model.safetensors").chmod(0o644)
    write_json(output / "config.json", model_fields(config))
    write_json(output / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    write_json(output / "tokenizer_config.json", tokenizer_fields(config))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write_json(output / "special_tokens_map.json", special)
    if tokenizer.resolve() != (output / "tokenizer.model").resolve():
        shutil.copyfile(tokenizer, output / "tokenizer.model")
    n_parameters = sum(tensor.numel() for tensor in tensors.values())
    print(
        f"{n_parameters} parameters after {state['n_steps']} steps, {state['n_tokens']} tokens, "
        f"{state['elapsed_s'] / 60:.0f} minutes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--checkpoint", type=Path, required=True, help="checkpoint.pt of train.py")
    add("--tokenizer", type=Path, required=True, help="tokenizer.model to put beside the weights")
    add("--output", type=Path, required=True, help="folder to write")
    add("--weights", choices=("average", "model"), default="average",
        help="the running average (default) or the last step's weights")  # fmt: skip
    args = parser.parse_args()
    export(args.checkpoint, args.weights, args.tokenizer, args.output)


if __name__ == "__main__":
    main()
