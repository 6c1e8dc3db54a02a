#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Together with Asynq: what a Go program writes to Redis, written here by hand in the same steps, is work for
# ours; and what ours writes is what a Go program expects. The messages are those of Asynq's own encoder.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

redis_start main
export MILLRACE_BROKER=$redis

now() { date +%s; }
hex() { od -An -v -tx1 | tr -d ' \n'; }
# shellcheck disable=SC2059
raw() { printf "$(sed 's/../\\x&/g')"; }
# text FIELD VALUE: a text of a message, as hex; of less than 128 bytes.
text() { printf '%02x%02x%s' $(($1 << 3 | 2)) ${#2} "$(printf %s "$2" | hex)"; }

# message ID [HEX]: of a task that Go made: type t, payload p, queue q, retry 3, timeout 30 s; then more fields.
message() { printf '%s%s%s%s2803%s401e%s' "$(text 1 t)" "$(text 2 p)" "$(text 3 "$1")" "$(text 4 q)" "${3:-}" "${2:-}"; }
# put KEY FIELD HEX
put() { printf %s "$3" | raw | r -x hset "$1" "$2" >/dev/null; }

# go_enqueue ID [HEX]: as Asynq's client does.
go_enqueue() {
    r sadd asynq:queues q >/dev/null
    put "asynq:{q}:t:$1" msg "$(message "$@")"
    r hset "asynq:{q}:t:$1" state pending pending_since "$(date +%s%N)" >/dev/null
    r lpush 'asynq:{q}:pending' "$1" >/dev/null
}

# go_take ID: as its dequeue does; ID must be the next one.
go_take() {
    is "the next one" "$1" "$(r rpoplpush 'asynq:{q}:pending' 'asynq:{q}:active')"
    r hset "asynq:{q}:t:$1" state active >/dev/null
    r hdel "asynq:{q}:t:$1" pending_since >/dev/null
    r zadd 'asynq:{q}:lease' $(($(now) + 30)) "$1" >/dev/null
}

# go_leave ID: the first half of each of its ends.
go_leave() {
    is "in active" 1 "$(r lrem 'asynq:{q}:active' 0 "$1")"
    is "has a lease" 1 "$(r zrem 'asynq:{q}:lease' "$1")"
}

state() { m task show "$1" --json | jq -r .state; }
known() { m task show "$1" >/dev/null 2>&1; }
unknown() { ! known "$1"; }
work() { m work -q q --burst --quiet "$@"; }

# ---- a Go client, our worker ----------------------------------------------------------------

go_enqueue go-1 7a0a0a0466726f6d1202676f # header from: go
is "ours sees it" pending "$(state go-1)"
is "its header" go "$(m task show go-1 --json | jq -r '.headers.from')"
# shellcheck disable=SC2016
work -- sh -c 'echo "$MILLRACE_TASK_ID $MILLRACE_TASK_TYPE $MILLRACE_ATTEMPT $MILLRACE_HEADER_FROM $(cat)" >'"$room/ran"
is "ran" 'go-1 t 1 go p' "$(cat ran)"
is "leaves nothing" 0 "$(r exists 'asynq:{q}:t:go-1' 'asynq:{q}:active' 'asynq:{q}:lease')"
is "counted" '1 1' "$(r get 'asynq:{q}:processed') $(r get "asynq:{q}:processed:$(date -u +%F)")"
[ "$(r ttl "asynq:{q}:processed:$(date -u +%F)")" -gt $((89 * 86400)) ] || fail "the day's figure lives too short"

# An idle worker is woken by it, and by what it schedules.
"$MILLRACE" work -q q --quiet -- cat &
worker=$!
servers+=("$worker")
at_work() { [ "$(r zcard asynq:servers)" = 1 ]; }
until_true at_work
go_enqueue go-2
until_true unknown go-2
put 'asynq:{q}:t:go-3' msg "$(message go-3)"
r hset 'asynq:{q}:t:go-3' state scheduled >/dev/null
r zadd 'asynq:{q}:scheduled' $(($(now) + 1)) go-3 >/dev/null
is "scheduled by Go" scheduled "$(state go-3)"
until_true unknown go-3

# Paused by Go, and taken up again.
r set 'asynq:{q}:paused' "$(now)" nx >/dev/null
go_enqueue go-4
is "paused" true "$(m queue show q --json | jq .paused)"
sleep 0.3
is "not taken" pending "$(state go-4)"
r del 'asynq:{q}:paused' >/dev/null
until_true unknown go-4

# Its lock is given back by our finish.
r set 'asynq:{q}:unique:t:83878c91171338902e0fe0fb97a8c47a' go-5 nx ex 600 >/dev/null
r hset 'asynq:{q}:t:go-5' unique_key 'asynq:{q}:unique:t:83878c91171338902e0fe0fb97a8c47a' >/dev/null
go_enqueue go-5 "$(text 10 'asynq:{q}:unique:t:83878c91171338902e0fe0fb97a8c47a')"
until_true unknown go-5
is "the lock" 0 "$(r exists 'asynq:{q}:unique:t:83878c91171338902e0fe0fb97a8c47a')"
kill -TERM "$worker"
await "$worker"
is "servers after a stop" 0 "$(r zcard asynq:servers)"

# A failure of ours is one that Go can read: fields 6, 7 and 11 of the message.
go_enqueue go-6
work -- sh -c 'echo boom >&2; exit 1' || true
is "to be tried again" retry "$(r hget 'asynq:{q}:t:go-6' state)"
is "whole seconds" "$(r zscore 'asynq:{q}:retry' go-6)" "$(r zscore 'asynq:{q}:retry' go-6 | grep -x '[0-9]*')"
failed=$(r --raw hget 'asynq:{q}:t:go-6' msg | hex)
[[ $failed == *3001* && $failed == *"$(text 7 boom)"58* ]] || fail "after a failure: $failed"
is "failed" 1 "$(r get 'asynq:{q}:failed')"
m task delete go-6 --quiet

# ---- our client, a Go worker ----------------------------------------------------------------

m enqueue --quiet --id 0b0bd1b4-6a1c-4f4c-9c1e-3a1f6f0c7e11 -t email:send --retention 0 '{"user":42}' >/dev/null
task='asynq:{default}:t:0b0bd1b4-6a1c-4f4c-9c1e-3a1f6f0c7e11'
golden=0a0a656d61696c3a73656e64120b7b2275736572223a34327d1a2430623062643162342d366131632d346634632d396331652d336131663666306337653131220764656661756c74281940880e
is "our message" $golden "$(r --raw hget "$task" msg | head -c -1 | hex)"
is "our fields" 'msg pending_since state' "$(r hkeys "$task" | sort | xargs)"

ours() { m enqueue --quiet -q q --id "$1" -t t --retention "${2:-0}" --retry 3 p >/dev/null; }
ours ours-1
go_take ours-1
is "taken by Go" active "$(state ours-1)"
go_leave ours-1
r del 'asynq:{q}:t:ours-1' >/dev/null
r incr 'asynq:{q}:processed' >/dev/null
unknown ours-1 || fail "ours-1 is still there"

ours ours-2
go_take ours-2
go_leave ours-2
put 'asynq:{q}:t:ours-2' msg "$(message ours-2 5880e2cfaa06 "3001$(text 7 'go says no')")"
r hset 'asynq:{q}:t:ours-2' state retry >/dev/null
r zadd 'asynq:{q}:retry' $(($(now) + 3600)) ours-2 >/dev/null
is "retried by Go" 'retry 1 go says no' "$(m task show ours-2 --json | jq -r '"\(.state) \(.retried) \(.last_error)"')"

ours ours-3
go_take ours-3
go_leave ours-3
put 'asynq:{q}:t:ours-3' msg "$(message ours-3 5880e2cfaa06 "$(text 7 'go says no')")"
r hset 'asynq:{q}:t:ours-3' state archived >/dev/null
r zadd 'asynq:{q}:archived' "$(now)" ours-3 >/dev/null
is "archived by Go" 'ours-3 1700000000000' "$(m dead list --json | jq -r '.[]|"\(.id) \(.finished_ms)"')"
m dead requeue ours-3 --quiet
is "back" pending "$(r hget 'asynq:{q}:t:ours-3' state)"
m task delete ours-3 --quiet

ours ours-4 1h
go_take ours-4
go_leave ours-4
r hset 'asynq:{q}:t:ours-4' state completed result 'go result' >/dev/null
r zadd 'asynq:{q}:completed' $(($(now) + 3600)) ours-4 >/dev/null
is "kept by Go" 'completed go result' "$(m task show ours-4 --json | jq -r '"\(.state) \(.result)"')"

# A unique task of ours is one for Go as well: the same lock.
m enqueue --quiet -q q --id ours-5 -t t --unique 10m p >/dev/null
is "our lock" ours-5 "$(r get 'asynq:{q}:unique:t:83878c91171338902e0fe0fb97a8c47a')"
m task delete ours-5 --quiet
is "given back" 0 "$(r exists 'asynq:{q}:unique:t:83878c91171338902e0fe0fb97a8c47a')"

# One with a priority is due at once for Go's forwarder, and nothing else.
m enqueue --quiet -q q --id ours-6 --priority 60 p >/dev/null
is "in Go's eyes" scheduled "$(r hget 'asynq:{q}:t:ours-6' state)"
[ "$(r zscore 'asynq:{q}:scheduled' ours-6)" -le "$(now)" ] || fail "not due"
is "in ours" pending "$(state ours-6)"
r zrem 'asynq:{q}:scheduled' ours-6 >/dev/null # Go's forwarder moves it
r lpush 'asynq:{q}:pending' ours-6 >/dev/null
r hset 'asynq:{q}:t:ours-6' state pending pending_since "$(date +%s%N)" >/dev/null
is "moved by Go" pending "$(state ours-6)"
go_take ours-6
is "taken by Go" active "$(state ours-6)"
is "nobody waits" '0 0' "$(m queue show q --json | jq -r '"\(.pending) \(.oldest_pending_ms)"')"
go_leave ours-6
r del 'asynq:{q}:t:ours-6' >/dev/null

# ---- a run of ours, seen from Go ------------------------------------------------------------

ours ours-7
"$MILLRACE" work -q q --quiet --node me -- sh -c 'touch '"$room"'/began; exec sleep 60' &
worker=$!
servers+=("$worker")
until_true test -e began
is "active" ours-7 "$(r lrange 'asynq:{q}:active' 0 -1)"
lease=$(r zscore 'asynq:{q}:lease' ours-7)
[ "$lease" -gt "$(now)" ] || fail "the lease ended at $lease"
server=$(r zrange asynq:servers 0 -1)
[[ $server == asynq:servers:{*:*:*} ]] || fail "server: $server"
[ "$(r ttl "$server")" -le 10 ] || fail "server lives too long"
r --raw get "$server" | grep -qa active || fail "server info: $(r get "$server")"
shown() { [ "$(r hkeys "$(r zrange asynq:workers 0 -1)")" = ours-7 ]; }
until_true shown
r publish asynq:cancel ours-7 >/dev/null
stopped() { [ "$(state ours-7)" != active ]; }
until_true stopped
kill -TERM "$worker"
await "$worker"

# ---- a Go worker that died ------------------------------------------------------------------

go_enqueue go-7
go_take go-7
r zadd 'asynq:{q}:lease' $(($(now) - 31)) go-7 >/dev/null
"$MILLRACE" work -q q --quiet -- cat &
worker=$!
servers+=("$worker")
recovered() { [ "$(state go-7)" = retry ]; }
until_true recovered
is "its error" 'asynq: task lease expired' "$(m task show go-7 --json | jq -r .last_error)"
kill -TERM "$worker"
await "$worker"
