#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the last column of docs/proof.md from bench/campaign.json. Usage: proof.py [ROOT]

A cell begins with a comment that names parts of the campaign (scripts/campaign.py), or one and "in full"; what stands behind it is
made here. tidy.py asks problems() whether every test that is named exists, every promise has a row, and every cell is what it would be made.
"""

import json
import os
import re
import sys

PAGE = "docs/proof.md"
RESULTS = "bench/campaign.json"
CELL = re.compile(r"<!-- ([a-z ]+?)( in full)? -->[^|]*?(?= *\|)")
NOT_YET = "not yet run"
TEST_FILES = (".c", ".sh")
# Where promises are made, and under which heading.
PROMISES = {"README.md": "## What is promised", "docs/guarantees.md": "## In one line each"}


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


# ---- the last column ----------------------------------------------------------------------------


def thousands(value):
    return "{:,}".format(value).replace(",", " ")


def passed_of(result):
    """What is not said of a part of which all went well."""
    if result["pieces_passed"] == result["pieces"]:
        return ""
    return " (%d of %d pieces passed)" % (result["pieces_passed"], result["pieces"])


def in_brief(result):
    name, value = next(iter(result["figures"].items()))
    return "%s %s%s" % (thousands(value), name, passed_of(result))


def in_full(result):
    figures = ", ".join("%s %s" % (thousands(value), name) for name, value in result["figures"].items())
    return "%s%s; `%s` on %s, from seed %d" % (figures, passed_of(result), result["commit"], result["date"],
                                               result["first_seed"])


def filled(root):
    results = json.loads(read(root, RESULTS)) if os.path.exists(os.path.join(root, RESULTS)) else {}

    def cell(match):
        say = in_full if match.group(2) else in_brief
        said = [say(results[part]) for part in match.group(1).split() if part in results]
        return "<!-- %s%s -->%s" % (match.group(1), match.group(2) or "", "; ".join(said) or NOT_YET)

    return CELL.sub(cell, read(root, PAGE))


# ---- what is named ------------------------------------------------------------------------------


def known_tests(root):
    """Files of tests by their names, and every word of C in them that stands where a test function does."""
    names = set()
    for folder, _, files in os.walk(os.path.join(root, "tests")):
        for file in files:
            stem, ending = os.path.splitext(file)
            if ending not in TEST_FILES:
                continue
            names.update((file, stem))
            if stem.startswith("main_"):
                names.update(prefix + stem[len("main_"):] for prefix in ("millrace-", "conform_", "store_"))
            if ending == ".c":
                with open(os.path.join(folder, file), encoding="utf-8", errors="replace") as text:
                    names.update(re.findall(r"^static void (\w+)\(void \*\*", text.read(), re.MULTILINE))
    return names


def promises(root):
    """(file, promise): what stands in bold under the heading."""
    for path, heading in PROMISES.items():
        section = read(root, path).partition(heading)[2].partition("\n## ")[0]
        for promise in re.findall(r"\*\*(.+?)\*\*", section, re.DOTALL):
            yield path, " ".join(promise.split())


def problems(root):
    """(line, message) for all that is wrong with the page."""
    text = read(root, PAGE)
    tests = known_tests(root)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split(" | ")
        if not line.startswith("| ") or len(cells) < 3:
            continue
        for name in re.findall(r"`([\w.-]+)`", cells[1]):
            if name not in tests:
                yield number, "no test is called %s" % name
    for path, promise in promises(root):
        if not any("**%s" % promise.rstrip(".") in row for row in rows):
            yield 1, "%s promises \"%s\", which has no row" % (path, promise)
    if filled(root) != text:
        yield 1, "its figures are not those of %s: run scripts/proof.py" % RESULTS


def main(arguments):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = arguments[1] if len(arguments) == 2 else here
    text = filled(root)
    with open(os.path.join(root, PAGE), "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
