#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Moving between brokers: what a task was is what it is, there and back; and a live system, with workers
# at both ends, a tool that is killed, and people who resume queues, loses no task and runs none twice.
# MR_KILLS says how often the tool is killed on each way, MR_TASKS how many tasks each way begins with.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

kills=${MR_KILLS:-4}
many=${MR_TASKS:-150}
redis_start main
file=file:$room/a

# ---- every state, there and back -------------------------------------------------------------

on() { local url=$1; shift; m --broker "$url" "$@"; }
shown() { on "$1" task list --json | jq -S 'sort_by(.id)'; }

on "$file" enqueue -q mail --id waits --header k=v 'hello' >/dev/null
on "$file" enqueue -q mail --id ahead --priority 100 'first' >/dev/null
on "$file" enqueue -q mail --id later --delay 1h --retry 3 --timeout 5s 'later' >/dev/null
on "$file" enqueue -q mail --id unique --unique 1h --unique-key u --topic t 'one' >/dev/null
on "$file" enqueue -q mail --id member --group g 'part' >/dev/null
on "$file" enqueue -q done --id kept --retention 1h 'result' >/dev/null
on "$file" enqueue -q done --id bad --retry 0 'x' >/dev/null
on "$file" work -q done --burst --quiet -- sh -c 'read -r x || true; [ "$x" = result ] && echo fine'
on "$file" queue set mail --max-length 5 --quiet
shown "$file" >"$room/before"

refuses 2 'would be moved' migrate "$file" "$redis"
expect 0 migrate --dry-run "$file" "$redis"
grep -q '^mail: 5 tasks' "$room/out" || fail "dry run: $(cat "$room/out")"
is "nothing was moved" "$(cat "$room/before")" "$(shown "$file")"

# A new folder is there when something is moved to it, and not before.
none() { [ ! -e "$room/new" ] || fail "$1 left a folder behind"; }
expect 0 migrate --dry-run --json "$file" "file:$room/new"
is "counted" 7 "$(jq .to_move "$room/out")"
none "a dry run"
refuses 2 'would be moved' migrate "$file" "file:$room/new"
none "a question"
refuses 3 'queue none' migrate --yes --queue none "$file" "file:$room/new"
none "what was refused"

expect 0 migrate --yes --json "$file" "$redis"
is "moved" 7 "$(jq .moved "$room/out")"
is "what came" "$(cat "$room/before")" "$(shown "$redis")"
is "settings" 5 "$(on "$redis" queue show mail --json | jq .max_length)"
is "a trace" "moved to $redis" "$(on "$file" task show waits --json | jq -r .last_error)"
is "paused" true "$(on "$file" queue show mail --json | jq .paused)"
refuses 4 'waits' --broker "$file" enqueue -q mail --id waits again
refuses 4 'unique' --broker "$redis" enqueue -q mail --unique 1h --unique-key u two

expect 0 migrate --yes --json "$file" "$redis"
is "nothing more to move" 0 "$(jq .moved "$room/out")"
refuses 2 'same broker' migrate --yes "$file" "$file"
refuses 2 'same broker' migrate --yes "$redis" "redis+unix:$room/redis-main/sock"

expect 0 migrate --yes --json "$redis" "file:$room/b"
is "to another folder" "$(cat "$room/before")" "$(shown "file:$room/b")"
expect 0 migrate --yes --json "file:$room/b" "$redis"
expect 0 migrate --yes --json "$redis" "$file"
is "the traces there are no tasks" 0 "$(jq .found_there "$room/out")"
is "and back" "$(cat "$room/before")" "$(shown "$file")"
grep -q 'paused' "$room/err" || fail "it does not say that the queue is paused there"

# ---- what is refused, and what goes wrong ----------------------------------------------------

on "$file" queue resume mail --quiet
on "$redis" task delete --all --yes --quiet
on "$redis" enqueue -q mail --id waits 'another' >/dev/null
expect 1 migrate --yes --json --queue mail "$file" "$redis"
is "refused" 1 "$(jq .refused "$room/out")"
grep -q 'waits stays .*another task of this id' "$room/err" || fail "said: $(cat "$room/err")"
is "it stays" pending "$(on "$file" task show waits --json | jq -r .state)"
refuses 3 'queue none' migrate --yes --queue none "$file" "$redis"
refuses 6 'nobody' migrate --yes "$file" redis://127.0.0.1:1
refuses 3 'no store' migrate --yes "file:$room/none" "$redis"
refuses 2 'argument is missing' migrate "$file"
r flushall >/dev/null

# ---- many of one moment -------------------------------------------------------------------------

