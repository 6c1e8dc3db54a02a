#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Live views for programs: nodes, top and --watch as JSON, and --wait; on a folder and at a server.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
source "$(dirname "${BASH_SOURCE[0]}")/serve_lib.bash"

# A folder has nobody working on it while we look.
m --broker "$store" enqueue -q mail x >/dev/null
is "nodes of a folder" '[]' "$(m --broker "$store" node list --json)"
is "top of a folder" '["mail",1,0]' "$(m --broker "$store" top --once --json --interval 100ms |
    jq -c '[.queues[0].queue, .queues[0].pending, (.nodes | length)]')"
m --broker "$store" top --once --interval 100ms | grep -qE '^ *mail +1 ' || fail "no frame"

start
hold
is "fields of a node" 'concurrency doing in_hand incarnation last_beat_ms leader node partitions queues role slots started_ms state tags types' \
    "$(m node list --json | jq -r '.[0] | keys | join(" ")')"
working() { [ "$(m node list --json | jq -c '.[0] | [.role, .state, .in_hand, .concurrency, .slots, .leader]')" = '["worker","live",1,1,["working"],true]' ]; }
until_true working
is "its queue" 1 "$(m node list --json | jq '.[0].queues | index("held") != null' | grep -c true)"
m node list | grep -qE 'live +1/1 +1 ' || fail "no table: $(m node list)"

# Frames until the reader has enough; what is enqueued meanwhile shows as a rate.
(
    while sleep 0.05; do m --quiet enqueue -q fresh x >/dev/null; done
) &
feeder=$!
servers+=("$feeder")
m top --json --interval 300ms | head -3 >"$room/frames"
kill "$feeder"
is "frames" 3 "$(wc -l <"$room/frames")"
is "fields of a frame" 'disk_bytes disk_full done_per_s enqueued_per_s failed failed_per_s leaderless_ms live_bytes memory_bytes nodes queues segments sync_p50_us sync_p99_us syncs tasks time_ms' \
    "$(head -1 "$room/frames" | jq -r 'keys | join(" ")')"
is "a rate" true "$(jq -s 'map(.enqueued_per_s) | max > 1' "$room/frames")"
is "the rate of its queue" true "$(jq -s 'map(.queues[] | select(.queue == "fresh").enqueued_per_s) | max > 1' "$room/frames")"

# Documents one behind the other; a reader that goes ends it.
m queue show fresh --watch 100ms --json | head -2 | jq -s -e 'map(.queue) == ["fresh", "fresh"]' >/dev/null ||
    fail "not a document for each look"
m task list -q held --watch=100ms | head -5 | grep -c STATE | grep -qx 2 || fail "not a table for each look"
code=0
timeout -s TERM 0.5 "$MILLRACE" queue list --watch >/dev/null || code=$?
is "ended by a signal" 124 "$code"

# The result as it is, to the byte; the exit code tells how it ended.
let_go
"$MILLRACE" work -q sums -c 2 -- sh -c 'case $(cat) in bad) echo broken >&2; exit 100 ;; *) printf "a\nb\001" ;; esac' \
    >/dev/null 2>&1 &
servers+=($!)
m enqueue -q sums --wait x >"$room/result"
printf 'a\nb\001' | cmp - "$room/result" || fail "not the result"
refuses 8 'failed: broken' enqueue -q sums --wait bad
refuses 7 'has not ended in time' enqueue -q nobody --wait --wait-timeout 100ms x

# Who is interrupted while waiting is told which task goes on.
waits_with_words() { # no longer the shell that starts it, and not to be ended without a word
    [ "$(cat "/proc/$waiter/comm")" = millrace ] &&
        (((0x$(sed -n 's/^SigCgt:\t//p' "/proc/$waiter/status") >> ($(kill -l "$signal") - 1)) & 1))
}
for signal in INT TERM; do
    # A shell lets what is in the background ignore SIGINT.
    env --default-signal=INT "$MILLRACE" enqueue -q nobody --id "left-$signal" --wait x >"$room/out" 2>"$room/err" &
    waiter=$!
    until_true waits_with_words
    kill -s "$signal" "$waiter"
    await "$waiter"
    is "ended by SIG$signal" "$((128 + $(kill -l "$signal")))" "$code"
    grep -qxF "millrace: interrupted; task left-$signal goes on: millrace task show tells more" "$room/err" ||
        fail "SIG$signal: $(cat "$room/err")"
done

is "as JSON" '["t1","completed","a\nb\u0001"]' \
    "$(m enqueue -q sums --id t1 --wait --json '{"payload":"x"}' | jq -c '[.id, .state, .result]')"
expect 8 enqueue -q sums --wait --json '{"payload":"bad"}'
is "a failed one as JSON" archived "$(jq -r .state "$room/out")"

# The server is killed and comes back: the task is still there, and so is who waits for it.
m enqueue -q patient --id p1 --wait x >"$room/patient" 2>"$room/patient.err" &
waiter=$!
there() { m task show p1 >/dev/null 2>&1; }
until_true there
kill -9 "$server"
until_true gone
"$MILLRACE" serve --data "$data" --listen "$http" --grpc "$grpc" 2>>"$room/server.err" &
servers+=($!)
until_true there
m work -q patient --burst -- echo done >/dev/null 2>&1
await "$waiter"
is "who waited" "0 done" "$code $(cat "$room/patient" "$room/patient.err")"

# The tags of a node are what it takes beside its queues, but for its own name.
m work -q tagged --node n2 --tag a --tag b --fall-after 300ms -- true >/dev/null 2>&1 &
servers+=($!)
tags() { m node list --json | jq -c '.[] | select(.node == "n2") | .tags'; }
tagged() { [ -n "$(tags)" ]; }
until_true tagged
is "tags of a node" '["a","b"]' "$(tags)"
is "queues of a node" '["tagged"]' "$(m node list --json | jq -c '.[] | select(.node == "n2") | .queues')"
m node list | grep -q 'tagged @a @b' || fail "tags in the list: $(m node list)"

# What is addressed to it it runs at once, what is addressed to others when they have had their time.
m enqueue -q tagged@n2 --id own --wait --wait-timeout 20s x || fail "its own"
m enqueue -q tagged@b --id tag --wait --wait-timeout 20s x || fail "its tag's"
m enqueue -q tagged@gone --id fallen --wait --wait-timeout 20s x || fail "what fell to it"
is "where it was" '["tagged@gone","completed"]' "$(m task show fallen --json | jq -c '[.queue, .state]')"
