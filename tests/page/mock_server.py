"""A server that answers the page as lowkey does, and as lowkey never would.

It serves server/api/page/page.html with the headers of the real server and makes up the rest. What
a prompt contains decides how a generation goes:

  hostile   the text is markup that would run if it were taken for markup
  refuse    400 with an error object
  busy      429 with Retry-After
  error     an error object within the stream
  break     the stream ends without its end
  garble    an event is no JSON
  slow      50 ms a token, and no end before 2,000 tokens
  think     a chat's first 3 tokens are thoughts; the first 40 of a slow one
"""

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import socket
import threading
import time
import urllib.parse

PAGE = pathlib.Path(__file__).parents[2] / "server/api/page/page.html"
HOSTILE = [
    "<script>window.broken = 1</script>",
    '<img src=x onerror="window.broken = 2">',
    "<svg onload='window.broken = 3'>",
    "</div></main><h1>taken</h1>",
    "javascript:alert(1)",
    "<a href='https://example.com/'>link</a>",
    "&lt;b&gt; &amp; \u202e ]]> -->",
]
WORDS = "Once there was a small robot who lived by the sea and liked to count the stars .".split()


def policy(page):
    def source(name):
        inside = re.search(f"<{name}>(.*)</{name}>", page, re.DOTALL).group(1)
        return (
            "'sha256-" + base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() + "'"
        )

    return (
        f"default-src 'none'; script-src {source('script')}; style-src {source('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def option(name, mechanism, kind, default, **more):
    return {
        "name": name,
        "mechanism": mechanism,
        "kind": kind,
        "default": default,
        "help": f"what {name} means",
        **more,
    }


def model(chat_refusal):
    names = ["standard", "atp", "taylorshift", "efficient"]
    return {
        "name": "tales",
        "dtype": "bfloat16",
        "weight_bytes": 8900000,
        "chat_refusal": chat_refusal,
        "architecture": {"vocab_size": 4096},
        "limits": {"context_tokens": 2048, "cache_bytes": 1 << 28},
        "mechanisms": [
            {"name": name, "approximate": name == "atp", "cache_bytes_per_token": 4096.0}
            | ({"perplexity_ratio": 1.0527} if name == "taylorshift" else {})
            for name in names
        ],
        "defaults": {
            "sampling": {
                "temperature": 0,
                "top_k": 0,
                "top_p": 1,
                "min_p": 0,
                "repetition_penalty": 1,
                "presence_penalty": 0,
                "frequency_penalty": 0,
            },
            "attention": {"mechanism": "standard"},
            "max_new_tokens": 128,
        },
        "objectives": ["latency", "memory", "balanced"],
        "attention_options": [
            option("rank", "atp", "rank", "1/4"),
            option("basis", "atp", "name", "layer", values=["layer", "kv", "input"]),
            option("block_tokens", "atp", "integer", 512, min=64, max=4096, step=64),
            option("merge", "atp", "switch", False),
            option("form", "taylorshift", "name", "auto", values=["auto", "direct", "recurrent"]),
            option("cache_storage", "standard", "name", "dtype",
                   values=["dtype", "int8", "int4", "int3", "int2"]),
            option("key_storage", "efficient", "name", "rotated", values=["rotated", "none"]),
        ],
    }


def held(mechanism, n):
    share = {"atp": 0.5, "efficient": 0.5, "taylorshift": 0.8}.get(mechanism, 1)
    return int(4096 * n * share)


LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 1848]


