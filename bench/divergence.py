"""Measures the KL divergence of predictions by ways to attend from those by exact attention.

python3 bench/divergence.py --model M --try "atp" --try "atp --aim small" TEXT...

Each window of a text is a prompt, behind which its last tokens are given as if the model had
generated them. The divergence is that of the predictions behind those tokens, in nats, and its
standard error is far below that of a ratio of perplexities. Needs numpy and the lowkey binary.
"""

import argparse
import pathlib
import shlex
import subprocess
import sys
import tempfile

import numpy as np

from logits import read_log_probabilities


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--model", required=True)
    parser.add_argument("--lowkey", default="build/lowkey")
    parser.add_argument("--try", dest="tries", action="append", required=True, metavar="FLAGS",
                        help="a mechanism and its options, as lowkey eval takes them")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a window")
    parser.add_argument("--generated", type=int, default=256, help="of them, behind the prompt")
    parser.add_argument("--windows", type=int, default=1, help="of each text")
    args = parser.parse_args()
    if not 0 < args.generated < args.context or args.windows < 1:
        parser.error("expected 0 < generated < context, and at least one window")
    per_text = {attempt: [] for attempt in args.tries}
    with tempfile.TemporaryDirectory() as folder:
        for text in args.texts:
            found = {attempt: [] for attempt in args.tries}
            for ids in windows_of(args, text):
                file = pathlib.Path(folder, "ids")
                file.write_text(" ".join(ids), encoding="ascii")
                exact = log_probabilities(args, file, "standard")
                for attempt in args.tries:
                    say(f"{text}: {attempt}")
                    found[attempt].append(divergence(exact, log_probabilities(args, file, attempt)))
            for attempt in args.tries:
                per_text[attempt].append(np.concatenate(found[attempt]))
    say("")
    width = max(map(len, args.tries))
    names = [pathlib.Path(text).name[:12] for text in args.texts]
    print(" " * width, *(f"{name:>16}" for name in names), f"{'mean':>8}")
    for attempt, texts in per_text.items():
        cells = [f"{x.mean():.4f} +- {x.std() / np.sqrt(len(x)):.4f}" for x in texts]
        mean = np.mean([x.mean() for x in texts])
        print(attempt.ljust(width), *(f"{cell:>16}" for cell in cells), f"{mean:8.4f}")


def windows_of(args, text):
    """Yields the token ids of each window, of which none overlaps another."""
    with open(text, encoding="utf-8") as file:
        tokens = run(args, "tokenize", "--model", args.model, stdin=file).split()
    if len(tokens) < args.context:
        sys.exit(f"{text}: {len(tokens)} tokens, expected at least {args.context}")
    for i in range(min(args.windows, len(tokens) // args.context)):
        yield tokens[i * args.context:(i + 1) * args.context]


def log_probabilities(args, ids, attempt):
    """Returns the log-probabilities [generated, vocabulary] behind the tokens of a window."""
    output = f"{ids}.safetensors"
    run(args, "logits", "--tokens-file", ids, "--output", output, "--model", args.model,
        "--dtype", "auto", "--prompt-tokens", args.context - args.generated,
        "--attention", *shlex.split(attempt))
    return read_log_probabilities(output)


def divergence(exact, other):
    """Returns the KL divergence behind each token."""
    return (np.exp(exact) * (exact - other)).sum(axis=1)


def run(args, *arguments, stdin=subprocess.DEVNULL):
    done = subprocess.run([args.lowkey, *map(str, arguments)], check=False, text=True, stdin=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"lowkey {arguments[0]}: exit code {done.returncode}")
    return done.stdout


def say(text):
    if sys.stderr.isatty():
        print("\r" + text.ljust(60)[:60], end="" if text else "\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
