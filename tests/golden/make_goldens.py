#!/usr/bin/env python3
"""Writes the golden files: small checkpoints and the logits that transformers computes from them.

Each case is a folder with a Hugging Face checkpoint of random weights and expected.safetensors:
`tokens` (I32 [n]) and `logits` (F32 [n, vocab_size], every position), computed in float32 with
eager attention from the weights as stored. The case `tales` holds expected.safetensors alone; its
checkpoint is models/tales.
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

EXAMPLE = """examples:
  %(prog)s                 all random-weight cases but the GGUF files (make_gguf.py)
  %(prog)s gqa bias        two of them
  %(prog)s tales           the demo model's logits, after its weights changed
"""
HERE = Path(__file__).resolve().parent
TALES = HERE.parents[1] / "models" / "tales"
TALES_PROMPT = (
    "Once upon a time there was a little girl named Lily who lived with her mother by the forest."
    " One day, she found an old key under a stone.\n\"What does it open?\" she asked the fox."
)
N_VOCAB = 128


def llama3_rope(n_original_positions: int) -> dict:
    """Scaling with frequencies in all three of its bands: kept, blended, divided by the factor."""
    return {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": n_original_positions,
    }


@dataclass(frozen=True)
class Case:
    """One checkpoint. `overrides` are fields of config.json as published files hold them."""

    overrides: dict = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float32
    n_tokens: int = 64
    n_shards: int = 1


SMALL = {"hidden_size": 32, "intermediate_size": 48}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-6}
QWEN3 = {**QWEN2, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}

CASES = {
    "gqa": Case(),
    "tied": Case({"tie_word_embeddings": True, "num_key_value_heads": 4}, dtype=torch.bfloat16),
    "llama3_rope": Case(
        {"rope_scaling": llama3_rope(64), "rope_theta": 500000.0, "max_position_embeddings": 256},
        dtype=torch.bfloat16,
        n_tokens=96,
    ),
    "linear_rope": Case(
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, dtype=torch.bfloat16
    ),
    "sliding_window": Case(
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 16},
        dtype=torch.bfloat16,
    ),
    "bias": Case({"attention_bias": True}, dtype=torch.float16),
    "head_dim": Case({"head_dim": 24}, dtype=torch.bfloat16),
    "sharded": Case(n_shards=2),
    "rope_parameters": Case(
        {"rope_parameters": {**llama3_rope(32), "rope_theta": 20000.0}},
        removed=("rope_theta", "rope_scaling"),
        dtype=torch.bfloat16,
        n_tokens=96,
    ),
    "smollm2": Case(
        {
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_attention_heads": 6,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
        },
        dtype=torch.bfloat16,
    ),
    "qwen2": Case({**SMALL, **QWEN2}, removed=("attention_bias",), dtype=torch.bfloat16),
    "qwen2_window": Case(
        {
            **SMALL,
            **QWEN2,
            "max_window_layers": 0,
            "sliding_window": 16,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
        },
        removed=("attention_bias",),
        dtype=torch.bfloat16,
    ),
    "qwen3": Case(
        {**SMALL, **QWEN3, "head_dim": 16, "rope_theta": 1000000.0}, dtype=torch.bfloat16
    ),
}


def config_fields(case: Case) -> dict:
    """Returns config.json, in the field names that checkpoints in the wild use."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 112,
        "max_position_embeddings": 128,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": str(case.dtype).removeprefix("torch."),
        "vocab_size": N_VOCAB,
    }
    fields.update(case.overrides)
    for name in case.removed:
        del fields[name]
    return fields


def has_bias(fields: dict, projection: str) -> bool:
    if fields["model_type"] == "qwen2":
        return projection != "o"
    return fields["attention_bias"]


