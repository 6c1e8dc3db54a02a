#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Counts words over many files with a job, in plain shell: a part is a file, the map command counts its words, the
# reduce command adds the counts up. One server and two workers, in a folder that is removed at the end; on several
# machines it is the same, as long as they see the same files.
#
#   examples/wordcount.sh [DIR [PATTERN]]     prints the 20 most frequent words of the files; MILLRACE is the program
#
# WORDS is how many of them are printed; 0: all.

set -euo pipefail
export LC_ALL=C

millrace=${MILLRACE:-millrace}
files=$(realpath "${1:-.}")
export files pattern=${2:-*.md}
words=${WORDS:-20}

room=$(mktemp -d)
started=()
clean_up() {
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
    done
    wait
    rm -rf "$room"
}
trap clean_up EXIT

# The server: any free port. It runs reduce commands, since it is told that it may.
"$millrace" serve --data "$room/mill" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --job-commands 2>"$room/log" &
started+=($!)
until grep -q '^ready' "$room/log"; do
    kill -0 "${started[0]}" || { cat "$room/log" >&2; exit 1; }
    sleep 0.05
done
MILLRACE_BROKER=millrace://$(sed -n 's/^ready .*grpc=\([^ ]*\).*/\1/p' "$room/log")
export MILLRACE_BROKER

# The workers: a part is the name of a file, what is printed is the result: "COUNT WORD" in each line.
map='tr -cs "[:alpha:]" "\n" <"$(cat)" | tr "[:upper:]" "[:lower:]" | sort | uniq -c'
for _ in 1 2; do
    "$millrace" work -q words -c 4 -- sh -c "$map" 2>>"$room/work.log" &
    started+=($!)
done

# The job: the results of all parts are files in the folder of the reduce command.
reduce='cat -- * | awk "NF == 2 { n[\$2] += \$1 } END { for (w in n) print n[w], w }" | sort -k1,1nr -k2,2'
id=$("$millrace" job submit -q words --name wordcount --watch \
    --split 'command:find "$files" -type f -name "$pattern" | sort' --reduce "command:$reduce" </dev/null)

"$millrace" job result "$id" >"$room/result"
if [ "$words" -gt 0 ]; then
    head -n "$words" "$room/result"
else
    cat "$room/result"
fi
