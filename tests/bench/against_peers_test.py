#!/usr/bin/env python3
"""bench/against_peers.py with programs that only print what the real ones would."""
import contextlib
import io
import json
import os
import pathlib
import re
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import against_peers  # noqa: E402  pylint: disable=wrong-import-position
from peers import contenders, quality, results, tables  # noqa: E402  pylint: disable=wrong-import-position

ENGINE_BENCH = """
import sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert flags["--threads"] in ("1", "2"), flags
print('{"figure":"engine","dtype":"bfloat16","weight_mb":1.0}')
figure = flags["--figures"]
if figure == "machine":
    print('{"figure":"machine","isa":"avx2","fma_gflops":50.0,"read_gb_per_s":10.0}')
elif figure.startswith("depth:"):
    print('{"figure":"%s","prefill_tokens_per_s":300.0,"decode_tokens_per_s":40.0}' % figure)
else:
    print('{"figure":"%s","decode_tokens_per_s":90.0}' % figure)
"""
LOWKEY = """
import sys
assert sys.argv[1] == "inspect", sys.argv
print('{"context_tokens": 4096}')
"""
BATCHED_BENCH = """
import os, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "q8_0" in flags["-m"]:
    sys.exit("error: cannot load")
open(os.environ["PEERS_LOG"], "a").write("llama %s\\n" % flags["-npp"])
print("some other line")
print('{"pp": 1, "t": 2.0, "speed_pp": 200.0, "speed_tg": 50.0}')
"""
LLAMA_SERVER = """
import http.server, json, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer({"status": "ok"})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        n = min(asked["n_predict"], int(flags["-c"]) // int(flags["-np"]) - len(asked["prompt"]))
        self.answer({"tokens_predicted": n - ("tired" in flags["-m"])})
    def log_message(self, *unused):
        pass
http.server.ThreadingHTTPServer((flags["--host"], int(flags["--port"])), Handler).serve_forever()
"""
PERPLEXITY = """
import sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "--ppl-stride" in sys.argv:
    window = int(flags["-c"]) + int(flags["--ppl-stride"]) // 2
    print("perplexity_v2: 0.1 seconds per pass - ETA 0.0 minutes")
    print("[1]21.5000,[2]%d.2500,\\n" % window)
else:
    print("Mean PPL(Q)                   :  20.000000 \\u00b1   0.100000")
    print("Mean    KLD:   0.012500 \\u00b1   0.000100")
    print("Same top p: 97.250 \\u00b1 0.100 %")
"""


