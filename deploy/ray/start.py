#!/usr/bin/env python3
"""Serves models on Ray: python deploy/ray/start.py (docs/scale.md).

Starts Ray on this machine, or joins the cluster that runs here, and serves until Ctrl-C.
"""

import argparse
import os
import signal
import sys
import threading

from lowkey_ray import environment

environment.prepare()

import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve.config import HTTPOptions, gRPCOptions  # noqa: E402

from lowkey_ray import app, settings  # noqa: E402


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", metavar="FILE", help="the models, as JSON [the demo model]")
    parser.add_argument("--host", default="127.0.0.1", help="HTTP listens here [127.0.0.1]")
    parser.add_argument("--port", type=int, default=8000, help="OpenAI's API [8000]")
    parser.add_argument("--grpc-port", type=int, default=9000,
                        help="lowkey.v1; on all addresses, with HAProxy on --host [9000]")
    parser.add_argument("--gateways", type=int, default=1, help="one for each machine [1]")
    parser.add_argument("--insecure", action="store_true",
                        help="serve other machines without --tokens among a model's flags")
    parser.add_argument("--leave", action="store_true", help="end at once and leave it running")
    return parser.parse_args(arguments)


def is_loopback(host: str) -> bool:
    return host in ("127.0.0.1", "localhost", "::1")


def check_host(host: str, *, is_open: bool) -> None:
    """Ends the program where strangers could call without a token."""
    if not is_open and not is_loopback(host):
        sys.exit(f"--host {host}: other machines could call without a token; expected --tokens FILE "
                 "among the flags of every model, or --insecure")


def check_reach(host: str) -> None:
    """Ends the program where the HAProxy of one machine cannot reach the gateways of another."""
    n_machines = sum(node["Alive"] for node in ray.nodes())
    if os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1" and n_machines > 1 and is_loopback(host):
        sys.exit(f"--host {host}: HAProxy must reach the gateways of other machines, which listen "
                 "there; expected 0.0.0.0")


def main() -> None:
    flags = parse(sys.argv[1:])
    try:
        models = settings.read_file(flags.config) if flags.config else [settings.demo()]
    except (OSError, ValueError) as error:
        sys.exit(f"--config {flags.config}: {error}")
    is_open = flags.insecure or all("--tokens" in model.flags for model in models)
    check_host(flags.host, is_open=is_open)
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    serve.start(http_options=HTTPOptions(host=flags.host, port=flags.port),
                grpc_options=gRPCOptions(
                    port=flags.grpc_port,
                    grpc_servicer_functions=["lowkey_ray.services:add_lowkey"]))
    # Where Serve ran before, its first host is in force.
    host = serve.context._get_global_client().http_config.host
    check_host(host, is_open=is_open)
    check_reach(host)
    serve.run(app.build(models, flags.gateways, is_open=is_open), name="lowkey", route_prefix="/")
    print(f"OpenAI's API on http://{flags.host}:{flags.port}/v1, lowkey.v1 on port {flags.grpc_port}",
          flush=True)
    if flags.leave:
        return
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    serve.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