def crossover(new_tokens):
    # name, seconds of a token, and what grows with the length
    costs = [
        ("standard", 4e-4, 9e-7),
        ("atp", 6e-4, 2e-7),
        ("taylorshift", 5e-4, 3e-7),
        ("efficient", 3.5e-4, 8e-7),
    ]
    mechanisms = []
    for name, flat, slope in costs:
        for label in [name] if name != "standard" else ["standard", "standard int8 cache"]:
            each = [(n, flat + slope * n * (1.1 if "int8" in label else 1)) for n in LENGTHS]
            mechanisms.append(
                {
                    "mechanism": name,
                    "label": label,
                    "has_default_options": label == name,
                    "approximate": name == "atp",
                    "points": [
                        {
                            "prompt_tokens": n,
                            "prefill_s": 0.4 * n * t,
                            "decode_s": t,
                            "request_s": 0.4 * n * t + new_tokens * t,
                            "cache_bytes": held(name, n + new_tokens),
                        }
                        for n, t in each
                    ],
                }
            )
    turns = {
        "latency": ("efficient", [("efficient", "taylorshift", 320)]),
        "balanced": (
            "efficient",
            [("efficient", "standard", 128), ("standard", "taylorshift", 640)],
        ),
        "memory": ("efficient", []),
    }
    return {
        "profile": "profile-1.json",
        "context_tokens": 2048,
        "new_tokens": new_tokens,
        "mechanisms": mechanisms,
        "selections": [
            {
                "objective": name,
                "allow_approximate": approximate,
                "first": first,
                "crossovers": [{"from": a, "to": b, "prompt_tokens": n} for a, b, n in crossovers],
            }
            for name, (first, crossovers) in turns.items()
            for approximate in (False, True)
        ],
    }


