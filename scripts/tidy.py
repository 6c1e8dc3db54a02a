#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a program can check. Usage: tidy.py [ROOT]

Prints one line per violation, "file:line: message", and exits 1 if there is any. A rule is a function
that takes a Source and yields (line, message); RULES says which files each one looks at.
"""

import os
import re
import subprocess
import sys

import proof

FILE_LINES_MAX = 1000
ONE_HEADER = "include/millrace.h"  # all that a program needs, in one file: as long as that is
FUNCTION_LINES_MAX = 70
SPDX = "SPDX-License-Identifier: Apache-2.0"

SKIPPED_FOLDERS = {".git", "build", "corpus", "golden", "__pycache__", "node_modules"}
SCRIPT_ENDINGS = (".sh", ".py", ".cmake", ".mjs", ".ts", ".tsx", ".css")
SCRIPT_NAMES = {"Makefile", "CMakeLists.txt", ".ci/run", ".clang-format", ".gitignore"}
# These two spell out what is forbidden.
EXEMPT_FROM_WORDS = {"scripts/tidy.py", "tests/integration/tidy.sh"}

BANNED_EVERYWHERE = {
    "strcpy": "use mr_buf or memcpy with a known length",
    "strcat": "use mr_buf",
    "sprintf": "use snprintf or mr_buf",
    "vsprintf": "use vsnprintf or mr_buf",
    "gets": "use fgets",
    "strtok": "use slices",
    "atoi": "use the parsers of base/text.h",
    "atol": "use the parsers of base/text.h",
    "alloca": "use an arena",
}
# Threads, time and disk come in through base, so that the simulator can stand in for them.
BANNED_OUTSIDE_BASE = re.compile(
    r"(?<![\w>.])(pthread_\w+|syscall|futex|clock_gettime|gettimeofday|nanosleep|usleep"
    r"|pwrite|pread|fsync|fdatasync)\s*\("
)
BANNED_CALL = re.compile(r"(?<![\w>.])(" + "|".join(BANNED_EVERYWHERE) + r")\s*\(")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
ABSOLUTE_PATH = re.compile(r"(?<![\w.}$)/-])/(root|work|home|tmp)(?=[/\s\"'`:;,)]|$)")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# The tour through the code, and what it names: files, and words of the code that have a line in them.
TOUR = "docs/architecture.md"
TOUR_NAME = re.compile(r"`([\w./-]+\.(?:c|h|lua|py|sh)|\w+_\w+)`")
# Comments, strings and character constants, which hold no code.
NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)


class Source:
    """One file of the tree: its path from the root, its text, and its lines without comments."""

    def __init__(self, root, path):
        self.root = root
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.splitlines()

    def code_lines(self):
        blank = lambda match: re.sub(r"[^\n]", " ", match.group())
        return NOT_CODE.sub(blank, self.text).splitlines()

    def is_c(self):
        return self.path.endswith((".c", ".h"))

    def is_script(self):
        return self.path.endswith(SCRIPT_ENDINGS) or self.path in SCRIPT_NAMES

    def module(self):
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def read_levels(root):
    levels = {}
    with open(os.path.join(root, "src/levels.txt"), encoding="utf-8") as file:
        for line in file:
            row = re.match(r"(\d+) ([a-z]+)$", line.strip())
            if row:
                levels[row.group(2)] = int(row.group(1))
    return levels


# ---- rules ------------------------------------------------------------------------------------------


def rule_spdx(source, _levels):
    if not any(SPDX in line for line in source.lines[:3]):
        yield 1, "no line '%s' at the top" % SPDX


def rule_file_size(source, _levels):
    if len(source.lines) > FILE_LINES_MAX and source.path != ONE_HEADER:
        yield FILE_LINES_MAX + 1, "file has %d lines, limit %d" % (len(source.lines), FILE_LINES_MAX)


def rule_function_size(source, _levels):
    """In our format only the body of a function has its braces in column 0."""
    opened = None
    for number, line in enumerate(source.lines, 1):
        if line.startswith("{"):
            opened = number
        elif line.startswith("}") and opened is not None:
            size = number - opened + 1
            if size > FUNCTION_LINES_MAX:
                yield opened, "function has %d lines, limit %d" % (size, FUNCTION_LINES_MAX)
            opened = None


def rule_levels(source, levels):
    own = source.module()
    if own is not None and own not in levels:
        yield 1, "module %s is not in src/levels.txt" % own
        return
    for number, line in enumerate(source.lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        path = match.group(1)
        other = path.split("/")[0]
        if path.endswith(".pb-c.h"):
            other = "wire"  # made from proto/
        if own is None:
            yield number, "the public header and src/ itself include no \"%s\"" % path
        elif other not in levels:
            yield number, "include \"%s\" is not of the form \"module/file.h\"" % path
        elif other != own and levels[other] >= levels[own]:
            yield number, "%s (level %d) must not include %s (level %d)" % (
                own, levels[own], other, levels[other])


def rule_examples_public(source, _levels):
    for number, line in enumerate(source.lines, 1):
        if INCLUDE.match(line):
            yield number, "an example includes <millrace.h> only, as a user would"


def rule_banned_calls(source, _levels):
    for number, line in enumerate(source.code_lines(), 1):
        for match in BANNED_CALL.finditer(line):
            name = match.group(1)
            yield number, "banned call %s: %s" % (name, BANNED_EVERYWHERE[name])


def rule_kernel_in_base(source, levels):
    own = source.module()
    if own is None or levels.get(own, 0) == 0:
        return
    for number, line in enumerate(source.code_lines(), 1):
        for match in BANNED_OUTSIDE_BASE.finditer(line):
            yield number, "%s outside src/base" % match.group(1)


def rule_unfinished(source, _levels):
    if source.path in EXEMPT_FROM_WORDS:
        return
    for number, line in enumerate(source.lines, 1):
        match = UNFINISHED.search(line)
        if match:
            yield number, "%s left in the text" % match.group(1)


def rule_absolute_paths(source, _levels):
    if source.path in EXEMPT_FROM_WORDS:
        return
    for number, line in enumerate(source.lines, 1):
        match = ABSOLUTE_PATH.search(line)
        # Tests make their folders with mkdtemp, which wants a template below the temporary folder.
        if match and not (match.group(1) == "tmp" and source.path.startswith("tests/")):
            yield number, "absolute path %s" % match.group()


def rule_whitespace(source, _levels):
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            yield number, "trailing whitespace"
    if source.text and not source.text.endswith("\n"):
        yield len(source.lines), "no newline at the end of the file"


def rule_executable(source, _levels):
    if not os.access(os.path.join(source.root, source.path), os.X_OK):
        yield 1, "script is not executable"


def rule_proof(source, _levels):
    return proof.problems(source.root)


def rule_tour(source, _levels):
    paths, words = [], set()
    for folder, folders, files in os.walk(source.root):
        folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS]
        paths += ["/" + os.path.relpath(os.path.join(folder, name), source.root) for name in files]
    for path in paths:
        if path.startswith(("/src/", "/include/")) and path.endswith((".c", ".h")):
            words.update(re.findall(r"\w+", "\n".join(Source(source.root, path[1:]).code_lines())))
    for number, line in enumerate(source.lines, 1):
        for name in TOUR_NAME.findall(line):
            if not (name in words or any(path.endswith("/" + name) for path in paths)):
                yield number, "nothing is called %s" % name


def is_code(source):
    return source.is_c() or source.is_script()


def in_src(source):
    return source.is_c() and source.path.startswith(("src/", "include/"))


RULES = [
    # (rule, which files)
    (rule_spdx, is_code),
    (rule_file_size, is_code),
    (rule_function_size, Source.is_c),
    (rule_levels, in_src),
    (rule_examples_public, lambda s: s.is_c() and s.path.startswith("examples/")),
    (rule_banned_calls, Source.is_c),
    (rule_kernel_in_base, in_src),
    (rule_unfinished, is_code),
    (rule_absolute_paths, is_code),
    (rule_whitespace, lambda s: True),
    (rule_executable, lambda s: s.path.endswith((".sh", ".py")) or s.path == ".ci/run"),
    (rule_proof, lambda s: s.path == proof.PAGE),
    (rule_tour, lambda s: s.path == TOUR),
]


# ---- the tree ---------------------------------------------------------------------------------------


def wanted(path):
    name = os.path.basename(path)
    return (
        path in SCRIPT_NAMES
        or name in SCRIPT_NAMES
        or path.endswith((".c", ".h", ".md") + SCRIPT_ENDINGS)
    )


def tree(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), root)
            if wanted(path):
                yield Source(root, path)


def format_violations(root, paths):
    """Yields (path, line, message) for the first place of each file that clang-format would change."""
    if not paths:
        return
    command = ["clang-format", "--dry-run", "--style=file"] + paths
    run = subprocess.run(command, cwd=root, stderr=subprocess.PIPE, text=True, check=False)
    seen = set()
    for line in run.stderr.splitlines():
        match = re.match(r"(.+?):(\d+):\d+: (?:warning|error): ", line)
        if match and match.group(1) not in seen:
            seen.add(match.group(1))
            yield match.group(1), int(match.group(2)), "not formatted: run clang-format -i"
    if run.returncode != 0 and not seen:
        yield ".clang-format", 1, "clang-format failed: " + run.stderr.strip()


def main(arguments):
    if len(arguments) > 2:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = arguments[1] if len(arguments) == 2 else here
    levels = read_levels(root)
    found = 0
    c_paths = []
    for source in tree(root):
        if source.is_c():
            c_paths.append(source.path)
        for rule, applies in RULES:
            if not applies(source):
                continue
            for line, message in rule(source, levels):
                print("%s:%d: %s" % (source.path, line, message))
                found += 1
    for path, line, message in format_violations(root, c_paths):
        print("%s:%d: %s" % (path, line, message))
        found += 1
    print("tidy: %d C files, %d violations" % (len(c_paths), found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
