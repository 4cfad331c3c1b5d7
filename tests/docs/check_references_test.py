#!/usr/bin/env python3
"""Tests of check_references.py, on made-up repositories."""
import os
import tempfile
import unittest

from check_references import Checker, Page, Tree

FLAGS = {"serve": {"port", "cache-bytes"}, "bench": {"rate"}}


def check(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return Checker(Tree(root), FLAGS).run()


class CheckReferencesTest(unittest.TestCase):
    def test_accepts_what_is_there(self):
        self.assertEqual(check({
            "engine/cache/cache.h": "class Cache { void Copy(); };\n",
            "engine/cache/cache.cc": "// The counterpart of cache/cache.h in engine/cache.\n",
            "server/metrics/m.cc": '"lowkey:steps_total" getenv("LOWKEY_ISA")\n',
            "bench/e.cc": 'ABSL_FLAG(int, runs, 1, "");\n// ninja: bench_e\n',
            "README.md": "[a](docs/a.md#the-way-there) [b](https://nowhere/x.md)\n",
            "docs/a.md": "# The way there\n\n`Cache::Copy` in `engine/cache/cache.{h,cc}`, "
                         "`engine/*/cache.h`, `engine/NAME/cache.h`, `lowkey:steps_total`, "
                         "`LOWKEY_CACHE_BYTES`, `LOWKEY_ISA`\n\n"
                         "    lowkey serve --port 1 \\\n        --cache-bytes 2G   # --anything\n"
                         "    build/bench/bench_e --runs 2 && curl --silent ~/bench/x\n",
        }), [])

    def test_rejects_links_to_no_file_and_no_heading(self):
        self.assertEqual(check({"docs/a.md": "# A\n\n[x](b.md)\n[y](#c)\n"}),
                         ["docs/a.md:3: b.md: no such file",
                          "docs/a.md:4: #c: no such heading in docs/a.md"])

    def test_rejects_pages_that_readme_does_not_list(self):
        self.assertEqual(check({"README.md": "no table\n", "docs/a.md": "# A\n"}),
                         ["README.md:1: docs/a.md: no link to this page, expected one in the table "
                          "of documents"])

    def test_rejects_paths_that_are_gone(self):
        self.assertEqual(
            check({"engine/cache/cache.h": "int a;  // Uses engine/base/buffer.h and gone.cc.\n",
                   "tests/run.sh": "# Runs engine/gone/.\n",
                   "docs/a.md": "See `engine/cache/cache.{h,cc}`.\n"}),
            ["docs/a.md:1: engine/cache/cache.{h,cc}: no such file or folder",
             "engine/cache/cache.h:1: engine/base/buffer.h: no such file or folder",
             "engine/cache/cache.h:1: gone.cc: no such file",
             "tests/run.sh:1: engine/gone/: no such file or folder"])

    def test_rejects_flags_of_no_command_and_of_another_one(self):
        self.assertEqual(check({"docs/a.md": "`--prot`\n\n    lowkey bench --port 1\n"}),
                         ["docs/a.md:1: --prot: no command, script or benchmark has this flag",
                          "docs/a.md:3: --port: lowkey bench has no such flag"])

    def test_rejects_unknown_variables_metrics_targets_and_functions(self):
        self.assertEqual(
            check({"docs/a.md": "`Cache::Gone`, `build/bench/gone`, `LOWKEY_GONE`, `vllm:gone`\n\n"
                                "    ninja -C build gone2\n"}),
            ['docs/a.md:1: Cache::Gone: no "Cache" in the code',
             'docs/a.md:1: Cache::Gone: no "Gone" in the code',
             "docs/a.md:1: build/bench/gone: no such target",
             "docs/a.md:1: LOWKEY_GONE: no flag, option or code has this variable",
             "docs/a.md:1: vllm:gone: server/metrics exports no such metric",
             "docs/a.md:3: gone2: no such target"])

    def test_rejects_headings_that_comments_miss(self):
        self.assertEqual(
            check({"docs/a.md": "# What it costs\n",
                   "engine/a.cc": '// (a.md "What it costs", a.md "What is gone")\n'}),
            ["engine/a.cc:1: What is gone: no such heading in a.md"])

    def test_tells_code_from_prose(self):
        page = Page("# A `b` c!\n\n- one\n    more `s`\n\n    code \\\n      on\n```\nx\n```\n")
        self.assertEqual(page.anchors, {"a-b-c"})
        self.assertEqual([line for line, _ in page.commands], [6, 9])
        self.assertEqual(page.spans[1], (4, "s"))


if __name__ == "__main__":
    unittest.main()
