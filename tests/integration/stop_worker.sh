#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Who stands still, and who only seems dead. A worker that is stopped (SIGSTOP) beyond its death time loses
# its tasks to another under a higher epoch; when it goes on, what it says of them is refused, and what it
# still runs is told to stop. A server that is stopped for longer than a lease, or ends again and again, makes
# no crash of what its workers run. The waits are those of the defaults: a lease of 15 s.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

of() { m --broker "$1" task show "$2" --json | jq -r ".$3"; }
is_now() { [ "$(of "$1" "$2" "$3" 2>/dev/null)" = "$4" ]; }

# work_as NAME BROKER SLOTS COMMAND: a worker; what its runs write is in $room/ran.NAME.
work_as() {
    : >"$room/ran.$1"
    "$MILLRACE" --broker "$2" work --node "$1" -c "$3" -- bash -c "$4" "$room/ran.$1" \
        >/dev/null 2>"$room/work.$1" &
    worker=$!
    servers+=("$worker")
}
said() { grep -qE "$2" "$room/ran.$1" 2>/dev/null; }
run_epoch() { sed -n "s/^began $2 //p" "$room/ran.$1" | tail -1; }

# ---- three servers, so that the waits go on at the same time

start
far=$MILLRACE_BROKER # its worker will be stopped
data=$room/still
start
still=$MILLRACE_BROKER # this one will be stopped itself
still_server=$server

# Two runs of a worker that is going to be stopped: one ends while it is, the other goes on.
until_told='echo "began $MILLRACE_TASK_ID $MILLRACE_EPOCH" >>"$0"
trap "echo told $MILLRACE_TASK_ID >>\"$0\"; exit 0" TERM
until [ -e "$0.$MILLRACE_TASK_ID" ]; do sleep 0.05; done
echo "ended $MILLRACE_TASK_ID" >>"$0"; echo "late result"'
m --broker "$far" --quiet enqueue --id ends x >/dev/null
m --broker "$far" --quiet enqueue --id goes-on x >/dev/null
work_as first "$far" 2 "$until_told"
first=$worker
until_true said first '^began ends '
until_true said first '^began goes-on '
m --broker "$still" --quiet enqueue --id through x >/dev/null
work_as patient "$still" 1 "$until_told"
patient=$worker
until_true said patient '^began through '

kill -STOP "$first" "$still_server"
stopped=$SECONDS
touch "$room/ran.first.ends"
until_true said first '^ended ends' # its process is not stopped

# ---- meanwhile: a server that ends again and again, killed or stopped, with the worker in its run

data=$room/restarted
start --drain-timeout 100ms
restarted=$MILLRACE_BROKER port=$grpc
m --quiet enqueue --id long x >/dev/null
work_as steady "$restarted" 1 "$until_told"
for ((i = 1; i <= 4; i++)); do
    runs_again() { [ "$(grep -c '^began long ' "$room/ran.steady")" -ge "$i" ] && is_now "$restarted" long state active; }
    until_true runs_again
    if ((i % 2)); then
        kill -9 "$server"
        ends 137
    else
        stop 0
    fi
    start --drain-timeout 100ms --grpc "$port"
done
until_true is_now "$restarted" long state active
is "crashes after four ends of the server" 0 "$(of "$restarted" long crashes)"
is "retries after four ends of the server" 0 "$(of "$restarted" long retried)"
touch "$room/ran.steady.long"
until_true is_now "$restarted" long state completed
is "result" "late result" "$(of "$restarted" long result)"

# ---- another worker gets both tasks, under higher epochs

work_as second "$far" 2 'echo "began $MILLRACE_TASK_ID $MILLRACE_EPOCH" >>"$0"; echo "result of the second"'
for task in ends goes-on; do
    until_true is_now "$far" "$task" state completed
    ((SECONDS - stopped >= 14)) || fail "$task was given away after $((SECONDS - stopped)) s"
    [ "$(run_epoch second "$task")" -gt "$(run_epoch first "$task")" ] || fail "$task: the epoch did not rise"
    is "$task: crashes" 1 "$(of "$far" "$task" crashes)"
done

# It goes on: what it says is refused, and its run is told to stop.
if said first told; then fail "told before it went on"; fi
kill -CONT "$first"
until_true said first '^told goes-on'
kill -TERM "$first"
await "$first"
is "exit code of the first worker" 0 "$code"
grep -q '^millrace: 0 done, 0 failed' "$room/work.first" || fail "$(cat "$room/work.first")"
for task in ends goes-on; do
    is "$task: result" "result of the second" "$(of "$far" "$task" result)"
    is "$task: epoch" "$(run_epoch second "$task")" "$(of "$far" "$task" epoch)"
    is "$task: runs of the second" 1 "$(grep -c "^began $task " "$room/ran.second")"
done
is "processed" 2 "$(m --broker "$far" queue show default --json | jq -r .processed_total)"

# ---- the server that was stopped goes on; its worker has fenced itself, and died no more than anybody

until_true said patient '^told through'
((SECONDS - stopped >= 14)) || fail "the worker fenced itself after $((SECONDS - stopped)) s"
kill -CONT "$still_server"
comes_back() { [ "$(grep -c '^began through ' "$room/ran.patient")" -eq 2 ]; }
until_true comes_back
touch "$room/ran.patient.through"
until_true is_now "$still" through state completed
is "crashes after the server stood still" 0 "$(of "$still" through crashes)"
is "retries after the server stood still" 0 "$(of "$still" through retried)"
is "processed" 1 "$(m --broker "$still" queue show default --json | jq -r .processed_total)"
kill -0 "$patient" || fail "the worker has ended"
