"""Writes a checkpoint of `train` as a Hugging Face folder with a bundle.

The folder gets the standard's weights in bf16, config and tokenizer, and for every other mechanism
a safetensors file and an entry of lowkey.json with its measured perplexity ratio by length.
"""

import argparse
import shutil
from pathlib import Path

import sentencepiece
import torch

from .checkpoint import (
    base_names,
    load_model,
    read_json,
    write_json,
    write_mechanism,
    write_tensors,
)
from .model import Llama, ModelConfig
from .validation import ValidationSet, perplexity_ratios

EXAMPLE = """example:
  python3 -m training export --checkpoint out/tales/checkpoint.pt \\
      --tokenizer models/tales/tokenizer.model --validation val.txt --output models/tales
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--checkpoint", type=Path, required=True, help="checkpoint.pt of train")
    add("--tokenizer", type=Path, required=True, help="tokenizer.model to put beside the weights")
    add("--validation", type=Path, help="held-out stories: measures perplexity ratios")
    add("--windows", type=int, nargs="+", default=[512, 2048],
        help="tokens of the measured windows (default: 512 2048)")  # fmt: skip
    add(
        "--max-perplexity-ratio",
        type=float,
        help="the floor of quality that lowkey.json gives --attention auto",
    )
    add("--output", type=Path, required=True, help="folder to write")


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
        "tie_word_embeddings": config.tied,
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


def write_base(model: Llama, tokenizer: Path, output: Path) -> None:
    config, state = model.config, model.state_dict()
    output.mkdir(parents=True, exist_ok=True)
    tensors = {theirs: state[ours] for theirs, ours in base_names(config).items()}
    write_tensors(output / "model.safetensors", tensors)
    write_json(output / "config.json", model_fields(config))
    write_json(output / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    write_json(output / "tokenizer_config.json", tokenizer_fields(config))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write_json(output / "special_tokens_map.json", special)
    if tokenizer.resolve() != (output / "tokenizer.model").resolve():
        shutil.copyfile(tokenizer, output / "tokenizer.model")


def main(args: argparse.Namespace) -> None:
    state = torch.load(args.checkpoint, map_location="cpu", weights_only=False)
    model = Llama(ModelConfig(**state["config"]))
    model.load_state_dict(state["model"])
    write_base(model, args.tokenizer, args.output)
    others = [m for m in model.config.mechanisms if m != "standard"]
    for mechanism in others:
        write_mechanism(model, mechanism, args.output, {})
    if args.validation:
        # The ratios are those of the weights as written.
        model = load_model(args.output)
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(args.tokenizer))
        stories = ValidationSet(args.validation, tokenizer)
        for mechanism in others:
            ratios = perplexity_ratios(model, mechanism, stories, args.windows)
            write_mechanism(model, mechanism, args.output, ratios)
            print(
                f"{mechanism}: perplexity ratio "
                + ", ".join(f"{n}: {r:.4f}" for n, r in ratios.items())
            )
    if args.max_perplexity_ratio is not None:
        path = args.output / "lowkey.json"
        write_json(path, read_json(path) | {"max_perplexity_ratio": args.max_perplexity_ratio})
    n_parameters = sum(weight.numel() for weight in model.parameters())
    print(
        f"{n_parameters} parameters in all after {state['n_steps']} steps, "
        f"{state['n_tokens']} tokens, {state['elapsed_s'] / 60:.0f} minutes"
    )