class FakePrograms(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for name, code in (("build/lowkey", LOWKEY), ("build/bench/engine_bench", ENGINE_BENCH),
                           ("llama/llama-batched-bench", BATCHED_BENCH)):
            self.write_program(name, code)
        (self.folder / "model").mkdir()
        for name in ("bf16", "q8_0"):
            (self.folder / "model" / f"{name}.gguf").write_bytes(b"")
        os.environ["PEERS_LOG"] = str(self.folder / "log")

    def write_program(self, name, code):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def llama(self, file):
        tools = contenders.Tools(f"{self.folder}/build", f"{self.folder}/llama", rounds=3)
        return contenders.LlamaCpp(tools, self.folder / "model", "BF16", 16, file)

    def run_script(self, *flags):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            against_peers.main([
                "--build", f"{self.folder}/build", "--llama", f"{self.folder}/llama",
                "--python", "/nowhere/python", "--model", f"small={self.folder}/model",
                "--output", f"{self.folder}/out.json", "--measures", "depth:128,depth:8192,served:4",
                *flags])
        return out.getvalue(), err.getvalue()

    def samples(self):
        return json.loads((self.folder / "out.json").read_text(encoding="utf-8"))["samples"]

    def test_contenders_take_turns(self):
        out, _ = self.run_script("--turns", "2", "--threads", "1", "--only", "depth:128,*bf16")
        self.assertEqual([(s["turn"], s["contender"]) for s in self.samples()],
                         [(1, "lowkey bf16"), (1, "llama.cpp BF16"),
                          (2, "lowkey bf16"), (2, "llama.cpp BF16")])
        self.assertIn("avx2, 1 thread: 50 GFLOP/s of fp32 multiply-adds, 10.0 GB/s read", out)
        self.assertRegex(out, r"lowkey / peers, 16 bits +1\.50 \(1\.50-1\.50\)")

    def test_prompts_leave_room_for_what_is_generated(self):
        self.run_script("--turns", "1", "--threads", "1", "--only", "depth:8192,*bf16")
        self.assertEqual({s["measure"] for s in self.samples()}, {"depth:4032"})

    def test_a_run_goes_on_where_it_was_stopped(self):
        flags = ["--threads", "1", "--only", "depth:128,llama.cpp bf16"]
        self.run_script("--turns", "1", *flags)
        self.run_script("--turns", "3", *flags)
        self.assertEqual([s["turn"] for s in self.samples()], [1, 2, 3])
        self.assertEqual((self.folder / "log").read_text(encoding="utf-8"), "llama 128\n" * 3)

    def test_other_settings_are_not_mixed_into_a_file(self):
        self.run_script("--turns", "1", "--threads", "1", "--only", "depth:128,*bf16")
        with self.assertRaisesRegex(SystemExit, "--output: .*, expected .*'decode_tokens': 32"):
            self.run_script("--decode-tokens", "32")

    def test_what_fails_is_named_and_the_rest_is_measured(self):
        _, err = self.run_script("--turns", "2", "--threads", "1", "--only", "depth:128")
        self.assertIn("llama.cpp Q8_0: llama-batched-bench: exit code 1: error: cannot load", err)
        self.assertEqual(err.count("cannot load"), 1)
        self.assertEqual(len([s for s in self.samples() if s["contender"] == "llama.cpp BF16"]), 2)
        self.assertIn("OpenVINO int8", err)
        self.assertIn("there is no package openvino-genai in /nowhere/python", err)

    def test_without_a_server_a_batch_stands_in_for_clients(self):
        out, _ = self.run_script("--turns", "1", "--threads", "2", "--only", "served:4,llama*bf16")
        self.assertEqual(self.samples()[0]["figures"], {"output_tokens_per_s": 128.0,
                                                        "stand_in": True})
        self.assertIn("clients without a network: llama.cpp BF16", out)

    def test_clients_of_a_server_share_the_requests(self):
        self.write_program("llama/llama-server", LLAMA_SERVER)
        figures = self.llama("bf16.gguf").measure("served:4", 1)
        self.assertGreater(figures["output_tokens_per_s"], 0)
        self.assertGreater(figures["peak_rss_mib"], 1)
        self.assertGreater(self.llama("bf16.gguf").measure("start", 1)["ready_ms"], 0)

    def test_a_server_that_generates_too_little_is_not_counted(self):
        self.write_program("llama/llama-server", LLAMA_SERVER)
        with self.assertRaisesRegex(OSError, "63 tokens generated, expected 64"):
            self.llama("tired.gguf").measure("served:4", 1)

    def test_quality_reads_what_llama_perplexity_prints(self):
        self.write_program("llama/llama-perplexity", PERPLEXITY)
        self.assertEqual(quality.llama(self.llama("bf16.gguf"), "base", "text", 2, 1),
                         {"perplexity": 512.25, "scored_windows": 2, "kl": 0.0125,
                          "same_best_percent": 97.25})

    def test_an_unknown_pattern_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "--only: dept, expected"):
            self.run_script("--only", "dept")

    def test_list_measures_nothing(self):
        out, _ = self.run_script("--turns", "5", "--threads", "1,2", "--list")
        self.assertIn("150 samples, about", out)
        self.assertFalse((self.folder / "out.json").exists())


class TableTest(unittest.TestCase):
    def table(self, columns):
        style = tables.Style(io.StringIO())
        style.columns = columns
        table = tables.Table("title", ["128", "512", "2,048", "4,096", "8,128"], style)
        table.add("lowkey Q4_K_M as bfloat16", [[1000.0, 1200.0, 1100.0]] * 5, "rates")
        table.add("llama.cpp BF16", [[900.0], [900.0], [900.0], [], []], "rates")
        return table.lines()

    def test_a_wide_terminal_shows_ranges(self):
        self.assertIn("1,100 (1,000-1,200)", self.table(160)[2])

    def test_a_narrow_terminal_shows_medians_and_continues_below(self):
        for columns in (40, 60):
            lines = self.table(columns)
            self.assertLessEqual(max(map(len, lines)), max(columns, 47))
            self.assertEqual(len(re.findall("1,100", "\n".join(lines))), 5)
            self.assertNotIn("(", "".join(lines))

    def test_lines_end_together(self):
        self.assertEqual(len({len(line) for line in self.table(160)[1:]}), 1)

    def test_ratios_are_taken_turn_by_turn(self):
        found = results.Results("/nowhere/file", {})
        for turn, (ours, theirs) in enumerate([(10.0, 5.0), (20.0, 20.0), (30.0, 10.0)]):
            for name, value in (("a", ours), ("b", theirs)):
                found.samples.append({"model": "m", "threads": 1, "measure": "x", "turn": turn,
                                      "contender": name, "figures": {"f": value}})
        self.assertEqual(tables.ratios(found, "m", 1, "x", "f", ["a"], ["b"]), [2.0, 1.0, 3.0])


class MissingProgramTest(unittest.TestCase):
    def test_a_program_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(contenders.Failed, "/nowhere/x: No such file"):
            contenders.output(contenders.Tools(build="build"), ["/nowhere/x"])


if __name__ == "__main__":
    unittest.main()
