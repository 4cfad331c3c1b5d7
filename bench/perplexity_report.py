"""Prints the tables of docs/perplexity.md and writes its plot, from those of perplexity_table.sh.

python3 bench/perplexity_report.py PLOT.svg TABLE.csv...
"""

import csv
import math
import re
import sys

# Rows of the grid of ranks, blocks and bases; all others are listed by their labels.
PLAIN = re.compile(r"atp rank (?P<rank>\d+) basis (?P<basis>layer|kv) block (?P<block>\d+) window (?P<window>\d+)")
COLORS = ["#4477aa", "#228833", "#ccaa22", "#ee6677"]  # by block
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 360, 300, 60, 40, 50


def read(path):
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plain = PLAIN.fullmatch(row["attention"])
            yield {"label": row["attention"], "plain": plain is not None,
                   **(plain.groupdict() if plain else {}),
                   "context": int(row["context_tokens"]), "ratio": float(row["ratio_to_first"]),
                   "perplexity": float(row["perplexity"]), "tokens": int(row["tokens"]),
                   "bytes": int(row["cache_bytes"]), "standard_bytes": int(row["standard_cache_bytes"])}


def numbers(rows, name):
    return sorted({int(row[name]) for row in rows})


def print_tables(rows):
    for context in numbers(rows, "context"):
        here = [row for row in rows if row["context"] == context]
        standard = next(row for row in here if row["label"] == "standard")
        print(f"\n## {context:,} tokens\n\nStandard attention: perplexity {standard['perplexity']:.2f} "
              f"({standard['tokens']:,} tokens scored), cache {standard['bytes'] / 2**20:.1f} MiB.\n")
        atp = [row for row in here if row["plain"]]
        for basis in ("layer", "kv"):
            cells = {(int(row["block"]), int(row["rank"])): row for row in atp
                     if row["basis"] == basis and row["window"] == "0"}
            if cells:
                print_table(basis, cells)
        exact = [row for row in atp if row["window"] != "0"]
        if exact:
            print("| newest closed block exact (window 1) | ratio | with window 0 |\n|---|---|---|")
        for row in exact:
            closed = [cell(other) for other in atp if other["window"] == "0" and all(
                other[key] == row[key] for key in ("rank", "block", "basis"))]
            print(f"| rank {row['rank']}, block {row['block']}, basis {row['basis']} "
                  f"| {cell(row)} | {''.join(closed)} |")
        others = [row for row in here if not row["plain"] and row["label"] != "standard"]
        if others:
            print("\n| other settings | ratio |\n|---|---|")
        for row in others:
            print(f"| {row['label']} | {row['ratio']:.3f} ({share(row):.0%}) |")


def print_table(basis, cells):
    blocks = sorted({block for block, _ in cells})
    print(f"| basis {basis}: rank | " + " | ".join(f"block {block}" for block in blocks) + " |")
    print("|---" * (len(blocks) + 1) + "|")
    for rank in sorted({rank for _, rank in cells}):
        print(f"| {rank} | " + " | ".join(
            cell(cells[block, rank]) if (block, rank) in cells else "" for block in blocks) + " |")
    print()


def cell(row):
    return f"{row['ratio']:.2f} ({share(row):.0%})"


def share(row):
    return row["bytes"] / row["standard_bytes"]


class Plot:
    """Panels side by side, both axes logarithmic."""

    def __init__(self, rows):
        self.low = min(map(share, rows)) / 1.2
        self.top = max(row["ratio"] for row in rows) * 1.1
        self.parts = []

    def x(self, panel, value):
        left = LEFT + panel * (PANEL_WIDTH + GAP)
        return left + PANEL_WIDTH * math.log(value / self.low) / math.log(1 / self.low)

    def y(self, value):
        return TOP + PANEL_HEIGHT * (1 - math.log(value / 0.97) / math.log(self.top / 0.97))

    def text(self, x, y, text, anchor="middle", **style):
        attributes = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in style.items())
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{text}</text>')

    def line(self, points, color, width=1.0, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"'
                          + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def axes(self, panel, context):
        left, right = self.x(panel, self.low), self.x(panel, 1)
        for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1):
            if tick >= self.low:
                at = self.x(panel, tick)
                self.line([(at, TOP), (at, TOP + PANEL_HEIGHT)], "#ddd")
                self.text(at, TOP + PANEL_HEIGHT + 16, f"{tick:.0%}")
        for tick in (1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100):
            if tick <= self.top:
                self.line([(left, self.y(tick)), (right, self.y(tick))], "#999" if tick == 1 else "#ddd")
                self.text(left - 6, self.y(tick) + 4, f"{tick:g}", "end")
        self.text((left + right) / 2, TOP - 14, f"{context:,} tokens of context", font_weight="bold")
        self.text((left + right) / 2, TOP + PANEL_HEIGHT + 34, "cache, of standard's")

    def curve(self, panel, rows, color, dash):
        points = [(self.x(panel, share(row)), self.y(row["ratio"])) for row in rows]
        self.line(points, color, 1.8, dash)
        for (x, y), row in zip(points, rows):
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"><title>rank {row["rank"]}, '
                              f'block {row["block"]}, {row["basis"]}: {row["ratio"]:.3f}</title></circle>')


def write_plot(rows, path):
    atp = [row for row in rows if row["plain"] and row["window"] == "0"]
    contexts, blocks = numbers(atp, "context"), numbers(atp, "block")
    plot = Plot(atp)
    for panel, context in enumerate(contexts):
        plot.axes(panel, context)
        for color, block in zip(COLORS, blocks):
            for basis, dash in (("layer", ""), ("kv", "5 3")):
                line = [row for row in atp if (row["context"], int(row["block"]), row["basis"]) == (context, block, basis)]
                plot.curve(panel, sorted(line, key=lambda row: int(row["rank"])), color, dash)
    width = LEFT + len(contexts) * (PANEL_WIDTH + GAP) - GAP + 20
    plot.text(16, TOP + PANEL_HEIGHT / 2, "perplexity, to standard's",
              transform=f"rotate(-90 16 {TOP + PANEL_HEIGHT / 2})")
    at = TOP + PANEL_HEIGHT + 62
    legend = [(f"block {block}", color, "") for color, block in zip(COLORS, blocks)]
    for number, (label, color, dash) in enumerate(legend + [("basis layer", "#555", ""), ("basis kv", "#555", "5 3")]):
        x, y = LEFT + number % 3 * 125, at + number // 3 * 18
        plot.line([(x, y - 4), (x + 28, y - 4)], color, 1.8, dash)
        plot.text(x + 34, y, label, "start")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{at + 36}" '
                   'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
                   + "\n".join(plot.parts) + "\n</svg>\n")


if __name__ == "__main__":
    table = [row for path in sys.argv[2:] for row in read(path)]
    print_tables(table)
    write_plot(table, sys.argv[1])
