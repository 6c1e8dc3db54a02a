#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ways to enqueue: one task, JSON, lines; ids, conflicts, limits.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
export MILLRACE_BROKER=$store

# One task: its id on stdout, nothing on stderr; the defaults of the command line.
expect 0 enqueue hello
[ ! -s "$room/err" ] || fail "enqueue wrote to stderr: $(cat "$room/err")"
id=$(cat "$room/out")
[[ $id =~ ^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$ ]] || fail "not a UUID: $id"
is defaults 'default task pending hello 25 1800000 3600000 1' \
    "$(m task show "$id" --json | jq -r '[.queue,.type,.state,.payload,.max_retry,.timeout_ms,.retention_ms,.attempt]|join(" ")')"
m task show "$id" --json | jq -e '[has("id","queue","partition","type","state","payload","headers",
    "priority","order_time_ms","attempt","retried","max_retry","crashes","epoch","timeout_ms",
    "deadline_ms","unique_key","group","topic","retention_ms","created_ms","due_ms","started_ms",
    "finished_ms","node","progress","last_error","last_failed_ms","result")]|all' >/dev/null ||
    fail "fields of a task"

# Every option arrives.
expect 0 enqueue -q mail -t send --id one --priority 60 --delay 1h --retry 0 --timeout 90s \
    --deadline 4000000000 --retention 2h --group g --topic t --header a=b --header 'c=d=e' body
is "printed id" one "$(cat "$room/out")"
is "all options" 'mail send scheduled 60 0 90000 4000000000000 7200000 g t b d=e body' \
    "$(m task show one --json | jq -r '[.queue,.type,.state,.priority,.max_retry,.timeout_ms,.deadline_ms,.retention_ms,.group,.topic,.headers.a,.headers.c,.payload]|join(" ")')"
m task show one --json | jq -e '.due_ms - .created_ms - 3600000 | . == 0 or . == 1' >/dev/null ||
    fail "delay"
expect 0 enqueue --id timed --at 2030-01-31T08:00:00Z x
is "at" 1896076800000 "$(field timed due_ms)"

# The same id again is a conflict; a unique key too, unless told otherwise.
refuses 4 'one exists (scheduled)' enqueue --id one again
# An id is the same thing in both ways of saying it.
expect 0 enqueue --id 'br{aces}' x
expect 0 enqueue --json '{"id":"more{braces}"}'
refuses 2 'is empty' enqueue --id '' x
refuses 2 'without control characters' enqueue --id $'a\nb' x
expect 2 enqueue --json '{"id":""}'
grep -q 'is empty; leave it out' "$room/out" || fail "$(cat "$room/out")"
expect 2 enqueue --json '{"payload":"a","payload_base64":"YQ=="}'
grep -q 'two payloads' "$room/out" || fail "$(cat "$room/out")"
expect 0 enqueue --unique 1h --unique-key k first
first=$(cat "$room/out")
refuses 4 "unique key exists: $first (pending)" enqueue --unique 1h --unique-key k second
expect 0 enqueue --unique 1h --unique-key k --on-duplicate ignore second
is "ignored duplicate" "$first" "$(cat "$room/out")"

# Payloads: from stdin, of any bytes, up to the limit.
printf 'from\0stdin\xff' | m enqueue --id bytes - >/dev/null
is "bytes" "$(printf 'from\0stdin\xff' | base64)" "$(field bytes payload_base64)"
expect 0 enqueue --id dashes -- --not-an-option
is "payload behind --" --not-an-option "$(field dashes payload)"
head -c 1048576 /dev/zero | m enqueue --id big - >/dev/null
is "payload at the limit" 1048576 "$(field big payload | tr -d '\n' | wc -c)"
code=0
head -c 1048577 /dev/zero | m enqueue --id bigger - 2>"$room/err" || code=$?
is "over the limit" 2 "$code"
grep -q 'over the limit of 1048576' "$room/err" || fail "$(cat "$room/err")"
refuses 3 'not found' task show bigger

# A full queue.
m --quiet queue set small --max-length 1
expect 0 enqueue -q small x
refuses 1 'maximum length' enqueue -q small y

# JSON: one object, one answer.
expect 0 enqueue --json '{"id":"j1","queue":"json","payload":"x","headers":{"h":"v"},"delay_ms":60000}'
is "answer" '{"id":"j1","state":"scheduled"}' "$(jq -c . "$room/out")"
is "header" v "$(field j1 headers.h)"
expect 4 enqueue --json '{"id":"j1"}'
is "conflict" 'j1 CONFLICT scheduled' "$(jq -r '[.id,.error.code,.error.state]|join(" ")' "$room/out")"
is "one line about it" 1 "$(wc -l <"$room/err")"
expect 0 enqueue --json -q flagged '{"id":"j2"}'
is "flags are the defaults of JSON" flagged "$(field j2 queue)"
expect 0 enqueue --json '{"id":"j3","payload_base64":"AAH/"}'
is "base64" 'AAH/' "$(field j3 payload_base64)"
expect 2 enqueue --json '{"id":"j4","dealy_ms":5}'
grep -q 'unknown field \\"dealy_ms\\"; did you mean \\"delay_ms\\"' "$room/out" || fail "$(cat "$room/out")"
refuses 3 'not found' task show j4
refuses 2 'takes tasks as JSON' enqueue --json '{"id":'
expect 2 enqueue --json '{"delay_ms":-5}'
expect 2 enqueue --json '{"payload":{"n":1}}'
expect 2 enqueue --json '"text"'

