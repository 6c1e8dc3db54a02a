#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Looking at queues and tasks, and acting on them by id and by filter.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
export MILLRACE_BROKER=$store

enqueue() { m enqueue "$@" >/dev/null; }
state() { field "$1" state; }

# ---- queues

for i in 1 2 3; do enqueue -q a --id "a$i" "payload $i"; done
enqueue -q b --id b1 --delay 1h -t report x
is "queues by name" 'a b' "$(m queue list --json | jq -r 'map(.queue)|join(" ")')"
m queue show a --json | jq -e '.pending == 3 and .paused == false and .partitions == 1 and
    .processed_total == 0 and .aggregating == 0 and has("oldest_pending_ms") and has("rate")
    and has("concurrency") and .max_length == 0' >/dev/null || fail "fields of a queue"
expect 0 queue list
grep -qE '^QUEUE +PENDING' "$room/out" || fail "no header"
grep -qE '^a +3 +0 ' "$room/out" || fail "$(cat "$room/out")"
refuses 3 'queue nowhere: not found' queue show nowhere
refuses 3 'queue nowhere: not found' queue pause nowhere
expect 0 queue pause a
is "paused" true "$(m queue show a --json | jq .paused)"
expect 0 work -q a --burst -- true
is "a paused queue hands out nothing" 3 "$(count a pending)"
expect 0 queue resume a
is "resumed" false "$(m queue show a --json | jq .paused)"
is "set answers with the queue" 5 "$(m --json queue set a --max-length 5 | jq .max_length)"
expect 0 queue set a --rate 100/s --concurrency 5
expect 0 queue set a --limit-type mail --limit-key '*' --concurrency 1
is "limits are shown" "100 1000 5 2 queue,type:mail,key:*" "$(m queue show a --json | jq -r '"\(.rate) \(.rate_ms) \(.concurrency) \(.limits) \([.limited[] | .scope + (if .name == "" then "" else ":" + .name end)] | join(","))"')"
expect 0 queue set a --rate 0 --concurrency 0
expect 0 queue set a --limit-type mail --limit-key '*' --concurrency 0
is "limits are lifted" "0 0 0 0" "$(m queue list --json | jq -r '.[] | select(.queue == "a") | "\(.rate) \(.rate_ms) \(.concurrency) \(.limits)"')"
refuses 2 'queue a has no partition 2' enqueue -q a --partition 2 x
m queue set a --partitions 3 --assign consistent-hash --quiet
is "its partitions" '3 consistent-hash 3' "$(m queue show a --json | jq -r '[.partitions,.assign,.pending]|join(" ")')"
id=$(m enqueue -q a --partition 3 named)
is "obeyed" 3 "$(m task show "$id" --json | jq .partition)"
refuses 2 'queue a has no partition 4' enqueue -q a --partition 4 x
m queue set wide --partitions 4 --quiet
keyed=$(for _ in 1 2 3; do m task show "$(m enqueue -q wide --key same x)" --json | jq .partition; done | sort -u)
is "a key has one partition" 1 "$(wc -l <<<"$keyed")"
m queue set a --partitions 1 --quiet
is "it moves to what stays" 1 "$(m task show "$id" --json | jq .partition)"
m task delete "$id" --quiet
m queue rm wide --force --quiet
refuses 4 'holds tasks; --force' queue rm a
is "still there" 3 "$(count a pending)"

# ---- groups

enqueue -q grouped --id g1 --group mails one
enqueue -q grouped --id g2 --group mails two
is "waits in its group" 'aggregating mails' "$(state g1) $(field g1 group)"
is "counted" 2 "$(count grouped aggregating)"
is "listed" 'g1 g2' "$(m task list --state aggregating --json | jq -r 'map(.id)|join(" ")')"
expect 0 work -q grouped --burst -- true
is "no worker is given it" 2 "$(count grouped aggregating)"
is "why" group "$(m task why g1 --json | jq -r '.reasons[0].reason')"
expect 0 task run g1
is "alone" 'pending aggregating' "$(state g1) $(state g2)"
expect 0 queue rm grouped --force

# ---- lists

expect 0 task list -q a
grep -qE '^ID +QUEUE +TYPE +STATE' "$room/out" || fail "no header"
is "a row each" 4 "$(wc -l <"$room/out")"
is "in order" 'a1 a2 a3' "$(m task list -q a --json | jq -r 'map(.id)|join(" ")')"
is "by state" b1 "$(m task list --state scheduled --json | jq -r 'map(.id)|join(" ")')"
is "by type" b1 "$(m task list --type report --json | jq -r 'map(.id)|join(" ")')"
is "limited" 2 "$(m task list --limit 2 --json 2>/dev/null | jq length)"
expect 0 task list -q a --limit 2
grep -q '2 shown, there are more' "$room/err" || fail "no word about the rest"
refuses 3 'queue nowhere: not found' task list -q nowhere --json
expect 0 task list -q a --state retry --json
is "an empty list" '[]' "$(cat "$room/out")"
seq 1234 | m enqueue -q pages --lines >/dev/null
is "pages are one list" 1234 "$(m task list -q pages --limit 100000 --json | jq 'map(.id)|unique|length')"
expect 0 task show a1
grep -qE '^state +pending' "$room/out" || fail "$(cat "$room/out")"
refuses 3 'task nothing: not found' task show nothing

