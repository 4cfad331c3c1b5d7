#!/usr/bin/env python3
"""Tokens a second of replicas behind Ray and of the same replicas called directly.

    python3 -m venv build/ray/venv && build/ray/venv/bin/pip install -r deploy/ray/requirements.txt
    build/bench/random_110m DIRECTORY && cp models/tales/tokenizer* DIRECTORY
    build/ray/venv/bin/python bench/ray_against_direct.py --model DIRECTORY [--replicas 1,2,4] \
        [--stream-interval 8]

Starts two Ray nodes in this machine; RAY_SERVER in the environment names another program than
build/lowkey. Four clients a replica stream over HTTP, each one request after another; the direct ones
take the replicas in turns. Both ways are measured in turns, and the median of their runs is printed.
Then one request at a time is sent, either way in turns, for the time to the first token, and with
--overload ten times as many clients as the queues hold, for what refusals look like and how long
they take.
"""

import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Generator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "ray"))
import clients  # noqa: E402
import cluster  # noqa: E402
from lowkey_ray import settings  # noqa: E402

CLIENTS_A_REPLICA = 4
WARM_UP_S = 2.0
TEXT = "the quick brown fox jumps over the lazy dog " * 3


class Failed(Exception):
    """A stream that was refused or broke off."""


def stream(port: int, model: str, n_tokens: int, seed: int) -> Generator[int, None, None]:
    """Yields how many tokens each event brings.

    Prompts are shorter than a page, so that no cache holds them and no replica is theirs.
    """
    n = 0
    body = {**clients.completion(f"{seed} {TEXT}", n_tokens, seed, model),
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    try:
        with clients.Events(port, body) as events:
            if events.status != 200:
                raise Failed(str(events.status))
            for data in events:
                if data == "[DONE]":
                    return
                content = json.loads(data)
                if "error" in content:
                    raise Failed(content["error"]["code"])
                before, n = n, content["usage"]["completion_tokens"]
                if n > before:
                    yield n - before
    except (OSError, http.client.HTTPException, LookupError, TypeError, ValueError) as error:
        raise Failed(type(error).__name__) from error
    raise Failed("broken off")


def rate(port_of: Callable[[int], int], model: str, n_clients: int, seconds: float) -> float:
    """Returns the tokens a second of so many clients, each on the port that it is given. One that is
    refused asks again.

    The tokens of a window of time are counted, while all clients are busy: requests that began
    before or end after it count by the tokens that arrived within.
    """
    begin = time.monotonic() + WARM_UP_S
    end = begin + seconds
    counts = [0] * n_clients
    failed: list[str] = []

    def run(client: int) -> None:
        seed = client
        while time.monotonic() < end:
            try:
                for n in stream(port_of(client), model, 64, seed):
                    now = time.monotonic()
                    if now >= end:
                        return
                    counts[client] += n if now >= begin else 0
            except Failed as error:
                if str(error) != "429":
                    failed.append(str(error))
                    return
            seed += n_clients

    threads = [threading.Thread(target=run, args=(client,)) for client in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"streams ended with {', '.join(failed)}")
    return sum(counts) / seconds


def first_token_s(port: int, model: str, n_tokens: int, seed: int) -> float:
    """Returns the seconds to the first token of a stream, which is read to its end."""
    began = time.monotonic()
    return [time.monotonic() - began for _ in stream(port, model, n_tokens, seed)][0]


def first_token_ms(ways: dict[str, Callable[[int], int]], model: str) -> list[float]:
    """Returns the median of each way, which are taken in turns: a machine's speed drifts."""
    took: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(100):
        for number, (way, port_of) in enumerate(ways.items()):
            took[way].append(first_token_s(port_of(seed), model, 2, len(ways) * seed + number))
    return [1000 * statistics.median(took[way]) for way in ways]


def overload(model: str, n_replicas: int) -> None:
    """Ten times as many clients as the replicas' queues hold."""
    outcomes: dict[str, list[float]] = collections.defaultdict(list)
    lock = threading.Lock()

    def run(client: int) -> None:
        for attempt in range(3):
            began = time.monotonic()
            try:
                outcome = "answered"
                seconds = first_token_s(cluster.HTTP_PORT, model, 16, client + attempt)
            except Failed as error:
                outcome, seconds = str(error), time.monotonic() - began
            with lock:
                outcomes[outcome].append(1000 * seconds)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(80 * n_replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome, ms in sorted(outcomes.items()):
        ms.sort()
        what = "to the first token" if outcome == "answered" else "to the refusal"
        print(f"  overload: {outcome:9} {len(ms):5} p50 {ms[len(ms) // 2]:8.1f} ms "
              f"p99 {ms[int(0.99 * (len(ms) - 1))]:8.1f} ms {what}")


def measure(model: settings.Model, n_replicas: int, args: argparse.Namespace) -> None:
    cluster.deploy(model)
    clients.wait_for(lambda: len(cluster.servers(model.name)) == n_replicas, "the replicas")
    ports = [server.port for server in cluster.servers(model.name)]
    n_clients = CLIENTS_A_REPLICA * n_replicas
    ways: dict[str, Callable[[int], int]] = {
        "direct": lambda client: ports[client % len(ports)],
        "through Ray": lambda _: cluster.HTTP_PORT}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for run in range(args.runs + 1):  # the first one warms caches
        for way, port_of in ways.items():
            found = rate(port_of, model.name, n_clients, args.seconds)
            if run > 0:
                rates[way].append(found)
    direct, through = (statistics.median(rates[way]) for way in ways)
    print(f"{n_replicas} replicas, {n_clients} clients: direct {direct:.1f} tokens/s, through Ray "
          f"{through:.1f}, {through / direct:.1%}")
    own, over = first_token_ms(ways, model.name)
    print(f"  first token of one request, p50: direct {own:.1f} ms, through Ray {over:.1f} ms")
    if args.overload:
        overload(model.name, n_replicas)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder or a GGUF file")
    parser.add_argument("--replicas", default="1,2,4", help="numbers of replicas")
    parser.add_argument("--runs", type=int, default=3, help="of each way")
    parser.add_argument("--seconds", type=float, default=20, help="of each run")
    parser.add_argument("--stream-interval", type=int, default=1, help="as `lowkey serve` takes it")
    parser.add_argument("--overload", action="store_true", help="ask for ten times the load too")
    args = parser.parse_args()
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(cluster.Nodes().stop)
        for n in map(int, args.replicas.split(",")):
            measure(settings.Model(
                name=pathlib.Path(args.model).name, path=str(pathlib.Path(args.model).resolve()),
                min_replicas=n, max_replicas=n, binary=cluster.TALES.binary,
                flags=("--profile", "none", "--max-running", "4", "--max-queued", "4",
                       "--stream-interval", str(args.stream_interval))), n, args)


if __name__ == "__main__":
    main()
