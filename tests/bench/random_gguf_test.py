#!/usr/bin/env python3
"""bench/random_gguf.py: lowkey computes with the files that it writes.

random_gguf_test.py LOWKEY
"""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPE = ["--hidden", "256", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--ffn", "512"]
LOWKEY = ""


class RandomGgufTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, *flags):
        path = self.folder / f"{name}.gguf"
        subprocess.run([sys.executable, "-B", ROOT / "bench/random_gguf.py", path, *SHAPE, *flags],
                       check=True, stdout=subprocess.DEVNULL)
        return path

    def logits(self, model):
        (self.folder / "ids").write_text("1 5 300 17", encoding="ascii")
        output = self.folder / "logits"
        subprocess.run([LOWKEY, "logits", "--model", model, "--tokens-file", self.folder / "ids",
                        "--output", output], check=True, stderr=subprocess.DEVNULL)
        data = output.read_bytes()
        n_header = struct.unpack("<Q", data[:8])[0]
        n = math.prod(json.loads(data[8:8 + n_header])["logits"]["shape"])
        return struct.unpack(f"<{n}f", data[8 + n_header:])

    def test_logits_of_every_mix_are_finite_and_vary(self):
        for mix in ("f16", "bf16", "q8_0", "q4_0", "q4_k_m"):
            with self.subTest(mix):
                logits = self.logits(self.write(mix, "--mix", mix, "--vocab", "512"))
                self.assertEqual(len(logits), 4 * 512)
                deviation = math.sqrt(sum(x * x for x in logits) / len(logits))
                self.assertGreater(deviation, 0.5)
                self.assertLess(deviation, 8)

    def test_same_flags_give_the_same_bytes(self):
        flags = ["--vocab", "400", "--mix", "q4_k_m"]
        first = self.write("first", *flags).read_bytes()
        self.assertEqual(first, self.write("second", *flags).read_bytes())
        self.assertNotEqual(first, self.write("third", *flags, "--seed", "1").read_bytes())

    def test_a_tokenizer_is_copied_with_its_number_of_tokens(self):
        source = self.write("source", "--vocab", "400", "--mix", "q8_0")
        copy = self.write("copy", "--tokenizer", source, "--mix", "q4_0")
        self.assertEqual(len(self.logits(copy)), 4 * 400)
        words = [subprocess.run([LOWKEY, "tokenize", "abc", "--model", path], check=True,
                                stdout=subprocess.PIPE).stdout for path in (source, copy)]
        self.assertEqual(*words)

    def test_rows_that_no_block_fits_are_refused(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "bench/random_gguf.py",
                               self.folder / "odd", *SHAPE, "--ffn", "320"], check=False,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected rows of 256 weights (blk.0.ffn_down.weight: 320)", done.stderr)


if __name__ == "__main__":
    LOWKEY = sys.argv.pop(1)
    unittest.main()
