#!/usr/bin/env python3
"""Compares the engine with llama.cpp in turns on one machine: prefill, one stream and many.

    ninja -C build engine_bench
    python3 bench/against_llama_cpp.py --llama DIR --model models/smollm2 \\
        --gguf BF16=model-bf16.gguf --gguf Q8_0=model-q8_0.gguf

DIR holds llama-bench and llama-batched-bench (the source package of llama-cpp-python carries
llama.cpp whole, under vendor/). Both sides run on as many threads: a prompt of 512 tokens, then
64 tokens after a prompt of 16 for one sequence and for 16 together. It prints the medians and the
range of the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

FIGURES = ("prefill 512", "one stream", "16 together")


def output(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL).stdout


def engine(args, dtype):
    command = [f"{args.build}/bench/engine_bench", "--model", args.model, "--dtype", dtype,
               "--threads", str(args.threads), "--runs", "3"]
    rates = {}
    for line in output(command).splitlines():
        for name, key in zip(("prefill 512 ", "decode ", "decode, 16 together "), FIGURES):
            if line.startswith(name):
                rates[key] = float(line[len(name):].split()[0])
    return [rates[key] for key in FIGURES]


def llama(args, gguf):
    tools = pathlib.Path(args.llama)
    common = ["-m", gguf, "-t", str(args.threads)]
    prefill = json.loads(output([tools / "llama-bench", *common, "-p", "512", "-n", "0", "-r", "3",
                                 "-o", "json"]))[0]["avg_ts"]
    lines = output([tools / "llama-batched-bench", *common, "-c", "4096", "-npp", "16", "-ntg", "64",
                    "-npl", "1,16", "--output-format", "jsonl"]).splitlines()
    decode = {run["pl"]: run["speed_tg"] for run in map(json.loads, filter(is_json, lines))}
    return [prefill, decode[1], decode[16]]


def is_json(line):
    return line.startswith("{")


def show(name, rounds):
    cells = [f"{statistics.median(r):.0f} ({min(r):.0f}-{max(r):.0f})" for r in zip(*rounds)]
    print(f"| {name:<22} | " + " | ".join(f"{cell:>16}" for cell in cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--llama", required=True, help="folder of llama.cpp's programs")
    parser.add_argument("--model", required=True, help="what the engine loads")
    parser.add_argument("--gguf", action="append", required=True, metavar="NAME=FILE",
                        help="the same model as llama.cpp loads it; may be given again")
    parser.add_argument("--dtype", action="append", help="of the engine; bfloat16 and int8")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    sides = {}
    for dtype in args.dtype or ("bfloat16", "int8"):
        sides[f"lowkey {dtype}"] = lambda dtype=dtype: engine(args, dtype)
    for gguf in args.gguf:
        name, _, path = gguf.partition("=")
        sides[f"llama.cpp {name}"] = lambda path=path: llama(args, path)
    rounds = {name: [] for name in sides}
    for i in range(args.rounds):
        for name, measure in sides.items():
            print(f"\rround {i + 1} of {args.rounds}: {name:<30}", end="", file=sys.stderr)
            rounds[name].append(measure())
    print("\r" + " " * 50 + "\r", end="", file=sys.stderr)
    print(f"| {'tokens/s':<22} | " + " | ".join(f"{name:>16}" for name in FIGURES) + " |")
    print("|---" * (1 + len(FIGURES)) + "|")
    for name, values in rounds.items():
        show(name, values)


if __name__ == "__main__":
    main()
