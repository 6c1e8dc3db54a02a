#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every example runs to its end. Those in C take the URL of the broker as their only argument and end by themselves.

set -euo pipefail
: "${MR_BINARY_DIR:?is set by ctest: the folder of the release build}"
: "${MILLRACE:?is the program under test}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

for source in examples/*.c; do
    name=$(basename "$source" .c)
    echo "== $name"
    timeout 60 "$MR_BINARY_DIR/examples/$name" "file:$room/$name"
done

# The words of many files, counted by a job, are those that one pipe counts.
echo "== wordcount.sh"
WORDS=0 timeout 120 examples/wordcount.sh docs '*.md' >"$room/counted"
export LC_ALL=C
cat docs/*.md | tr -cs '[:alpha:]' '\n' | tr '[:upper:]' '[:lower:]' | grep . | sort | uniq -c |
    awk '{ print $1, $2 }' | sort -k1,1nr -k2,2 >"$room/expected"
cmp "$room/expected" "$room/counted"
