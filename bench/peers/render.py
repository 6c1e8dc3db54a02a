#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the table, the chart and the words of README.md and docs/peers.md from what run.py has measured.

    render.py RESULTS TABLE.md CHART.svg             writes both
    render.py RESULTS --publish ROOT                 puts them into the documents of a tree, and keeps RESULTS there

Publishes nothing where other work on the machine took more than a tenth of it.
"""

import html
import json
import math
import os
import re
import shutil
import statistics
import sys

from subjects import KEPT, SUBJECTS

BUSY_MAX = 0.1
PHASES = {"single": "enqueue, one by one", "batch": "enqueue, batches", "run": "take + run + finish"}
CHART = os.path.join("images", "peers.svg")  # below docs/
RESULTS = os.path.join("bench", "peers", "results.json")
LASTING = 10_000  # CPU time is that of so many tasks


# ---- figures ----------------------------------------------------------------------------------------


class Row:
    """A subject with the medians of its rounds."""

    def __init__(self, subject, rounds):
        self.subject = subject
        self.rates = {name: statistics.median(r[name]["tasks"] / r[name]["seconds"] for r in rounds) for name in PHASES}
        # In and out again: what a task costs in all.
        self.cpu = statistics.median(
            sum(r[name]["cpu"] / max(1, r[name]["tasks"]) for name in ("batch", "run")) * LASTING for r in rounds)
        self.spread = {name: spread([r[name]["tasks"] / r[name]["seconds"] for r in rounds]) for name in PHASES}


def spread(rates):
    """How far the rounds are apart, as a share of their middle."""
    return (max(rates) - min(rates)) / statistics.median(rates)


def read_rows(results):
    """In the order of the subjects' list."""
    return [Row(s, results["subjects"][s.key]) for s in SUBJECTS if results["subjects"].get(s.key)]


def busy(results):
    """The share of the machine that others had while it was measured."""
    phases = [phase for rounds in results["subjects"].values() for r in rounds for phase in r.values()]
    shares = [phase["others"] / (phase["seconds"] * results["cores"]) for phase in phases]
    return statistics.median(shares)


# ---- words ------------------------------------------------------------------------------------------


