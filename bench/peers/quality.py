"""Perplexity, and KL divergence from fp32, of every format of lowkey and llama.cpp.

Perplexity: windows of 512 tokens, one every 256, each scored on its last 256 (`lowkey eval
perplexity` and `llama-perplexity --ppl-stride` cut and score the same tokens).

KL divergence: windows of 512 tokens side by side, each scored on its second half; the reference is
llama.cpp on f32.gguf with a cache in fp32. llama-perplexity computes it for llama.cpp's formats.
For lowkey's, `lowkey logits` gives the logits of the same tokens, and the sum is llama.cpp's: over
tokens whose logarithm of probability in the reference, kept in 16 bits, is above -16.

Where a tokenizer puts a token at the beginning, lowkey puts it before every window, and
llama-perplexity does so for KL divergence but with --ppl-stride only at the beginning of the text:
their perplexities then differ by more than the arithmetic.
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from peers import contenders, tables

CONTEXT, STRIDE = 512, 256


def run(comparison, text, windows):
    try:
        import numpy  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        raise ValueError("--quality: expected Python with numpy") from None
    threads = max(comparison.args.threads)
    for model, found in comparison.contenders.items():
        folder = pathlib.Path(comparison.args.models[model])
        reference = folder / "f32.gguf"
        if not reference.exists():
            print(f"left out: {model}, there is no {reference}", file=sys.stderr)
            continue
        compared = [c for c in found if c.program in ("lowkey", "llama.cpp")]
        wide = contenders.Lowkey(comparison.tools, folder, "fp32", 16, "f32.gguf", "float32")
        if any(c.program == "lowkey" for c in compared):
            compared.insert(0, wide)
        measure_model(comparison, model, compared, reference, text, windows, threads)
        print_table(comparison.results, model, compared, pathlib.Path(text).name, windows)


def measure_model(comparison, model, compared, reference, text, windows, threads):
    results, tools = comparison.results, comparison.tools
    name = pathlib.Path(text).name
    waiting = [c for c in compared
               if row_of(results, model, c.name, name, windows) is None]
    if not waiting:
        return
    with tempfile.TemporaryDirectory(prefix="against_peers_") as scratch:
        base = pathlib.Path(scratch) / "reference.kld"
        say(f"{model}: the reference")
        llama_perplexity(tools, ["-m", reference, "-f", text, "-c", CONTEXT, "-b", CONTEXT,
                                 "-t", threads, "-ctk", "f32", "-ctv", "f32", "--chunks", windows,
                                 "--kl-divergence-base", base])
        for i, contender in enumerate(waiting):
            say(f"{model}: {contender.name}, {i + 1} of {len(waiting)}")
            measure = lowkey if contender.program == "lowkey" else llama
            row = measure(contender, base, text, windows, threads)
            results.data["quality"].append({"model": model, "contender": contender.name,
                                            "text": name, "windows": windows, **row})
            results.save()
    say("")


def say(text):
    if sys.stderr.isatty():
        print("\r" + text.ljust(60), end="" if text else "\r", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def row_of(results, model, contender, text, windows):
    wanted = (model, contender, text, windows)
    return next((r for r in results.data["quality"]
                 if (r["model"], r["contender"], r["text"], r["windows"]) == wanted), None)


def llama_perplexity(tools, flags):
    command = [f"{tools.llama}/llama-perplexity", *map(str, flags)]
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=tools.limit_s, errors="replace")
    except OSError as error:
        raise contenders.Failed(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise contenders.Failed(f"llama-perplexity: exit code {done.returncode}: "
                                + (done.stdout.strip() or "no message").splitlines()[-1])
    return done.stdout


def number_after(pattern, text):
    match = re.search(pattern + r"\s*:\s*([0-9.]+(?:e-?\d+)?)", text)
    if not match:
        raise contenders.Failed(f"llama-perplexity: no line with {pattern}")
    return float(match[1])


def llama(contender, base, text, windows, threads):
    common = ["-m", contender.path, "-t", threads]
    said = llama_perplexity(contender.tools, [*common, "-c", CONTEXT, "-b", CONTEXT,
                                              "--kl-divergence", "--kl-divergence-base", base])
    # The program adds half of the stride to the context.
    inner = CONTEXT - STRIDE // 2
    strided = llama_perplexity(contender.tools, [*common, "-f", text, "-c", inner, "-b", inner,
                                                 "--ppl-stride", STRIDE, "--chunks", windows])
    cumulative = re.findall(r"\[(\d+)\]([0-9.]+),", strided)
    if not cumulative:
        raise contenders.Failed("llama-perplexity: no perplexity; is the text long enough?")
    return {"perplexity": float(cumulative[-1][1]), "scored_windows": int(cumulative[-1][0]),
            "kl": number_after("Mean +KLD", said),
            "same_best_percent": number_after("Same top p", said)}


def lowkey(contender, base, text, windows, threads):
    program = [f"{contender.tools.build}/lowkey"]
    flags = ["--model", contender.path, "--dtype", contender.dtype, "--threads", threads, "--json"]
    said = json.loads(contenders.output(contender.tools, [
        *program, "eval", "perplexity", text, "--context", CONTEXT, "--stride", STRIDE,
        "--windows", windows, *flags]))
    kl, same = divergence(contender, base, flags)
    return {"perplexity": said["results"][0]["perplexity"],
            "scored_windows": said["results"][0]["windows"], "dtype": said["dtype"], "kl": kl,
            "same_best_percent": same}


def divergence(contender, base, flags):
    """Returns the mean KL divergence from the reference, and how often the best token is the same."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    from logits import read_log_probabilities  # pylint: disable=import-outside-toplevel
    total, n_same, n = 0.0, 0, 0
    first = first_token(contender.path)
    output = f"{base}.logits.safetensors"
    for tokens, log_base in windows_of(base):
        if first is not None:
            tokens[0] = first
        ids = pathlib.Path(f"{base}.ids")
        ids.write_text(" ".join(map(str, tokens)), encoding="ascii")
        contenders.output(contender.tools, [f"{contender.tools.build}/lowkey", "logits",
                                            "--tokens-file", ids, "--output", output, *flags])
        log_q = read_log_probabilities(output, slice(CONTEXT // 2, -1))
        counted = log_base > -16
        terms = np.where(counted, np.exp(log_base) * (log_base - log_q), 0)
        total += terms.sum()
        n_same += (log_base.argmax(axis=1) == log_q.argmax(axis=1)).sum()
        n += len(log_q)
    os.unlink(output)
    return float(total / n), 100 * float(n_same) / n


def windows_of(base):
    """Yields the tokens and the logarithms of probabilities of each window of the reference."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    with open(base, "rb") as file:
        n_context, n_vocab, n_windows = struct.unpack("<8xIii", file.read(20))
        tokens = np.fromfile(file, "<i4", n_context * n_windows).reshape(n_windows, n_context)
        width = 2 * ((n_vocab + 1) // 2) + 4  # a scale and a minimum, then 16 bits a token
        n_scored = n_context - 1 - n_context // 2
        for window in tokens:
            rows = np.fromfile(file, "<u2", n_scored * width).reshape(n_scored, width)
            scale, least = rows[:, :4].copy().view("<f4").T.astype(np.float64)
            codes = rows[:, 4:4 + n_vocab].astype(np.float64)
            yield window.tolist(), scale[:, None] * codes + least[:, None]


def first_token(path):
    """Returns the token that a GGUF file's tokenizer puts at the beginning, or None."""
    from random_gguf import Reader  # pylint: disable=import-outside-toplevel
    values = Reader(path).scalars()
    is_added = values.get("tokenizer.ggml.add_bos_token",
                          values.get("tokenizer.ggml.model") == "llama")
    return values.get("tokenizer.ggml.bos_token_id") if is_added else None


def print_table(results, model, compared, text, windows):
    style = tables.Style()
    rows = [(c, row_of(results, model, c.name, text, windows)) for c in compared]
    rows = [(c, row) for c, row in rows if row]
    by_format = {c.format.lower(): row for c, row in rows if c.program == "llama.cpp"}
    print(style.paint(f"{model}: {text}, {windows} windows of {CONTEXT} tokens", "1"))
    width = max(len(c.name) for c, _ in rows)
    print(style.paint(f"{'':<{width}}  perplexity  to llama.cpp  KL to fp32  best same", "2"))
    for c, row in rows:
        peer = by_format.get(c.format.lower()) if c.program == "lowkey" else None
        ratio = f"{row['perplexity'] / peer['perplexity']:.4f}" if peer else ""
        print(f"{c.name:<{width}}  {row['perplexity']:>10.4f}  {ratio:>12}  {row['kl']:>10.5f}  "
              f"{row['same_best_percent']:>8.2f}%")
    print()
