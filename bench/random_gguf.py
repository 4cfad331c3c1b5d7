#!/usr/bin/env python3
"""Writes a GGUF file of a Llama model with random weights, tensor by tensor, in little memory.

    python3 bench/random_gguf.py 7b.gguf --shape 7b --mix q4_k_m     4.1 GB
    python3 bench/random_gguf.py tiny.gguf --hidden 256 --layers 2 --heads 4 --kv-heads 2 \\
        --ffn 512 --vocab 512 --mix q8_0

A flag such as --layers changes one number of the --shape. A mix gives each tensor the type that
llama-quantize gives it: q4_k_m is Q4_K with Q6_K for the output and for half of the `attn_v` and
`ffn_down`. Codes, scales and signs are random; rows keep activations near one, so that logits are
finite and vary. The standard deviation of a 16-bit tensor is right within a factor of 1.5. The
tokenizer is SentencePiece's with bytes and made-up words, or --tokenizer copies that of another
GGUF file (and its number of tokens). The same flags give the same bytes. Needs only Python.
"""
import argparse
import math
import random
import struct
import sys

ALIGNMENT = 32
CHUNK_BLOCKS = 1 << 14
SHAPES = {  # hidden, layers, heads, KV heads, ffn, vocabulary
    "110m": (768, 12, 12, 12, 2048, 32000),
    "1.1b": (2048, 22, 32, 4, 5632, 32000),
    "7b": (4096, 32, 32, 32, 11008, 32000),
    "8b": (4096, 32, 32, 8, 14336, 128256),
}
SHAPE_FLAGS = ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab")

# Metadata types of GGUF.
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def half(x):
    return struct.pack("<e", x)


class Kind:
    """A tensor type: its number in GGUF, the weights and bytes of a block, and its blocks."""

    def __init__(self, number, file_type, n_weights, n_bytes, planes):
        self.number, self.file_type = number, file_type
        self.n_weights, self.n_bytes, self.planes = n_weights, n_bytes, planes

    def blocks(self, n, deviation, rng):
        """Returns n blocks; `planes` says what the byte at each place of a block is."""
        out = bytearray(n * self.n_bytes)
        at = 0
        for plane in self.planes(deviation):
            if isinstance(plane, bytes):  # the same in every block
                for byte in plane:
                    out[at::self.n_bytes] = bytes([byte]) * n
                    at += 1
                continue
            count, table = plane  # random bytes, through a table
            for _ in range(count):
                data = rng.randbytes(n)
                out[at::self.n_bytes] = data.translate(table) if table else data
                at += 1
        assert at == self.n_bytes
        return out


def table(function):
    return bytes(function(byte) & 255 for byte in range(256))


def floats(exponent_of_one, mantissa_bits):
    """Planes of a 16-bit float: random sign and mantissa below a fixed exponent (1.53 deviations)."""
    def planes(deviation):
        exponent = round(math.log2(deviation / 1.53)) + exponent_of_one
        bits = max(1, exponent) << mantissa_bits
        keep = 0x80 | ((1 << (mantissa_bits - 8)) - 1 if mantissa_bits > 8 else 0)
        low = None if mantissa_bits >= 8 else table(lambda b: b & 127 | bits & 255)
        return [(1, low), (1, table(lambda b: b & keep | bits >> 8))]
    return planes


def single_precision(deviation):
    """Planes of float32: ones, as all float32 tensors here are norms."""
    del deviation
    return [struct.pack("<f", 1.0)]


def q8_0(deviation):
    return [half(deviation / 73.9), (32, None)]


def q4_0(deviation):
    return [half(deviation / 4.64), (16, None)]


def q4_k(deviation):
    # Scales s and minima m are random in 32 to 63: bits 5 and 7 of the first 8 of their 12 bytes
    # are the highest bits of 16 numbers. Weights d (s code - 7.5 m) have mean 0.
    d = deviation / 243.6
    return [half(d), half(7.5 * d), (8, table(lambda b: b | 0xA0)), (132, None)]


def q6_k(deviation):
    scales = (16, table(lambda b: 32 + b % 96))
    return [(192, None), scales, half(deviation / (18.5 * 84.2))]


KINDS = {
    "F32": Kind(0, 0, 1, 4, single_precision),
    "F16": Kind(1, 1, 1, 2, floats(15, 10)),
    "BF16": Kind(30, 32, 1, 2, floats(127, 7)),
    "Q4_0": Kind(2, 2, 32, 18, q4_0),
    "Q8_0": Kind(8, 7, 32, 34, q8_0),
    "Q4_K": Kind(12, 15, 256, 144, q4_k),
    "Q6_K": Kind(14, 18, 256, 210, q6_k),
}
# The type of matrices, and of the output.
MIXES = {"f16": ("F16", "F16"), "bf16": ("BF16", "BF16"), "q8_0": ("Q8_0", "Q8_0"),
         "q4_0": ("Q4_0", "Q6_K"), "q4_k_m": ("Q4_K", "Q6_K")}


