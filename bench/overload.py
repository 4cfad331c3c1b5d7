#!/usr/bin/env python3
"""Loads a server to ten times its capacity: prints what it serves, what it refuses and how soon.

    python3 bench/overload.py [--build build] [--seconds 60] [--factor 10] [--deadline 20]

Needs build/lowkey and build/bench/random_110m. One run measures, on the random 110M model, the best
closed loop, an overload by an open loop whose requests have a deadline, and one request afterwards.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


def come_first():
    """Lets this process run whenever it wants to, as on a machine of its own."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def may_come_first():
    try:
        subprocess.run(["true"], check=True, preexec_fn=come_first)
    except subprocess.SubprocessError:
        return False
    return True


def bench(args, address, *flags):
    command = [f"{args.build}/lowkey", "bench", "--server", address, "--input-tokens", "128",
               "--output-tokens", "64", "--json", *flags]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         preexec_fn=come_first if args.client_first else None)
    return json.loads(out.stdout)["points"][0]


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def row(name, value, goal=""):
    print(f"{name:<46} {value:<34} {goal}", flush=True)


def measure(args, server, address):
    full = bench(args, address, "--concurrency", "16", "--requests", "64")
    capacity = full["output_tokens_per_s"]
    row("capacity, 16 clients", f"{capacity:.0f} tokens/s")
    row("time between tokens then, p99", f"{full['itl_ms']['p99']:.0f} ms")
    before = resident_mib(server.pid)
    rate = args.factor * full["requests_per_s"]
    over = bench(args, address, "--rate", f"{rate:.2f}", "--duration", f"{args.seconds}s",
                 "--requests", str(int(2 * rate * args.seconds)), "--warmup", "0",
                 "--timeout", f"{args.deadline}s")
    after = resident_mib(server.pid)
    start = time.monotonic()
    lone = bench(args, address, "--concurrency", "1", "--requests", "1", "--warmup", "0")
    row("then", f"{rate:.1f} requests/s, deadline {args.deadline} s", f"{args.seconds} s")
    good = over["output_tokens_per_s"]
    row("tokens/s of requests that met it", f"{good:.0f}: {100 * good / capacity:.0f}%", "90%")
    row("requests: all, served", f"{over['requests']}, {over['ok']}")
    row("  others, by code", ", ".join(f"{k} {n}" for k, n in over["errors"].items()))
    row("refusal, p50 and p99", f"{over['refusal_ms']['p50']:.1f}, {over['refusal_ms']['p99']:.1f} ms",
        "5 ms")
    row("time between tokens, p99", f"{over['itl_ms']['p99']:.0f} ms: "
        f"{over['itl_ms']['p99'] / full['itl_ms']['p99']:.2f} times", "1.5 times")
    row("end to end of those served, p50 and max",
        f"{over['e2e_ms']['p50'] / 1e3:.1f}, {over['e2e_ms']['max'] / 1e3:.1f} s")
    row("server's memory before and after", f"{before:.0f}, {after:.0f} MiB", "flat")
    row("a lone request afterwards", f"{lone['e2e_ms']['mean'] / 1e3:.2f} s, "
        f"{time.monotonic() - start:.1f} s after the last", "5 s")
    order = "before the server's threads" if args.client_first else "beside the server's threads"
    row("generator", f"{over['generator']['cpu_cores']:.2f} cores, {order}; "
        + ("; ".join(over["notes"]) or "not the bottleneck"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--deadline", type=int, default=20)
    parser.add_argument("--serve", default="--max-running 16 --prefix-cache off",
                        help="flags of the server [%(default)s]")
    args = parser.parse_args()
    args.client_first = may_come_first()
    root = pathlib.Path(__file__).resolve().parent.parent
    os.chdir(root)
    with tempfile.TemporaryDirectory() as model:
        subprocess.run([f"{args.build}/bench/random_110m", model], check=True,
                       stdout=subprocess.DEVNULL)
        for name in root.glob("models/tales/tokenizer*"):
            shutil.copy(name, model)
        server = subprocess.Popen([f"{args.build}/lowkey", "serve", "--model", model, "--port", "0",
                                   "--json", *args.serve.split()], stdout=subprocess.PIPE)
        try:
            ready = json.loads(server.stdout.readline())
            measure(args, server, ready["address"])
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
