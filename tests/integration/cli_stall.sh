#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A worker that is stopped (Ctrl-Z, a machine that sleeps) for longer than its lease of 15 s and then goes
# on has lost nothing. tests/unit/test_worker_stall.c does this more often, with a shorter lease.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
export MILLRACE_BROKER=$store

m enqueue --id stalled x >/dev/null
"$MILLRACE" work --burst -- sh -c "touch $room/started; while [ ! -e $room/go ]; do sleep 0.05; done" \
    2>"$room/err" &
worker=$!
started() { [ -e "$room/started" ]; }
until_true started
kill -STOP "$worker"
sleep 16 # the time itself is what is tested
kill -CONT "$worker"
sleep 1 # time enough to do the wrong thing
touch "$room/go"
wait "$worker" || fail "$(cat "$room/err")"
is "what became of it" 'completed 0 0' "$(field stalled state) $(field stalled crashes) $(field stalled retried)"
is "what was said" 2 "$(wc -l <"$room/err")"