# Nothing that a payload holds acts on a terminal.
enqueue -q odd --id odd $'\x1b[31mred\nline \u202e'
expect 0 task show odd
grep -qF '\x1b[31mred\nline \u{202e}' "$room/out" || fail "$(cat -v "$room/out")"
is "JSON has it exactly" "$(printf '\x1b[31mred\nline \u202e' | base64)" \
    "$(m task show odd --json | jq -j .payload | base64)"

# ---- why

m task why b1 | grep -q 'due at' || fail "why scheduled"
m --quiet queue pause a
m task why a1 | grep -q 'queue a is paused' || fail "why paused"
m task why a1 | grep -q 'millrace queue resume a' || fail "what helps"
m --quiet queue resume a
m task why a1 | grep -q 'no worker takes from its queue a' || fail "why nobody runs it"
m task why a1 | grep -q 'millrace work -q a -- CMD' || fail "what to start"
is "why as JSON" 'a1 pending no_worker' \
    "$(m task why a1 --json | jq -r '[.id,.state,.reasons[0].reason]|join(" ")')"

# ---- acting by id

expect 0 task archive a1
is "archived" archived "$(state a1)"
refuses 4 'cannot archive task a1: not possible in this state: it is archived' task archive a1
expect 0 task run a1
is "run again" pending "$(state a1)"
expect 0 task run b1
is "run now" pending "$(state b1)"
expect 0 task cancel b1
is "cancelled" archived "$(state b1)"
expect 0 task prioritise a3 3600
is "first in line" a3 "$(m task list -q a --json | jq -r '.[0].id')"
expect 0 task prioritise a3 -3600
is "last in line" a3 "$(m task list -q a --json | jq -r '.[-1].id')"
refuses 2 'not a number of seconds' task prioritise a3 soon
refuses 2 'more than 10 years' task prioritise a3 999999999
refuses 3 'cannot delete task nothing' task delete nothing
expect 0 --json task delete a3
is "what was done" 'delete 1 1 0' "$(jq -r '[.verb,.matched,.done,.failed]|join(" ")' "$room/out")"
refuses 3 'not found' task show a3
expect 1 --json task delete a2 nothing
is "one of two" '1 1 NOT_FOUND' "$(jq -r '[.done,.failed,.errors[0].error.code]|join(" ")' "$room/out")"

refuses 2 'an ID is empty' task run ''
refuses 2 'ID of 129 bytes, the limit is 128' task cancel a2 "$(printf '%0129d' 0)"

# ---- acting by filter

refuses 2 'which tasks?' task delete
refuses 2 'not both' task delete a1 -q a
refuses 2 '1234 tasks would be deleted; add --yes' task delete -q pages
is "nothing deleted" 1234 "$(count pages pending)"
expect 0 task delete -q pages --dry-run
grep -q 'would have deleted 1234 tasks' "$room/out" || fail "$(cat "$room/out")"
is "nothing deleted by a dry run" 1234 "$(count pages pending)"
expect 0 task archive -q pages --limit 1000 --yes
is "archived in bulk" '234 1000' "$(count pages pending) $(count pages archived)"
expect 0 task run -q pages --state archived --limit 10 --yes
is "run in bulk" '244 990' "$(count pages pending) $(count pages archived)"
expect 0 task cancel -q pages --yes
is "cancelled in bulk" 1234 "$(count pages archived)"

# ---- dead

is "dead by queue" 'b1' "$(m dead list -q b --json | jq -r 'map(.id)|join(" ")')"
expect 0 dead show b1
refuses 4 'is pending, not archived' dead show a1
refuses 4 'cannot requeue task a1: not possible in this state: it is pending' dead requeue a1
expect 0 dead requeue b1
is "requeued" pending "$(state b1)"
refuses 2 'which tasks?' dead requeue
expect 0 dead requeue --all -q pages --yes
is "all requeued" 1234 "$(count pages pending)"
m --quiet task archive -q pages --yes
refuses 2 'add --yes' dead purge
expect 0 dead purge -q pages --yes
is "purged" '0 0' "$(count pages pending) $(count pages archived)"

# ---- removal

expect 0 queue rm pages
expect 0 queue rm a --force
refuses 3 'not found' queue show a
refuses 3 'not found' task show a1

# Namespaces do not see each other.
expect 0 --namespace other enqueue --id elsewhere x
refuses 3 'not found' task show elsewhere
expect 0 --namespace other task show elsewhere

# Lists for people: bytes that must be escaped do not make a line endless, a task that waits for its next
# try shows why, and a reader that goes away gets no advice.
head -c 256 /dev/zero | m --broker "$store" enqueue -q wide --id wide - >/dev/null
expect 0 --broker "$store" task list -q wide
[ "$(wc -L <"$room/out")" -le 300 ] || fail "a line of $(wc -L <"$room/out") columns"
m --broker "$store" enqueue -q why --id why 'the payload' >/dev/null
expect 0 --broker "$store" work -q why --burst -- sh -c 'echo the reason >&2; exit 1'
expect 0 --broker "$store" task list -q why
grep -q 'the reason' "$room/out" || fail "no error: $(cat "$room/out")"
seq 1000 | m --broker "$store" enqueue -q many --lines --quiet 2>/dev/null
m --broker "$store" task list -q many --limit 900 2>"$room/err" | head -1 >/dev/null
[ ! -s "$room/err" ] || fail "advice for nobody: $(cat "$room/err")"
