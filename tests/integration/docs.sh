#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the documents tell people to paste works: every ```sh block of README.md and docs/*.md, block
# after block in one shell per file, in a new folder; and the ```c blocks of the README compile.

set -euo pipefail
: "${MILLRACE:?is the program under test}"

# The documents name the usual ports. In a network and a tree of processes of its own this run meets
# nobody else's servers there, and leaves none behind.
if [ -z "${MR_DOCS_APART:-}" ] && unshare --net --pid --fork --mount-proc ip link set lo up 2>/dev/null; then
    export MR_DOCS_APART=1
    exec unshare --net --pid --fork --kill-child --mount-proc \
        bash -c 'ip link set lo up && "$0"' "$(realpath "${BASH_SOURCE[0]}")"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source=$PWD

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# paste FILE LANGUAGE: the blocks of one language, each at its own lines; all other lines are empty, so
# that line numbers stay those of the document. Lines that build are left out: the program is there.
paste_blocks() {
    python3 - "$1" "$2" <<'PYTHON'
import sys

path, language = sys.argv[1:]
inside = None
for line in open(path, encoding="utf-8"):
    fence = line.strip()
    if fence.startswith("```"):
        inside = fence[3:].strip() if inside is None else None
        print()
    elif inside == language and not fence.startswith("make "):
        print(line, end="")
    else:
        print()
if inside is not None:
    sys.exit(f"{path}: a block is not closed")
PYTHON
}

# run_shell FILE: pastes its shell blocks; a command that fails is named with its line.
run_shell() {
    local file=$1 folder script
    folder=$room/$(basename "$file" .md)
    script=$folder.bash
    mkdir -p "$folder/build"
    ln -s "$(realpath "$MILLRACE")" "$folder/build/millrace"
    # Where only the tools of Redis are installed, one of them is the server under another name.
    ln -s "$(command -v redis-server || command -v redis-check-rdb)" "$folder/build/redis-server"
    ln -s "$source/proto" "$folder/proto"
    paste_blocks "$file" sh >"$script" || return 1
    grep -q '[^[:space:]]' "$script" || return 0
    echo "== $file"
    # The first line of a document is never inside a block.
    sed -i "1s|.*|trap 'echo \"$file:\$LINENO: failed: \$BASH_COMMAND\" >\&2' ERR|" "$script"
    (cd "$folder" && PATH="$folder/build:$PATH" timeout 120 bash -eE -o pipefail "$script" </dev/null)
}

# compile_c FILE: its C blocks as the body of a program.
compile_c() {
    local file=$1 program=$room/readme.c
    paste_blocks "$file" c >"$room/blocks.c" || return 1
    grep -q '[^[:space:]]' "$room/blocks.c" || {
        echo "$file: no C block"
        return 1
    }
    {
        printf '#include <millrace.h>\n#include <stdio.h>\n\nint main(void)\n{\n#line 1 "%s"\n' "$file"
        cat "$room/blocks.c"
        printf '    return 0;\n}\n'
    } >"$program"
    echo "== $file (C)"
    gcc -std=c17 -pedantic -Wall -Wextra -Werror -I"$source/include" -c "$program" -o "$room/readme.o"
}

failed=0
for file in README.md docs/*.md; do
    run_shell "$file" || failed=1
done
compile_c README.md || failed=1
exit "$failed"
