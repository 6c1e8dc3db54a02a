#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Producers and workers of three servers, all processes of their own: each task is sent once (33) and found wherever it is, a
# server that is killed is passed over and used again (34), one that is killed before it answers leaves its producer in doubt, who
# says so, and a second try by the same id does not double it (29); without any it is said that nothing was sent (32), and the
# dead one at the head of the list does no harm (35). Every task that was acknowledged ends once.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

tasks=${MR_TASKS:-150}
pids=() ports=()

# up I: the I-th server, on its old port if it had one.
up() {
    data=$room/data$1
    start ${ports[$1]:+--grpc "${ports[$1]}"}
    pids[$1]=$server
    ports[$1]=$grpc
}

# down I: killed.
down() {
    server=${pids[$1]}
    kill -9 "$server"
    ends 137
}

# at I ARG...: the program, at one server.
at() {
    local broker=millrace://${ports[$1]}
    shift
    m --broker "$broker" "$@"
}

# waiting I QUEUE: tasks that one server has.
waiting() { at "$1" queue show "$2" --json 2>/dev/null | jq -r .pending; }

for i in 0 1 2; do up $i; done
export MILLRACE_BROKER=millrace://${ports[0]},${ports[1]},${ports[2]}

# ---- 33: each once

for ((i = 0; i < 30; i++)); do echo "line $i"; done >"$room/lines"
m enqueue --lines -q even <"$room/lines" >"$room/ids" 2>/dev/null
is "ids" 30 "$(sort -u "$room/ids" | wc -l)"
is "tasks in all" 30 "$(m queue show even --json | jq -r .pending)"
is "tasks listed" "$(sort "$room/ids" | md5sum)" \
    "$(m task list -q even --limit 1000 --json | jq -r '.[].id' | sort | md5sum)"
for ((i = 0; i < 9; i++)); do m --quiet enqueue -q single x >/dev/null; done
is "one by one" 9 "$(m queue show single --json | jq -r .pending)"

# Wherever it is, it is found, and acted on.
for id in $(head -n 5 "$room/ids"); do
    is "state" pending "$(m task show "$id" --json | jq -r .state)"
    expect 0 task delete "$id"
done
is "after five are gone" 25 "$(m queue show even --json | jq -r .pending)"
expect 0 enqueue -q even --id mine x
refuses 4 "a task with the id mine exists" enqueue -q even --id mine x

# ---- a worker for all of them, once each

m work -q even -q single --burst -- sh -c 'echo "$MILLRACE_TASK_ID" >>"$0"' "$room/ran" >/dev/null 2>&1
is "runs" 35 "$(wc -l <"$room/ran")"
is "different ones" 35 "$(sort -u "$room/ran" | wc -l)"
is "left" 0 "$(m queue show even --json | jq -r '.pending + .active + .retry')"

# ---- 29, 34: kills under load

work_on() {
    "$MILLRACE" work -q "$1" -c 4 -- \
        sh -c 'echo "$MILLRACE_TASK_ID" >>"$0"; sleep 0.01' "$room/ran.$1" >/dev/null 2>&1 &
    worker=$!
    servers+=("$worker")
}
work_on load
for ((i = 0; i < tasks; i++)); do
    [ "$i" -ne $((tasks / 3)) ] || down 1
    [ "$i" -ne $((2 * tasks / 3)) ] || up 1
    export MILLRACE_BROKER=millrace://${ports[0]},${ports[1]},${ports[2]}
    m --quiet enqueue -q load --retention 1h "task $i" >>"$room/acked"
done
is "acknowledged" "$tasks" "$(sort -u "$room/acked" | wc -l)"
all_done() { [ "$(m queue show load --json | jq -r .completed)" -eq "$tasks" ]; }
until_true all_done
is "what ran" "$(sort "$room/acked" | md5sum)" "$(sort -u "$room/ran.load" | md5sum)"
is "in the archive" 0 "$(m queue show load --json | jq -r .archived)"

# The one that came back is used, and worked for, without a restart of anybody.
at 1 --quiet enqueue -q load --id back --retention 1h x >/dev/null
back_done() { [ "$(at 1 task show back --json | jq -r .state)" = completed ]; }
until_true back_done
kill -TERM "$worker"
wait "$worker" || true

