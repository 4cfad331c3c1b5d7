"""Tables of samples for a terminal of any width."""
import os
import shutil
import statistics
import sys

from peers.results import threads_text

BITS = (16, 8, 4)


def median_and_range(values):
    return statistics.median(values), min(values), max(values)


def number_text(x):
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.1f}" if x >= 10 else f"{x:.2f}"


class Style:
    """Colors where standard output is a terminal that wants them, and its width."""

    def __init__(self, file=None):
        file = file or sys.stdout
        self.has_colors = (file.isatty() and "NO_COLOR" not in os.environ
                           and os.environ.get("TERM") != "dumb")
        self.columns = shutil.get_terminal_size((100, 24)).columns if file.isatty() else 100

    def paint(self, text, code):
        return f"\033[{code}m{text}\033[0m" if self.has_colors and code else text


class Table:
    """Rows of cells, each the values of the turns; a cell is their median and range.

    Where the terminal is too narrow for ranges, cells are medians; where it is too narrow for
    those, the columns go on below.
    """

    def __init__(self, title, columns, style):
        self.title, self.columns, self.style = title, columns, style
        self.rows = []

    def add(self, name, cells, group="", form=number_text):
        """`cells` has a list of values for each column, empty where there is none."""
        self.rows.append((name, cells, group, form))

    def cell(self, values, form, with_range):
        if not values:
            return "-"
        middle, low, high = median_and_range(values)
        if not with_range or len(values) == 1:
            return form(middle)
        return f"{form(middle)} ({form(low)}-{form(high)})"

    def lines(self):
        name_width = max([len(row[0]) for row in self.rows] + [0])
        for with_range in (True, False):
            texts = [[self.cell(v, form, with_range) for v in cells]
                     for _, cells, _, form in self.rows]
            widths = [max(len(self.columns[i]), *(len(t[i]) for t in texts))
                      for i in range(len(self.columns))]
            if name_width + sum(w + 2 for w in widths) <= self.style.columns:
                break
        lines = [self.style.paint(self.title, "1")]
        begin = 0
        while begin < len(widths):
            end, used = begin, name_width
            while end < len(widths) and (end == begin
                                         or used + widths[end] + 2 <= self.style.columns):
                used += widths[end] + 2
                end += 1
            lines += self.block(texts, widths, name_width, range(begin, end))
            begin = end
        if not with_range and any(len(v) > 1 for _, cells, _, _ in self.rows for v in cells):
            lines.append("medians; a wider terminal shows ranges too")
        return lines

    def block(self, texts, widths, name_width, columns):
        header = " " * name_width + "".join(f"  {self.columns[i]:>{widths[i]}}" for i in columns)
        lines = [self.style.paint(header, "2")]
        for (name, cells, group, _), row in zip(self.rows, texts):
            if all(row[i] == "-" for i in columns):
                continue
            line = f"{name:<{name_width}}"
            for i in columns:
                is_best = group and cells[i] and self.is_best(group, i, cells[i])
                line += "  " + self.style.paint(f"{row[i]:>{widths[i]}}", "1;32" if is_best else "")
            lines.append(line)
        return lines

    def is_best(self, group, i, values):
        others = [statistics.median(cells[i]) for _, cells, g, _ in self.rows
                  if g == group and cells[i]]
        return statistics.median(values) == max(others)

    def print(self):
        print("\n".join(self.lines()) + "\n")


def ratios(results, model, threads, measure, figure, ours, peers):
    """By turn: the better of our contenders over the better of the peers, by their medians."""
    def best(names):
        found = [values for values in (results.values(model, threads, measure, name, figure)
                                       for name in names) if values]
        return max(found, key=lambda values: statistics.median(values.values()), default={})
    mine, theirs = best(ours), best(peers)
    return [mine[turn] / theirs[turn] for turn in sorted(mine.keys() & theirs.keys())]


def add_ratios(table, results, model, threads, cells, contenders):
    """Adds lowkey over the better of all peers, for each class of formats and for the best."""
    for bits in (*BITS, None):
        chosen = [c for c in contenders if bits in (None, c.bits)]
        ours = [c.name for c in chosen if c.program == "lowkey"]
        peers = [c.name for c in chosen if c.program != "lowkey"]
        row = [ratios(results, model, threads, measure, figure, ours, peers)
               for measure, figure in cells]
        if any(row):
            name = "lowkey / peers, " + (f"{bits} bits" if bits else "best")
            table.add(name, row, form=lambda x: f"{x:.2f}")


def print_group(results, style, model, threads, title, cells, contenders, with_ratios=True):
    """Prints one table: `cells` is a list of (column, measure, figure)."""
    measured = [(column, measure, figure) for column, measure, figure in cells
                if any(results.values(model, threads, measure, c.name, figure)
                       for c in contenders)]
    if not measured:
        return
    table = Table(f"{model}, {threads_text(threads)}: {title}", [m[0] for m in measured], style)
    for c in contenders:
        row = [list(results.values(model, threads, measure, c.name, figure).values())
               for _, measure, figure in measured]
        if any(row):
            table.add(c.name + mark(results, model, c), row,
                      "rates" if with_ratios else "")
    if with_ratios:
        add_ratios(table, results, model, threads, [m[1:] for m in measured], contenders)
    table.print()


def mark(results, model, contender):
    """Says where lowkey holds a file's weights in another type than the file does."""
    for sample in results.samples:
        kept = sample["figures"].get("dtype")
        if kept and (sample["model"], sample["contender"]) == (model, contender.name):
            same = {"bf16": "bfloat16"}.get(contender.format, contender.format.lower())
            return "" if kept.lower().startswith(same) else f" as {kept}"
    return ""


def print_tables(results, style, model, threads, measures, contenders):
    depths = [m for m in measures if m.startswith("depth:")]
    streams = [m for m in measures if m.startswith("streams:")]
    served = [m for m in measures if m.startswith("served:")]

    def n(measure):
        return f"{int(measure.partition(':')[2]):,}"

    def show(title, cells, with_ratios=True):
        print_group(results, style, model, threads, title, cells, contenders, with_ratios)

    show("prompt tokens/s by length of the prompt",
         [(n(m), m, "prefill_tokens_per_s") for m in depths])
    show("tokens/s of one stream behind a prompt",
         [(n(m), m, "decode_tokens_per_s") for m in depths])
    show("tokens/s by streams, prompts of 16",
         [(n(m), m, "decode_tokens_per_s") for m in streams])
    show("output tokens/s of clients, 128 tokens in and 64 out",
         [(n(m), m, "output_tokens_per_s") for m in served])
    show("start, and memory under the clients",
         [("ready, ms", "start", "ready_ms"), ("then MiB", "start", "rss_mib"),
          *((f"{n(m)} clients, MiB", m, "peak_rss_mib") for m in served)], with_ratios=False)
