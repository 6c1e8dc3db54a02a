#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Timers of a server on Redis: fired into its queues, shown to Asynq's tools, and operations that cannot be applied among
# the dead. The numbers are those of the acceptance tests.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

redis_start main
start --broker "$redis" --alarm "cat >>'$room/told'"
server_url=$MILLRACE_BROKER
grep -q 'several servers need --store postgres' "$room/server.err" || fail "nothing said of the store"

# ---- fired, and shown as Asynq shows its own -----------------------------------------------------

expect 0 timer create tick --every 300ms -q ticks -t tock --retry 3 --timeout 90s 'go'
id=$(cat "$room/out")
expect 0 timer create 'in a zone' --cron '30 2 * * *' --tz Europe/Berlin -q ticks
list_of() { r zrange asynq:schedulers 0 -1; }
entries_are() { [ "$(r llen "$(list_of)")" = "$1" ]; }
until_true entries_are 2
[[ $(list_of) == asynq:schedulers:{*:*:*} ]] || fail "no name of a scheduler: $(list_of)"
[ "$(r ttl "$(list_of)")" -le 20 ] || fail "entries live too long"
r --raw lrange "$(list_of)" 0 -1 >"$room/entries"
for text in "$id" '@every 300ms' tock 'Queue("ticks")' 'MaxRetry(3)' 'Timeout(1m30s)' \
    'CRON_TZ=Europe/Berlin 30 2 \* \* \*' 'Timeout(30m0s)'; do
    grep -aq -- "$text" "$room/entries" || fail "no $text among the entries"
done
# Its history is written with the next look, so a change brings it.
fired() { [ "$(m timer show tick --json | jq .firings_total)" -ge 3 ]; }
until_true fired
expect 0 timer pause 'in a zone'
has_history() { [ "$(r zcard "asynq:scheduler_history:$id")" -ge 3 ]; }
until_true has_history
r --raw zrange "asynq:scheduler_history:$id" 0 0 | grep -aq "${id//-/}-" || fail "not the id of a task"
m --quiet work -q ticks --burst -- cat >/dev/null
ended() { [ "$(m timer history tick --json | jq '[.[] | select(.state == "succeeded")] | length')" -ge 3 ]; }
until_true ended

# ---- figures: what Redis counts, and what this server has seen ------------------------------------

curl -s "http://$http/metrics" >"$room/metrics"
"$here/http_metrics.py" "$room/metrics" "$here/../.." >/dev/null || fail "see above"
for name in 'task_attempts_total{queue="ticks",outcome="ok"}' 'task_wait_seconds_count{queue="ticks"}' \
    'schedule_fires_total{result="fired"}' schedule_lateness_seconds_count; do
    grep -F "millrace_$name " "$room/metrics" | grep -q ' [1-9][0-9]*$' || fail "no $name"
done

# Operations can be sent to the Redis itself; who looks needs a server.
MILLRACE_BROKER=$redis expect 0 timer create direct --manual
is "applied by the server" manual "$(m timer show direct --json | jq -r .kind)"
MILLRACE_BROKER=$redis refuses 2 'are known to a server' timer list

# ---- 10, 42: dead operations among the dead ------------------------------------------------------

# dead_put ID NAME: what came another way than through the door: a put whose rule is wrong.
dead_put() {
    python3 - "$redis_port" "$1" "$2" <<'PYTHON'
import socket, sys, time

port, ident, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


uid = "00000000-0000-7000-8000-0000000000%02x" % (len(name) & 255)
definition = text(1, "default") + text(2, name) + text(4, "61 * * * *")
payload = text(1, ident) + text(3, "default") + text(4, name) + text(5, uid)
payload += b"\x30" + varint(int(time.time() * 1e6)) + b"\x40" + varint(int(time.time() * 1e3))
payload += text(10, definition)
queue = "\x02timers"
message = text(1, "put") + text(2, payload) + text(3, ident) + text(4, queue) + b"\x28\x02\x40\x1e"
key = "asynq:{%s}:" % queue


def say(*args):
    args = [a.encode() if isinstance(a, str) else a for a in args]
    redis.sendall(b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in args))
    answer = redis.recv(1000)
    assert answer[:1] != b"-", answer


redis = socket.create_connection(("127.0.0.1", port))
say("HSET", key + "t:" + ident, "msg", message, "state", "pending", "pending_since", str(time.time_ns()))
say("LPUSH", key + "pending", ident)
PYTHON
}
dead_are() { [ "$(m dead list --json | jq -c '[.[] | select(.operation) | .operation.timer] | sort | join(" ")')" = "\"$1\"" ]; }
dead_put 11111111-1111-7111-8111-111111111111 one
dead_put 22222222-2222-7222-8222-222222222222 two22
until_true dead_are 'one two22'
m dead list --json | jq '.[] | select(.operation.timer == "one")' >"$room/one"
is "as it is shown" 'timers archived put default' \
    "$(jq -r '"\(.queue) \(.state) \(.operation.verb) \(.operation.app)"' "$room/one")"
jq -r .last_error "$room/one" | grep -q '61 is no minute' || fail "no reason: $(cat "$room/one")"
m dead list | grep -q 'put default/one: .*61 is no minute' || fail "not in the table"
m dead show 11111111-1111-7111-8111-111111111111 | grep -q '^operation *put default/one' || fail "not shown"
is "not among people's queues" ticks "$(m queue list --json | jq -r '[.[].queue] | map(select(. == "ticks" or . == "timers")) | join(" ")')"
is "of the status" 2 "$(m timer status --json | jq .operations_dead)"
# 46: the alarm was called once for each.
told() { [ "$(jq -rs 'map(select(.event == "dead")) | length' "$room/told" 2>/dev/null)" = "$1" ]; }
until_true told 2
is "what was told" 'put default one' "$(jq -r 'select(.timer == "one") | "\(.verb) \(.app) \(.timer)"' "$room/told")"
jq -r 'select(.timer == "one") | .reason' "$room/told" | grep -q '61 is no minute' || fail "told without a reason"
is "of which operation" 11111111-1111-7111-8111-111111111111 "$(jq -r 'select(.timer == "one") | .operation' "$room/told")"
# It is tried again, and fails again; then it goes.
expect 0 dead requeue 11111111-1111-7111-8111-111111111111
until_true told 3
audited() { grep -q "method=Tasks/Control about=\"$1\" result=OK" "$room/server.err" || fail "not audited: $1"; }
audited 11111111-1111-7111-8111-111111111111
until_true dead_are 'one two22'
expect 0 dead purge --yes
until_true dead_are ''
audited '2 tasks'

# ---- a server that goes takes its entries down ---------------------------------------------------

stop 0
is "entries of nobody" '' "$(r zrange asynq:schedulers 0 -1)"
is "the url of the server" "$server_url" "$MILLRACE_BROKER"
