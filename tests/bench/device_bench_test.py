#!/usr/bin/env python3
"""bench/device_bench on an emulated device, and bench/device_count, which needs none.

device_bench_test.py DEVICE_BENCH DEVICE_COUNT EMULATED_LIBRARY
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEVICE_BENCH = DEVICE_COUNT = LIBRARY = ""


class DeviceBenchTest(unittest.TestCase):
    def test_prints_every_figure(self):
        said = subprocess.run(
            [DEVICE_BENCH, "--model_dir", ROOT / "models" / "tales", "--limit_bytes", "50000",
             "--runs", "1", "--batches", "2", "--prompts", "9", "--depth", "5",
             "--cache_bytes", "4000000"],
            env={**os.environ, "LOWKEY_CUDA_LIBRARY": LIBRARY}, check=True, capture_output=True,
            text=True).stdout
        figures = [json.loads(line) for line in said.splitlines()]
        self.assertEqual([f["figure"] for f in figures], ["limits", "decode", "prefill"])
        self.assertEqual([f.get("layer_launches") for f in figures], [None, 8, 8])
        self.assertGreater(figures[1]["tokens_s"], 0)
        self.assertGreater(figures[2]["layer_mb"], 0)

    def test_a_flag_that_is_no_number_is_named(self):
        said = subprocess.run([DEVICE_BENCH, "--batches", "few", "--model_dir",
                               ROOT / "models" / "tales", "--limit_bytes", "1000", "--runs", "1"],
                              env={**os.environ, "LOWKEY_CUDA_LIBRARY": LIBRARY},
                              capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 1)
        self.assertIn("few: expected a positive number", said.stderr)


class DeviceCountTest(unittest.TestCase):
    def launches(self, *flags):
        """By kind, of one layer of the small shape."""
        said = subprocess.run([DEVICE_COUNT, "--shape", "110m", *flags], check=True,
                              capture_output=True, text=True).stdout
        rows = [line.rsplit(maxsplit=4) for line in said.splitlines()]
        return {row[0].strip(): int(row[1]) for row in rows if len(row) == 5 and row[1].isdigit()}

    def test_counts_a_layer_of_a_prompt(self):
        counts = self.launches("--batches", "", "--prompts", "64")
        self.assertEqual(counts, {"norm": 2, "product to 2304": 1, "rotate into pages": 1,
                                  "attend": 1, "product to 768": 2, "gated product to 2048": 1,
                                  "in all": 8})

    def test_joins_the_spans_of_a_long_sequence(self):
        counts = self.launches("--batches", "1", "--prompts", "", "--depth", "1500")
        self.assertEqual(counts["join parts"], 1)
        self.assertEqual(counts["in all"], 9)


if __name__ == "__main__":
    DEVICE_BENCH, DEVICE_COUNT, LIBRARY = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
