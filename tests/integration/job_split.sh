#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# 99, by the program: every split, with workers that give back what they got, and every reduce. What the rules are
# in detail is in tests/unit/test_job_split.c and test_job_reduce.c.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
start --job-commands
"$MILLRACE" --quiet work -c 4 -- sh -c 'case $MILLRACE_TASK_TYPE in first) head -n 1 ;; *) cat ;; esac' >/dev/null 2>&1 &
servers+=("$!")

# run INPUT ARG...: submits and waits; $id is the job, $parts how many it has, $room/result its result.
run() {
    local input=$1
    shift
    expect 0 --quiet job submit --watch "$@" "$input"
    id=$(cat "$room/out")
    parts=$(m job show "$id" --json | jq .total)
    m job result "$id" >"$room/result"
}

# Text of 8 paragraphs, with characters of one to four bytes, and a last line that does not end.
{
    for ((i = 0; i < 7; i++)); do
        printf '  Absatz %d: über 3 €, 山水\r\nund 😀 weiter\n\n \t\n\n' "$i"
    done
    printf 'Schluß'
} >text
lines=$(($(wc -l <text) + 1))
bytes=$(wc -c <text)
characters=$(LC_ALL=C.UTF-8 wc -m <text)

# ---- what gives the input back --------------------------------------------------------------------

# joins SPEC PARTS
joins() {
    run text --split "$1"
    is "parts of $1" "$2" "$parts"
    cmp text "$room/result" || fail "$1 does not give the input back"
}
joins paragraphs 8
joins lines "$lines"
joins lines:7 $(((lines + 6) / 7))
joins chars:9 $(((characters + 8) / 9))
joins bytes:100 $(((bytes + 99) / 100))
joins bytes:1000000 1
printf 'only one' >short
run short --split paragraphs
is "one paragraph" 1 "$parts"
is "gives back" "$(cat short)" "$(cat "$room/result")"
# Never inside a character: each part is text, so its JSON is a string.
head -n 2 text >two
run two --split chars:1 --reduce json
is "characters" "$(LC_ALL=C.UTF-8 wc -m <two)" "$(jq length "$room/result")"
is "in one piece" '["string"]' "$(jq -c '[.[] | if type == "number" then "string" else type end] | unique' "$room/result")"

# ---- what does not --------------------------------------------------------------------------------

printf ' [1, {"a": [2, "x,]"]},\n "four" , null]\n' >array
run array --split json --reduce json
is "elements" 4 "$parts"
is "an array again" "$(jq -c . array)" "$(jq -c . "$room/result")"
printf 'name,age\r\n"Eva\n""E"", M.",42\r\n\r\nAl,7\r\nBo,9' >table
run table --split csv:2 --reduce lines --stage first
is "parts of a table" 2 "$parts"
is "each begins with the header" $'name,age\r\nname,age\r' "$(cat "$room/result")"
run table --split csv
is "rows behind their headers" "$(printf 'name,age\r\n"Eva\n""E"", M.",42\r\nname,age\r\nAl,7\r\nname,age\r\nBo,9')" "$(cat "$room/result")"
run text --split 'command:tac'
cmp <(tac text) "$room/result" || fail "the lines of a command"

# ---- what is refused, and leaves nothing ----------------------------------------------------------

before=$(m job list --limit 1000 --json | jq length)
: >nothing
printf '\n \n\t\n' >blank
printf '[]' >empty
printf 'a,b\n' >header
printf '[1,\n2' >cut
printf 'a\n1"\n' >quote
head -c 1100000 /dev/zero | tr '\0' x >long
for split in lines paragraphs chars:5 bytes:5 json csv command:cat; do
    refuses 2 'the input is empty: a job has one part at least' job submit --split "$split" nothing
done
refuses 2 'nothing but blank lines' job submit --split paragraphs blank
refuses 2 'the array is empty' job submit --split json empty
refuses 2 'no row is behind the header' job submit --split csv header
refuses 2 'json: offset 5: it ends before the array does' job submit --split json cut
refuses 2 'csv: offset 3: a quote in a field' job submit --split csv quote
refuses 2 'part 0: over the limit of a part, 1048576 bytes' job submit long
is "jobs that were made of those" "$before" "$(m job list --limit 1000 --json | jq length)"

# ---- reduce ---------------------------------------------------------------------------------------

seq 1 40 >numbers
run numbers --reduce sum
is "a sum" 820 "$(cat "$room/result")"
run numbers --reduce json
is "an array" "$(jq -cs . numbers)" "$(jq -c . "$room/result")"
printf 123456789 >digits
run digits --split bytes:2 --reduce lines
is "lines" "$(printf '12\n34\n56\n78\n9\n.')" "$(cat "$room/result" && printf .)"
run numbers --split lines:9 --reduce 'command:ls | wc -l; cat -- *; echo "$MILLRACE_JOB_ID"'
is "files of a command" "$(printf '5\n'; cat numbers; echo "$id")" "$(cat "$room/result")"
expect 0 --quiet job submit --watch --reduce none numbers
expect 8 --quiet job submit --watch --reduce sum text
grep -q 'sum: the result of part 0 is no number' "$room/err" || fail "said: $(cat "$room/err")"
expect 8 --quiet job submit --watch --reduce 'command:echo broken >&2; exit 3' numbers
grep -q broken "$room/err" || fail "said: $(cat "$room/err")"
