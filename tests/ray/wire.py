"""Messages of lowkey.v1 by hand, as far as the tests need them."""

import collections

import grpc

import paths  # noqa: F401
from lowkey_ray import prompts


# Numbers of StatsResponse's fields.
RUNNING, WAITING, FINISHED, CANCELLED = 3, 4, 5, 6


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def text(number: int, value: bytes | str) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def generate(prompt: str, n_tokens: int, seed: int = 1, model: str = "") -> bytes:
    """Returns a GenerateRequest that draws `n_tokens` tokens at temperature 1."""
    sampling = varint(1 << 3 | 5) + b"\x00\x00\x80\x3f" + integer(9, seed)
    return (text(1, model) + text(3, prompt) + text(6, sampling) + integer(8, n_tokens)
            + integer(11, 1))


def fields(message: bytes, number: int) -> list[bytes | int]:
    return [value for found, value in prompts._fields(message) if found == number]


def delta_text(delta: bytes) -> str:
    return b"".join(fields(delta, 2)).decode()


def event_text(event: bytes) -> str:
    """Returns the text of a GenerateEvent; empty for one without a delta."""
    return "".join(delta_text(delta) for delta in fields(event, 2))


def answer_text(answer: bytes) -> str:
    return "".join(delta_text(delta) for delta in fields(answer, 1))


def stats(port: int) -> dict[int, int]:
    """Asks a server itself. The keys are the numbers of StatsResponse's fields."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = channel.unary_unary("/lowkey.v1.Admin/Stats")(b"", timeout=60)
    return collections.defaultdict(int, ((number, value) for number, value in prompts._fields(answer)
                                         if isinstance(value, int)))
