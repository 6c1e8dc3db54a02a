#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A worker in any language: what a command is given, what its end means, and how the worker stops.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
export MILLRACE_BROKER=$store

enqueue() { m enqueue "$@" >/dev/null; }
state() { field "$1" state; }

# waits ID: to be tried again; by now its delay may have passed.
waits() {
    case $(state "$1") in retry | pending) ;; *) fail "task $1 is $(state "$1")" ;; esac
}

# Payload in, result out; a line per task on stderr, nothing on stdout.
enqueue --id upper 'make me big'
expect 0 work --burst -- tr a-z A-Z
is "state" completed "$(state upper)"
is "result" 'MAKE ME BIG' "$(field upper result)"
[ ! -s "$room/out" ] || fail "work wrote to stdout"
grep -qE '^millrace: done upper default/task attempt 1 in ' "$room/err" || fail "$(cat "$room/err")"
enqueue --id silent x
expect 0 --quiet work --burst -- true
[ ! -s "$room/err" ] || fail "--quiet is not quiet: $(cat "$room/err")"

# What limits keep back is not empty: a burst goes on until it is.
expect 0 queue set slow --rate 3/200ms
seq 7 | m enqueue -q slow --lines --quiet
expect 0 work -q slow --burst -- true
is "none is left behind a rate" 0 "$(m queue show slow --json | jq -r .pending)"

# Nor is a paused queue empty, but nobody knows how long it is so: that is told.
enqueue -q held x
expect 0 queue pause held
expect 0 work -q held --burst -- true
grep -qx 'millrace: queue held is paused, 1 task waits in it: millrace queue resume held' "$room/err" || fail "$(cat "$room/err")"
expect 0 queue resume held
expect 0 work -q held --burst -- true
! grep -q 'is paused' "$room/err" || fail "$(cat "$room/err")"

# The environment of a run.
enqueue --id env -q jobs -t resize --header Trace-Id=abc x
expect 0 work -q jobs --burst -- env
field env result >"$room/env"
for line in MILLRACE_TASK_ID=env MILLRACE_TASK_TYPE=resize MILLRACE_QUEUE=jobs MILLRACE_ATTEMPT=1; do
    grep -qx "$line" "$room/env" || fail "no $line in $(cat "$room/env")"
done
grep -qE '^MILLRACE_EPOCH=[1-9][0-9]+$' "$room/env" || fail "no epoch"
grep -qE '^MILLRACE_DEADLINE=[0-9]{13}$' "$room/env" || fail "no deadline"
grep -qE '^MILLRACE_PROGRESS_FD=[0-9]+$' "$room/env" || fail "no progress"
grep -qE '^MILLRACE_HEADER_TRACE.ID=abc$' "$room/env" || fail "no header"

# What an exit code means.
for code in 0 1 100 102 103; do enqueue -q codes --id "code$code" "$code"; done
expect 0 work -q codes --burst -- sh -c 'echo "said by $$" >&2; exit "$(cat)"'
grep -q '^millrace: failed code1 codes/task attempt 1: said by' "$room/err" || fail "$(cat "$room/err")"
grep -qE '^millrace: 1 done, [0-9]+ failed, [0-9]+ not now, 1 dropped$' "$room/err" ||
    fail "the summary: $(tail -1 "$room/err")"
is "0" completed "$(state code0)"
waits code1
is "1 counts" '1 said by' "$(field code1 retried) $(field code1 last_error | cut -d' ' -f1,2)"
is "100" archived "$(state code100)"
refuses 3 'not found' task show code102
waits code103
is "103 does not count" 0 "$(field code103 retried)"
is "figures" '1 1 2' \
    "$(m queue show codes --json | jq -r '[.completed,.archived,.retry+.pending]|join(" ")')"

# Handed back: pending again, no attempt counted.
enqueue -q back --id back x
cat >"$room/back.sh" <<'BACK'
#!/bin/sh
[ -e "$0.seen" ] && exit 0
touch "$0.seen"
exit 101
BACK
chmod +x "$room/back.sh"
expect 0 work -q back -c 1 --burst -- "$room/back.sh"
is "handed back, then done" 'completed 0' "$(state back) $(field back retried)"

# One that is handed back again and again waits: no hot loop, and a burst ends.
enqueue -q backs --id backs x
expect 0 work -q backs -c 1 --burst -- sh -c 'echo run >>runs; exit 101'
is "runs of a task that is always handed back" 2 "$(wc -l <runs)"
is "not counted" '0 0' "$(field backs retried) $(field backs crashes)"
is "the summary" 'millrace: 0 done, 0 failed, 2 handed back' "$(tail -1 "$room/err")"

# A type that is not handled stays.
enqueue -q types -t mail.send --id t1 x
enqueue -q types -t report --id t2 x
expect 0 work -q types -t 'mail.*' --burst -- true
is "handled" completed "$(state t1)"
case $(state t2) in pending | scheduled | retry) ;; *) fail "unhandled type: $(state t2)" ;; esac
is "not counted" 0 "$(field t2 retried)"

