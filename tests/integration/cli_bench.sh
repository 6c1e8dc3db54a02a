#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The bench at a small size: every row is there, has its fields, and nothing is left behind.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

m() { timeout 250 "$MILLRACE" "$@"; }

expect 0 bench --seconds 0.3 --tasks 20000 --json
is "rows" 'enqueue-batch enqueue-threads latency-p99 lateness-p99 memory restart process-small process snapshot-p99 disk idle-cpu' \
    "$(jq -r 'map(.name)|join(" ")' "$room/out")"
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
