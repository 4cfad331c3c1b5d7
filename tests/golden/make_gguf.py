#!/usr/bin/env python3
"""Writes the GGUF golden files: small models of random weights in mixed types, and their logits.

Each case is a folder with model.gguf and expected.safetensors, as make_goldens.py writes them: the
logits are those of transformers on the weights that the Python package `gguf` dequantizes.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import make_goldens
import numpy as np
import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
N_VOCAB = 64
N_TOKENS = 48
BOS, EOS, EOT = 1, 2, 5
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
# Of random blocks: an element's standard deviation over the scale, and the minima's scale over the
# scale that centres the elements.
K_TYPES = {"Q4_K": (255.0, 7.5), "Q5_K": (521.0, 15.5), "Q6_K": (1369.0, None)}


@dataclass(frozen=True)
class GgufCase:
    overrides: dict  # of make_goldens.config_fields
    types: dict[str, str]  # by GGUF name; "*" for any other matrix; vectors are F32


CASES = {
    "gguf_llama": GgufCase(
        {
            "head_dim": 16,
            "hidden_size": 256,
            "intermediate_size": 96,
            "rope_scaling": make_goldens.llama3_rope(16),
            "rope_theta": 500000.0,
        },
        {
            "token_embd.weight": "Q8_0",
            "output.weight": "Q6_K",
            "blk.0.attn_q.weight": "Q4_K",
            "blk.0.attn_k.weight": "Q6_K",
            "blk.0.attn_v.weight": "Q5_K",
            "blk.0.attn_output.weight": "Q4_0",
            "blk.0.ffn_gate.weight": "Q4_1",
            "blk.0.ffn_up.weight": "Q5_1",
            "blk.0.ffn_down.weight": "Q5_0",
            "blk.1.attn_q.weight": "Q4_1",
            "blk.1.attn_k.weight": "F16",
            "blk.1.attn_v.weight": "BF16",
            "blk.1.ffn_gate.weight": "Q4_K",
            "blk.1.ffn_up.weight": "Q5_K",
            "*": "Q8_0",
        },
    ),
    "gguf_qwen2": GgufCase(
        {
            **make_goldens.QWEN2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "tie_word_embeddings": True,
        },
        {"token_embd.weight": "Q8_0", "*": "Q4_1"},
    ),
    "gguf_qwen3": GgufCase(
        {
            **make_goldens.QWEN3,
            "head_dim": 16,
            "hidden_size": 32,
            "intermediate_size": 64,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
        {"token_embd.weight": "F16", "output.weight": "BF16", "*": "Q8_0"},
    ),
}


def gguf_name(name: str) -> str:
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[module]}.{kind}"


def interleave(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Puts every head's rows 0, d/2, 1, d/2 + 1, ...: RoPE then rotates neighbors."""
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def separate(rows: np.ndarray, head_dim: int) -> np.ndarray:
    heads = rows.reshape(-1, head_dim // 2, 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def random_blocks(shape: tuple[int, int], name: str, std: float, seed: int) -> np.ndarray:
    """Returns blocks of a K type, which the package cannot quantize: random but for the scales."""
    spread, minimum = K_TYPES[name]
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    generator = np.random.default_rng(seed)
    n_blocks = shape[1] // block_size
    blocks = generator.integers(0, 256, (shape[0], n_blocks, block_bytes), dtype=np.uint8)

    def put(offset: int, value: float) -> None:
        blocks[:, :, offset : offset + 2] = np.array([value], np.float16).view(np.uint8)

    if minimum is None:
        put(block_bytes - 2, std / spread)
    else:
        put(0, std / spread)
        put(2, std / spread * minimum)
    return blocks.reshape(shape[0], -1)


def quantize(weight: np.ndarray, name: str, seed: int) -> np.ndarray:
    if name in K_TYPES:
        return random_blocks(weight.shape, name, float(weight.std()), seed)
    return gguf.quants.quantize(weight, gguf.GGMLQuantizationType[name])


def add_metadata(writer: gguf.GGUFWriter, fields: dict) -> None:
    head_dim = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    writer.add_context_length(fields["max_position_embeddings"])
    writer.add_block_count(fields["num_hidden_layers"])
    writer.add_embedding_length(fields["hidden_size"])
    writer.add_feed_forward_length(fields["intermediate_size"])
    writer.add_head_count(fields["num_attention_heads"])
    writer.add_head_count_kv([fields["num_key_value_heads"]] * fields["num_hidden_layers"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(fields["rope_theta"])
    writer.add_layer_norm_rms_eps(fields["rms_norm_eps"])
    scaling = fields["rope_scaling"] or {}
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling.get("rope_type") == "llama3":
        factors = llama3_factors(scaling, fields["rope_theta"], head_dim)
        writer.add_tensor("rope_freqs.weight", factors)
    writer.add_token_list([f"<{i}>" for i in range(N_VOCAB)])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(EOT)


def llama3_factors(scaling: dict, theta: float, head_dim: int) -> np.ndarray:
    """Returns what the frequency of each pair is divided by."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - blend) / scaling["factor"] + blend)).astype(np.float32)


def write_case(name: str) -> None:
    case = CASES[name]
    seed = 101 + list(CASES).index(name)
    overrides = {**case.overrides, "vocab_size": N_VOCAB}
    fields = make_goldens.config_fields(make_goldens.Case(overrides))
    head_dim = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", fields["model_type"])
    add_metadata(writer, fields)
    stored: dict[str, torch.Tensor] = {}
    weights = make_goldens.random_weights(fields, torch.float32, seed)
    for i, (theirs, weight) in enumerate(weights.items()):
        array = weight.numpy()
        ours = gguf_name(theirs)
        permuted = fields["model_type"] == "llama" and ours.split(".")[-2] in ("attn_q", "attn_k")
        if permuted:
            array = interleave(array, head_dim)
        kind = case.types.get(ours, case.types["*"]) if array.ndim == 2 else "F32"
        blocks = quantize(array, kind, 1000 * seed + i)
        quantized_type = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(ours, blocks, raw_dtype=quantized_type)
        array = gguf.quants.dequantize(blocks, quantized_type).reshape(array.shape)
        if permuted:
            array = separate(array, head_dim)
        stored[theirs] = torch.from_numpy(array.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with tempfile.TemporaryDirectory() as scratch:
        save_file(stored, Path(scratch) / "model.safetensors", metadata={"format": "pt"})
        (Path(scratch) / "config.json").write_text(json.dumps(fields), encoding="utf-8")
        tokens = make_goldens.random_tokens(N_TOKENS, N_VOCAB, seed)
        make_goldens.write_expected(Path(scratch), tokens, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    args = parser.parse_args()
    for name in args.cases or CASES:
        if name not in CASES:
            parser.error(f"unknown case {name!r}, expected one of {', '.join(CASES)}")
        write_case(name)


if __name__ == "__main__":
    main()