# Strict order, and weights.
for i in 1 2 3; do enqueue -q low "low$i"; enqueue -q high "high$i"; done
expect 0 work -q high -q low --strict -c 1 --burst -- sh -c "cat >>$room/order; echo >>$room/order"
is "strict" high1,high2,high3,low1,low2,low3 "$(paste -sd, "$room/order")"

# A timeout ends the run and counts as a failure.
enqueue -q slow --id slow --timeout 200ms x
expect 0 work -q slow --burst -- sleep 60
waits slow
is "timed out" 1 "$(field slow retried)"
is "one line for it" 1 "$(grep -c ' slow ' "$room/err")"

# Of a long error the end is shown on one short line; the task has more.
enqueue -q noisy --id noisy x
expect 0 work -q noisy --burst -- sh -c 'seq 10000 >&2; exit 100'
line=$(grep '^millrace: failed' "$room/err")
[ "${#line}" -lt 400 ] || fail "a line of ${#line} characters: $line"
case $line in *'\n10000') ;; *) fail "not the end: $line" ;; esac
[ "$(field noisy last_error | wc -c)" -gt 4000 ] || fail "the task has no more than the line"

# SIGTERM: takes no more, lets the running one end.
started() { [ -e "$room/started" ]; }
enqueue -q drain --id d1 x
enqueue -q drain --id d2 x
"$MILLRACE" work -q drain -c 1 -- sh -c "touch $room/started; while [ ! -e $room/go ]; do sleep 0.02; done; echo ok" \
    2>"$room/err" &
worker=$!
until_true started
kill -TERM "$worker"
until_true grep -q stopping "$room/err"
touch "$room/go"
await "$worker"
is "graceful end" 0 "$code"
is "the running one ended, the other waits" 'completed pending' "$(state d1) $(state d2)"

# A second signal ends it at once; the task is handed back, uncounted.
rm "$room/started" "$room/go"
"$MILLRACE" work -q drain -c 1 -- sh -c "trap '' TERM; touch $room/started; sleep 600" 2>"$room/err" &
worker=$!
until_true started
kill -INT "$worker"
until_true grep -q stopping "$room/err"
kill -INT "$worker"
await "$worker"
is "interrupted" 130 "$code"
is "handed back" 'pending 0 0' "$(state d2) $(field d2 retried) $(field d2 crashes)"
is "counted once" 'millrace: 0 done, 0 failed, 1 handed back' "$(tail -1 "$room/err")"

# A terminal that closes is a reason to stop like any other, and no crash; SIGUSR1 is none at all.
rm "$room/started"
"$MILLRACE" work -q drain -c 1 --drain-timeout 100ms -- sh -c "touch $room/started; sleep 600" \
    2>"$room/err" &
worker=$!
until_true started
kill -USR1 "$worker"
kill -HUP "$worker"
await "$worker"
is "hung up" 0 "$code"
grep -q stopping "$room/err" || fail "SIGUSR1 ended it: $(cat "$room/err")"
is "handed back after a hang-up" 'pending 0 0' "$(state d2) $(field d2 retried) $(field d2 crashes)"

# After SIGUSR1 it can still be ended at once.
rm "$room/started"
"$MILLRACE" work -q drain -c 1 -- sh -c "touch $room/started; sleep 600" 2>"$room/err" &
worker=$!
until_true started
kill -USR1 "$worker"
kill -TERM "$worker"
until_true grep -q stopping "$room/err"
kill -TERM "$worker"
await "$worker"
is "ended by the second signal" 143 "$code"

# --drain-timeout: what does not end by then is stopped and handed back.
rm "$room/started"
"$MILLRACE" work -q drain -c 1 --drain-timeout 100ms -- sh -c "touch $room/started; sleep 600" \
    2>"$room/err" &
worker=$!
until_true started
kill -TERM "$worker"
await "$worker"
is "drained" 0 "$code"
is "handed back after the drain" 'pending 0 0' "$(state d2) $(field d2 retried) $(field d2 crashes)"

# While a worker has the folder, others are refused by name.
rm "$room/started"
"$MILLRACE" work -q drain -c 1 -- sh -c "touch $room/started; sleep 600" 2>"$room/err2" &
worker=$!
until_true started
refuses 6 "$worker" enqueue x
kill -TERM "$worker"
until_true grep -q stopping "$room/err2"
kill -TERM "$worker"
wait "$worker" || true

# kill -9: nothing is lost, the crash is counted apart from failures.
rm "$room/started"
"$MILLRACE" work -q drain -c 1 -- sh -c "touch $room/started; sleep 600" 2>"$room/err2" &
worker=$!
until_true started
kill -9 "$worker"
wait "$worker" || true
expect 0 work -q drain --burst -- true
is "survived" 'completed 0 1' "$(state d2) $(field d2 retried) $(field d2 crashes)"