seq 200 | on "$file" enqueue -q line --lines --quiet
expect 0 migrate --yes --queue line "$file" "$redis"
is "listed" 200 "$(on "$redis" task list -q line --limit 200 --json | jq 'map(.id)|unique|length')"
on "$redis" work -q line --burst --quiet --concurrency 1 -- sh -c 'read -r x || true; echo "$x" >>"$0"' "$room/line"
is "in their order" "$(seq 200)" "$(cat "$room/line")"
r flushall >/dev/null

# ---- nobody knows whether a task was marked -----------------------------------------------------

# The script of one partition fails behind the mark of its first task: what it may have marked is not taken back.
on "$redis" queue set parts --partitions 2 --quiet
seq 6 | on "$redis" enqueue -q parts --lines --quiet
r set 'asynq:{parts~2}:mr:open' odd >/dev/null
expect 1 migrate --yes --queue parts "$redis" "file:$room/parts"
grep -q 'cannot mark tasks as moved at .*run it again' "$room/err" || fail "said: $(cat "$room/err")"
r del 'asynq:{parts~2}:mr:open' >/dev/null
expect 0 migrate --yes --queue parts "$redis" "file:$room/parts"
is "nothing was lost" 6 "$(on "file:$room/parts" queue show parts --json | jq .pending)"
is "or is held" '[]' "$(on "file:$room/parts" task list --held --json)"
r flushall >/dev/null

# An id that two queues of a Redis have, as Go programs may bring about: moving one would mark both.
on "$redis" enqueue -q here --id same mine >/dev/null
r copy 'asynq:{here}:t:same' 'asynq:{there}:t:same' >/dev/null
r lpush 'asynq:{there}:pending' same >/dev/null
r sadd asynq:queues there >/dev/null
expect 1 migrate --yes --json --queue here "$redis" "file:$room/same"
is "refused" '0 1' "$(jq -r '[.moved,.refused]|join(" ")' "$room/out")"
grep -q 'same stays .*another queue has a task of this id as well' "$room/err" || fail "said: $(cat "$room/err")"
is "both wait" 'pending pending' \
    "$(r hget 'asynq:{here}:t:same' state) $(r hget 'asynq:{there}:t:same' state)"
r flushall >/dev/null

# ---- a live system ----------------------------------------------------------------------------

