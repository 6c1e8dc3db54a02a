#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The server is killed under the load of real producers and workers, MR_KILLS times (`make test-long`: 200).
# The campaign is `millrace selftest` itself, so the other half of this checks that it notices what it must,
# and leaves nothing behind.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

kills=${MR_KILLS:-10}

left() { find "$room" -name 'millrace-selftest*' -o -name 'data' | wc -l; }

# The child of the selftest that is the server, once there is one.
server_of() { pgrep -P "$1" -f 'millrace serve' | head -1; }
has_server() { [ -n "$(server_of "$1")" ]; }

# ---- the campaign

MILLRACE_BROKER=file:nowhere MILLRACE_REQUIRE_TOKEN=true timeout 3600 \
    "$MILLRACE" selftest --crash "$kills" --json >"$room/report" || fail "$(cat "$room/report")"
jq -c . "$room/report"
is "kills" "$kills" "$(jq .crashes "$room/report")"
jq -e '.passed and .problem == "" and .lost == 0 and .finished_twice == 0 and .wrong == 0 and
    .acknowledged > 0 and .finished_once >= .acknowledged and
    .finished_once <= .acknowledged + .in_doubt and .ends_answered > 0 and
    .runs > .finished_once and .restart_ms_max > 0 and .outage_ms_max > 0 and
    .sync_us_p99 > 0 and .records_checked > 0' "$room/report" >/dev/null || fail "the report"
is "left behind" 0 "$(left)"

# For people, in another folder.
mkdir "$room/elsewhere"
expect 0 selftest --crash 1 --dir "$room/elsewhere"
grep -qE '^The server was killed 1 time under' "$room/out" || fail "$(cat "$room/out")"
grep -qE '^ +lost +0' "$room/out" || fail "$(cat "$room/out")"
is "last line" passed "$(tail -1 "$room/out")"
[ ! -s "$room/err" ] || fail "$(cat "$room/err")"
is "left behind" 0 "$(left)"
refuses 3 "$room/missing" selftest --dir "$room/missing"
refuses 2 --crash selftest --crash 0
refuses 2 'leave out --broker' selftest --broker "$store"

# ---- Ctrl-C: everybody is gone, and so is the folder

"$MILLRACE" selftest --crash 10000 >"$room/out" 2>"$room/err" &
self=$!
until_true has_server "$self"
pids=$(pgrep -P "$self")
kill -INT "$self"
await "$self"
is "interrupted" 130 "$code"
for pid in $pids; do
    if kill -0 "$pid" 2>/dev/null; then fail "process $pid is still there"; fi
done
is "left behind" 0 "$(left)"

# ---- it notices what it must, says so and keeps the folder

"$MILLRACE" selftest --crash 10000 >"$room/out" 2>"$room/err" &
self=$!
loads() { pgrep -P "$self" -f 'millrace selftest'; }
all_there() { [ "$(loads | wc -l)" -eq 4 ]; }
until_true all_there
kill -9 "$(loads | tail -1)"
await "$self"
is "a worker was killed" 1 "$code"
grep -qE '(producer|worker) [12] ended by itself .* the store is kept in' "$room/err" || fail "$(cat "$room/err")"
is "kept" 1 "$(find . -maxdepth 1 -name 'millrace-selftest-*' | wc -l)"
rm -r millrace-selftest-*

"$MILLRACE" selftest --crash 30 --json >"$room/out" 2>"$room/err" &
self=$!
until_true has_server "$self"
address=$(tr '\0' '\n' <"/proc/$(server_of "$self")/cmdline" | sed -n '/^--grpc$/{n;p}')
one_less() {
    local id
    id=$(m --broker "millrace://$address" task list -q selftest --state completed --limit 1 --json \
        2>/dev/null | jq -r '.[0].id') && [ -n "$id" ] && [ "$id" != null ] &&
        m --broker "millrace://$address" task delete "$id" >/dev/null 2>&1
}
until_true one_less
await "$self"
is "a task was taken away" 1 "$code"
grep -q 'acknowledged and is lost; 1 lost' "$room/err" || fail "$(cat "$room/err")"
is "said in JSON too" 'false 1' "$(jq -r '"\(.passed) \(.lost)"' "$room/out")"
