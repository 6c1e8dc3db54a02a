#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the documents tell people to paste works: every ```sh block of README.md and docs/*.md, block
# after block in one shell per file, in a new folder; and every ```c block compiles. What is in a block
# without a language is for another machine, or needs its administrator; the packages, the installed
# library and a bare system have tests of their own (package.sh, install.sh, scripts/bare.sh).

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

# Where that is not allowed, it keeps away from what is there: a Redis is shut down at the end of a page.
for port in 6390 7400 7401 7410 7411 7500 7501; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "docs: somebody listens on port $port, and a network of its own is not to be had"
        exit 1
    fi
done

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
    ln -s "$(dirname "$(realpath "$MILLRACE")")"/libmillrace.so* "$folder/build/"
    ln -s "$source/include" "$source/examples" "$folder/"
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

# around FILE PART: what its C blocks stand in, as a person who pastes them has it; PART is before or after.
around() {
    case $1:$2 in
    docs/groups.md:before)
        echo 'void add_line(char *text, size_t size, struct mr_slice line);'
        ;;
    docs/groups.md:after) echo 'int main(void) { return options.aggregate == NULL; }' ;;
    docs/results.md:before)
        echo 'void note(const struct mr_result *result);'
        echo 'enum mr_err serve(struct mr_client *client);'
        printf 'enum mr_err serve(struct mr_client *client)\n{\n'
        ;;
    docs/results.md:after) printf '    return err;\n}\n' ;;
    *:before) printf '#include <stdio.h>\nint main(void)\n{\n' ;;
    *:after) printf '    return 0;\n}\n' ;;
    esac
}

# compile_c FILE: its C blocks, where it has any.
compile_c() {
    local file=$1 program=$room/blocks
    paste_blocks "$file" c >"$room/blocks.text" || return 1
    grep -q '[^[:space:]]' "$room/blocks.text" || return 0
    echo "== $file (C)"
    {
        echo '#include <millrace.h>'
        around "$file" before
        echo "#line 1 \"$file\""
        cat "$room/blocks.text"
        around "$file" after
    } >"$program.c"
    gcc -std=c17 -pedantic -Wall -Wextra -Werror -I"$source/include" -c "$program.c" -o "$program.o"
}

failed=0
for file in README.md docs/*.md; do
    run_shell "$file" || failed=1
    compile_c "$file" || failed=1
done
exit "$failed"
