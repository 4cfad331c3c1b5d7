#!/usr/bin/env python3
"""Writes the linear maps of int4/maps.safetensors: random codes packed as AWQ and GPTQ pack them.

Each map `NAME` of N_OUT outputs and N_IN inputs has the tensors that a checkpoint has (NAME.qweight,
NAME.qzeros, NAME.scales, and GPTQ's NAME.g_idx) and NAME.expected (F32 [N_OUT, N_IN]): scale times
(code - zero). The packing follows AutoAWQ's WQLinear_GEMM and AutoGPTQ's QuantLinear step by step.
Scales have the smallest and the largest halves among them, and negative ones.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

N_OUT, N_IN = 16, 256
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
EXTREME_SCALES = [6e-8, -6e-8, 65504.0, -65504.0, 0.0]


@dataclass(frozen=True)
class Map:
    group_size: int  # -1: all inputs
    is_awq: bool = False
    act_order: bool = False
    symmetric: bool = False
    zero_offset: int = 0  # subtracted from zero points when they are stored
    scale_dtype: type = np.float16


MAPS = {
    "awq_32": Map(32, is_awq=True),
    "awq_64": Map(64, is_awq=True),
    "awq_128": Map(128, is_awq=True),
    "awq_all": Map(-1, is_awq=True),
    "gptq_32": Map(32, zero_offset=1, act_order=True),
    "gptq_64": Map(64, zero_offset=1),
    "gptq_128": Map(128, zero_offset=1, symmetric=True),
    "gptq_all": Map(-1, zero_offset=1),
    "gptq_v2": Map(128, act_order=True, scale_dtype=np.float32),
}


def pack_columns(codes: np.ndarray, order: list[int]) -> np.ndarray:
    """Packs eight neighbors of a row into a word, the one that `order` names first lowest."""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for column in range(words.shape[1]):
        for i in range(8):
            words[:, column] |= codes[:, 8 * column + order[i]].astype(np.uint32) << np.uint32(4 * i)
    return words.view(np.int32)


def pack_rows(codes: np.ndarray) -> np.ndarray:
    """Packs eight neighbors of a column into a word, the first lowest."""
    return np.ascontiguousarray(pack_columns(codes.T, list(range(8))).T)


def make_map(name: str, m: Map, generator: np.random.Generator) -> dict[str, np.ndarray]:
    group_size = N_IN if m.group_size == -1 else m.group_size
    n_groups = N_IN // group_size
    groups = np.arange(N_IN, dtype=np.int32) // group_size
    if m.act_order:
        groups = generator.permutation(groups)
    codes = generator.integers(0, 16, (N_IN, N_OUT), dtype=np.uint8)
    zeros = generator.integers(m.zero_offset, 16, (n_groups, N_OUT), dtype=np.uint8)
    if m.symmetric:
        zeros[:] = 8
    scales = generator.standard_normal((n_groups, N_OUT)).astype(m.scale_dtype)
    scales[0, : len(EXTREME_SCALES)] = EXTREME_SCALES
    weights = scales.astype(np.float32)[groups] * (
        codes.astype(np.float32) - zeros.astype(np.float32)[groups]
    )
    assert np.isfinite(weights).all()
    order = AWQ_ORDER if m.is_awq else list(range(8))
    tensors = {
        f"{name}.qweight": pack_columns(codes, order) if m.is_awq else pack_rows(codes),
        f"{name}.qzeros": pack_columns(zeros - np.uint8(m.zero_offset), order),
        f"{name}.scales": scales,
        f"{name}.expected": np.ascontiguousarray(weights.T),
    }
    if not m.is_awq:
        tensors[f"{name}.g_idx"] = groups
    return tensors


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    generator = np.random.default_rng(4)
    tensors = {}
    for name, m in MAPS.items():
        tensors.update(make_map(name, m, generator))
    folder = Path(__file__).resolve().parent / "int4"
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "maps.safetensors")


if __name__ == "__main__":
    main()
