#!/usr/bin/env python3
"""Compares lowkey with llama.cpp and OpenVINO GenAI on one machine, in turns.

    ninja -C build lowkey engine_bench
    python3 bench/against_peers.py --llama DIR --model smollm2=MODELS --output smollm2.json

MODELS holds the same model as each program loads it: bf16.gguf, f16.gguf, q8_0.gguf, q4_0.gguf,
q4_k_m.gguf, openvino_f16, openvino_int8, openvino_int4 (bench/peers/prepare.py writes them). DIR
holds llama-batched-bench, llama-server, llama-quantize and llama-perplexity. OpenVINO is measured
where --python has the package openvino-genai. Whatever is missing is named and left out.

Each sample is one run of one program. For a measure all contenders run once, then again, --turns
times. Every sample is in --output at once; the same command goes on where it was stopped, and
prints the tables. --list prints what would be measured and how long that takes.
"""
import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time

from peers import contenders, quality, results, tables

MEASURES = "start,depth:128,depth:512,depth:2048,depth:4096,depth:8192,streams:1,streams:4," \
           "streams:16,streams:64,served:16"


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="lowkey's build folder [%(default)s]")
    parser.add_argument("--llama", default="", metavar="DIR", help="folder of llama.cpp's programs")
    parser.add_argument("--python", default=sys.executable, metavar="FILE",
                        help="an interpreter with openvino-genai [this one]")
    parser.add_argument("--model", action="append", required=True, metavar="NAME=DIR",
                        help="a folder of model files; may be given again")
    parser.add_argument("--output", default="against_peers.json", metavar="FILE",
                        help="samples, written and read again [%(default)s]")
    parser.add_argument("--turns", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--threads", default=default_threads(), metavar="N,...",
                        help="[%(default)s]")
    parser.add_argument("--measures", default=MEASURES, metavar="M,...", help="[%(default)s]")
    parser.add_argument("--only", default="", metavar="PATTERN,...",
                        help="of the measures and contenders those that match: 'depth:*', "
                             "'served:*', '*int8', 'llama.cpp*', '*bf16'")
    parser.add_argument("--rounds", type=int, default=6,
                        help="requests of each client of served:N [%(default)s]")
    parser.add_argument("--decode-tokens", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--list", action="store_true", help="print what would be done and stop")
    parser.add_argument("--tables", action="store_true", help="print --output's tables and stop")
    parser.add_argument("--quality", metavar="TEXT",
                        help="compare perplexity and KL divergence on this text instead")
    parser.add_argument("--windows", type=int, default=20, help="of --quality [%(default)s]")
    args = parser.parse_args(argv)
    if args.turns < 1:
        parser.error(f"--turns: {args.turns}, expected 1 or more")
    try:
        args.threads = [int(n) for n in args.threads.split(",")]
    except ValueError:
        parser.error(f"--threads: {args.threads}, expected numbers separated by commas")
    args.models = {}
    for text in args.model:
        name, _, folder = text.partition("=")
        if not os.path.isdir(folder):
            parser.error(f"--model: {text}, expected NAME=DIR with a folder")
        args.models[name] = folder
    return args


def default_threads():
    return ",".join(str(n) for n in sorted({1, os.cpu_count() or 1}))


def chosen(names, patterns):
    """Returns the names that match a pattern; all where no pattern is about them."""
    patterns = [p for p in patterns.split(",") if p]
    matching = [n for n in names if any(fnmatch.fnmatch(n.lower(), p.lower()) for p in patterns)]
    return matching or list(names)


def check_only(args, names):
    for pattern in filter(None, args.only.split(",")):
        if not any(fnmatch.fnmatch(name.lower(), pattern.lower()) for name in names):
            sys.exit(f"--only: {pattern}, expected a pattern of one of: {', '.join(names)}")


def has_openvino(python):
    try:
        return subprocess.run([python, "-c", "import openvino_genai"], check=False,
                              capture_output=True).returncode == 0
    except OSError:
        return False


def able(args, tools, folder):
    """Returns the contenders that can run, and names the others."""
    everyone = contenders.contenders(tools, folder)
    names = chosen([c.name for c in everyone], args.only)
    openvino, found, left_out = has_openvino(args.python), [], {}
    for contender in everyone:
        if contender.name not in names:
            continue
        missing = contender.missing()
        if contender.program == "OpenVINO" and not openvino:
            missing = f"package openvino-genai in {args.python}"
        if missing:
            left_out.setdefault(missing, []).append(contender.name)
        else:
            found.append(contender)
    for missing, missed in left_out.items():
        print(f"left out: {', '.join(missed)}: there is no {missing}", file=sys.stderr)
    return found


def context_of(tools, contender):
    """Returns the most tokens of a sequence, as lowkey reads them from the model."""
    text = contenders.output(tools, [f"{tools.build}/lowkey", "inspect", "--model", contender.path,
                                     "--json"])
    return json.loads(text)["context_tokens"]


def fit(measure, context, decode_tokens):
    """Shortens a prompt so that the tokens behind it fit."""
    kind, _, n = measure.partition(":")
    return f"{kind}:{min(int(n), context - decode_tokens)}" if kind == "depth" else measure


class Comparison:
    def __init__(self, args):
        self.args = args
        self.tools = contenders.Tools(args.build, args.llama, args.python, args.rounds,
                                      args.decode_tokens)
        self.results = results.Results(args.output, {
            "rounds": args.rounds, "decode_tokens": args.decode_tokens})
        self.contenders, self.measures = {}, {}
        everything = args.measures.split(",")
        for name, folder in args.models.items():
            check_only(args, everything
                       + [c.name for c in contenders.contenders(self.tools, folder)])
            found = able(args, self.tools, folder)
            if not found:
                sys.exit(f"--model: {name}, nothing to run")
            ours = next((c for c in found if c.program == "lowkey"), None)
            context = context_of(self.tools, ours) if ours else 8192
            self.contenders[name] = found
            self.measures[name] = [fit(m, context, args.decode_tokens)
                                   for m in chosen(everything, args.only)]

    def tasks(self):
        return [results.Task(model, threads, measure, turn, contender.name)
                for model, found in self.contenders.items()
                for threads in self.args.threads
                for measure in self.measures[model]
                for turn in range(1, self.args.turns + 1)
                for contender in found]

    def expected_seconds(self, task):
        known = self.results.expected_seconds(task)
        if known is not None:
            return known
        n_bytes = max((c.path.stat().st_size * 16 / c.bits
                       for c in self.contenders[task.model] if c.path.is_file()), default=270e6)
        return results.rough_seconds(task, n_bytes, self.args.rounds)

    def describe_machine(self):
        """Measures and says what the machine computes with."""
        found = [c for group in self.contenders.values() for c in group if c.program == "lowkey"]
        for threads in self.args.threads:
            if found:
                figures = found[0].machine(threads)
                self.results.add_machine(threads, figures)
                print(machine_text({"threads": threads, **figures}))
        print(flush=True)

    def run(self):
        tasks = [task for task in self.tasks() if not self.results.has(task)]
        progress = results.Progress({task: self.expected_seconds(task) for task in tasks})
        failed = set()
        by_name = {(model, c.name): c for model, found in self.contenders.items() for c in found}
        try:
            for task in tasks:
                if (task.model, task.threads, task.measure, task.contender) not in failed:
                    progress.show(task)
                    begin = time.monotonic()
                    try:
                        figures = by_name[task.model, task.contender].measure(task.measure,
                                                                              task.threads)
                        self.results.add(task, time.monotonic() - begin, figures)
                    except (contenders.Failed, OSError, KeyError, ValueError) as error:
                        failed.add((task.model, task.threads, task.measure, task.contender))
                        progress.fail(task, f"{type(error).__name__}: {error}"
                                      if isinstance(error, (KeyError, ValueError)) else error)
                progress.finish(task)
        finally:
            progress.close()

    def print_list(self):
        tasks = [task for task in self.tasks() if not self.results.has(task)]
        total = 0.0
        for model, threads, measure in dict.fromkeys((t.model, t.threads, t.measure) for t in tasks):
            seconds = sum(self.expected_seconds(t) for t in tasks
                          if (t.model, t.threads, t.measure) == (model, threads, measure))
            total += seconds
            print(f"{model:<14} {results.threads_text(threads):<10} {measure:<12} "
                  f"{results.minutes_text(seconds):>8}")
        print(f"{len(tasks)} samples, about {results.minutes_text(total)}")

    def print_tables(self):
        style = tables.Style()
        for model, found in self.contenders.items():
            for threads in self.args.threads:
                tables.print_tables(self.results, style, model, threads, self.measures[model],
                                    found)
        notes(self.results)


def machine_text(figures):
    return (f"{figures['isa']}, {results.threads_text(figures['threads'])}: "
            f"{figures['fma_gflops']:,.0f} GFLOP/s of fp32 multiply-adds, "
            f"{figures['read_gb_per_s']:.1f} GB/s read")


def notes(found):
    stand_ins = sorted({s["contender"] for s in found.samples if s["figures"].get("stand_in")})
    if stand_ins:
        print(f"clients without a network: {', '.join(stand_ins)}")


def main(argv=None):
    args = parse(argv)
    try:
        comparison = Comparison(args)
        if args.quality:
            quality.run(comparison, args.quality, args.windows)
            return
        if args.list:
            comparison.print_list()
            return
        if args.tables:
            for figures in comparison.results.data["machine"][-len(args.threads):]:
                print(machine_text(figures))
            print()
        else:
            comparison.describe_machine()
            comparison.run()
        comparison.print_tables()
    except (contenders.Failed, ValueError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(f"\nstopped; the same command goes on, --tables prints what is in {args.output}")


if __name__ == "__main__":
    main()
