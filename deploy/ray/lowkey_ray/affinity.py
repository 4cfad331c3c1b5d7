"""The order in which replicas are tried for a prompt.

Pure functions of the standard library: the router and bench/prefix_affinity.py share them.
"""

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence

# A replica that is this much above the mean number of requests is left to requests that have
# nowhere else to go: continuous batching serves a few more at little cost, and computing a long
# prompt again costs more than a short wait.
FACTOR = 1.25
SLACK = 4.0
# Replicas on which a prompt may find what an earlier one left: the second one takes the overflow
# of the first.
N_CHOICES = 2


def ranked(key: bytes, replicas: Sequence[str]) -> list[str]:
    """Returns the replicas in the key's own order (rendezvous hashing).

    A replica that comes or goes moves only the keys that it has or had.
    """
    return sorted(replicas, key=lambda name: _weight(key, name))


def order(key: bytes, loads: Mapping[str, float], avoid: Collection[str] = (), *, factor: float = FACTOR,
          slack: float = SLACK, n_choices: int = N_CHOICES) -> list[str]:
    """Returns all replicas, the one to try first in front.

    `loads` has each replica's requests. An empty key has no preference. Those of `avoid` come last. The
    key's own replicas come first unless they have over `factor` times the mean, plus `slack`; the
    others follow by load.
    """
    names = [name for name in loads if name not in avoid]
    random.shuffle(names)
    names.sort(key=lambda name: loads[name])
    if key and names:
        bound = factor * sum(loads[name] for name in names) / len(names) + slack
        first = [name for name in ranked(key, names)[:n_choices] if loads[name] <= bound]
        names = first + [name for name in names if name not in first]
    return names + [name for name in loads if name in avoid]


def _weight(key: bytes, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8, key=key).digest()
