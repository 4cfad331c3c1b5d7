"""Reading and writing models: Hugging Face folders, GGUF files, lowkey's bundles, states of runs.

A bundle is lowkey.json beside the checkpoint, with a safetensors file for each mechanism
(docs/bundles.md). Weights are written in bfloat16.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .mechanisms import CHUNK_TOKENS
from .model import Llama, ModelConfig

LAYER_NAMES = {
    "input_layernorm": "attention_norm.weight",
    "self_attn.q_proj": "attention.standard.wq",
    "self_attn.k_proj": "attention.standard.wk",
    "self_attn.v_proj": "attention.standard.wv",
    "self_attn.o_proj": "attention.standard.wo",
    "post_attention_layernorm": "ffn_norm.weight",
    "mlp.gate_proj": "ffn.gate",
    "mlp.up_proj": "ffn.up",
    "mlp.down_proj": "ffn.down",
}
GGUF_LAYER_NAMES = {
    "attn_norm": "attention_norm.weight",
    "attn_q": "attention.standard.wq",
    "attn_k": "attention.standard.wk",
    "attn_v": "attention.standard.wv",
    "attn_output": "attention.standard.wo",
    "ffn_norm": "ffn_norm.weight",
    "ffn_gate": "ffn.gate",
    "ffn_up": "ffn.up",
    "ffn_down": "ffn.down",
}
# The fields of a bundle's entry that belong to the weights, with the configuration's names.
ENTRY_FIELDS = {
    "taylorshift": {"score_dim": "score_dim", "window_tokens": "window_tokens"},
    "super": {"alignment_tokens": "alignment_tokens"},
}


def save_state(path: Path, state: dict) -> None:
    """Replaces the file from which a run continues, atomically."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def base_names(config: ModelConfig) -> dict[str, str]:
    """Maps Hugging Face's tensor names to ours."""
    names = {"model.embed_tokens.weight": "embedding", "model.norm.weight": "norm.weight"}
    for layer in range(config.n_layers):
        for theirs, ours in LAYER_NAMES.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"layers.{layer}.{ours}"
    if not config.tied:
        names["lm_head.weight"] = "head"
    return names


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, fields: dict) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    rounded = {
        name: t.detach().to("cpu", torch.bfloat16).contiguous() for name, t in tensors.items()
    }
    save_file(rounded, path, metadata={"format": "pt"})
    # Some versions of safetensors leave the file readable by its owner alone.
    path.chmod(0o644)


ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
# Tensors that hold nothing of their own.
DERIVED = ("rotary_emb.inv_freq", "lm_head.weight")


def hf_config(fields: dict) -> ModelConfig:
    for architecture in fields.get("architectures") or ():
        if architecture not in ARCHITECTURES:
            expected = " or ".join(ARCHITECTURES)
            raise ValueError(f"config.json: architecture {architecture}, expected {expected}")
    rope = fields.get("rope_parameters") or {}  # since transformers 5
    kind = rope.get("rope_type", "default")
    unsupported = {
        "rope_scaling": fields.get("rope_scaling"),
        "rope_parameters": None if kind == "default" else kind,
        "attention_bias": fields.get("attention_bias"),
        "sliding_window": fields.get("sliding_window"),
    }
    for name, value in unsupported.items():
        if value:
            raise ValueError(f"config.json: {name}: {value}, expected none")
    n_heads = fields["num_attention_heads"]
    return ModelConfig(
        vocab_size=fields["vocab_size"],
        hidden_dim=fields["hidden_size"],
        n_layers=fields["num_hidden_layers"],
        n_heads=n_heads,
        n_kv_heads=fields.get("num_key_value_heads", n_heads),
        head_dim=fields.get("head_dim") or fields["hidden_size"] // n_heads,
        ffn_dim=fields["intermediate_size"],
        rope_theta=rope.get("rope_theta") or fields.get("rope_theta", 10000.0),
        norm_eps=fields["rms_norm_eps"],
        max_tokens=fields["max_position_embeddings"],
        tied=fields.get("tie_word_embeddings", False),
    )


