"""ListOps: the generator, its labels, the training of both mechanisms, a stopped training."""

import argparse
import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch

from .. import listops
from ..listops import CLOSE, NO_TARGET, TEST, TRAIN, VOCABULARY, draw_examples
from ..mechanisms import taylor, taylorshift_direct
from .test_mechanisms import heads

OPERATORS = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: int(np.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def values_of_brackets(tokens: list[int]) -> list[int]:
    """Evaluates an expression's text with a stack; returns a value for each closing bracket."""
    stack: list[tuple[str, list[int]]] = [("", [])]
    values = []
    for word in (VOCABULARY[token] for token in tokens):
        if word == "]":
            operator, arguments = stack.pop()
            values.append(OPERATORS[operator](arguments))
            stack[-1][1].append(values[-1])
        elif word in OPERATORS:
            stack.append((word, []))
        else:
            stack[-1][1].append(int(word))
    assert stack == [("", values[-1:])]
    return values


def deepest(tokens: list[int]) -> int:
    steps = [(t == CLOSE) * -1 + (10 <= t < CLOSE) for t in tokens]
    return int(np.cumsum(steps).max())


class Examples(unittest.TestCase):
    def test_targets_are_the_values_of_the_brackets(self):
        for lengths in ((4, 60), (500, 2000)):
            for example in draw_examples((TRAIN, 3), 100, lengths):
                self.assertTrue(lengths[0] <= len(example.tokens) <= lengths[1])
                self.assertLess(deepest(example.tokens), listops.MAX_DEPTH)
                brackets = [v for v in example.targets if v != NO_TARGET]
                self.assertEqual(brackets, values_of_brackets(example.tokens))
                at_brackets = [v != NO_TARGET for v in example.targets]
                self.assertEqual(at_brackets, [token == CLOSE for token in example.tokens])
                self.assertEqual(example.answer, brackets[-1])

    def test_a_seed_gives_its_examples_and_no_others(self):
        train = draw_examples((TRAIN, 1, 0), 200, (100, 200))
        self.assertEqual(train, draw_examples((TRAIN, 1, 0), 200, (100, 200)))
        others = [
            *draw_examples((TRAIN, 1, 1), 200, (100, 200)),
            *draw_examples((TRAIN, 2, 0), 200, (100, 200)),
            *draw_examples((TEST,), 200, (100, 200)),
        ]
        texts = {tuple(example.tokens) for example in [*train, *others]}
        self.assertEqual(len(texts), 800)

    def test_every_class_and_operator_occurs(self):
        examples = draw_examples((TRAIN, 5), 400, (20, 60))
        self.assertEqual({example.answer for example in examples}, set(range(10)))
        self.assertEqual({t for example in examples for t in example.tokens}, set(range(15)))

    def test_parts_hold_every_example_within_the_limit(self):
        examples = draw_examples((TRAIN, 5), 50, (20, 100))
        parts = list(listops.parts_of(examples, 300, "cpu"))
        self.assertTrue(all(part.tokens.numel() <= 300 for part in parts))
        rows = [row[: end + 1].tolist() for part in parts
                for row, end in zip(part.tokens, part.ends)]  # fmt: skip
        self.assertEqual(rows, [example.tokens for example in examples])


class Direct(unittest.TestCase):
    def test_blocks_of_rows_equal_the_sum_over_pairs(self):
        q, k, v = (heads(2, 300, 8, seed) for seed in (1, 2, 3))
        tau = torch.tensor([3.0, 9.0])
        unit_q, unit_k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        weights = torch.tril(taylor(tau[:, None, None] * (unit_q @ unit_k.mT)))
        scale = (torch.arange(1, 301)[:, None] / 8) ** 0.5
        wanted = weights @ v / weights.sum(-1, keepdim=True) * scale
        got = taylorshift_direct(q, k, v, tau)
        torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)


class Training(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = Path(directory.name)

    def arguments(self, mechanism: str, *more: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        listops.add_arguments(parser)
        return parser.parse_args([
            "--mechanism", mechanism, "--output", str(self.folder), "--lengths", "4,30",
            "--layers", "1", "--hidden", "32", "--batch-examples", "16", "--test-examples", "50",
            "--threads", "1", "--examples", "1600", *more,
        ])  # fmt: skip

    def test_some_steps_lower_the_loss(self):
        for mechanism in ("standard", "taylorshift"):
            for supervise in ("all", "answer"):
                run = listops.Run(self.arguments(mechanism, "--supervise", supervise))
                losses = [run.step()["answer"][0] for _ in range(60)]
                first, last = np.mean(losses[:5]), np.mean(losses[-15:])
                self.assertLess(last, 0.92 * first, (mechanism, supervise))

    def test_a_stopped_training_continues_to_the_same_weights(self):
        whole = listops.Run(self.arguments("taylorshift"))
        stopped = listops.Run(self.arguments("taylorshift"))
        for _ in range(40):
            whole.step()
        for _ in range(25):
            stopped.step()
        stopped.save()
        continued = listops.Run(self.arguments("taylorshift"))
        continued.load()
        for _ in range(15):
            continued.step()
        for got, wanted in zip(continued.model.parameters(), whole.model.parameters()):
            torch.testing.assert_close(got, wanted)
        with self.assertRaisesRegex(ValueError, "made for"):
            listops.Run(self.arguments("taylorshift", "--seed", "2")).load()

    def test_the_command_tests_and_then_continues(self):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            listops.main(self.arguments("standard", "--examples", "160"))
            listops.main(self.arguments("standard", "--examples", "320"))
        self.assertIn("continuing from step 10", shown.getvalue())
        self.assertIn("done: 20 steps, 320 examples", shown.getvalue())
        results = json.loads((self.folder / "results.json").read_text())
        self.assertEqual(results["accuracy"], sum(results["right"]) / 50)
        low, high = results["interval"]
        self.assertTrue(low < results["accuracy"] < high)

    def test_an_interval_is_wilsons(self):
        low, high = listops.wilson_interval(50, 100)
        self.assertAlmostEqual(low, 0.4038, places=4)
        self.assertAlmostEqual(high, 0.5962, places=4)


if __name__ == "__main__":
    unittest.main()
