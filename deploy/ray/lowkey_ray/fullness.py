"""Which replicas a gateway knows to be full, so that a flood of requests costs it little: a refusal
that no replica is asked for takes half the time of the processes between client and server."""

import collections
import dataclasses
import time
from collections.abc import Callable, Sequence

from lowkey_ray.calls import Call, End, Head, HttpCall, RpcCall

# A replica counts as full for this long, unless a request that it had from this gateway ends before.
KEEP_S = 0.5
# The server says so where it would refuse any request of the same caller and kind.
WORDS = "requests waiting, expected fewer than"
# Fields of an answer that belong to its request alone.
OWN_FIELDS = ("x-request-id", "traceparent")

Kind = tuple[str, str]


class Fullness:
    """The refusals of one model's replicas, each by caller and kind of request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.replicas: Sequence[str] = ()  # those that requests can go to, as the router said last
        self._clock = clock
        self._refusals: dict[str, dict[Kind, tuple[float, Head | End]]] = {}

    def note(self, call: Call, refusal: Head | End) -> None:
        """Remembers the refusal if others would be refused too."""
        words = refusal.details if isinstance(refusal, End) else refusal.body.decode(errors="replace")
        if WORDS not in words:
            return
        if isinstance(refusal, Head):
            fields = tuple(field for field in refusal.headers if field[0].lower() not in OWN_FIELDS)
            refusal = dataclasses.replace(refusal, headers=fields)
        oldest = self._clock() - KEEP_S
        kept = self._refusals.get(refusal.replica, {})
        kept = {kind: kept[kind] for kind in kept if kept[kind][0] >= oldest}
        kept[_kind_of(call)] = self._clock(), refusal
        self._refusals[refusal.replica] = kept

    def forget(self, replica: str) -> None:
        """A request of the replica has ended: another has its place."""
        self._refusals.pop(replica, None)

    def refusal(self, call: Call) -> Head | End | None:
        """Returns what to answer if all replicas are known to be full."""
        kind, oldest = _kind_of(call), self._clock() - KEEP_S
        answer = None
        for replica in self.replicas:
            when, answer = self._refusals.get(replica, {}).get(kind, (oldest - 1, None))
            if when < oldest:
                return None
        return answer


# By model. A gateway and its routers are in one process and one event loop.
models: dict[str, Fullness] = collections.defaultdict(Fullness)


def _kind_of(call: Call) -> Kind:
    if isinstance(call, HttpCall):
        callers = (value for name, value in call.headers if name.lower() == "authorization")
        return call.target, next(callers, "")
    assert isinstance(call, RpcCall)
    return call.method, dict(call.metadata).get("authorization", "")