def kind_of(name, layer, shape, mix):
    """The type of a matrix, as llama-quantize mixes them."""
    matrix, output = MIXES[mix]
    if name == "output.weight":
        return output
    if mix == "q4_k_m" and name.endswith(("attn_v.weight", "ffn_down.weight")):
        n = shape.layers
        more = layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2
        return "Q6_K" if more else matrix
    return matrix


def tensors(shape, mix):
    """Yields the name, the columns, the rows, the type and the standard deviation of each tensor."""
    head = shape.hidden // shape.heads
    residual = 1 / math.sqrt(2 * shape.layers)  # what a layer adds shrinks with depth, as in GPT-2

    def matrix(name, columns, rows, gain, layer=0):
        return name, columns, rows, kind_of(name, layer, shape, mix), gain / math.sqrt(columns)

    def norm(name):
        return name, shape.hidden, 1, "F32", 1.0

    yield matrix("token_embd.weight", shape.hidden, shape.vocab, math.sqrt(shape.hidden))
    for i in range(shape.layers):
        of = f"blk.{i}."
        yield norm(of + "attn_norm.weight")
        yield matrix(of + "attn_q.weight", shape.hidden, shape.heads * head, 1, i)
        yield matrix(of + "attn_k.weight", shape.hidden, shape.kv_heads * head, 1, i)
        yield matrix(of + "attn_v.weight", shape.hidden, shape.kv_heads * head, 1, i)
        yield matrix(of + "attn_output.weight", shape.heads * head, shape.hidden, residual, i)
        yield norm(of + "ffn_norm.weight")
        yield matrix(of + "ffn_gate.weight", shape.hidden, shape.ffn, 1, i)
        yield matrix(of + "ffn_up.weight", shape.hidden, shape.ffn, 1, i)
        yield matrix(of + "ffn_down.weight", shape.ffn, shape.hidden, residual, i)
    yield norm("output_norm.weight")
    yield matrix("output.weight", shape.hidden, shape.vocab, 2)


def text(string):
    data = string if isinstance(string, bytes) else string.encode()
    return struct.pack("<Q", len(data)) + data


PACK = {U32: lambda x: struct.pack("<I", x), I32: lambda x: struct.pack("<i", x),
        F32: lambda x: struct.pack("<f", x), BOOL: lambda x: struct.pack("<?", x), STRING: text}


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + PACK[kind](value)


def array(key, kind, values):
    values = list(values)
    return (text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
            + b"".join(map(PACK[kind], values)))


def made_up_tokenizer(vocab):
    """Returns the metadata of a SentencePiece vocabulary: bytes, then words of three letters."""
    if vocab < 300:
        sys.exit(f"--vocab: {vocab}, expected 300 or more (256 bytes and some words)")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", *letters]
    for i in range(len(pieces), vocab):
        word, n = "", i
        while len(word) < 4:
            n, letter = divmod(n, 26)
            word += letters[letter]
        pieces.append("\u2581" + word)
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) - 259)  # unknown, control, byte, normal
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces) - 259)]
    return vocab, [
        entry("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, pieces[:vocab]),
        array("tokenizer.ggml.scores", F32, scores[:vocab]),
        array("tokenizer.ggml.token_type", I32, kinds[:vocab]),
        entry("tokenizer.ggml.bos_token_id", U32, 1),
        entry("tokenizer.ggml.eos_token_id", U32, 2),
        entry("tokenizer.ggml.unknown_token_id", U32, 0),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
        entry("tokenizer.ggml.add_eos_token", BOOL, False),
    ]


class Reader:
    """Reads the metadata of a GGUF file from its first 64 MiB."""
    FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
             11: "<q", 12: "<d"}

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data, self.at = file.read(64 << 20), 0
        if self.data[:4] != b"GGUF":
            raise ValueError(f"{path}: expected a GGUF file")
        self.at = 16
        self.n_entries = self.number("<Q")

    def number(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        """Passes a value and returns it; of an array, its number of elements."""
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(self.FORMS[kind])
        element, n = self.number("<I"), self.number("<Q")
        if element == STRING:
            for _ in range(n):
                self.string()
        else:
            self.at += n * struct.calcsize(self.FORMS[element])
        return n

    def entries(self):
        """Yields the key, the value and all bytes of each entry."""
        for _ in range(self.n_entries):
            begin = self.at
            key = self.string().decode()
            value = self.value(self.number("<I"))
            yield key, value, self.data[begin:self.at]

    def scalars(self):
        """Returns the values by key, strings as text."""
        return {key: value.decode() if isinstance(value, bytes) else value
                for key, value, _ in self.entries()}


def copied_tokenizer(path):
    entries, vocab = [], 0
    for key, value, data in Reader(path).entries():
        if key.startswith("tokenizer."):
            entries.append(data)
        if key == "tokenizer.ggml.tokens":
            vocab = value
    if not vocab:
        sys.exit(f"--tokenizer: {path}, expected a file with tokenizer.ggml.tokens")
    return vocab, entries


def metadata(shape, mix, tokenizer):
    head = shape.hidden // shape.heads
    numbers = {"context_length": shape.context, "embedding_length": shape.hidden,
               "block_count": shape.layers, "feed_forward_length": shape.ffn,
               "attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads,
               "rope.dimension_count": head, "vocab_size": shape.vocab}
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "random"),
        entry("general.file_type", U32, KINDS[MIXES[mix][0]].file_type),
        entry("general.quantization_version", U32, 2),
        *(entry("llama." + key, U32, value) for key, value in numbers.items()),
        entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        entry("llama.rope.freq_base", F32, 10000.0),
        *tokenizer,
    ]


