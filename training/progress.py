"""A progress bar in a terminal, a line every half minute elsewhere; notable lines in a log too."""

import signal
import sys
import time
from pathlib import Path

LINE_SECONDS = 30


def watch_stop_signals() -> list:
    """Returns a list that is empty until the process is told to stop (SIGTERM, SIGINT)."""
    stopping: list = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.append(True))
    return stopping


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"


class Progress:
    def __init__(self, log: Path, total: float, unit: str):
        self.file = log.open("a", encoding="utf-8", buffering=1)
        self.total, self.unit = total, unit
        self.is_terminal = sys.stderr.isatty()
        self.start(0)

    def start(self, n_done: int, share: float | None = None) -> None:
        """Begins at n_done units; share is as in `update`."""
        self.start_s = self.shown_s = time.monotonic()
        self.start_done = n_done
        self.start_share = n_done / max(self.total, 1) if share is None else share
        self.losses: dict[str, float] = {}

    def line(self, text: str) -> None:
        """Prints a line with the time and keeps it in the log."""
        text = f"{time.strftime('%H:%M:%S')} {text}"
        print(("\r\x1b[K" if self.is_terminal else "") + text, file=sys.stderr, flush=True)
        self.file.write(text + "\n")

    def update(
        self, n_done: int, losses: dict[str, list[float]], share: float | None = None
    ) -> None:
        """Takes in what was done in all, and the newest losses by mechanism.

        share is what part of the work that is, by default that of the units.
        """
        for name, values in losses.items():
            for value in values:
                self.losses[name] = 0.95 * self.losses.get(name, value) + 0.05 * value
        now_s = time.monotonic()
        if now_s - self.shown_s < (0.5 if self.is_terminal else LINE_SECONDS):
            return
        self.shown_s = now_s
        seconds = max(now_s - self.start_s, 1e-9)
        speed = (n_done - self.start_done) / seconds
        share = min(1.0, n_done / self.total if share is None else share)
        left = duration((1 - share) * seconds / max(share - self.start_share, 1e-9))
        losses_text = " ".join(f"{name[:4]} {value:.3f}" for name, value in self.losses.items())
        text = (
            f"{100 * share:5.1f}% {n_done / 1e6:.2f}M {self.unit}  {speed:.0f}/s  {left} left  "
            f"{losses_text}"
        )
        if self.is_terminal:
            bar = "#" * round(20 * share)
            print(f"\r\x1b[K[{bar:<20}] {text}", end="", file=sys.stderr, flush=True)
        else:
            self.line(text)
