"""The commands from end to end on a tiny vocabulary and tiny models."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import torch

from .. import __main__ as command_line
from ..checkpoint import load_model, read_bundle

ROOT = Path(__file__).resolve().parents[2]
TALES = ROOT / "models" / "tales"


def write_stories(path: Path) -> None:
    stories = [
        f"Once there was a fox number {i}. The fox ran over hill {i % 7} and met a hen. " * 12
        for i in range(40)
    ]
    path.write_text("\n<|endoftext|>\n".join(stories), encoding="utf-8")


def run(*arguments) -> str:
    out = io.StringIO()
    with mock.patch.object(sys, "argv", ["training", *map(str, arguments)]):
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            command_line.main()
    return out.getvalue()


class Commands(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = Path(directory.name)
        self.stories = self.folder / "stories.txt"
        write_stories(self.stories)
        self.train_arguments = [
            "train", "--tokenizer", TALES / "tokenizer.model", "--validation", self.stories,
            "--source", f"{self.stories}=1,1", "--output", self.folder / "run", "--layers", "1",
            "--hidden", "64", "--context", "512", "--batch-tokens", "2048", "--threads", "1",
        ]  # fmt: skip

    def trained(self) -> Path:
        run(*self.train_arguments, "--tokens", "20000")
        model = self.folder / "model"
        run(
            "export", "--checkpoint", self.folder / "run" / "checkpoint.pt", "--tokenizer",
            TALES / "tokenizer.model", "--validation", self.stories, "--windows", "512",
            "--output", model,
        )  # fmt: skip
        return model

    def test_train_export_evaluate_adapt(self):
        model = self.trained()
        entries = {entry["name"]: entry for entry in read_bundle(model)}
        self.assertEqual(set(entries), {"taylorshift", "optimised", "efficient", "super"})
        self.assertEqual(entries["taylorshift"]["score_dim"], 16)
        self.assertIn("512", entries["efficient"]["perplexity_ratio"])
        results = self.folder / "results.json"
        run("evaluate", "--model", model, "--validation", self.stories, "--windows", "512",
            "--max-tokens", "1024", "--retrieval", "2", "--json", results)  # fmt: skip
        measured = json.loads(results.read_text())
        self.assertEqual({m["mechanism"] for m in measured}, {*entries, "standard"})
        self.assertTrue(all(m["perplexity"] < 4096 for m in measured if "perplexity" in m))
        run("adapt", "--model", model, "--mechanism", "atp", "--tokens", "4000", "--rank", "4",
            "--block", "64", "--source", f"{self.stories}=1,1", "--validation", self.stories,
            "--windows", "512", "--validation-tokens", "1024", "--output", self.folder / "atp",
            "--threads", "1")  # fmt: skip
        self.assertEqual(load_model(model).config.lora_rank, 32)
        self.assertIn("atp", {entry["name"] for entry in read_bundle(model)})
        # Tokens for hours, of which a second is left.
        run("adapt", "--model", model, "--mechanism", "taylorshift", "--tokens", "1e9",
            "--transfer-tokens", "5e8", "--minutes", "0.02", "--source", f"{self.stories}=1,1",
            "--validation", self.stories, "--windows", "512", "--measure", "256",
            "--validation-tokens", "1024", "--output", self.folder / "short",
            "--threads", "1")  # fmt: skip
        entries = {entry["name"]: entry for entry in read_bundle(model)}
        self.assertEqual(list(entries["taylorshift"]["perplexity_ratio"]), ["256"])
        saved = torch.load(self.folder / "short" / "checkpoint.pt", weights_only=False)
        self.assertGreaterEqual(saved["elapsed_s"], 1.2)

    def test_a_written_model_computes_what_the_checkpoint_does(self):
        model = load_model(self.trained())
        state = torch.load(self.folder / "run" / "checkpoint.pt", weights_only=False)["model"]
        tokens = torch.arange(3, 40)[None]
        for mechanism in model.config.mechanisms:
            exported = model(tokens, mechanism)
            with torch.no_grad():
                fresh = load_model(self.folder / "model")
                fresh.load_state_dict({k: v.bfloat16().float() for k, v in state.items()})
                torch.testing.assert_close(exported, fresh(tokens, mechanism))

    def test_training_continues_after_being_told_to_stop(self):
        arguments = [
            sys.executable,
            "-m",
            "training",
            *map(str, self.train_arguments),
            "--tokens",
            "1e9",
        ]
        first = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(15, lambda: os.kill(first.pid, signal.SIGTERM))
        timer.start()
        first.wait()
        timer.cancel()
        self.assertEqual(first.returncode, 0, first.stderr.read())
        first.stderr.close()
        saved = torch.load(self.folder / "run" / "checkpoint.pt", weights_only=False)
        self.assertGreater(saved["n_tokens"], 0)
        run(*self.train_arguments, "--tokens", str(saved["n_tokens"] + 1))
        after = torch.load(self.folder / "run" / "checkpoint.pt", weights_only=False)
        self.assertEqual(after["n_steps"], saved["n_steps"] + 1)


if __name__ == "__main__":
    unittest.main()
