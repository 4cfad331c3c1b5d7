"""Two Ray nodes in this machine, with lowkey on them."""

import atexit
import contextlib
import dataclasses
import functools
import os
import pathlib
import signal
import tempfile
from collections.abc import Callable
from typing import Any

import paths
from clients import free_ports
from lowkey_ray import environment

environment.prepare()
# Everything is on loopback; a token that an earlier Ray left in the home folder does not matter.
os.environ["RAY_AUTH_MODE"] = "disabled"
# Ray takes 127.0.0.1 for the address of the network.
NODE_ADDRESS = "127.0.0.2"
# Python starts slowly on a machine that is busy.
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "120"
os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = "60"

HTTP_PORT, GRPC_PORT, WORKER_HTTP_PORT, WORKER_GRPC_PORT, *OTHER_PORTS = free_ports(10)
PORTS = {"WORKER_PROXY_HTTP": WORKER_HTTP_PORT, "WORKER_PROXY_GRPC": WORKER_GRPC_PORT,
         "FALLBACK_PROXY_HTTP": OTHER_PORTS[0], "FALLBACK_PROXY_GRPC": OTHER_PORTS[1],
         "HAPROXY_METRICS": OTHER_PORTS[2], "HAPROXY_STATS": OTHER_PORTS[3]}
SECOND_NODES_PORTS = {"HAPROXY_METRICS": OTHER_PORTS[4], "HAPROXY_STATS": OTHER_PORTS[5]}


def port_variables(ports: dict[str, int]) -> dict[str, str]:
    return {f"RAY_SERVE_{name}_PORT": str(port) for name, port in ports.items()}


os.environ.update(port_variables(PORTS))
HAS_HAPROXY = os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
# Behind HAProxy, gateways listen on these ports for gRPC. The system gives no such ports to others.
GATEWAY_PORTS = range(21000, 21100)
os.environ["RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT"] = str(GATEWAY_PORTS.start)
os.environ["RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT"] = str(GATEWAY_PORTS.stop)

import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from ray.serve.config import HTTPOptions, gRPCOptions  # noqa: E402

from lowkey_ray import app, settings  # noqa: E402

TALES = settings.Model(
    name="tales", path=str(paths.ROOT / "models" / "tales"), min_replicas=2, max_replicas=2,
    binary=os.environ.get("RAY_SERVER", str(paths.ROOT / "build" / "lowkey")),
    flags=("--profile", "none"))


@dataclasses.dataclass(frozen=True)
class Server:
    """A replica's server."""

    actor: str
    node: str
    pid: int
    port: int


def tried(start: Callable[[], Any]) -> Any:
    """Ray gives its agents 15 s to start, which a busy machine may not keep: tries three times."""
    for _ in range(2):
        with contextlib.suppress(Exception):
            return start()
    return start()


class Nodes:
    """The head, which has Ray's own processes, and a second node."""

    def __init__(self) -> None:
        self._cluster = tried(lambda: Cluster(initialize_head=True, connect=False, head_node_args={
            "num_cpus": 4, "include_dashboard": False, "object_store_memory": 100 << 20,
            "node_ip_address": NODE_ADDRESS}))
        self.head = self._cluster.head_node
        self.second = self.add()
        ray.init(address=self._cluster.address, _node_ip_address=NODE_ADDRESS,
                 log_to_driver=False, logging_level="ERROR")
        with contextlib.suppress(TimeoutError):  # deploy() waits again
            serve.start(http_options=HTTPOptions(host="127.0.0.1", port=HTTP_PORT),
                        grpc_options=gRPCOptions(port=GRPC_PORT, grpc_servicer_functions=[
                            "lowkey_ray.services:add_lowkey"]))

    def add(self) -> object:
        return tried(lambda: self._cluster.add_node(
            num_cpus=4, object_store_memory=100 << 20, node_ip_address=NODE_ADDRESS,
            env_vars=port_variables(SECOND_NODES_PORTS)))

    def kill(self, node: object) -> None:
        """Ends a node as a power failure does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        serve.shutdown()
        ray.shutdown()
        self._cluster.shutdown()


def deploy(*models: settings.Model, gateways: int = 2) -> None:
    """Returns once what was asked for runs; what runs already is replaced bit by bit."""
    serve.run(app.build(models, gateways, is_open=False), name="lowkey", route_prefix="/")


def servers(model: str = "tales") -> list[Server]:
    found = []
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if not entry["name"].startswith(f"SERVE_REPLICA::lowkey#{model}#"):
            continue
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            actor = ray.get_actor(entry["name"], entry["namespace"])
            stats = ray.get(actor.record_routing_stats.remote(), timeout=30)
            node = ray._private.state.actors(actor._actor_id.hex())["Address"]["NodeID"]
            if stats.get("port"):
                found.append(Server(entry["name"], node, int(stats["pid"]), int(stats["port"])))
    return found


def gateways() -> set[int]:
    """Returns the gateways' process ids."""
    found = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"ServeReplica:lowkey:Gateway" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


def kill_server(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)


def linked_model(name: str) -> settings.Model:
    """The demo model under another name."""
    path = os.path.join(tempfile.mkdtemp(), name)
    os.symlink(TALES.path, path)
    return dataclasses.replace(TALES, name=name, path=path, min_replicas=1, max_replicas=1)


@functools.cache
def shared_nodes() -> Nodes:
    """The nodes of all tests, with two replicas of the demo model."""
    nodes = Nodes()
    atexit.register(nodes.stop)
    deploy(TALES)
    return nodes
