"""What the router reads of a request: its model, and the key of the cache that its prompt needs.

Only this module looks into requests. It uses the standard library alone, never raises for what
strangers sent, and leaves all judging to the server: what cannot be read here has no key.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

# A page of the cache holds 64 tokens; four bytes a token are usual for texts.
PAGE_TOKENS = 64
PAGE_BYTES = 4 * PAGE_TOKENS
# A conversation is told by its beginning; further bytes would only cost time.
MAX_KEY_BYTES = 64 * 1024


class Reading(NamedTuple):
    """The model that a request names (empty: none), and the key of its prompt (empty: none)."""

    model: str
    key: bytes


def key_of(tenant: str, start: bytes) -> bytes:
    """Returns the key of a prompt with this beginning. Tenants share no cache, so no keys either."""
    if not start:
        return b""
    tenant_hash = hashlib.blake2b(tenant.encode(errors="replace"), digest_size=16).digest()
    return hashlib.blake2b(start[:MAX_KEY_BYTES], digest_size=16, key=tenant_hash).digest()


def read_json(tenant: str, body: bytes) -> Reading:
    """Reads the body of a request of OpenAI's API."""
    try:
        request = json.loads(body)
        if not isinstance(request, dict):
            return Reading("", b"")
        model = request.get("model")
        return Reading(model if isinstance(model, str) else "", key_of(tenant, _json_start(request)))
    except (ValueError, RecursionError):
        return Reading("", b"")


def read_grpc(method: str, tenant: str, message: bytes) -> Reading:
    """Reads a message of lowkey.v1. `method` is the method's name, such as "Generate"."""
    model, start = b"", b""
    try:
        for number, value in _texts(message):
            if number == 1:
                model = value
            elif method in ("Generate", "GenerateStream") and number in (3, 4):
                start = _page_of(value, PAGE_BYTES if number == 3 else PAGE_TOKENS)
            elif method in ("Generate", "GenerateStream") and number == 5:
                start = _chat_start(value)
            elif method == "Score" and number in (2, 3):
                start = _page_of(value, PAGE_BYTES if number == 2 else PAGE_TOKENS)
    except (ValueError, IndexError):
        return Reading("", b"")
    return Reading(model.decode(errors="replace"), key_of(tenant, start))


class Stats(NamedTuple):
    """Requests of a server."""

    running: int
    waiting: int


def stats_of(message: bytes) -> Stats:
    """Reads running_requests and waiting_requests of lowkey.v1.StatsResponse."""
    numbers = {number: value for number, value in _fields(message) if isinstance(value, int)}
    return Stats(numbers.get(3, 0), numbers.get(4, 0))


def _json_start(request: dict[str, object]) -> bytes:
    messages = request.get("messages")
    if isinstance(messages, list):
        return _until_user(messages)
    prompt = request.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]  # of several prompts the first decides
    if isinstance(prompt, str):
        return _page_of(prompt[:PAGE_BYTES].encode(errors="replace"), PAGE_BYTES)
    if isinstance(prompt, list) and len(prompt) >= PAGE_TOKENS:
        return json.dumps(prompt[:PAGE_TOKENS]).encode()
    return b""


def _page_of(prompt: bytes, least: int) -> bytes:
    """Returns a prompt's first page. Of a prompt of fewer bytes than `least` hardly a page can
    be found anywhere, so that it goes where there is least to do."""
    return prompt[:PAGE_BYTES] if len(prompt) >= least else b""


def _until_user(messages: list[object]) -> bytes:
    """Returns the conversation's beginning: later turns repeat it, other conversations differ."""
    start = []
    for message in messages:
        start.append(message)
        if isinstance(message, dict) and message.get("role") == "user":
            break
    return json.dumps(start).encode()


def _chat_start(chat: bytes) -> bytes:
    start = b""
    for number, message in _texts(chat):
        if number != 1:
            continue
        start += message
        if any(field == 1 and role == b"user" for field, role in _texts(message)):
            break
    return start


def _texts(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the fields that hold texts or messages."""
    for number, value in _fields(message):
        if isinstance(value, bytes):
            yield number, value


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yields number and value of the fields of a protobuf message, in order, less fixed ones.

    ValueError or IndexError where the bytes are no message.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(message, at)
            if size > len(message) - at:
                raise ValueError(f"a field of {size} bytes where {len(message) - at} are left")
            yield tag >> 3, message[at:at + size]
            at += size
        elif kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}, expected 0, 1, 2 or 5")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number of more than 10 bytes")