# ---- 29: a server is killed between what it receives and its answer

# lossy NEEDLE PORT...: a network that loses the answer to that; ways to it are $ways.
lossy() {
    rm -f "$room/mute.out" # of the one before: its ways would be taken for the new ones
    "$here/mute.py" "$1" "${@:2}" >"$room/mute.out" &
    servers+=("$!")
    until_true heard 127
    read -r -a ways < <(head -n 1 "$room/mute.out")
}
heard() { grep -qs "^$1" "$room/mute.out"; }

# The server that has the task is killed before anybody hears of it.
lossy needle "${ports[@]#*:}"
export MILLRACE_BROKER=millrace://${ways[0]},${ways[1]},${ways[2]}
m enqueue -q lost --id once --retention 1h "a needle" >"$room/lost.out" 2>"$room/lost.err" &
producer=$!
until_true heard heard
has=$(sed -n 's/^heard //p' "$room/mute.out")
is_there() { at "$has" task show once >/dev/null 2>&1; }
until_true is_there
down "$has"
await "$producer"
is "29: exit code of who got no answer" 6 "$code"
is "29: its standard output" "" "$(cat "$room/lost.out")"
grep -qF "was lost: task once may be there or not; millrace task show once tells" "$room/lost.err" ||
    fail "29: the producer said: $(cat "$room/lost.err")"
# It went to nobody else; and who sends it again by the same id does not double it.
for i in 0 1 2; do
    [ "$i" = "$has" ] || is "29: at another server" "" "$(at "$i" task list -q lost --json 2>/dev/null | jq -r '.[].id')"
done
up "$has"
export MILLRACE_BROKER=millrace://${ways[0]},${ways[1]},${ways[2]}
is "29: task show tells" pending "$(m task show once --json | jq -r .state)"
refuses 4 "a task with the id once exists (pending)" enqueue -q lost --id once --retention 1h "a needle"
m work -q lost --burst -- sh -c 'echo "$MILLRACE_TASK_ID" >>"$0"' "$room/ran.lost" >/dev/null 2>&1
is "29: runs" once "$(cat "$room/ran.lost")"

# The same of an operation on a timer, with nobody else who could take it.
lossy lost-timer "${ports[0]#*:}"
m --broker "millrace://${ways[0]}" timer create lost-timer --every 1h >"$room/lost.out" 2>"$room/lost.err" &
producer=$!
until_true heard heard
has_timer() { at 0 timer show lost-timer >/dev/null 2>&1; }
until_true has_timer
down 0
await "$producer"
[ "$code" -ne 0 ] || fail "29: the producer of a timer says that it is done"
grep -qE "the answer was lost, it may be done or not; do it again|not applied in time.*Doing it again does no harm" \
    "$room/lost.err" || fail "29: the producer of a timer said: $(cat "$room/lost.err")"
up 0
refuses 4 "timer lost-timer is there already" --broker "millrace://${ports[0]}" timer create lost-timer --every 1h
is "29: timers" 1 "$(at 0 timer list --json | jq length)"
expect 0 --broker "millrace://${ports[0]}" timer rm lost-timer
export MILLRACE_BROKER=millrace://${ports[0]},${ports[1]},${ports[2]}

# ---- 35: the first of the list is dead

down 0
for ((i = 0; i < 6; i++)); do m --quiet enqueue -q late x >/dev/null; done
is "at the others" 6 "$(($(waiting 1 late) + $(waiting 2 late)))"
is "whom to ask for the servers" true "$(m node list --servers --json | jq ".servers | length > 0")" # killed ones may still be there
refuses 2 'must be of the form millrace://HOST:PORT' token list # each server has its own

# ---- 32: nobody is there

down 1
down 2
refuses 6 "no server there" enqueue -q late x
# The same of nameservers, which are used where no other broker is named.
unset MILLRACE_BROKER
export MILLRACE_NAMESERVER=${ports[0]},${ports[1]}
refuses 6 "no nameserver there answers" enqueue -q late x
echo "many: ok"
