"""Servers, replicas and nodes that die under load; a rolling restart.

RAY_KILLS (3) and RAY_REQUESTS (300) are the numbers of kills and of requests of the rolling restart.
RAY_SERVE_ENABLE_HA_PROXY=1 puts HAProxy in the place of Ray's own proxies.
"""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import unittest

import clients
import cluster
import load

N_KILLS = int(os.environ.get("RAY_KILLS", "3"))
N_REQUESTS = int(os.environ.get("RAY_REQUESTS", "300"))
# A stream whose gateway died ends with one of these, besides UNAVAILABLE.
OF_A_LOST_GATEWAY = "CANCELLED" if cluster.HAS_HAPROXY else "INTERNAL", "500"
# HAProxy chooses among the gateways of all machines.
OF_ANOTHER_MACHINES_GATEWAY = OF_A_LOST_GATEWAY if cluster.HAS_HAPROXY else ()


def loaded(**options: int) -> load.Load:
    return load.Load(cluster.HTTP_PORT, cluster.GRPC_PORT, **options)


class Deaths(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.nodes = cluster.shared_nodes()

    def setUp(self) -> None:
        clients.wait_for(lambda: len(cluster.servers()) == 2, "two servers")

    def expect_no_harm_to_others(self, done: load.Load, *lost: str) -> None:
        outcomes = dict(done.outcomes)
        print(f"\n{self.id()}: {outcomes}, {sorted(done.details)}", flush=True)
        self.assertLessEqual(set(outcomes), {load.SAME, load.UNAVAILABLE, *lost}, done.details)

    def test_servers(self) -> None:
        with loaded() as running:
            for _ in range(N_KILLS):
                running.wait(8)
                victim = random.choice(cluster.servers())
                cluster.kill_server(victim)
                clients.wait_for(lambda: len(cluster.servers()) == 2, "two servers again")
                self.assertNotIn(victim.pid, [server.pid for server in cluster.servers()])
            running.wait(8)
        self.expect_no_harm_to_others(running)

    def test_replicas(self) -> None:
        with loaded() as running:
            for _ in range(N_KILLS):
                running.wait(8)
                victim = random.choice(cluster.servers())
                os.kill(parent_of(victim.pid), signal.SIGKILL)
                clients.wait_for(lambda: is_replaced(victim), "two servers again")
                self.assertFalse(os.path.exists(f"/proc/{victim.pid}"), "the server lives on")
            running.wait(8)
        self.expect_no_harm_to_others(running)

    def test_gateways(self) -> None:
        with loaded() as running:
            for _ in range(N_KILLS):
                running.wait(8)
                before = cluster.gateways()
                os.kill(random.choice(sorted(before)), signal.SIGKILL)
                clients.wait_for(lambda: len(cluster.gateways()) == 2 and cluster.gateways() != before,
                                 "two gateways again")
            running.wait(8)
        self.expect_no_harm_to_others(running, *OF_A_LOST_GATEWAY)

    def test_a_node(self) -> None:
        with loaded() as running:
            for _ in range(max(1, N_KILLS // 3)):
                running.wait(8)
                gone = self.nodes.second.node_id
                self.nodes.kill(self.nodes.second)
                clients.wait_for(lambda: gone not in {server.node for server in cluster.servers()}
                                 and len(cluster.servers()) == 2, "two servers on the head")
                running.wait(8)
                self.nodes.second = self.nodes.add()
                # A restart spreads the replicas over both nodes again.
                cluster.deploy(dataclasses.replace(
                    cluster.TALES, flags=(*cluster.TALES.flags, "--max-wait", f"{random.uniform(30, 60)}s")))
        self.expect_no_harm_to_others(running, *OF_ANOTHER_MACHINES_GATEWAY)


class HeadsDeath(unittest.TestCase):
    def test_the_other_machine_goes_on(self) -> None:
        script = pathlib.Path(__file__).with_name("head_death.py")
        with subprocess.Popen([sys.executable, "-B", script], stdout=subprocess.PIPE,
                              start_new_session=True) as program:
            try:
                output = program.communicate(timeout=clients.LONG_S)[0]
            finally:
                os.killpg(program.pid, signal.SIGKILL)
        outcomes = json.loads(output.splitlines()[-1])
        print(f"\n{self.id()}: {outcomes}", flush=True)
        self.assertLessEqual(set(outcomes["all"]),
                             {load.SAME, load.UNAVAILABLE, *OF_ANOTHER_MACHINES_GATEWAY})
        self.assertEqual([load.SAME], list(outcomes["before"]))
        self.assertGreater(outcomes["all"][load.SAME], outcomes["before"][load.SAME] + 20)


class RollingRestart(unittest.TestCase):
    def test_nothing_is_lost(self) -> None:
        cluster.shared_nodes()
        n_restarts = 0
        with loaded(n_tokens=60) as running:
            while running.outcomes.total() < N_REQUESTS:
                before = {server.pid for server in cluster.servers()}
                flags = (*cluster.TALES.flags, "--max-wait", f"{40 + n_restarts % 7}s")
                cluster.deploy(dataclasses.replace(cluster.TALES, flags=flags))
                after = {server.pid for server in cluster.servers()}
                self.assertEqual(2, len(after))
                self.assertFalse(before & after)
                n_restarts += 1
                running.wait(8)
        print(f"\n{n_restarts} restarts of both replicas: {dict(running.outcomes)}", flush=True)
        n_lost = running.outcomes.total() - running.outcomes[load.SAME]
        # HAProxy loses one in ten thousand (docs/scale.md).
        self.assertLessEqual(n_lost, 2 if cluster.HAS_HAPROXY else 0, running.details)


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def is_replaced(victim: cluster.Server) -> bool:
    found = cluster.servers()
    return len(found) == 2 and victim.actor not in [server.actor for server in found]


if __name__ == "__main__":
    unittest.main()
