#!/usr/bin/env python3
"""Writes one model in the formats that bench/against_peers.py compares.

    python3 bench/peers/prepare.py DIR --gguf model.gguf --llama LLAMA      from a file
    python3 bench/peers/prepare.py DIR --random 1.1b --tokenizer model.gguf random weights

From a file, llama-quantize first writes f32.gguf, and the other formats from that, so that they
have one source whatever the file stores. Where a row is no multiple of 256 weights, llama-quantize
takes Q5_0 and Q8_0 in place of Q4_K and Q6_K (SmolLM2-135M). Random models are written format by
format by bench/random_gguf.py; their weights differ, their shapes do not.

OpenVINO's models come from the GGUF files, by the reader of openvino-genai: 16 bits from f16.gguf,
int4 from q4_0.gguf (the same codes, a scale for 32). int8 is made of the former by nncf, with a
scale for each output, as OpenVINO's own converter does; without nncf it comes from q8_0.gguf. They
are written where --python has these packages. The reader knows byte-level tokenizers only, so a
random model for OpenVINO needs --tokenizer with the file of such a model (SmolLM2).
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

TYPES = {"f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0", "q4_k_m": "Q4_K_M"}
ROOT = pathlib.Path(__file__).resolve().parent.parent

# Run by --python, so that this script needs no package. The reader writes beside its file.
READ = """
import sys, openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""
COMPRESS = """
import sys, nncf, openvino
model = nncf.compress_weights(openvino.Core().read_model(sys.argv[1]),
                              mode=nncf.CompressWeightsMode.INT8_ASYM)
openvino.save_model(model, sys.argv[2], compress_to_fp16=True)
"""


def run(*command):
    done = subprocess.run([str(word) for word in command], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:2]))[:60]}: exit code {done.returncode}\n"
                 + "\n".join(done.stdout.strip().splitlines()[-5:]))


def say(path):
    if path.is_dir():
        n_bytes = sum(file.stat().st_size for file in path.iterdir())
    else:
        n_bytes = path.stat().st_size
    print(f"{path.name:<16} {n_bytes / 1e6:>10,.1f} MB", flush=True)


def quantize(args, folder):
    program = f"{args.llama}/llama-quantize"
    wide = folder / "f32.gguf"
    if not wide.exists():
        run(program, "--allow-requantize", args.gguf, wide, "F32")
    say(wide)
    for name, kind in TYPES.items():
        path = folder / f"{name}.gguf"
        if not path.exists():
            run(program, wide, path, kind)
        say(path)


def write_random(args, folder):
    for name in TYPES:
        path = folder / f"{name}.gguf"
        if not path.exists():
            run(sys.executable, ROOT / "random_gguf.py", path, "--shape", args.random, "--mix", name,
                *(["--tokenizer", args.tokenizer] if args.tokenizer else []))
        say(path)


def convert(args, gguf, target):
    """Reads a GGUF file with OpenVINO and keeps what it made of it."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        link = pathlib.Path(scratch) / "model.gguf"
        link.symlink_to(gguf.resolve())
        run(args.python, "-c", READ, link)
        link.unlink()
        target.mkdir()
        for file in pathlib.Path(scratch).iterdir():
            file.rename(target / file.name)


def convert_all(args, folder):
    if subprocess.run([args.python, "-c", "import openvino_genai"], check=False,
                      capture_output=True).returncode != 0:
        print(f"left out: OpenVINO's models, {args.python} has no package openvino-genai")
        return
    wide = folder / "openvino_f16"
    for gguf, target in (("f16.gguf", wide), ("q4_0.gguf", folder / "openvino_int4")):
        if not target.exists():
            convert(args, folder / gguf, target)
        say(target)
    target = folder / "openvino_int8"
    if not target.exists():
        if subprocess.run([args.python, "-c", "import nncf"], check=False,
                          capture_output=True).returncode == 0:
            target.mkdir()
            run(args.python, "-c", COMPRESS, wide / "openvino_model.xml",
                target / "openvino_model.xml")
            for file in wide.glob("openvino_*tokenizer.*"):
                (target / file.name).symlink_to(f"../{wide.name}/{file.name}")
        else:
            print("int8 from q8_0.gguf: there is no package nncf")
            convert(args, folder / "q8_0.gguf", target)
    say(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gguf", metavar="FILE", help="the model to write in other formats")
    source.add_argument("--random", metavar="SHAPE", help="of random_gguf.py: 110m, 1.1b, 7b, 8b")
    parser.add_argument("--llama", default="", metavar="DIR", help="folder of llama-quantize")
    parser.add_argument("--python", default=sys.executable, metavar="FILE",
                        help="an interpreter with openvino-genai [this one]")
    parser.add_argument("--tokenizer", metavar="GGUF", help="of a random model: this file's [made up]")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if args.gguf:
        quantize(args, folder)
    else:
        write_random(args, folder)
    convert_all(args, folder)


if __name__ == "__main__":
    main()
