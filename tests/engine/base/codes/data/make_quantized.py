#!/usr/bin/env python3
"""Writes quantized.bin: random blocks of each of GGUF's quantized types and what they stand for.

For each type, in the order below: N_BLOCKS blocks, then their elements (little-endian float32) as
the Python package `gguf` dequantizes them. Scales are any finite half, subnormal and negative ones
included; MXFP4's are powers of two from the smallest to the largest whose products are finite.
"""

from pathlib import Path

import gguf
import numpy as np

N_BLOCKS = 4
# Where the halves of a block are.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
}
MXFP4_EXPONENTS = [0, 1, 120, 252]


def main() -> None:
    generator = np.random.default_rng(1)
    out = bytearray()
    for name, offsets in HALVES.items():
        quantized_type = gguf.GGMLQuantizationType[name]
        n_bytes = gguf.GGML_QUANT_SIZES[quantized_type][1]
        blocks = generator.integers(0, 256, (N_BLOCKS, n_bytes), dtype=np.uint8)
        for offset in offsets:
            exponents = np.array([0, 9, 15, 30])  # 31 would be infinity or NaN
            high = generator.integers(0, 4, N_BLOCKS) | exponents << 2
            high |= generator.integers(0, 2, N_BLOCKS) << 7
            blocks[:, offset + 1] = high
        if name == "MXFP4":
            blocks[:, 0] = MXFP4_EXPONENTS
        floats = gguf.quants.dequantize(blocks, quantized_type)
        assert np.isfinite(floats).all()
        out += blocks.tobytes() + floats.astype("<f4").tobytes()
    path = Path(__file__).resolve().parent / "quantized.bin"
    path.write_bytes(out)
    print(f"{path.name}: {len(out)} bytes")


if __name__ == "__main__":
    main()
