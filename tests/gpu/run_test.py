#!/usr/bin/env python3
"""Tests run.py on a build folder and a pack that are made up: no GPU and no compiler are needed."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import run

SAY = """#!/bin/sh
echo "$LOWKEY_SOURCE_DIR" > {0}.source
echo "$LOWKEY_CUDA_LIBRARY" > {0}.library
case $* in *--fail*) exit 1 ;; *--skip*) echo "no CUDA device: none" ;; esac
"""


class PackTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        # In the place of the model, which takes long to compress.
        sources, run.SOURCES = run.SOURCES, ["tests/gpu"]
        self.addCleanup(setattr, run, "SOURCES", sources)
        self.assertEqual(sources, ["models/tales", "tests/golden"])
        self.build = self.folder / "build"
        for program in ["a_test", *run.PROGRAMS, "liblowkey_cuda.so"]:
            to = self.build / program
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(shutil.which("true"), to)  # what strip and ldd take

    def gpu_tests(self, **changes):
        return [{"name": "a_test_gpu", "command": [str(self.build / "a_test"), "--gtest_filter=*"],
                 "environment": {"LOWKEY_TEST_DEVICE": "cuda:0",
                                 "LOWKEY_CUDA_LIBRARY": str(self.build / "liblowkey_cuda.so")},
                 **changes}]

    def pack(self, tests):
        with contextlib.redirect_stdout(io.StringIO()):
            run.pack(tests, self.build, self.folder / "pack")
        return self.folder / "pack"

    def test_names_nothing_outside_of_itself(self):
        pack = self.pack(self.gpu_tests())
        self.assertNotIn(str(self.folder), (pack / "tests.json").read_text())
        test = json.loads((pack / "tests.json").read_text())[0]
        self.assertEqual(test["command"], ["bin/a_test", "--gtest_filter=*"])
        self.assertEqual(test["environment"], {"LOWKEY_TEST_DEVICE": "cuda:0"})

    def test_has_what_the_first_hour_on_a_device_needs(self):
        pack = self.pack(self.gpu_tests())
        for file in ["run.py", "bin/a_test", "bin/lowkey", "bin/device_bench", "sdpa_bench.py",
                     "lib/lowkey/liblowkey_cuda.so", "source/tests/gpu/run.sh"]:
            self.assertTrue((pack / file).exists(), file)

    def test_runs_in_another_folder(self):
        pack = self.pack(self.gpu_tests())
        archive = self.folder / "pack.tar.xz"
        elsewhere = self.folder / "elsewhere"
        shutil.unpack_archive(archive, elsewhere)
        shutil.rmtree(pack)
        program = elsewhere / "pack/bin/a_test"
        said = self.folder / "said"
        program.write_text(SAY.format(said))
        program.chmod(0o755)
        done = subprocess.run([sys.executable, "-B", str(elsewhere / "pack/run.py"), "--phase",
                               "tests", "--results", str(self.folder / "results.json")],
                              capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        source = pathlib.Path(f"{said}.source").read_text().strip()
        library = pathlib.Path(f"{said}.library").read_text().strip()
        self.assertEqual(source, str(elsewhere / "pack/source"))
        self.assertTrue(os.path.exists(library), library)

    def test_refuses_a_path_of_this_machine(self):
        command = [str(self.build / "a_test"), "/somewhere/else"]
        with self.assertRaisesRegex(SystemExit, "/somewhere/else, expected no path outside"):
            self.pack(self.gpu_tests(command=command))


class JobsTest(unittest.TestCase):
    TESTS = [{"name": "cuda_atp_test_gpu"}, {"name": "cuda_device_test_cublas_gpu"},
             {"name": "engine_device_test_greedy_gpu"}]

    def jobs(self, phase, sanitizer="compute-sanitizer"):
        return [(test["name"], tool) for test, tool in run.jobs_of(self.TESTS, phase, sanitizer)]

    def test_sanitizers_are_a_phase_of_their_own(self):
        tests = [(test["name"], None) for test in self.TESTS]
        checks = [("cuda_atp_test_gpu", "memcheck"), ("cuda_device_test_cublas_gpu", "memcheck"),
                  ("cuda_atp_test_gpu", "racecheck")]
        self.assertEqual(self.jobs("tests"), tests)
        self.assertEqual(self.jobs("sanitizers"), checks)
        self.assertEqual(self.jobs("all"), tests + checks)
        self.assertEqual(self.jobs("all", None), tests)


class OnlyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(run.__file__, self.folder / "run.py")
        (self.folder / "bin").mkdir()
        program = self.folder / "bin/say"
        program.write_text(SAY.format(self.folder / "said"))
        program.chmod(0o755)
        tests = [{"name": name, "command": ["bin/say", flag], "environment": {}}
                 for name, flag in [("a_gpu", ""), ("b_gpu", "--fail"), ("c_gpu", "--skip")]]
        (self.folder / "tests.json").write_text(json.dumps(tests))

    def run_only(self, pattern):
        results = self.folder / "results.json"
        done = subprocess.run([sys.executable, "-B", str(self.folder / "run.py"), "--phase",
                               "tests", "--only", pattern, "--results", str(results)],
                              capture_output=True, text=True)
        names = {}
        if results.exists():
            names = {t["name"]: t["status"] for t in json.loads(results.read_text())["tests"]}
        return done.returncode, names, done.stderr

    def test_runs_the_tests_of_a_name(self):
        self.assertEqual(self.run_only("^a")[:2], (0, {"a_gpu": "passed"}))
        self.assertEqual(self.run_only("[bc]_gpu")[:2],
                         (1, {"b_gpu": "failed", "c_gpu": "skipped"}))

    def test_refuses_a_name_that_no_test_has(self):
        code, names, said = self.run_only("nothing")
        self.assertEqual((code, names), (1, {}))
        self.assertIn("--only nothing: no test has such a name", said)


if __name__ == "__main__":
    unittest.main()
