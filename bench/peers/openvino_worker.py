#!/usr/bin/env python3
"""Measures OpenVINO GenAI: prints each figure as a line of JSON, as engine_bench --figures does.

    python3 bench/peers/openvino_worker.py MODEL --threads 2 --figures depth:512,streams:16

MODEL is a folder of openvino_model.xml and openvino_tokenizer.xml. Needs the package
openvino-genai. Requests go through its continuous batching (paged attention) without reuse of
prefixes; everything else is its default. ready comes first by itself: milliseconds until the
pipeline stood, without the imports, and the resident memory then.
"""
import argparse
import json
import sys
import time

import numpy
import openvino
import openvino_genai

N_SERVED_IN, N_SERVED_OUT = 128, 64


def resident_mib():
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {"rss_mib": int(lines["VmRSS"].split()[0]) / 1024,
            "peak_rss_mib": int(lines["VmHWM"].split()[0]) / 1024}


class Runner:
    def __init__(self, args):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.cache_size = args.cache_gib
        scheduler.max_num_batched_tokens = args.batch_tokens
        properties = {"INFERENCE_NUM_THREADS": args.threads}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            args.model, scheduler, "CPU", properties)
        self.vocab, self.n_requests = args.vocab, 0

    def start(self, n_in, n_out):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = n_out
        config.ignore_eos, config.do_sample = True, False
        i = self.n_requests
        self.n_requests += 1
        ids = (numpy.arange(n_in, dtype=numpy.int64) * 7919 + i * 104729 + 3) % self.vocab
        return self.pipeline.add_request(i, openvino.Tensor(ids[None, :]), config)

    def run(self, n, n_in, n_out):
        """Runs n requests together: seconds to the last first token, and from there to the end."""
        handles = [self.start(n_in, n_out) for _ in range(n)]
        begin, first = time.monotonic(), None
        waiting = list(handles)
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            waiting = [handle for handle in waiting if not handle.can_read()]
            if first is None and not waiting:
                first = time.monotonic()
        return first - begin, time.monotonic() - first

    def clients(self, n, n_requests):
        """Runs n clients, each with one request after another; output tokens per second."""
        begin, left = time.monotonic(), n_requests - n
        running = [self.start(N_SERVED_IN, N_SERVED_OUT) for _ in range(n)]
        finished = openvino_genai.GenerationStatus.FINISHED
        while running:
            self.pipeline.step()
            still = [handle for handle in running if handle.get_status() != finished]
            n_new = min(left, len(running) - len(still))
            running = still + [self.start(N_SERVED_IN, N_SERVED_OUT) for _ in range(n_new)]
            left -= n_new
        return n_requests * N_SERVED_OUT / (time.monotonic() - begin)


def measure(runner, name, args):
    kind, _, number = name.partition(":")
    n = int(number)
    if kind == "depth":
        prefill, decode = runner.run(1, n, args.decode_tokens)
        return {"prefill_tokens_per_s": n / prefill,
                "decode_tokens_per_s": (args.decode_tokens - 1) / decode}
    if kind == "streams":
        _, decode = runner.run(n, 16, args.decode_tokens)
        return {"decode_tokens_per_s": n * (args.decode_tokens - 1) / decode}
    if kind == "served":
        return {"output_tokens_per_s": runner.clients(n, n * args.rounds)}
    sys.exit(f"--figures: {name}, expected depth:N, streams:N or served:N")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--figures", default="")
    parser.add_argument("--decode-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6, help="requests of each client of served:N")
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--batch-tokens", type=int, default=512, help="in a step [%(default)s]")
    parser.add_argument("--cache-gib", type=int, default=2)
    args = parser.parse_args()
    begin = time.monotonic()
    runner = Runner(args)
    print(json.dumps({"figure": "ready", "ready_ms": 1e3 * (time.monotonic() - begin),
                      **resident_mib()}), flush=True)
    runner.run(1, 16, 4)
    for name in filter(None, args.figures.split(",")):
        print(json.dumps({"figure": name, **measure(runner, name, args)}), flush=True)
    print(json.dumps({"figure": "end", **resident_mib()}), flush=True)


if __name__ == "__main__":
    main()
