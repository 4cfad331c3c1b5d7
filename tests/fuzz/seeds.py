"""Writes a folder of inputs for each libFuzzer target to begin with: python3 tests/fuzz/seeds.py OUT"""

import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write(out, target, seeds):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed{number}").write_bytes(seed if isinstance(seed, bytes) else seed.encode())


def safetensors(tensors, **metadata):
    header, end = ({"__metadata__": metadata} if metadata else {}), 0
    for name, dtype, shape, n_bytes in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + n_bytes]}
        end += n_bytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def configs():
    config = json.loads((ROOT / "models/tales/config.json").read_text())
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    yield json.dumps(config)
    yield json.dumps(config | {"rope_scaling": llama3, "eos_token_id": [2, 1]})
    yield json.dumps(config | {"rope_scaling": {"type": "linear", "factor": 2}})
    yield json.dumps(config | {"architectures": ["MistralForCausalLM"], "sliding_window": 64})
    yield json.dumps(config | {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True,
                               "sliding_window": 16, "max_window_layers": 2})
    yield json.dumps(config | {"architectures": ["Qwen3ForCausalLM"], "head_dim": 64})


def bundle():
    """Names the weights that bundle_seed.h has written beside it."""
    mechanisms = [
        {"name": "atp", "lora_scale": 1.0}, {"name": "optimised", "n_heads": 4, "n_kv_heads": 2},
        {"name": "efficient", "n_heads": 1},
        {"name": "super", "over": "standard", "alignment_tokens": 20, "perplexity_ratio": 1.1},
        {"name": "lasso", "lasso": {"form": "vanilla", "lambda": 0.25, "rho": 2.0, "iterations": 3,
                                    "clamp": 5.0, "power": 7, "extra_tokens": 11}}]
    for entry in mechanisms:
        entry["weights"] = entry["name"] + ".safetensors"
    for entries in [mechanisms] + [[entry] for entry in mechanisms]:
        yield json.dumps({"format": 1, "mechanisms": entries})


def vocabulary(tokenizer, pre):
    """The lines that gguf_vocabulary_fuzz.cc reads."""
    tokens = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    lines = [f"mgpt2\np{pre}"] + [f"t1 {text}" for text, _ in tokens if "\n" not in text]
    for merge in tokenizer["model"]["merges"]:
        lines.append("g" + (merge if isinstance(merge, str) else " ".join(merge)))
    return "\n".join(lines + ["b0", "e0", "s0"])


def scored_vocabulary():
    pieces = ["t2 <unk>", "t3 <s>", "t3 </s>"] + [f"t6 <0x{byte:02X}>" for byte in range(256)]
    words = ["▁", "a", "▁a", "t", "h", "th", "▁th", "e", "▁the", "é", "日"]
    pieces += [f"t1{chr(33 + rank)}{word}" for rank, word in enumerate(words)]
    return "\n".join(["mllama"] + pieces + ["t4$<sep>", "u0", "b1", "e2", "s1"])


def http1():
    """Two bytes that choose the handler and the cut, then what a client sends."""
    requests = [
        "GET /a?b=c HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\nHEAD / HTTP/1.0\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcdeGET / HTTP/1.1\r\n"
        "Host: h\r\nConnection: close\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n"
        "\r\n3;e=f\r\nabc\r\n0000000a\r\n0123456789\r\n0\r\nT: v\r\n\r\n"]
    for behavior in range(8):
        yield from (f"{chr(behavior)}{chr(7)}{request}" for request in requests)


def http2_frames():
    """A mode, the size of the pieces, and what a client sends after the preface."""
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload

    head = b"\x83\x86\x84\x41\x03a.b"  # POST, http, /, an authority
    ping, settings = frame(6, 0, 0, b"12345678"), frame(4, 0, 0) + frame(4, 1, 0)
    unary = frame(1, 4, 1, head) + frame(0, 1, 1, b"hello")
    parts = frame(1, 0, 3, head[:2]) + frame(9, 4, 3, head[2:]) + frame(0, 8, 3, b"\2abc\0\0")
    rest = frame(8, 0, 3, struct.pack(">I", 9)) + frame(3, 0, 3, struct.pack(">I", 8)) + ping
    for mode in (0, 1, 2, 4, 16, 32, 128 + 32, 255):
        yield bytes([mode, mode]) + settings + unary + parts + rest


def main(out):
    data = ROOT / "tests/tokenizer"
    tokenizers = {path.stem: path.read_text() for path in sorted((data / "bpe/data").glob("*.json"))
                  if "expected" not in path.name}
    goldens = json.loads((data / "chat/data/goldens.json").read_text())
    templates = [case["template"] for case in goldens["cases"] if "template" in case]
    pre = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2", "smollm": "smollm"}
    write(out, "bundle", bundle())
    write(out, "config_json", configs())
    write(out, "token_table", [json.dumps({"tenants": [
        {"name": "a", "weight": 2.5, "max_live_requests": 8, "tokens_per_minute": 600,
         "tokens": [{"token": "first-token-0000000000", "rights": ["generate", "read", "admin"]},
                    {"sha256": "a" * 64}]}]})])
    write(out, "safetensors", [
        safetensors([("a", "F32", [2, 3], 24), ("b", "BF16", [4], 8)], format="pt"),
        safetensors([("x", "F16", [], 2), ("y", "I64", [0, 2], 0), ("z", "U8", [3], 3)]),
        safetensors([])])
    write(out, "http1", http1())
    write(out, "tokenizer",
          [path.read_bytes() for path in sorted((data / "sentencepiece/data").glob("*.model"))])
    write(out, "tokenizer_json", tokenizers.values())
    write(out, "gguf_vocabulary", [scored_vocabulary()] +
          [vocabulary(json.loads(tokenizers[name]), pre[name]) for name in pre])
    write(out, "chat_template", list(goldens["styles"].values()) + templates)
    write(out, "http2", http2_frames())
    write(out, "gguf", [])  # its mutator makes them


main(pathlib.Path(sys.argv[1]))
