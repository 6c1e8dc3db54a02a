#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The checker finds each kind of violation, at its line, and nothing in a clean tree.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tidy=$PWD/scripts/tidy.py
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{include,src/base,src/wire,src/wheel,src/log,examples,scripts,tests/sim,docs}
cp .clang-format "$tree"
cp src/levels.txt "$tree/src"

spdx='/* SPDX-License-Identifier: Apache-2.0 */'

# Findings go to a file, since the planting happens at the end of pipes, in subshells.
failures=$tree/failures
fail() { echo "$*" | tee -a "$failures"; }

# plant FILE MESSAGE: puts stdin into FILE, expects the message and exit 1, and removes the file again.
plant() {
    local report status=0
    cat >"$tree/$1"
    report=$("$tidy" "$tree" 2>&1) || status=$?
    rm "$tree/$1"
    grep -qF -- "$2" <<<"$report" || fail "not found: $2"
    [ "$status" -eq 1 ] || fail "exit $status, not 1, for: $2"
}

# lines N TEXT: the text N times.
lines() {
    local i
    for ((i = 0; i < $1; i++)); do
        echo "$2"
    done
}

# function_of N: a function of N lines, braces included.
function_of() {
    printf '%s\nint f(void);\nint f(void)\n{\n' "$spdx"
    lines $(($1 - 3)) '    f();'
    printf '    return 0;\n}\n'
}

# A clean tree passes, also at the limits, and with the words only in comments and strings.
function_of 70 >"$tree/src/base/limit.c"
printf '%s\n#include "base/err.h"\n\n/* No strcpy(a, b) here. */\nconst char *log_text = "atoi(x)";\n' \
    "$spdx" >"$tree/src/log/clean.c"
report=$("$tidy" "$tree" 2>&1) || fail "a clean tree is refused: $report"

printf '%s\n#include "log/log.h"\n' "$spdx" |
    plant src/base/up.c 'src/base/up.c:2: base (level 0) must not include log (level 2)'
printf '%s\n#include "wire/task.h"\n' "$spdx" |
    plant src/wheel/sibling.c 'src/wheel/sibling.c:2: wheel (level 1) must not include wire (level 1)'
printf '%s\n#include "sim/sim.h"\n' "$spdx" |
    plant src/log/tests.c 'src/log/tests.c:2: include "sim/sim.h" is not of the form'
printf '%s\n#include "../base/err.h"\n' "$spdx" |
    plant src/log/dots.c 'src/log/dots.c:2: include "../base/err.h" is not of the form'
printf '%s\n#include "base/err.h"\n' "$spdx" |
    plant include/leak.h 'include/leak.h:2: the public header'
printf '%s\n#include "base/err.h"\n' "$spdx" |
    plant examples/inside.c 'examples/inside.c:2: an example includes <millrace.h> only'
function_of 71 | plant src/base/long.c 'src/base/long.c:4: function has 71 lines, limit 70'
{
    echo "$spdx"
    lines 1000 '/* . */'
} | plant src/base/big.c 'src/base/big.c:1001: file has 1001 lines, limit 1000'
printf 'int x;\n' | plant src/base/nolicence.c 'src/base/nolicence.c:1: no line'
printf '%s\nint   x;\n' "$spdx" | plant src/base/format.c 'src/base/format.c:2: not formatted'
printf '%s\nvoid f(char *a)\n{\n    strcpy(a, "b");\n}\n' "$spdx" |
    plant tests/sim/call.c 'tests/sim/call.c:4: banned call strcpy'
printf '%s\nvoid f(void)\n{\n    pthread_exit(0);\n}\n' "$spdx" |
    plant src/log/thread.c 'src/log/thread.c:4: pthread_exit outside src/base'
printf '%s\nint f(void)\n{\n    return fdatasync(0);\n}\n' "$spdx" |
    plant src/log/kernel.c 'src/log/kernel.c:4: fdatasync outside src/base'
printf '%s\n/* TODO: later. */\n' "$spdx" | plant src/base/todo.c 'src/base/todo.c:2: TODO left'
printf '%s\nconst char *p = "/tmp/x";\n' "$spdx" | plant src/base/path.c 'src/base/path.c:2: absolute path'
printf 'text \n' | plant docs/white.md 'docs/white.md:1: trailing whitespace'
printf 'text' | plant docs/newline.md 'docs/newline.md:1: no newline'
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n' |
    plant scripts/mode.sh 'scripts/mode.sh:1: script is not executable'
printf '## What is promised\n\n* **It works.** Always.\n' >"$tree/README.md"
printf '## In one line each\n' >"$tree/docs/guarantees.md"
printf '%s\nstatic void it_works(void **state)\n' "$spdx" | clang-format >"$tree/tests/sim/works.c"
printf '| **It works.** | `it_works`, `it_sings` | |\n' |
    plant docs/proof.md 'docs/proof.md:1: no test is called it_sings'
printf '| **It sings.** | `it_works` | |\n' | plant docs/proof.md 'README.md promises "It works.", which has no row'
printf '| **It works.** | `it_works` | <!-- seeds -->1 seed |\n' |
    plant docs/proof.md 'docs/proof.md:1: its figures are not those of bench/campaign.json'
printf 'See `sim/works.c`, `log_text` and `base/gone.c`.\n' |
    plant docs/architecture.md 'docs/architecture.md:1: nothing is called base/gone.c'
printf 'See `clean.c`, `log_text` and\n`it_sings`.\n' |
    plant docs/architecture.md 'docs/architecture.md:2: nothing is called it_sings'
mkdir "$tree/src/other"
printf '%s\n' "$spdx" | plant src/other/x.c 'src/other/x.c:1: module other is not in src/levels.txt'

[ ! -e "$failures" ]
