"""Requests, and what their answers must be."""

from lowkey.v1 import generation_pb2 as pb

STORY = "Once upon a time"
CONTEXT_TOKENS = 4096  # the demo model's
MAX_MESSAGE_BYTES = 4 << 20


def generate(n_tokens=16, text=STORY, **fields):
    """A request for exactly so many tokens a choice."""
    return pb.GenerateRequest(text=text, max_new_tokens=n_tokens, ignore_eos=True, **fields)


def endless(**fields):
    """A request that runs for as long as the model's context lets it."""
    return generate(CONTEXT_TOKENS - 16, **fields)


def score():
    return pb.ScoreRequest(text=STORY, continuation_texts=[", there was", " xylophone qua"])


def n_tokens(events):
    """The tokens of a stream's events, of which the last one must be the final event."""
    assert events and [e.WhichOneof("event") == "final" for e in events] == \
        [False] * (len(events) - 1) + [True], "expected one final event, as the last one"
    return sum(len(e.delta.tokens) for e in events)


def text_of(events):
    return "".join(e.delta.text for e in events)


def padded(message, n_bytes):
    """The bytes of a message, made `n_bytes` long by a field that its type does not have."""
    tag = b"\xc2\x3e"  # field 1,000, bytes
    rest = n_bytes - message.ByteSize() - len(tag)
    for n_digits in range(1, 5):
        n_payload = rest - n_digits
        if n_payload < 1 << 7 * n_digits:
            break
    digits = bytes((n_payload >> 7 * i & 127) | (128 if i + 1 < n_digits else 0)
                   for i in range(n_digits))
    result = message.SerializeToString() + tag + digits + bytes(n_payload)
    assert len(result) == n_bytes
    return result