def pad(n):
    return -n % ALIGNMENT


def write(path, shape, mix, tokenizer, seed):
    plan, infos, offset = [], [], 0
    for name, columns, rows, kind_name, deviation in tensors(shape, mix):
        kind = KINDS[kind_name]
        if columns % kind.n_weights:
            sys.exit(f"--mix: {mix}, expected rows of {kind.n_weights} weights ({name}: {columns})")
        sizes = [columns] if rows == 1 else [columns, rows]
        infos.append(text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind.number,
                                              offset))
        n_blocks = columns * rows // kind.n_weights
        plan.append((kind, n_blocks, deviation))
        offset += n_blocks * kind.n_bytes + pad(n_blocks * kind.n_bytes)
    entries = metadata(shape, mix, tokenizer)
    header = (b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries)
              + b"".join(infos))
    rng = random.Random(seed)
    done = 0
    with open(path, "wb") as file:
        file.write(header + bytes(pad(len(header))))
        for kind, n_blocks, deviation in plan:
            for begin in range(0, n_blocks, CHUNK_BLOCKS * 256 // kind.n_weights):
                n = min(CHUNK_BLOCKS * 256 // kind.n_weights, n_blocks - begin)
                file.write(kind.blocks(n, deviation, rng))
                done += n * kind.n_bytes
                if sys.stderr.isatty():
                    print(f"\r{path}: {done / 1e6:,.0f} of {offset / 1e6:,.0f} MB ",
                          end="", file=sys.stderr)
            file.write(bytes(pad(n_blocks * kind.n_bytes)))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return len(header) + pad(len(header)) + offset


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what to write")
    parser.add_argument("--shape", choices=SHAPES, default="7b", help="[%(default)s]")
    parser.add_argument("--mix", choices=MIXES, default="q4_k_m", help="[%(default)s]")
    for flag in SHAPE_FLAGS:
        parser.add_argument("--" + flag.replace("_", "-"), type=int, help="[the shape's]")
    parser.add_argument("--context", type=int, default=16384, help="[%(default)s]")
    parser.add_argument("--tokenizer", metavar="GGUF", help="copy this file's tokenizer")
    parser.add_argument("--seed", type=int, default=0, help="[%(default)s]")
    shape = parser.parse_args()
    for flag, value in zip(SHAPE_FLAGS, SHAPES[shape.shape]):
        if getattr(shape, flag) is None:
            setattr(shape, flag, value)
        if getattr(shape, flag) < 1:
            parser.error(f"--{flag.replace('_', '-')}: expected 1 or more")
    if shape.hidden % shape.heads or shape.heads % shape.kv_heads:
        parser.error("--heads: expected a divisor of --hidden and a multiple of --kv-heads")
    if shape.tokenizer:
        shape.vocab, tokenizer = copied_tokenizer(shape.tokenizer)
    else:
        shape.vocab, tokenizer = made_up_tokenizer(shape.vocab)
    n_bytes = write(shape.file, shape, shape.mix, tokenizer, shape.seed)
    print(f"{shape.file}: {n_bytes / 1e6:,.1f} MB")


if __name__ == "__main__":
    main()
