#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention of one layer, to compare with `lowkey crossover`.

    bench/sdpa_bench.py [--heads 32] [--kv-heads 4] [--head-dim 64] [--lengths 1024,4096]

Prints one line of JSON for each length: milliseconds of a causal prefill and of one token that sees it, in
bf16 on the first GPU, the median of several runs.
"""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F


def milliseconds(run, runs):
    """The median of `runs` timed calls after a warm-up."""
    times = []
    for i in range(runs + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--lengths", default="1024,2048,4096,8192,16384")
    parser.add_argument("--runs", type=int, default=9)
    flags = parser.parse_args()
    for n in map(int, flags.lengths.split(",")):
        def rows(heads, tokens):
            return torch.randn(1, heads, tokens, flags.head_dim, device="cuda", dtype=torch.bfloat16)

        q, k, v = rows(flags.heads, n), rows(flags.kv_heads, n), rows(flags.kv_heads, n)
        one = rows(flags.heads, 1)
        grouped = flags.heads != flags.kv_heads
        prefill = milliseconds(lambda: F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=grouped), flags.runs)
        decode = milliseconds(lambda: F.scaled_dot_product_attention(
            one, k, v, enable_gqa=grouped), flags.runs)
        print(json.dumps({"figure": "sdpa", "tokens": n, "prefill_ms": round(prefill, 4),
                          "decode_ms": round(decode, 4), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
