#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the documents say of the program is so: the reference that is made from its tables has each command, option, setting, error,
# route and figure; the catalogue of errors has each code with its numbers, a cause and a cure; there is something to do about each alert; each
# document is in the index, and each link between them leads somewhere.

set -euo pipefail
: "${MR_BINARY_DIR:?is set by ctest: the folder of the release build}"
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
reference=$MR_BINARY_DIR/pages/reference.md

# names LINE-PATTERN...: the reference has a line for each.
names() {
    local pattern
    for pattern; do
        grep -qE -- "$pattern" "$reference" || fail "the reference has no line like $pattern"
    done
}

# A verb's options stand between its heading and the next one.
check_verb() {
    local heading="### millrace $*" section option
    section=$(awk -v heading="$heading" '/^##/ { inside = $0 == heading } inside' "$reference")
    [ -n "$section" ] || fail "the reference has no $heading"
    for option in $(m "$@" --help | sed '/^options of every command/,$d' | grep -oE '^ +(-[a-z], )? *--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
        grep -qE -- "^\| \`(-[a-z], )?$option[\` ]" <<<"$section" || fail "the reference of $* lacks $option"
    done
}

words_of() { m "$@" --help | sed -n '/^usage:/,$p' | awk '/^  [a-z]/ { print $1 }'; }
for command in $(words_of); do
    verbs=$(words_of "$command")
    ! m "$command" --help | grep -q "^usage: millrace $command \[OPTIONS\]" || check_verb "$command"
    for verb in $verbs; do
        check_verb "$command" "$verb"
    done
done
for setting in $(m config show --effective --json | jq -r '.[].name'); do
    names "^\| \`$setting\` \| \`MILLRACE_"
done
for path in $(grep -oE '\.path = (V1 )?"[^"]*"' "$MR_SOURCE_DIR/src/api/http_routes.c" | grep -oE '"[^"]*"' | tr -d '"'); do
    names "^\| \`(GET|POST|PUT|PATCH|DELETE) (/api/v1)?${path//[\{\}]/.}\` \|"
done

/usr/bin/python3 - "$MR_SOURCE_DIR" "$reference" <<'PYTHON'
import os, re, sys

root, reference = sys.argv[1:]
read = lambda path: open(os.path.join(root, path), encoding="utf-8").read()
problems = []

# ---- errors: the list of the header, against the catalogue and the reference
rows = re.findall(r'X\((\w+), "([^"]*)", (\d), (\d+), (\d+), (\d+)\)', read("include/millrace.h"))
sections = re.split(r"^## ", read("docs/errors.md"), flags=re.M)[1:]
catalogue = {section.split("\n", 1)[0]: section for section in sections}
made = open(reference, encoding="utf-8").read()
if len(rows) < 20 or [row[0] for row in rows] != list(catalogue):
    problems.append("docs/errors.md has not the codes of millrace.h, in their order")
for name, text, again, code, grpc, http in rows:
    head = f"*{text}* · {'worth trying again' if again == '1' else 'final'} · exit {code} · gRPC {grpc} "
    section = catalogue.get(name, "")
    if head not in section or f"· HTTP {http}\n" not in section:
        problems.append(f"docs/errors.md: {name} is not '{head}… HTTP {http}'")
    cause, _, cure = section.partition("**What to do.** ")
    if len(cause.split("\n\n")) < 3 or len(cure.strip()) < 20:
        problems.append(f"docs/errors.md: {name} has no cause or no cure")
    if f"| `{name}` | {text} | {'yes' if again == '1' else 'no'} | {code} | {grpc} | {http} |" not in made:
        problems.append(f"the reference lacks {name}")

# ---- figures: docs/metrics.md has those that a server answers with (http_metrics.py), and the reference the same
figures = re.findall(r"^\| (`millrace_\w+`) \| (\w+) \| [^|]*\| ([^|]+) \|$", read("docs/metrics.md"), flags=re.M)
listed = re.findall(r"^\| (`millrace_\w+`) \| (\w+) \| ([^|]+) \|$", made, flags=re.M)
if len(figures) < 40 or figures != listed:
    problems.append("the reference has not the figures of docs/metrics.md, in their order")

# ---- links
documents = ["README.md"] + sorted("docs/" + name for name in os.listdir(os.path.join(root, "docs")) if name.endswith(".md"))

def anchors(path):
    text = re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

for document in documents:
    text = re.sub(r"^```.*?^```", "", read(document), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        place = os.path.normpath(os.path.join(os.path.dirname(document), path)) if path else document
        if not os.path.exists(os.path.join(root, place)):
            problems.append(f"{document}: {target} leads nowhere")
        elif anchor and anchor not in anchors(place):
            problems.append(f"{document}: {target}: no such heading")

index = read("docs/README.md")
for document in documents[1:]:
    name = os.path.basename(document)
    if name != "README.md" and f"]({name}" not in index:
        problems.append(f"docs/README.md does not name {name}")
    if not read(document).startswith("<!-- SPDX"):
        problems.append(f"{document} does not begin with its licence")

# ---- alerts: each has its line in what to do
alerts = re.findall(r"- alert: (\w+)", read("packaging/alerts.yml"))
if len(alerts) < 10:
    problems.append("packaging/alerts.yml has hardly any alert")
for alert in alerts:
    if f"| `{alert}` |" not in read("docs/operation.md"):
        problems.append(f"docs/operation.md does not say what to do about {alert}")

sys.exit("\n".join(problems) or None)
PYTHON
