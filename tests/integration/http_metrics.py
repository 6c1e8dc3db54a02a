#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether figures are as Prometheus wants them. Usage: http_metrics.py METRICS ROOT

METRICS is what a server answered; ROOT has docs/metrics.md, packaging/alerts.yml and packaging/grafana.json. Each line
has the right form, each name one type and help, histograms add up; the document has all names with their type, labels and
text, and no others; alerts and board use nothing that is not there. Prints the commands that the alerts name.
"""

import json
import re
import sys

LABEL = r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(r'(millrace_[a-z_]+)(?:\{(%s(?:,%s)*)\})? (\+Inf|NaN|-?[0-9.]+(?:e[+-]?[0-9]+)?)' % (LABEL, LABEL))
ROW = re.compile(r"\| `(millrace_\w+)` \| (\w+) \| ([\w, ]*) ?\| (.+) \|$", re.MULTILINE)
SEVERITIES = {"page", "ticket"}
GIVEN = {"instance", "le"}  # labels that Prometheus itself adds

problems = []


def wrong(what):
    problems.append(what)


class Family:
    def __init__(self, kind, text):
        self.kind, self.text = kind, text
        self.samples = {}  # (suffix, labels) to value

    def labels(self):
        return {name for _, labels in self.samples for name, _ in labels} - {"le"}


def family_of(families, name):
    """The family of a sample and what its name has behind that of the family."""
    for suffix in ("", "_bucket", "_sum", "_count"):
        base = name[: len(name) - len(suffix)] if suffix else name
        if name.endswith(suffix) and base in families and (suffix == "") != (families[base].kind == "histogram"):
            return base, suffix
    return None, None


def read_metrics(text):
    families, current = {}, None
    if not text.endswith("\n"):
        wrong("the last line has no end")
    for line in text.splitlines():
        help_ = re.fullmatch(r"# HELP (millrace_[a-z_]+) (\S.*\S)", line)
        type_ = re.fullmatch(r"# TYPE (millrace_[a-z_]+) (counter|gauge|histogram)", line)
        sample = SAMPLE.fullmatch(line)
        if help_:
            current = help_.group(1)
            if current in families:
                wrong("twice: " + line)
            families[current] = Family(None, help_.group(2))
        elif type_ and type_.group(1) == current:
            families[current].kind = type_.group(2)
        elif sample:
            read_sample(families, current, sample)
        else:
            wrong("of no form: " + line)
    return families


def read_sample(families, current, sample):
    base, suffix = family_of(families, sample.group(1))
    pairs = tuple(sorted(re.findall(LABEL, sample.group(2) or "")))
    if base is None or base != current:
        wrong("not behind its help and type: " + sample.group(0))
        return
    if len({name for name, _ in pairs}) != len(pairs) or (suffix, pairs) in families[base].samples:
        wrong("twice: " + sample.group(0))
    families[base].samples[suffix, pairs] = float(sample.groups()[-1])


def check_names(families):
    for name, family in families.items():
        if (family.kind == "counter") != name.endswith("_total"):
            wrong("%s: a %s must not be named so" % (name, family.kind))
        if re.search(r"_(ms|us|milliseconds|minutes|kb|mb|percent)(_|$)", name):
            wrong(name + ": not of a base unit")
        if family.kind is None:
            wrong(name + ": no type")
        if any(value < 0 for value in family.samples.values()):
            wrong(name + ": below 0")


def check_histogram(name, family):
    series = {}
    for (suffix, labels), value in family.samples.items():
        edge = dict(labels).get("le")
        rest = tuple(pair for pair in labels if pair[0] != "le")
        series.setdefault(rest, {}).setdefault(suffix, []).append((float(edge.replace("+Inf", "inf")) if edge else None, value))
    for labels, parts in series.items():
        buckets = sorted(parts.get("_bucket", []))
        counts = [count for _, count in buckets]
        if len(parts) != 3 or len(buckets) < 3 or buckets[-1][0] != float("inf"):
            wrong("%s%s: not whole" % (name, labels))
        elif counts != sorted(counts) or counts[-1] != parts["_count"][0][1]:
            wrong("%s%s: its buckets do not add up" % (name, labels))


def check_document(families, text):
    rows = {row[0]: row[1:] for row in ROW.findall(text)}
    for name in families.keys() - rows.keys():
        wrong(name + " is not in docs/metrics.md")
    for name in rows.keys() - families.keys():
        wrong("docs/metrics.md has %s, the server has not" % name)
    for name in rows.keys() & families.keys():
        kind, labels, help_ = rows[name]
        family, documented = families[name], {label for label in re.split(r"[, ]+", labels) if label}
        if (kind, help_) != (family.kind, family.text):
            wrong("%s: docs/metrics.md says %s, %s" % (name, kind, help_))
        if family.samples and family.labels() != documented:
            wrong("%s has labels %s, docs/metrics.md says %s" % (name, sorted(family.labels()), sorted(documented)))
    return {name: {label for label in re.split(r"[, ]+", row[1]) if label} for name, row in rows.items()}


def labels_left(side, families, labels):
    """What one side of a comparison has for labels; None: it is a number."""
    figure = re.search(r"millrace_\w+", side)
    if not figure:
        return None
    of_it = labels.get(family_of(families, figure.group(0))[0], set()) | {"instance"}
    group = re.search(r"\b(by|without) \(([^)]*)\)", side)
    if not group:
        return of_it
    named = set(filter(None, re.split(r"[, ]+", group.group(2))))
    return named if group.group(1) == "by" else of_it - named


def check_sides(where, expr, families, labels):
    """Prometheus compares those with the same labels, and says nothing when there are none."""
    bare = re.sub(r'"[^"]*"', lambda text: "_" * len(text.group(0)), expr)
    for part in re.finditer(r"(?:(?! and | or | unless ).)+", bare):
        sides = re.split(r" (?:[<>]=?|[!=]=) ", expr[part.start() : part.end()])
        found = [left for left in (labels_left(side, families, labels) for side in sides) if left is not None]
        if len(sides) == 2 and len(found) == 2 and found[0] != found[1] and " on (" not in sides[1]:
            wrong("%s: %s cannot be compared with %s" % (where, sorted(found[0]), sorted(found[1])))


def check_expression(where, expr, families, labels):
    if any(expr.count(a) != expr.count(b) for a, b in ("()", "{}", "[]")) or expr.count('"') % 2:
        wrong("%s: brackets or quotes that do not match: %s" % (where, expr))
    used = set()
    for name, selector in re.findall(r"(millrace_\w+)(?:\{([^}]*)\})?", expr):
        base, _ = family_of(families, name)
        if base is None:
            wrong("%s: no such figure: %s" % (where, name))
            continue
        used |= labels.get(base, set())
        for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', selector):
            if label not in labels.get(base, set()) | GIVEN:
                wrong("%s: %s has no label %s" % (where, name, label))
    for group in re.findall(r"(?:by|on|without) \(([^)]*)\)", expr):
        for label in filter(None, re.split(r"[, ]+", group)):
            if label not in used | GIVEN:
                wrong("%s: nothing there has the label %s" % (where, label))
    check_sides(where, expr, families, labels)
    if not re.search("millrace_", expr):
        wrong(where + ": of nothing of ours")


def check_alerts(text, families, labels):
    blocks = re.split(r"^      - alert: ", text, flags=re.MULTILINE)[1:]
    names = [block.split("\n", 1)[0] for block in blocks]
    if len(blocks) < 10 or len(set(names)) != len(names):
        wrong("alerts.yml: too few alerts, or two of one name: %s" % names)
    for name, block in zip(names, blocks):
        expr = re.search(r"^        expr: (?:>-\n((?:          .*\n)+)|(.*))", block, re.MULTILINE)
        severity = re.search(r"^        labels: \{severity: (\w+)\}$", block, re.MULTILINE)
        if not expr:
            wrong(name + ": no expr")
        else:
            check_expression(name, " ".join((expr.group(1) or expr.group(2)).split()), families, labels)
        if not severity or severity.group(1) not in SEVERITIES:
            wrong(name + ": no severity")
        for part in ("summary", "runbook"):
            if not re.search(r"^          %s: \S" % part, block, re.MULTILINE):
                wrong("%s: no %s" % (name, part))
        for words in re.findall(r"\bmillrace ([a-z]+(?: [a-z]+)?)\b", " ".join(block.split())):
            print(words)


def check_board(board, families, labels):
    ids = [panel["id"] for panel in board["panels"]]
    if len(set(ids)) != len(ids):
        wrong("grafana.json: two panels with one id")
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            check_expression("board: " + panel["title"], target["expr"], families, labels)
        if panel["type"] != "row" and not panel.get("targets"):
            wrong("board: %s shows nothing" % panel["title"])


def main(metrics, root):
    with open(metrics, encoding="utf-8") as file:
        families = read_metrics(file.read())
    check_names(families)
    for name, family in families.items():
        if family.kind == "histogram":
            check_histogram(name, family)
    with open(root + "/docs/metrics.md", encoding="utf-8") as file:
        labels = check_document(families, file.read())
    with open(root + "/packaging/alerts.yml", encoding="utf-8") as file:
        check_alerts(file.read(), families, labels)
    with open(root + "/packaging/grafana.json", encoding="utf-8") as file:
        check_board(json.load(file), families, labels)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