# JSON: an array from stdin, an answer for each.
code=0
echo '[{"id":"a1"},{"id":"a1"},{"nonsense":1},{"id":"a2","payload":"\u0000é"}]' |
    m enqueue --json >"$room/out" 2>"$room/err" || code=$?
is "some refused" 1 "$code"
is "answers" 'a1,a1 CONFLICT, INVALID,a2' \
    "$(jq -r 'map(.id + (if .error then " " + .error.code else "" end))|join(",")' "$room/out")"
grep -q '2 of 4 tasks were refused' "$room/err" || fail "$(cat "$room/err")"

# Lines: ids in the order of the input; empty lines and a last line without its end count.
printf 'l1\n\nl3\nl4' | m enqueue -q lines --lines >"$room/ids"
is "number of ids" 4 "$(sort -u "$room/ids" | wc -l)"
is "in order" l1,,l3,l4 "$(while read -r i; do field "$i" payload; done <"$room/ids" | paste -sd,)"
seq 20000 | m enqueue -q many --lines >"$room/ids"
is "many ids" 20000 "$(sort -u "$room/ids" | wc -l)"
is "the 12345th" 12345 "$(field "$(sed -n 12345p "$room/ids")" payload)"
is "all waiting" 20000 "$(count many pending)"
seq 1000 | m --quiet enqueue -q quiet --lines >"$room/out" 2>"$room/err"
is "only the count" 1000 "$(cat "$room/err")"
[ ! -s "$room/out" ] || fail "--quiet printed ids"

# A line over the limit is named, the rest goes on.
code=0
{ echo before; head -c 3000000 /dev/zero | tr '\0' x; echo; echo after; } |
    m enqueue -q long --lines >"$room/ids" 2>"$room/err" || code=$?
is "a line refused" 1 "$code"
grep -q '^millrace: line 2: is over the limit of 1048576 bytes$' "$room/err" || fail "$(cat "$room/err")"
is "others taken" 'before,after' "$(while read -r i; do field "$i" payload; done <"$room/ids" | paste -sd,)"

# Lines of JSON.
code=0
printf '{"id":"n1"}\nnonsense\n{"id":"n2","queue":"nl"}\n' |
    m --json enqueue --lines >"$room/out" 2>"$room/err" || code=$?
is "a bad line of JSON" 1 "$code"
is "answers to lines" 'n1,INVALID,n2' \
    "$(jq -r 'if .error then .error.code else .id end' "$room/out" | paste -sd,)"

# A slow producer sees each id at once: the second line comes only after the first id.
mkfifo lines ids.now
m enqueue -q slow --lines <lines >ids.now &
exec 3>lines 4<ids.now
echo first >&3
read -r -t 20 id <&4 || fail "no id before the input ends"
echo second >&3
read -r -t 20 id <&4 || fail "no second id"
exec 3>&-
wait $!

# A reader that goes away is no noise, and no reason to lose tasks.
seq 5000 | m enqueue -q piped --lines 2>"$room/err" | head -1 >/dev/null
[ ! -s "$room/err" ] || fail "EPIPE made noise: $(cat "$room/err")"
is "tasks behind a closed pipe" 5000 "$(count piped pending)"

# Standard output that cannot be written is told.
code=0
m task list >/dev/full 2>"$room/err" || code=$?
is "full stdout" 1 "$code"
grep -q 'cannot write to standard output' "$room/err" || fail "$(cat "$room/err")"

# Without a payload argument standard input is not read; what is piped in is refused, not lost.
unfed() {
    local code=0
    m --broker "$store" enqueue -q unfed 2>"$room/err" || code=$?
    is "exit code with input that is not read" 2 "$code"
    grep -q 'give - to read it' "$room/err" || fail "$(cat "$room/err")"
}
echo lost | unfed
echo lost >"$room/file"
unfed <"$room/file"
true | m --broker "$store" enqueue -q unfed >/dev/null
m --broker "$store" enqueue -q unfed </dev/null >/dev/null
m --broker "$store" enqueue -q unfed '' <"$room/file" >/dev/null
is "empty tasks only" 3 "$(count unfed pending)"
is "read when asked to" lost "$(field "$(echo lost | m --broker "$store" enqueue -q fed -)" payload | head -1)"

# Ctrl-C in --lines: whole lines that were read are on disk, and their number is told.
mkfifo stopped
"$MILLRACE" --broker "$store" enqueue -q stopped --lines <stopped >"$room/ids" 2>"$room/err" &
enqueue=$!
exec 3>stopped
seq 300 >&3
printf 'half a li' >&3
have_ids() { [ "$(wc -l <"$room/ids")" -eq 300 ]; }
until_true have_ids
kill -INT "$enqueue"
await "$enqueue"
exec 3>&-
is "interrupted" 130 "$code"
is "what it said" 'millrace: interrupted: 300 tasks are on disk' "$(cat "$room/err")"
is "on disk" 300 "$(count stopped pending)"
