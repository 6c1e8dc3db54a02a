#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The bench at a small size: every row is there, has its fields, and nothing is left behind.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

m() { timeout 250 "$MILLRACE" "$@"; }

expect 0 bench --seconds 0.3 --tasks 20000 --json
in_folder='enqueue-batch enqueue-threads latency-p99 lateness-p99 memory restart process-small process snapshot-p99 disk idle-cpu job-create job-parts job-cold'
at_server='server-enqueue-batch server-enqueue-unary server-process server-latency-p99'
at_own_server='server-idle-workers server-idle-cpu server-start timer-operations timer-applied job-readers names-workers names-cpu names-lookup-p99 names-heal http-enqueue http-list-p99 http-events'
[ -z "$(command -v wrk)" ] || [ -z "$(command -v nginx)" ] || at_own_server+=' http-queues'
rows() { jq -r 'map(.name)|join(" ")' "$room/out"; }
is "rows" "$in_folder $at_server $at_own_server" "$(rows)"
help=$(m bench --help)
for row in $(rows); do
    grep -qE "(^| )$row([ ;.]|\$)" <<<"$help" || fail "the help does not name $row"
done
jq -e 'all(.[]; (.value|type == "number") and (.unit|length > 0) and (.yardstick|length > 0) and
    (.yardstick_value > 0) and (.ratio|type == "number") and (.met|type == "boolean"))' \
    "$room/out" >/dev/null || fail "fields: $(cat "$room/out")"
jq -e '.[]|select(.name == "lateness-p99")|.note|test(" 0 early$")' "$room/out" >/dev/null ||
    fail "some tasks ran early"
is "nothing left behind" 0 "$(find . -name 'millrace-bench*' | wc -l)"

# One row, on a store that is in use for other things: they stay.
m --broker "$store" enqueue --id mine x >/dev/null
expect 0 bench --broker "$store" --only enqueue-batch --seconds 0.2
grep -qE '^enqueue-batch +[0-9.]+ +tasks/s' "$room/out" || fail "$(cat "$room/out")"
is "what was there stays" 'default' "$(m --broker "$store" queue list --json | jq -r 'map(.queue)|join(" ")')"
is "beside the store" ./store "$(find . -maxdepth 1 -name '*store*')"

# At a server that somebody else has: what is there stays, and what needs a server of its own is refused.
mkdir "$room/served"
"$MILLRACE" serve --data "$room/served" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --require-token \
    2>"$room/server.err" &
server=$!
trap 'kill -9 "$server" 2>/dev/null || true; rm -rf "$room"' EXIT
until_true grep -q '^ready ' "$room/server.err"
export MILLRACE_BROKER=millrace://$(sed -n 's/^ready .* grpc=//p' "$room/server.err")
kill -TERM "$server"
await "$server"
m --quiet token create --role admin --data "$room/served" --json | jq -r .token >"$room/token"
"$MILLRACE" serve --data "$room/served" --listen 127.0.0.1:0 --grpc "${MILLRACE_BROKER#*://}" --require-token \
    2>"$room/server.err" &
server=$!
until_true grep -q '^ready ' "$room/server.err"
m --token-file "$room/token" --quiet enqueue --id mine x >/dev/null
expect 0 bench --token-file "$room/token" --broker "$MILLRACE_BROKER" --seconds 0.3 --json
is "rows at a server" "$at_server" "$(rows)"
is "what was there stays" default \
    "$(m --token-file "$room/token" queue list --json | jq -r 'map(.queue)|join(" ")')"
refuses 2 'server-start is not measured at' bench --broker "$MILLRACE_BROKER" --only server-start
refuses 2 'disk is not measured at' bench --broker "$MILLRACE_BROKER" --only disk
refuses 2 'server-process is not measured at' bench --broker "$store" --only server-process
# Somebody's tasks in the bench's queue are neither run nor removed.
m --token-file "$room/token" --quiet enqueue -q millrace-bench --id theirs x >/dev/null
for row in server-process server-enqueue-batch; do
    refuses 4 'holds tasks; remove it first' bench --token-file "$room/token" --broker "$MILLRACE_BROKER" --only "$row"
done
is "theirs" pending "$(m --token-file "$room/token" task show theirs --json | jq -r .state)"
refuses 5 'token' bench --broker "$MILLRACE_BROKER" --only server-process
kill -TERM "$server"
await "$server"
unset MILLRACE_BROKER
for row in server-process server-enqueue-batch server-latency-p99; do
    refuses 6 '127.0.0.1:1' bench --broker millrace://127.0.0.1:1 --only "$row"
done
is "nothing left behind" 0 "$(find . -name 'millrace-bench*' | wc -l)"

# Interrupted: gone without a trace.
"$MILLRACE" bench --seconds 30 2>/dev/null &
bench=$!
working() { [ -n "$(find . -maxdepth 1 -name 'millrace-bench*')" ]; }
until_true working
kill -INT "$bench"
kill -INT "$bench" # as timeout(1) does: to the process and to its group
await "$bench"
is "interrupted" 130 "$code"
is "nothing left behind" 0 "$(find . -name 'millrace-bench*' | wc -l)"
