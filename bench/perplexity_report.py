"""Prints the tables of docs/perplexity.md and writes a page with its plots, from those of perplexity_table.sh.

python3 bench/perplexity_report.py PAGE.html TABLE.csv...
"""

import csv
import datetime
import html
import json
import pathlib
import platform
import re
import subprocess
import sys

# Labels of the grid of ranks, blocks and bases; all other settings are listed by their labels.
PLAIN = re.compile(r"atp rank (?P<rank>\d+) basis (?P<basis>layer|kv) block (?P<block>\d+) window (?P<window>\d+)")
ROOT = pathlib.Path(__file__).resolve().parent.parent


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


def chart(rows, context):
    """Returns a chart of client/report/page.h: perplexity against cache, one line for each block and basis."""
    series = []
    for color, block in enumerate(numbers(rows, "block")):
        for basis in ("layer", "kv"):
            line = sorted((row for row in rows if (row["context"], int(row["block"]), row["basis"]) == (context, block, basis)),
                          key=lambda row: int(row["rank"]))
            series.append({"name": f"block {block}, basis {basis}", "color": color, "dash": basis == "kv",
                           "points": [[round(100 * share(row), 2), row["ratio"]] for row in line]})
    return {"title": f"{context:,} tokens of context",
            "x": {"label": "cache of standard attention's", "unit": "%", "scale": "log"},
            "y": {"label": "perplexity over standard attention's", "scale": "log"},
            "series": [one for one in series if one["points"]]}


def write_page(rows, path):
    atp = [row for row in rows if row["plain"] and row["window"] == "0"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    report = {"title": "Perplexity by cache size", "machine": platform.machine(), "commit": commit.stdout.strip(),
              "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
              "charts": [chart(atp, context) for context in numbers(atp, "context")]}
    cells = "".join(f"<tr><td>{html.escape(row['label'])}</td><td>{row['context']:,}</td><td>{row['ratio']:.3f}</td>"
                    f"<td>{share(row):.1%}</td></tr>\n" for row in rows)
    tables = ('<h2>Every setting</h2>\n<div class="scroll"><table><tr><th>attention</th><th>context, tokens</th>'
              f'<th>perplexity ratio</th><th>cache</th></tr>\n{cells}</table></div>')
    page = (ROOT / "client/report/page.html").read_text(encoding="utf-8")
    for name, text in (("TITLE", html.escape(report["title"])), ("TABLES", tables),
                       ("REPORT", json.dumps(report).replace("<", "\\u003c"))):
        page = page.replace(f"@{name}@", text)
    pathlib.Path(path).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    table = [row for path in sys.argv[2:] for row in read(path)]
    print_tables(table)
    write_page(table, sys.argv[1])