def read_hf(folder: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    config = hf_config(read_json(folder / "config.json"))
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(path)
    names = base_names(config)
    missing = names.keys() - tensors.keys()
    if missing:
        raise ValueError(f"{folder}: no tensor {sorted(missing)[0]}")
    unknown = [name for name in tensors.keys() - names.keys() if not name.endswith(DERIVED)]
    if unknown:
        raise ValueError(f"{folder}: {sorted(unknown)[0]}: a plain Llama has no such tensor")
    return config, {ours: tensors[theirs].float() for theirs, ours in names.items()}


def gguf_fields(reader) -> ModelConfig:
    def field(name: str, default=None):
        found = reader.get_field(name)
        if found is None and default is None:
            raise ValueError(f"no metadata {name}")
        return default if found is None else found.contents()

    if field("general.architecture") != "llama":
        raise ValueError(f"architecture {field('general.architecture')}, expected llama")
    scaling = reader.get_field("llama.rope.scaling.type")
    if scaling is not None and scaling.contents() != "none":
        raise ValueError(f"llama.rope.scaling.type: {scaling.contents()}, expected none")
    n_heads, hidden = field("llama.attention.head_count"), field("llama.embedding_length")
    names = {tensor.name for tensor in reader.tensors}
    embedding = next(t for t in reader.tensors if t.name == "token_embd.weight")
    return ModelConfig(
        vocab_size=int(embedding.shape[1]),
        hidden_dim=hidden,
        n_layers=field("llama.block_count"),
        n_heads=n_heads,
        n_kv_heads=field("llama.attention.head_count_kv", n_heads),
        head_dim=field("llama.rope.dimension_count", hidden // n_heads),
        ffn_dim=field("llama.feed_forward_length"),
        rope_theta=field("llama.rope.freq_base", 10000.0),
        norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        max_tokens=field("llama.context_length"),
        tied="output.weight" not in names,
    )


def read_gguf(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    import gguf

    reader = gguf.GGUFReader(path)
    config = gguf_fields(reader)
    names = {"token_embd.weight": "embedding", "output_norm.weight": "norm.weight"}
    if not config.tied:
        names["output.weight"] = "head"
    for layer in range(config.n_layers):
        for theirs, ours in GGUF_LAYER_NAMES.items():
            names[f"blk.{layer}.{theirs}.weight"] = f"layers.{layer}.{ours}"
    weights = {}
    for tensor in reader.tensors:
        if tensor.name not in names:
            raise ValueError(f"{path}: {tensor.name}: a plain Llama has no such tensor")
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weight = torch.from_numpy(data.reshape(tuple(int(n) for n in tensor.shape[::-1])))
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            # GGUF interleaves the two halves of a head's rotary dimensions.
            pairs = weight.unflatten(0, (-1, config.head_dim // 2, 2))
            weight = pairs.transpose(1, 2).flatten(0, 2)
        weights[names[tensor.name]] = weight.contiguous()
    missing = set(names.values()) - weights.keys()
    if missing:
        raise ValueError(f"{path}: no tensor for {sorted(missing)[0]}")
    return config, weights


def bundle_folder(model: Path) -> Path:
    return model if model.is_dir() else model.parent


def read_bundle(folder: Path) -> list[dict]:
    path = folder / "lowkey.json"
    return read_json(path)["mechanisms"] if path.exists() else []


def bundle_config(config: ModelConfig, entries: list[dict]) -> ModelConfig:
    names = [entry["name"] for entry in entries if "weights" in entry]
    changes: dict = {"mechanisms": ("standard", *names)}
    for entry in entries:
        for theirs, ours in ENTRY_FIELDS.get(entry["name"], {}).items():
            default = config.head_dim if theirs == "score_dim" else 0
            changes[ours] = entry.get(theirs, default)
    return replace(config, **changes)


def bundled_name(mechanism: str, name: str) -> str:
    """Returns our name of a bundle's tensor: layers.N.wq -> layers.N.attention.MECHANISM.wq."""
    _, layer, tensor = name.split(".", 2)
    return f"layers.{layer}.attention.{mechanism}.{tensor.replace('.lora_', '_lora_')}"


def expand_triangle(packed: Tensor) -> Tensor:
    """[l (l + 1) / 2], the rows of a lower triangle -> [l, l]."""
    n = int(((8 * packed.numel() + 1) ** 0.5 - 1) / 2)
    full = torch.zeros(n, n)
    row, column = torch.tril_indices(n, n)
    full[row, column] = packed
    return full


def read_weights(model: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Reads a Hugging Face folder or a GGUF file, with the bundle beside it."""
    config, weights = read_hf(model) if model.is_dir() else read_gguf(model)
    folder = bundle_folder(model)
    entries = read_bundle(folder)
    config = bundle_config(config, entries)
    for entry in entries:
        if "weights" not in entry:
            continue
        mechanism = entry["name"]
        scale = entry.get("lora_scale", 1.0)
        for name, tensor in load_file(folder / entry["weights"]).items():
            tensor = expand_triangle(tensor.float()) if name.endswith(".wa") else tensor.float()
            if name.endswith("lora_b"):
                tensor = tensor * scale
            if name.endswith("lora_a"):
                config = replace(config, lora_rank=tensor.shape[0])
            weights[bundled_name(mechanism, name)] = tensor
    return config, weights


def load_model(path: Path, only: tuple[str, ...] | None = None, **changes) -> Llama:
    """Loads a model with its bundle.

    changes are fields of the configuration. Mechanisms that the bundle lacks, or that are not in
    `only`, start from the standard's weights.
    """
    config, weights = read_weights(path)
    model = Llama(replace(config, **changes))
    if only is not None:
        weights = {
            name: weight
            for name, weight in weights.items()
            if ".attention." not in name or name.split(".")[3] in only
        }
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or any(".attention." not in name for name in missing):
        raise ValueError(f"{path}: tensors {sorted([*unexpected, *missing])[:3]} do not fit")
    for mechanism in sorted({name.split(".")[3] for name in missing}):
        model.start_from_standard(mechanism)
    return model


def mechanism_tensors(model: Llama, mechanism: str) -> dict[str, Tensor]:
    """Returns the bundle's tensors of a mechanism."""
    tensors = {}
    for n, layer in enumerate(model.layers):
        for name, weight in layer.attention[mechanism].named_parameters():
            if name == "wa":
                weight = weight[tuple(torch.tril_indices(*weight.shape))]
            tensors[f"layers.{n}.{name.replace('_lora_', '.lora_')}"] = weight
    return tensors


def by_length(ratios: dict[int, float]) -> dict[str, float]:
    return {str(n): round(ratio, 4) for n, ratio in sorted(ratios.items())}


def bundle_entry(model: Llama, mechanism: str, ratios: dict[int, float]) -> dict:
    config = model.config
    entry: dict = {"name": mechanism, "weights": f"{mechanism}.safetensors"}
    for theirs, ours in ENTRY_FIELDS.get(mechanism, {}).items():
        entry[theirs] = getattr(config, ours)
    if mechanism == "taylorshift":
        assert config.window_tokens % CHUNK_TOKENS == 0
        entry["variant"] = "normalized"
    if ratios and mechanism != "atp":
        entry["perplexity_ratio"] = by_length(ratios)
    return entry


def measured_entry(model: Llama, ratios: dict[int, float]) -> dict:
    """The quality of atp, which depends on the options that its adapters were trained with."""
    config = model.config
    options = {"rank": str(config.atp_rank), "block_tokens": config.atp_block}
    if config.atp_window != 1:
        options["window_blocks"] = config.atp_window
    return {"mechanism": "atp", "options": options, "perplexity_ratio": by_length(ratios)}


def write_mechanism(model: Llama, mechanism: str, folder: Path, ratios: dict[int, float]) -> None:
    """Writes a mechanism's tensors into a folder and its entry into the folder's lowkey.json."""
    path = folder / "lowkey.json"
    bundle = read_json(path) if path.exists() else {"format": 1, "mechanisms": []}
    entry = bundle_entry(model, mechanism, ratios)
    write_tensors(folder / entry["weights"], mechanism_tensors(model, mechanism))
    bundle["mechanisms"] = [old for old in bundle["mechanisms"] if old["name"] != mechanism]
    bundle["mechanisms"].append(entry)
    if ratios and mechanism == "atp":
        new = measured_entry(model, ratios)
        same = ("mechanism", "options")
        bundle["measured"] = [
            old for old in bundle.get("measured", []) if any(old.get(k) != new[k] for k in same)
        ]
        bundle["measured"].append(new)
    write_json(path, bundle)