class Mock:
    """Runs on a free port until `close`."""

    def __init__(self, port=0, token=None, chat_refusal="the model has no chat template"):
        self.token = token
        self.chat_refusal = chat_refusal
        self.token_seconds = 0.002
        self.n_measuring = 0  # answers of /lowkey/v1/crossover that are still 503
        self.no_rates = False
        self.cancelled = 0
        self.finished = 0
        self.running = 0
        self.bodies = []  # of generations, as JSON
        self.paths = []
        self.lock = threading.Lock()
        self.connections = []
        handler = type("Handler", (Handler,), {"mock": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        with self.lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def add(self, name, n):
        with self.lock:
            setattr(self, name, getattr(self, name) + n)


class Handler(http.server.BaseHTTPRequestHandler):
    mock = None
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.mock.lock:
            self.mock.connections.append(self.connection)

    def log_message(self, *_):
        pass

    def answer(self, status, body, content_type="application/json", headers=()):
        if not isinstance(body, str):
            body = json.dumps(body)
        data = body.encode()
        self.send_response(status)
        for name, value in (
            ("content-type", content_type),
            ("content-length", str(len(data))),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, headers=()):
        self.answer(
            status,
            {
                "error": {
                    "message": message,
                    "type": "invalid_request_error",
                    "param": None,
                    "code": None,
                }
            },
            headers=headers,
        )

    def is_known(self):
        if self.mock.token is None or self.headers["authorization"] == f"Bearer {self.mock.token}":
            return True
        self.answer(
            401,
            "authorization: expected one header `Bearer TOKEN`\n",
            "text/plain",
            [("www-authenticate", "Bearer")],
        )
        return False

    def do_GET(self):
        target = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(target.query))
        self.mock.paths.append(target.path)
        if target.path == "/":
            page = PAGE.read_text()
            return self.answer(
                200,
                page,
                "text/html; charset=utf-8",
                [
                    ("content-security-policy", policy(page)),
                    ("x-content-type-options", "nosniff"),
                    ("referrer-policy", "no-referrer"),
                    ("cache-control", "no-cache"),
                ],
            )
        if not self.is_known():
            return None
        if target.path == "/lowkey/v1/model":
            return self.answer(200, model(self.mock.chat_refusal))
        if target.path == "/lowkey/v1/stats":
            return self.answer(
                200,
                {
                    "running_requests": self.mock.running,
                    "waiting_requests": 0,
                    "cancelled_requests": self.mock.cancelled,
                    "cache_bytes_used": 12345678,
                    "cache_bytes_total": 1 << 28,
                },
            )
        if target.path == "/lowkey/v1/cache":
            return self.answer(
                200,
                {
                    "points": [
                        {
                            "tokens": n,
                            "cache_bytes": held(query["mechanism"], n),
                            "standard_cache_bytes": held("standard", n),
                        }
                        for n in [64, 512, 2048]
                    ]
                },
            )
        if target.path == "/lowkey/v1/crossover":
            if self.mock.no_rates:
                return self.refuse(404, "no rates of this machine were measured")
            if self.mock.n_measuring > 0:
                self.mock.n_measuring -= 1
                return self.refuse(
                    503, "the rates of this machine are still being measured; try again"
                )
            return self.answer(200, crossover(int(query["new_tokens"])))
        return self.refuse(404, "not found")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.mock.paths.append(self.path)
        if not self.is_known():
            return None
        self.mock.bodies.append({"path": self.path, **body})
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        if "refuse" in prompt:
            return self.refuse(400, 'attention.rank: "x", expected <b>a number</b>')
        if "busy" in prompt:
            return self.refuse(429, "queue: full", [("retry-after", "7")])
        self.mock.add("running", 1)
        try:
            self.stream(body, prompt)
            self.mock.add("finished", 1)
        except (BrokenPipeError, ConnectionResetError):
            self.mock.add("cancelled", 1)
            self.close_connection = True
        finally:
            self.mock.add("running", -1)
        return None

    def send_event(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def stream(self, body, prompt):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        n_prompt = len(prompt.split())
        n_new = 2000 if "slow" in prompt else body.get("max_tokens", 16)
        pieces = HOSTILE if "hostile" in prompt else [WORDS[i % len(WORDS)] for i in range(n_new)]
        n_thoughts = 0 if "think" not in prompt else 40 if "slow" in prompt else 3
        self.wfile.write(b"d\r\n: silence...\n\r\n")
        began = time.monotonic()
        for i, piece in enumerate(pieces):
            time.sleep(0.05 if "slow" in prompt else self.mock.token_seconds)
            text = piece if "hostile" in prompt else " " + piece
            is_last = i + 1 == len(pieces)
            choice = {"index": 0, "finish_reason": "length" if is_last else None}
            if "messages" not in body:
                choice["text"] = text
            elif i < n_thoughts:
                choice["delta"] = {"reasoning_content": text, "content": ""}
            else:
                choice["delta"] = {"content": text}
            if "error" in prompt and i == 3:
                return self.send_last(
                    {"error": {"message": "logits: <i>NaN</i>", "type": "server_error"}}
                )
            if "garble" in prompt and i == 3:
                return self.send_last("{oops")
            if "break" in prompt and i == 3:
                return self.wfile.write(b"0\r\n\r\n")
            self.send_event(
                {
                    "choices": [choice],
                    "usage": {"prompt_tokens": n_prompt, "completion_tokens": i + 1},
                }
            )
        took = int(1e6 * (time.monotonic() - began))
        mechanism = body.get("lowkey", {}).get("attention", {}).get("mechanism", "standard")
        n = n_prompt + len(pieces)
        report = {
            "mechanism": mechanism if mechanism != "auto" else "taylorshift",
            "reason": "auto, balanced: <u>cheapest</u>" if mechanism == "auto" else "requested",
            "cache_bytes": held(mechanism, n),
            "peak_cache_bytes": held(mechanism, n),
            "standard_cache_bytes": held("standard", n),
            "approximate": mechanism == "atp",
        }
        self.send_event(
            {
                "choices": [],
                "usage": {"prompt_tokens": n_prompt, "completion_tokens": len(pieces)},
                "lowkey": {
                    "attention": report,
                    "seed": body.get("seed", 1),
                    "timings": {
                        "queue_us": 10,
                        "prefill_us": 900,
                        "ttft_us": 4200,
                        "decode_us": took,
                    },
                },
            }
        )
        return self.send_last("[DONE]")

    def send_last(self, value):
        self.send_event(value)
        self.wfile.write(b"0\r\n\r\n")


if __name__ == "__main__":
    import sys

    mock = Mock(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(mock.url, flush=True)
    threading.Event().wait()
