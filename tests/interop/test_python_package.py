"""The package of client/python itself: types, examples, and its source distribution."""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from running_server import LONG_S, shared_server, start_for
from test_python_client import CHAT_TEMPLATE

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "client" / "python"


def run(*arguments, cwd=None, **environment):
    """Returns the output. The package's source folder is not on the path."""
    done = subprocess.run([sys.executable, "-B", *map(str, arguments)], cwd=cwd, timeout=LONG_S,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class PythonTypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)

    def check(self, *arguments):
        """Returns what mypy says; the checks share what it keeps."""
        return run("-m", "mypy", "--strict", "--cache-dir", self.folder / "cache", *arguments,
                   cwd=self.folder)

    def test_types_are_strict(self):
        output = self.check("--config-file", PACKAGE / "pyproject.toml", "-p", "lowkey")
        self.assertIn("no issues found", output)

    def test_type_checkers_see_mistakes(self):
        path = self.folder / "wrong.py"
        path.write_text("import lowkey\n"
                        "answer = lowkey.Client().generate('x', temperature='hot')\n"
                        "lowkey.Client().generate('x', max_tokens=3)\n"
                        "answer.txt\n")
        with self.assertRaisesRegex(AssertionError, "(?s)temperature.*max_tokens.*txt"):
            self.check(path)

    def test_examples_are_typed(self):
        self.check("--ignore-missing-imports", *sorted((PACKAGE / "examples").glob("*.py")))


class PythonPackageTest(unittest.TestCase):
    def test_examples_run(self):
        server = shared_server()
        for name, words in (("generate.py", "of standard's"), ("stream.py", "the first after"),
                            ("compare_mechanisms.py", "taylorshift"), ("score.py", "* ")):
            output = run(PACKAGE / "examples" / name, LOWKEY_SERVER=server.address)
            self.assertIn(words, output, name)

    def test_the_example_of_a_conversation_runs(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(CHAT_TEMPLATE)
            file.flush()
            server = start_for(self, "--chat-template", file.name)
            output = run(PACKAGE / "examples" / "chat.py", "Hello", "And then?",
                         LOWKEY_SERVER=server.address)
        self.assertIn("> And then?", output)

    def test_a_source_distribution_builds_by_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            run("setup.py", "-q", "egg_info", "--egg-base", folder, "sdist", "--dist-dir", folder,
                cwd=PACKAGE)
            (archive,) = pathlib.Path(folder).glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
            unpacked = archive.with_suffix("").with_suffix("")
            run("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder,
                unpacked, cwd=folder)
            (wheel,) = pathlib.Path(folder).glob("*.whl")
            names = zipfile.ZipFile(wheel).namelist()
        for name in ("lowkey/py.typed", "lowkey/client.py", "lowkey/v1/generation_pb2.pyi",
                     "lowkey/v1/models_pb2_grpc.py"):
            self.assertIn(name, names)
