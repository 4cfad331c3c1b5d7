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

    def field(name, value):
        return name + bytes([len(value)]) + value

    def call(stream, path, messages, *fields):
        """POST of gRPC, whose fields are literals that no table keeps."""
        block = b"\x83\x86" + field(b"\x04", path) + field(b"\x01", b"a.b")
        block += field(b"\x0f\x10", b"application/grpc") + field(b"\0\x02te", b"trailers")
        block += b"".join(fields)
        return frame(1, 4, stream, block) + frame(0, 1, stream, b"".join(
            b"\0" + struct.pack(">I", len(message)) + message for message in messages))

    health, reflection = b"/grpc.health.v1.Health/", b"/grpc.reflection.%s.ServerReflection/" \
        b"ServerReflectionInfo"
    text = b"\x1a\x04Once"
    calls = call(1, health + b"Check", [b""]) + call(3, health + b"Check", [b"\x0a\x01x"]) + \
        call(5, health + b"Watch", [b""]) + call(7, health + b"List", [b""]) + \
        call(9, reflection % b"v1", [b"\x3a\0", b"\x22\x06lowkey"]) + \
        call(11, reflection % b"v1alpha", [b"\x1a\x16lowkey/v1/models.proto"])
    echoes = call(1, b"/lowkey.v1.Generation/Generate", [text], field(b"\0\x0cgrpc-timeout", b"5S"),
                  field(b"\0\x05x-bin", b"AAEC")) + \
        call(3, b"/lowkey.v1.Generation/Generate", [text, text]) + \
        call(5, b"/lowkey.v1.Generation/Generate", [text * 800]) + \
        call(7, b"/lowkey.v1.Generation/Generate", []) + \
        call(9, b"/lowkey.v1.Generation/Other", [text]) + \
        call(11, b"/lowkey.v1.Generation/Generate", [], field(b"\0\x0dgrpc-encoding", b"gzip"))
    for mode in (0, 3, 128, 255):
        yield bytes([mode, mode]) + settings + calls + rest
        yield bytes([mode, mode]) + settings + echoes + rest


def openai():
    """Bodies after the byte that names their endpoint."""
    completion = {"model": "tales", "prompt": [[1, 2]], "logprobs": 1, "echo": True, "stop": "a",
                  "logit_bias": {"7": 1}, "stream": True, "stream_options": {"include_usage": True},
                  "lowkey": {"attention": {"mechanism": "atp", "rank": "1/4"}, "timeout_ms": 9}}
    chat = {"model": "tales", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "a"}]}], "tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "object"}}}],
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}
    score = {"token_ids": [1], "continuation_token_ids": [[2]], "attention": {"allowed": ["atp"]}}
    bodies = [completion, chat, {"prompt": "a", "return_token_strs": True}, chat, score]
    return [bytes([i]) + json.dumps(body).encode() for i, body in enumerate(bodies)]


def rpc_message():
    """Bodies of calls: requests of lowkey.v1.Generation with their prefixes."""
    def varint(number):
        digits = []
        while number > 127:
            digits.append(number & 127 | 128)
            number >>= 7
        return bytes(digits + [number])

    def number(field, value):
        return varint(field << 3) + varint(value & (1 << 64) - 1)

    def single(field, value):
        return varint(field << 3 | 5) + struct.pack("<f", value)

    def nested(field, *parts):
        payload = b"".join(p.encode() if isinstance(p, str) else p for p in parts)
        return varint(field << 3 | 2) + varint(len(payload)) + payload

    def framed(*parts):
        return b"\0" + struct.pack(">I", len(b"".join(parts))) + b"".join(parts)

    sampling = nested(6, *(single(field, 0.5) for field in (1, 3, 4, 5, 6, 7)), number(2, 40),
                      nested(8, number(1, 7), single(2, -2.5)), number(9, (1 << 64) - 1))
    attention = nested(7, nested(1, "atp"), nested(2, "1/4"), nested(3, "kv"), number(5, 512),
                       nested(8, "memory"), nested(9, "standard"), number(10, 1),
                       varint(11 << 3 | 1) + struct.pack("<d", 1.5), number(16, 64),
                       nested(20, "linear"), nested(30, "recurrent"), nested(40, "int4"))
    call = nested(5, nested(1, "c1"), nested(2, "f"), nested(3, '{"a": 1}'))
    chat = nested(5, *(nested(1, nested(1, role), nested(2, text)) for role, text in
                       (("system", ""), ("user", "h\u00e9llo \u65e5"), ("tool", "1"))),
                  nested(1, nested(1, "assistant"), call), nested(2, "[]"), nested(3, "{}"),
                  number(4, 0))
    rest = nested(9, "\n") + nested(10, varint(2), varint(300)) + number(11, 1) + number(12, 20) + \
        number(14, 8) + number(15, -100) + nested(32, varint(64), varint(4000))
    requests = [nested(1, "tales") + nested(2, "id") + nested(3, "Once upon a time") + number(8, 9),
                nested(4, nested(1, *(varint(1000 * i) for i in range(60)))), chat]
    for request in requests:
        yield framed(request, sampling, attention, rest)
    yield b"".join(framed(request) for request in requests) + framed()
    yield framed(requests[0], number(1000, 1), nested(1001, "unknown"), nested(3, b"\xff"))
    # The end within a message, a compressed message, one of 4 MiB and a byte.
    yield framed(chat)[:-5]
    yield b"\1" + framed(chat)[1:]
    yield b"\0\0\x40\0\1" + chat


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
    write(out, "rpc_message", rpc_message())
    write(out, "openai", openai())
    schemas = (ROOT / "tests/server/grammar/schema/schemas.jsonl").read_text().splitlines()
    write(out, "schema", ["\0a^(a|b[^c-e]){2,5}\\d+$", "\1aroot ::= (x \",\")*\nx ::= [a-z]+"] +
          ["7a" + json.dumps(json.loads(line)["schema"]) for line in schemas[::10]])
    write(out, "gguf", [])  # its mutator makes them


main(pathlib.Path(sys.argv[1]))
