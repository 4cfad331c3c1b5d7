"""The order in which replicas are tried."""

import collections
import unittest

import paths  # noqa: F401
from lowkey_ray import affinity

IDLE = {f"replica {index}": 0.0 for index in range(8)}


def first(key: bytes, loads: dict[str, float], avoid: tuple[str, ...] = ()) -> str:
    return affinity.order(key, loads, avoid)[0]


class Order(unittest.TestCase):
    def test_a_key_has_one_replica(self) -> None:
        for number in range(50):
            key = b"%d" % number
            self.assertEqual(1, len({first(key, IDLE) for _ in range(5)}))
            self.assertEqual(sorted(IDLE), sorted(affinity.order(key, IDLE)))

    def test_keys_spread(self) -> None:
        counts = collections.Counter(first(b"%d" % number, IDLE) for number in range(8000))
        self.assertEqual(8, len(counts))
        self.assertLess(max(counts.values()), 1200)
        self.assertGreater(min(counts.values()), 800)

    def test_a_replica_that_goes_moves_only_its_own_keys(self) -> None:
        gone = "replica 3"
        left = {name: load for name, load in IDLE.items() if name != gone}
        for number in range(500):
            key = b"%d" % number
            if first(key, IDLE) != gone:
                self.assertEqual(first(key, IDLE), first(key, left))

    def test_a_loaded_replica_gives_way_to_the_keys_second_and_then_to_the_least_loaded(self) -> None:
        key = b"a prompt"
        own = affinity.ranked(key, list(IDLE))
        loads = {name: 1.0 for name in IDLE} | {own[0]: 100.0}
        self.assertEqual(own[1], first(key, loads))
        loads |= {own[1]: 100.0, own[5]: 0.0}
        self.assertEqual(own[5], first(key, loads))

    def test_without_a_key_the_least_loaded_is_first(self) -> None:
        self.assertEqual("replica 6", first(b"", {name: 1.0 for name in IDLE} | {"replica 6": 0.0}))

    def test_a_replica_that_refused_is_last(self) -> None:
        key = b"a prompt"
        own = first(key, IDLE)
        self.assertEqual(own, affinity.order(key, IDLE, (own,))[-1])
        others = tuple(name for name in IDLE if name != own)
        self.assertEqual(own, first(key, IDLE, others))
        self.assertEqual(["a"], affinity.order(key, {"a": 0.0}, ("a",)))
        self.assertEqual([], affinity.order(key, {}))


if __name__ == "__main__":
    unittest.main()