def random_weights(fields: dict, dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    """Returns weights large enough to make attention peaked and logits several units wide."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float, mean: float = 0.0) -> torch.Tensor:
        return (mean + std * torch.randn(*shape, generator=generator)).to(dtype)

    hidden, ffn = fields["hidden_size"], fields["intermediate_size"]
    head_dim = fields.get("head_dim") or hidden // fields["num_attention_heads"]
    q_dim = fields["num_attention_heads"] * head_dim
    kv_dim = fields["num_key_value_heads"] * head_dim
    weights = {"model.embed_tokens.weight": normal(fields["vocab_size"], hidden, std=0.3)}
    for i in range(fields["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes = {
            "q": (q_dim, hidden),
            "k": (kv_dim, hidden),
            "v": (kv_dim, hidden),
            "o": (hidden, q_dim),
        }
        for name, shape in shapes.items():
            projection = f"{layer}self_attn.{name}_proj"
            weights[f"{projection}.weight"] = normal(*shape, std=1.4 * shape[1] ** -0.5)
            if has_bias(fields, name):
                weights[f"{projection}.bias"] = normal(shape[0], std=0.3)
        shapes = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
        for name, shape in shapes.items():
            weights[f"{layer}mlp.{name}_proj.weight"] = normal(*shape, std=shape[1] ** -0.5)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{layer}{norm}.weight"] = normal(hidden, std=0.2, mean=1.0)
        if fields["model_type"] == "qwen3":
            for norm in ("q_norm", "k_norm"):
                weights[f"{layer}self_attn.{norm}.weight"] = normal(head_dim, std=0.3, mean=1.5)
    weights["model.norm.weight"] = normal(hidden, std=0.2, mean=1.0)
    if not fields["tie_word_embeddings"]:
        weights["lm_head.weight"] = normal(fields["vocab_size"], hidden, std=0.3)
    return weights


def save_sharded(weights: dict[str, torch.Tensor], n_shards: int, folder: Path) -> None:
    """Writes the weights in n_shards files, in name order, with an index."""
    names = sorted(weights)
    index: dict[str, str] = {}
    for i in range(n_shards):
        shard = f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
        part = names[i * len(names) // n_shards : (i + 1) * len(names) // n_shards]
        save_file({name: weights[name] for name in part}, folder / shard, metadata={"format": "pt"})
        index.update(dict.fromkeys(part, shard))
    total_bytes = sum(w.numel() * w.element_size() for w in weights.values())
    document = {"metadata": {"total_size": total_bytes}, "weight_map": index}
    text = json.dumps(document, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def write_checkpoint(case: Case, seed: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fields = config_fields(case)
    text = json.dumps(fields, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    weights = random_weights(fields, case.dtype, seed)
    if case.n_shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        save_sharded(weights, case.n_shards, folder)


@torch.no_grad()
def logits_of(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    unexpected = {name: info[name] for name in ("missing_keys", "unexpected_keys") if info[name]}
    if unexpected:
        raise ValueError(f"{folder}: {unexpected}")
    return model.eval()(tokens[None]).logits[0].contiguous()


def random_tokens(n_tokens: int, n_vocab: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(0, n_vocab, (n_tokens,), generator=generator)


def write_expected(checkpoint: Path, tokens: torch.Tensor, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    logits = logits_of(checkpoint, tokens)
    save_file({"tokens": tokens.to(torch.int32), "logits": logits}, folder / "expected.safetensors")
    print(
        f"{folder.name}: {len(tokens)} tokens, logits {logits.shape[1]} wide, "
        f"std {logits.std():.2f}, max {logits.abs().max():.2f}"
    )


def make_random_case(name: str) -> None:
    case = CASES[name]
    # `sharded` holds the weights of `gqa`: their logits must be equal.
    seed = 1 + list(CASES).index("gqa" if name == "sharded" else name)
    folder = HERE / name
    write_checkpoint(case, seed, folder)
    write_expected(folder, random_tokens(case.n_tokens, N_VOCAB, seed), folder)


def make_tales() -> None:
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(TALES / "tokenizer.model"))
    tokens = torch.tensor(tokenizer.encode(TALES_PROMPT, add_bos=True))
    write_expected(TALES, tokens, HERE / "tales")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = [*CASES, "tales"]
    cases_help = f"of {', '.join(choices)} (default: all but tales)"
    parser.add_argument("cases", nargs="*", help=cases_help)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    for name in args.cases or CASES:
        if name not in choices:
            parser.error(f"unknown case {name!r}, expected one of {', '.join(choices)}")
        make_tales() if name == "tales" else make_random_case(name)


if __name__ == "__main__":
    main()
