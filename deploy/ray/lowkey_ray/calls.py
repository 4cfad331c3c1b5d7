"""What the gateway and the replicas send each other."""

from dataclasses import dataclass

import grpc

# Bodies and messages of lowkey are smaller; the server refuses what is between.
MAX_BODY_BYTES = 5 * 1024 * 1024

Headers = tuple[tuple[str, str], ...]
Trailers = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True)
class Call:
    """A request on its way to a replica."""

    key: bytes  # prompts.key_of; empty: any replica will do
    avoid: tuple[str, ...]  # the replicas that refused the request before


@dataclass(frozen=True)
class HttpCall(Call):
    method: str
    target: str  # the path with its query, as the client sent it
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class RpcCall(Call):
    method: str  # "/lowkey.v1.Generation/Generate"
    message: bytes
    metadata: Headers
    timeout_s: float | None  # what is left of the client's deadline
    is_stream: bool


@dataclass(frozen=True)
class Head:
    """The first item of an HTTP answer; the rest of its body follows."""

    replica: str
    status: int
    headers: Headers
    body: bytes  # the part that came with the head
    is_refused: bool = False  # another replica may have room


@dataclass(frozen=True)
class End:
    """The last item of a gRPC answer, or of an HTTP answer that broke off."""

    replica: str
    code: int
    details: str = ""
    trailers: Trailers = ()
    is_refused: bool = False
    is_absent: bool = False  # refused because there is no server just now


Item = Head | End | bytes

UNAVAILABLE = int(grpc.StatusCode.UNAVAILABLE.value[0])


def lost(replica: str, details: str, is_absent: bool = False) -> End:
    """Returns the end of an answer whose server is gone."""
    return End(replica, UNAVAILABLE, details, is_refused=is_absent, is_absent=is_absent)
