#!/usr/bin/env python3
"""What Ray's proxies cost: the same load on servers called directly and through deploy/ray.

    build/ray/venv/bin/python bench/ray_serving.py [--model DIR] [--replicas 2] [--build build]

Starts so many single-thread servers, loads all of them at a time with `lowkey bench`, and ends them;
then starts Ray with as many replicas and puts the same load on its gRPC proxy. Prints tokens per
second of all, and the time to the first token of single requests on idle replicas. Needs a machine
of its own: Ray, its proxies and the bench take cores as well.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
START = ROOT / "deploy" / "ray" / "start.py"


def serve(args: argparse.Namespace) -> tuple[subprocess.Popen, int]:
    server = subprocess.Popen(
        [f"{args.build}/lowkey", "serve", "--json", "--profile", "none", "--threads", "1", "--port",
         "0", "--model", args.model], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return server, json.loads(server.stdout.readline())["port"]


def bench(args: argparse.Namespace, port: int, concurrency: int, requests: int) -> subprocess.Popen:
    return subprocess.Popen(
        [f"{args.build}/lowkey", "bench", "--server", f"127.0.0.1:{port}", "--json",
         "--input-tokens", "64", "--output-tokens", "64", "--concurrency", str(concurrency),
         "--requests", str(requests), "--warmup", "1"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)


def result(process: subprocess.Popen) -> dict:
    out, _ = process.communicate()
    if process.returncode:
        sys.exit("lowkey bench failed")
    return json.loads(out)["points"][0]


def measure(args: argparse.Namespace, ports: list[int], name: str) -> None:
    idle = result(bench(args, ports[0], 1, 20))
    share = args.concurrency * args.replicas // len(ports)
    loaded = [result(process) for process in
              [bench(args, port, share, 8 * share) for port in ports]]
    rate = sum(one["output_tokens_per_s"] for one in loaded)
    ok = sum(one["ok"] for one in loaded)
    print(f"{name:<24} {rate:>8.0f} tokens/s, {ok} requests served; idle: first token after "
          f"{idle['ttft_ms']['p50']:.1f} ms (p50)", flush=True)


def end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", default=str(ROOT / "models" / "tales"))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8, help="requests at a time per replica")
    args = parser.parse_args()
    args.model = os.path.abspath(args.model)
    for count in sorted({1, args.replicas}):
        servers = [serve(args) for _ in range(count)]
        measure(argparse.Namespace(**{**vars(args), "replicas": count}), [port for _, port in servers],
                f"{count} called directly")
        end([process for process, _ in servers])
    model = {"name": pathlib.Path(args.model).name, "path": args.model, "min_replicas": args.replicas,
             "max_replicas": args.replicas, "binary": os.path.abspath(f"{args.build}/lowkey"),
             "flags": ["--profile", "none"]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"models": [model]}, config)
        config.flush()
        ray = subprocess.Popen([sys.executable, str(START), "--config", config.name, "--port", "18000",
                                "--grpc-port", "19000"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
        if not any(line.startswith("OpenAI's API") for line in iter(ray.stdout.readline, "")):
            sys.exit("Ray did not start")
        measure(args, [19000], f"{args.replicas} through Ray")
        end([ray])


if __name__ == "__main__":
    main()
