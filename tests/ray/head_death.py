"""Kills the head of two nodes under load on the other one, for test_faults.py.

It is a program of its own because a Ray without a head ends the program that it was started by.
Prints the outcomes of streams as JSON: those that ended before the head did, and all.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import Any

import cluster
import load

SECONDS_WITHOUT_HEAD = 20  # Ray's patience with a head that is gone is 60 s


def processes_of(node: Any) -> list[int]:
    """Returns the process ids of a node, the children of its processes first."""
    own = [process.process.pid for kind in node.all_processes.values() for process in kind]
    children = subprocess.run(["pgrep", "--parent", ",".join(map(str, own))], check=True,
                              capture_output=True, text=True).stdout
    return [*map(int, children.split()), *own]


def main() -> None:
    nodes = cluster.shared_nodes()
    with load.Load(cluster.WORKER_HTTP_PORT, cluster.WORKER_GRPC_PORT, n_tokens=60) as running:
        running.wait(20)
        before = dict(running.outcomes)
        for pid in processes_of(nodes.head):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(SECONDS_WITHOUT_HEAD)
    print(json.dumps({"before": before, "all": dict(running.outcomes)}), flush=True)
    nodes.kill(nodes.second)
    os._exit(0)  # Ray's own way to end asks the head


if __name__ == "__main__":
    main()