start
far=$MILLRACE_BROKER
folder=$data data=$room/data-redis
start --broker "$redis"
both=$far,${MILLRACE_BROKER#millrace://} data=$folder
unset MILLRACE_BROKER

# ---- one of two servers does not release what it holds ------------------------------------------

# The other one says that it does not have those: that is no answer. The queue before it is the one that is tried out.
on "file:$room/held" enqueue -q before first >/dev/null
seq 20 | on "file:$room/held" enqueue -q later --lines --quiet
r set 'asynq:{later}:mr:keep' odd >/dev/null
expect 1 migrate --yes "file:$room/held" "$both"
grep -q 'cannot release tasks at .*run it again' "$room/err" || fail "said: $(cat "$room/err")"
r del 'asynq:{later}:mr:keep' >/dev/null
expect 0 migrate --yes "file:$room/held" "$both"
is "all are there" 20 "$(on "$both" queue show later --json | jq .pending)"
is "and none is held" '[]' "$(on "$both" task list --held --json)"

# ---- the epoch of a task rises wherever it goes ------------------------------------------------

# A run at a broker, which fails.
fenced() {
    on "$1" queue resume fence --quiet 2>/dev/null || true
    on "$1" task run fenced --quiet 2>/dev/null || true
    on "$1" work -q fence --burst --quiet -- sh -c 'echo "$MILLRACE_EPOCH" >>"$0"; exit 1' "$room/epochs" \
        >/dev/null 2>&1 || true
}

on "file:$room/e" enqueue -q fence --id fenced --retry 100 x >/dev/null
# A folder that was not closed goes on ahead of the clock.
for ((i = 0; i < 3; i++)); do
    timeout --signal KILL 0.5 "$MILLRACE" work --broker "file:$room/e" -q none --quiet -- true >/dev/null 2>&1 || true
done
at=file:$room/e
fenced "$at"
for to in "$redis" "$far" "file:$room/f" "$redis" "file:$room/e"; do
    expect 0 migrate --yes --quiet --queue fence "$at" "$to"
    at=$to
    fenced "$at"
done
is "runs" 6 "$(wc -l <"$room/epochs")"
sort -c -n -u "$room/epochs" 2>/dev/null || fail "epochs fell: $(tr '\n' ' ' <"$room/epochs")"

# ---- and all the while work goes on -----------------------------------------------------------

worker() {
    "$MILLRACE" work --broker "$1" -q load --concurrency 4 --quiet -- \
        sh -c 'read -r x || true; echo "$x" >>"$0"' "$room/ran" >/dev/null 2>>"$room/worker.err" &
    servers+=("$!")
}

# killed FROM TO: again and again, until it is left alone; now and then somebody resumes the queue.
killed() {
    local i tool
    for ((i = 0; i < kills; i++)); do
        "$MILLRACE" migrate --yes --quiet --queue load "$1" "$2" >/dev/null 2>&1 &
        tool=$!
        sleep "0.0$((RANDOM % 9))$((RANDOM % 9))"
        kill -9 "$tool" 2>/dev/null || true
        wait "$tool" 2>/dev/null || true
        if ((i % 2 == 0)); then on "$1" queue resume load --quiet 2>/dev/null || true; fi
    done
    expect 0 migrate --yes --json --queue load "$1" "$2"
}

empty() { [ "$(on "$1" queue show load --json | jq '.pending + .active + .scheduled + .retry')" = 0 ]; }

# Each task ran once, by what its worker wrote.
judge() {
    sort "$room/ran" >"$room/ran.sorted"
    [ -z "$(uniq -d "$room/ran.sorted")" ] || fail "$1: ran twice: $(uniq -d "$room/ran.sorted" | head -n 3)"
    is "$1: ran in all" "$2" "$(wc -l <"$room/ran")"
}

: >"$room/ran"
all=0
for way in "$far $redis" "$redis $far"; do
    read -r from to <<<"$way"
    on "$from" queue set load --max-length 0 --quiet
    on "$from" queue resume load --quiet
    # What was there before came from here: it would run now.
    for ((i = 0; i < many; i++)); do echo "$from $i"; done | on "$from" enqueue -q load --lines --quiet >/dev/null
    worker "$from"
    worker "$to"
    # Producers have switched.
    on "$to" queue set load --max-length 0 --quiet
    on "$to" queue resume load --quiet
    (for ((i = 0; i < many; i++)); do echo "$to new $i"; done | on "$to" enqueue -q load --lines --quiet >/dev/null)
    killed "$from" "$to"
    all=$((all + 2 * many))
    until_true empty "$to"
    judge "$way" "$all"
    is "nothing is held" '[]' "$(on "$to" task list --held --json)"
done

# ---- what runs ends where it is ----------------------------------------------------------------

"$MILLRACE" work --broker "$far" -q slow --quiet -- sh -c 'while [ ! -e "$0" ]; do sleep 0.05; done; echo fine' \
    "$room/go" >/dev/null 2>>"$room/worker.err" &
servers+=("$!")
on "$far" enqueue -q slow --id runs x >/dev/null
runs() { [ "$(on "$far" task show runs --json | jq -r .state)" = active ]; }
until_true runs
code=0
timeout --signal INT 1 "$MILLRACE" migrate --yes --quiet --queue slow "$far" "$redis" >/dev/null 2>&1 || code=$?
is "interrupted while it waits" 124 "$code"
is "still there" active "$(on "$far" task show runs --json | jq -r .state)"
"$MILLRACE" migrate --yes --quiet --queue slow "$far" "$redis" &
tool=$!
sleep 0.2
touch "$room/go"
await "$tool"
is "it waited" 0 "$code"
is "its result" fine "$(on "$redis" task show runs --json | jq -r .result)"
is "its trace" "moved to $redis" "$(on "$far" task show runs --json | jq -r .last_error)"

# ---- a folder: the tool has the store open itself when it is killed ---------------------------

ran() { on "$1" work -q load --burst --quiet -- sh -c 'read -r x || true; echo "$x" >>"$0"' "$room/ran" >/dev/null; }

for ((i = 0; i < many; i++)); do echo "folder $i"; done | on "file:$room/c" enqueue -q load --lines --quiet >/dev/null
on "$redis" queue resume load --quiet
killed "file:$room/c" "$redis"
all=$((all + many))
until_true empty "$redis"
judge "from a folder" "$all"

on "$far" queue pause load --quiet
for ((i = 0; i < many; i++)); do echo "to folder $i"; done | on "$far" enqueue -q load --lines --quiet >/dev/null
killed "$far" "file:$room/d"
all=$((all + many))
ran "file:$room/d"
until_true empty "$far"
judge "to a folder" "$all"
expect 0 fsck "file:$room/c"
expect 0 fsck "file:$room/d"
expect 0 fsck "$redis"
[ ! -s "$room/worker.err" ] || fail "workers: $(cat "$room/worker.err")"