def number(value):
    """Three digits that count, in groups of three."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value, -digits):,.0f}".replace(",", " ")


def seconds(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def table(rows):
    lines = ["| | acknowledged means | its end is | " + " | ".join(f"{words}, tasks/s" for words in PHASES.values())
             + f" | CPU s per {number(LASTING)} tasks |", "| --- | --- | --- | ---: | ---: | ---: | ---: |"]
    for kept, words in KEPT.items():
        group = [row for row in rows if row.subject.kept == kept]
        if group:
            lines.append(f"| ***{words}*** | | | | | | |")
        for row in group:
            name = f"**{row.subject.name}**" if row.subject.ours else row.subject.name
            rates = " | ".join(number(row.rates[phase]) for phase in PHASES)
            lines.append(f"| {name} | {row.subject.acknowledged} | {row.subject.ended} | {rates} | {seconds(row.cpu)} |")
    return "\n".join(lines) + "\n"


def rivals(row, rows):
    """Of ours, what this one is held against: all that is at least as safe; and what stands on the same Redis."""
    order = list(KEPT)
    ours = [other for other in rows if other.subject.ours]
    safe = [other for other in ours if order.index(other.subject.kept) <= order.index(row.subject.kept)]
    same = [other for other in ours if other.subject.base and
            (other.subject.base, other.subject.kept) == (row.subject.base, row.subject.kept)]
    return safe, same


def ahead(rows):
    """(peer, phase, our row) where somebody is faster than our best row that is at least as safe, or than ours on the
    same Redis."""
    found = []
    for row in rows:
        for phase in PHASES:
            for ours in rivals(row, rows):
                best = max(ours, key=lambda other: other.rates[phase], default=None)
                if not row.subject.ours and best and row.rates[phase] > best.rates[phase]:
                    found.append((row, phase, best))
                    break
    return found


def ahead_words(rows):
    found = ahead(rows)
    if not found:
        return "In no column of rates is anybody ahead of the fastest of ours that keeps tasks at least as safe, or of ours on the same Redis.\n"
    lines = ["Where others are ahead of the fastest of ours that keeps tasks at least as safe, or of ours on the same Redis:", ""]
    for row, phase, best in found:
        factor = row.rates[phase] / best.rates[phase]
        lines.append(f"* {row.subject.name} ({row.subject.acknowledged}), {PHASES[phase]}: {factor:.1f} × {best.subject.name}")
    return "\n".join(lines) + "\n"


def conditions(results):
    rows = read_rows(results)
    widest = max(row.spread[phase] for row in rows for phase in PHASES)
    known = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (f"Measured on {results['date']}: {results['cores']} × {results['cpu']}, a disk whose sync takes "
            f"{results['sync_ms']:.2f} ms, {results['rounds']} rounds of {results['seconds']:g} s a phase; the medians. The rounds of a "
            f"figure are up to {widest * 100:.0f} % apart; other work had {busy(results) * 100:.1f} % of the machine meanwhile.\n\n"
            f"Versions: {known}.\n")


# ---- chart ------------------------------------------------------------------------------------------

BAR, GAP, HEAD = 16, 6, 30
LABEL, PANEL, BETWEEN = 410, 260, 70
INK, MUTED, OURS, THEIRS, GRID = "#1f2933", "#616e7c", "#0b7285", "#a9b4c0", "#e4e7eb"


def chart_lines(rows):
    """Lines of the chart from top to bottom: a heading (text) or a row."""
    lines = []
    for kept, words in KEPT.items():
        group = [row for row in rows if row.subject.kept == kept]
        if group:
            lines.append(words)
            lines += sorted(group, key=lambda row: -row.rates["run"])
    return lines


def scale(rows, phases):
    """The powers of ten that hold all rates."""
    powers = [math.log10(max(1, row.rates[phase])) for row in rows for phase in phases]
    low = math.floor(min(powers))
    return low, max(math.ceil(max(powers)), low + 1)


def text(x, y, words, **style):
    size, fill, anchor, weight = (style.get("size", 12), style.get("fill", INK), style.get("anchor", "start"),
                                  style.get("weight", "normal"))
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def panel_frame(left, top, bottom, title, limits):
    low, high = limits
    parts = [text(left, top - 26, title, weight="bold")]
    for power in range(low, high + 1):
        x = left + PANEL * (power - low) / (high - low)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(text(x, top - 8, number(10**power), size=10, fill=MUTED, anchor="middle"))
    return parts


def bars(row, lefts, y, limits):
    low, high = limits
    fill = OURS if row.subject.ours else THEIRS
    name = f"{row.subject.name} · {row.subject.acknowledged}"
    parts = [text(LABEL - 10, y + BAR - 4, name, size=11, anchor="end", weight="bold" if row.subject.ours else "normal")]
    for phase, left in lefts.items():
        width = max(1, PANEL * (math.log10(max(1, row.rates[phase])) - low) / (high - low))
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{fill}"/>')
        parts.append(text(left + width + 4, y + BAR - 4, number(row.rates[phase]), size=10))
    return parts


def chart(rows):
    phases = ("batch", "run")
    lines, limits = chart_lines(rows), scale(rows, phases)
    lefts = {phase: LABEL + i * (PANEL + BETWEEN) for i, phase in enumerate(phases)}
    top = 60
    height = top + sum(HEAD if isinstance(line, str) else BAR + GAP for line in lines) + 40
    width = LABEL + len(phases) * (PANEL + BETWEEN) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif">', "<title>Tasks a second, side by side</title>",
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for phase, left in lefts.items():
        parts += panel_frame(left, top, height - 36, f"{PHASES[phase]}, tasks/s", limits)
    y = top
    for line in lines:
        if isinstance(line, str):
            parts.append(text(10, y + HEAD - 10, line, fill=MUTED, weight="bold"))
            y += HEAD
        else:
            parts += bars(line, lefts, y, limits)
            y += BAR + GAP
    parts.append(text(10, height - 14, "Each grid line is ten times the one before it. 100-byte payloads, handlers that do "
                      "nothing; medians.", size=11, fill=MUTED))
    return "\n".join(parts + ["</svg>"]) + "\n"


# ---- documents --------------------------------------------------------------------------------------


def put_between(path, name, words):
    """Replaces what stands between the marks of that name."""
    begin, end = f"<!-- {name}: made by `make peers` -->", f"<!-- {name}: end -->"
    with open(path, encoding="utf-8") as file:
        old = file.read()
    new, n = re.subn(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{words}{end}", old, flags=re.DOTALL)
    if n != 1:
        sys.exit(f"peers: {path} has {n} places for {name}, not one")
    with open(path, "w", encoding="utf-8") as file:
        file.write(new)


def publish(path, root):
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    missing = [subject.key for subject in SUBJECTS if subject.key not in results["subjects"]]
    if missing:
        sys.exit(f"peers: not published, not measured: {', '.join(missing)}")
    if busy(results) > BUSY_MAX:
        sys.exit(f"peers: not published: other work had {busy(results) * 100:.0f} % of the machine")
    rows = read_rows(results)
    os.makedirs(os.path.join(root, "docs", "images"), exist_ok=True)
    with open(os.path.join(root, "docs", CHART), "w", encoding="utf-8") as file:
        file.write(chart(rows))
    kept = os.path.join(root, RESULTS)
    if os.path.abspath(path) != os.path.abspath(kept):
        shutil.copyfile(path, kept)
    words = conditions(results) + "\n" + table(rows) + f"\n![chart]({CHART})\n\n" + ahead_words(rows)
    put_between(os.path.join(root, "docs", "peers.md"), "peers", words)
    synced = [row for row in rows if row.subject.kept == "synced"]
    words = table(synced) + f"\n![chart](docs/{CHART})\n\n" + ahead_words(rows)
    put_between(os.path.join(root, "README.md"), "peers", words)


def main(arguments):
    if len(arguments) == 3 and arguments[1] == "--publish":
        publish(arguments[0], arguments[2])
        return
    if len(arguments) != 3:
        sys.exit(__doc__)
    with open(arguments[0], encoding="utf-8") as file:
        rows = read_rows(json.load(file))
    for path, words in ((arguments[1], table(rows) + "\n" + ahead_words(rows)), (arguments[2], chart(rows))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(words)


if __name__ == "__main__":
    main(sys.argv[1:])
