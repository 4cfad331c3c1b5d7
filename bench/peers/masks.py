#!/usr/bin/env python3
"""What tests/server/grammar/schema/schema_set_test.cc measures, of XGrammar:

    pip install xgrammar gguf jsonschema
    python3 bench/peers/masks.py model.gguf

Draws four random texts under the masks of each schema of the set, as that test does, judges complete
texts by jsonschema, and prints what compiling and masks cost in the thread's own time. The
vocabulary is that of a GGUF file with a byte-level tokenizer.
"""
import argparse
import importlib.metadata
import json
import pathlib
import random
import time

import gguf
import jsonschema
import numpy
import xgrammar

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "tests/server/grammar/schema/schemas.jsonl"
MOST_TOKENS = 300
DRAWS = 4


def read_vocabulary(path):
    """Returns the pieces as the file spells them, and the ids that end a text."""
    fields = gguf.GGUFReader(path).fields
    pieces = fields["tokenizer.ggml.tokens"]
    texts = [bytes(pieces.parts[i]).decode() for i in pieces.data]
    return texts, [int(fields["tokenizer.ggml.eos_token_id"].parts[-1][0])]


class Times:
    def __init__(self):
        self.us = []

    def of(self, function, *arguments):
        start = time.thread_time()
        result = function(*arguments)
        self.us.append((time.thread_time() - start) * 1e6)
        return result

    def print(self, name):
        p50, p99, most = numpy.quantile(self.us, [0.5, 0.99, 1])
        print(f"{name:28} n {len(self.us):8}  p50 {p50:9.1f} us  p99 {p99:9.1f} us  "
              f"most {most:9.1f} us")


def draw(grammar, vocabulary, ends, closing, draws, times):
    """Returns a text, or None if it is not complete after MOST_TOKENS."""
    matcher = xgrammar.GrammarMatcher(grammar)
    words = xgrammar.allocate_token_bitmask(1, len(vocabulary))
    text = b""
    for _ in range(MOST_TOKENS):
        times.of(matcher.fill_next_token_bitmask, words)
        bits = numpy.unpackbits(words.numpy().view(numpy.uint8), bitorder="little")
        allowed = bits[:len(vocabulary)].astype(bool)
        near_end = numpy.flatnonzero(allowed & closing)
        choices = near_end if len(near_end) and draws.randrange(3) == 0 else numpy.flatnonzero(allowed)
        token = int(draws.choice(choices))
        if not matcher.accept_token(token):
            raise RuntimeError(f"token {token} of the mask is refused after {text!r}")
        if token in ends:
            return text.decode()
        text += vocabulary[token]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    args = parser.parse_args()
    pieces, ends = read_vocabulary(args.model)
    info = xgrammar.TokenizerInfo(pieces, xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=ends)
    vocabulary = info.decoded_vocab  # makes a list at each call
    closing = numpy.array([i in ends or piece[:1] in (b'"', b"}", b"]")
                           for i, piece in enumerate(vocabulary)])
    compiling, first, later = Times(), Times(), Times()
    n_refused = n_complete = n_valid = n_schemas = 0
    draws = random.Random(11)
    for line in SCHEMAS.read_text().splitlines():
        case = json.loads(line)
        if "refused" in case:
            continue
        n_schemas += 1
        # A compiler of its own for each: nothing is found that an earlier schema left.
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        try:
            grammar = compiling.of(compiler.compile_json_schema, json.dumps(case["schema"]))
        except RuntimeError as error:
            n_refused += 1
            print(f"refused: {str(error).splitlines()[-1][:100]}")
            continue
        for i in range(DRAWS):
            text = draw(grammar, vocabulary, ends, closing, draws, later if i else first)
            if text is None:
                continue
            n_complete += 1
            try:
                jsonschema.validate(json.loads(text), case["schema"],
                                    format_checker=jsonschema.FormatChecker())
                n_valid += 1
            except (ValueError, jsonschema.ValidationError) as error:
                print(f"invalid: {str(error).splitlines()[0][:100]}")
    print(f"xgrammar {importlib.metadata.version('xgrammar')}: {n_schemas} schemas, {n_refused} refused, "
          f"{n_complete} texts complete, {n_valid} valid")
    compiling.print("compiling a schema")
    first.print("masks of a first text")
    later.print("masks of later texts")


if __name__ == "__main__":
    main()
