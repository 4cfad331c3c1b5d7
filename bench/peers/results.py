"""The samples of a comparison, in one JSON file that a later run goes on with."""
import dataclasses
import json
import os
import statistics
import sys
import time


@dataclasses.dataclass(frozen=True)
class Task:
    """One sample to take."""
    model: str
    threads: int
    measure: str
    turn: int
    contender: str

    def matches(self, sample, *fields):
        return all(sample[name] == getattr(self, name) for name in fields)


class Results:
    """Holds samples; every one is written at once, so that a stopped run loses nothing."""

    def __init__(self, path, settings):
        self.path = path
        self.data = {"settings": settings, "machine": [], "samples": [], "quality": []}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.data = json.load(file)
            if self.data["settings"] != settings:
                raise ValueError(f"--output: {path} has the settings {self.data['settings']}, "
                                 f"expected {settings} (or another file)")

    @property
    def samples(self):
        return self.data["samples"]

    def save(self):
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=1)
            file.write("\n")
        os.replace(self.path + ".new", self.path)

    def has(self, task):
        return any(task.matches(s, "model", "threads", "measure", "turn", "contender")
                   for s in self.samples)

    def add(self, task, seconds, figures):
        self.samples.append({**dataclasses.asdict(task), "seconds": round(seconds, 3),
                             "at": int(time.time()), "figures": figures})
        self.save()

    def add_machine(self, threads, figures):
        self.data["machine"].append({"threads": threads, "at": int(time.time()), **figures})
        self.save()

    def values(self, model, threads, measure, contender, figure):
        """Returns a figure by turn."""
        return {s["turn"]: s["figures"][figure] for s in self.samples
                if (s["model"], s["threads"], s["measure"], s["contender"]) ==
                (model, threads, measure, contender) and figure in s["figures"]}

    def expected_seconds(self, task):
        """Returns how long a sample took before, else what others of its kind suggest, else None."""
        for fields in (("model", "threads", "measure", "contender"), ("model", "threads", "measure"),
                       ("model", "measure")):
            known = [s["seconds"] for s in self.samples if task.matches(s, *fields)]
            if known:
                return statistics.median(known)
        return None


def rough_seconds(task, model_bytes, rounds):
    """Guesses, before anything was measured, from figures of a model of 270 MB in 16 bits.

    They are of two cores with AVX2, and the slowest of the three programs; one thread takes double.
    """
    kind, _, number = task.measure.partition(":")
    n = int(number or 0)
    size = model_bytes / 270e6
    work = {
        "start": 0,
        "depth": n / 400 * (1 + n / 3000) + (1 + n / 2000),
        "streams": 64 * n / (70 + 12 * min(n, 16)),
        "served": n * rounds * 64 / 200,
    }[kind] * size
    return 2 + 1.5 * size + work * 2 / task.threads


class Progress:
    """A bar on a terminal's standard error; elsewhere a line for each measure."""

    def __init__(self, seconds_by_task):
        self.left = dict(seconds_by_task)
        self.all = sum(self.left.values()) or 1
        self.is_terminal = sys.stderr.isatty()
        self.last = None
        self.errors = []

    def show(self, task):
        left = sum(self.left.values())
        share = 1 - left / self.all
        what = (f"{task.model} {task.measure}, {threads_text(task.threads)}, turn {task.turn}, "
                f"{task.contender}")
        if self.is_terminal:
            n = int(20 * share)
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
            line = f"{'█' * n}{'░' * (20 - n)} {share:4.0%} {minutes_text(left)} left  {what}"
            print("\r" + line[:columns - 1].ljust(columns - 1), end="", file=sys.stderr, flush=True)
        elif (task.model, task.measure, task.threads) != self.last:
            print(f"{share:4.0%}, {minutes_text(left)} left: {task.model} {task.measure}, "
                  f"{threads_text(task.threads)}", file=sys.stderr, flush=True)
        self.last = (task.model, task.measure, task.threads)

    def finish(self, task):
        self.left.pop(task, None)

    def fail(self, task, error):
        self.errors.append(f"{task.model} {task.measure}, {threads_text(task.threads)}, "
                           f"{task.contender}: {error}")

    def close(self):
        if self.is_terminal:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
            print("\r" + " " * (columns - 1) + "\r", end="", file=sys.stderr)
        for error in self.errors:
            print(f"not measured: {error}", file=sys.stderr)


def threads_text(n):
    return f"{n} thread" + ("s" if n != 1 else "")


def minutes_text(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
