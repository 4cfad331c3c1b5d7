"""The addresses of the cluster's machines."""

import ipaddress
import time
from collections.abc import Callable, Iterable

import ray

REFRESH_S = 5.0
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Machines:
    """Tells callers of the cluster's own machines from strangers.

    Ray's proxies connect to a gateway from their machines' addresses, and listen on loopback unless
    the service is open; the gateway's own port can be reached from anywhere.
    """

    def __init__(self, addresses: Callable[[], Iterable[str]] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses = addresses or _addresses
        self._clock = clock
        self._known: set[Address] = set()
        self._asked_at = float("-inf")

    def have(self, text: str) -> bool:
        """An address that is not known is looked for at most every REFRESH_S seconds."""
        address = _parse(text)
        if address is None:
            return False
        if not address.is_loopback and address not in self._known:
            if self._clock() >= self._asked_at + REFRESH_S:
                self._asked_at = self._clock()
                self._known = {found for found in map(_parse, self._addresses()) if found}
        return address.is_loopback or address in self._known


def _addresses() -> list[str]:
    return [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]


def _parse(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
