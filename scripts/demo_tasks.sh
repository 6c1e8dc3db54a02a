#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A first look at Millrace, on the embedded engine in a folder that is removed at the end: a few hundred
# tasks, a worker in plain shell, one kill -9, some retries, one dead letter.
#
# MILLRACE is the program (default build/millrace). DEMO_TASKS and DEMO_PACE change the number of tasks
# and the seconds each one takes. Exits 1 when a task was lost.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

millrace=${MILLRACE:-build/millrace}
tasks=${DEMO_TASKS:-300}
pace=${DEMO_PACE:-0.15}
slots=4

DEMO=$(mktemp -d)
export DEMO DEMO_PACE=$pace
export MILLRACE_BROKER="file:$DEMO/store"
worker=
clean_up() {
    if [ -n "$worker" ]; then
        kill -9 "$worker" 2>/dev/null || true
        wait "$worker" 2>/dev/null || true
    fi
    rm -rf "$DEMO"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

bold='' dim='' green='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'
fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '%s  $ %s%s\n' "$dim" "$*" "$plain"; }

# finished: how many different tasks have run to their end.
finished() { sort -u "$DEMO/finished" | wc -l; }

# draw_bar DONE: one line that is drawn over on a terminal; elsewhere a line per quarter.
quarter_seen=-1
draw_bar() {
    local done_n=$1 width=40
    local filled=$((done_n * width / tasks)) quarter=$((done_n * 4 / tasks)) line
    printf -v line '%*s' "$filled" ''
    line=${line// /#}
    printf -v line '  [%-*s] %3d of %d tasks done' "$width" "$line" "$done_n" "$tasks"
    if [ -t 1 ]; then
        printf '\r%s%s%s' "$green" "$line" "$plain"
    elif [ "$quarter" -ne "$quarter_seen" ]; then
        quarter_seen=$quarter
        printf '%s\n' "$line"
    fi
}

# work_until COUNT: runs the worker and draws its progress until it has nothing left to do, or, with a
# COUNT, kills it with SIGKILL as soon as so many tasks are done.
work_until() {
    local count=${1:-0}
    "$millrace" work -q demo -c "$slots" --burst -- sh "$DEMO/task.sh" >"$DEMO/work.log" 2>&1 &
    worker=$!
    while kill -0 "$worker" 2>/dev/null; do
        draw_bar "$(finished)"
        if [ "$count" -gt 0 ] && [ "$(finished)" -ge "$count" ]; then
            kill -9 "$worker" 2>/dev/null || true
            break
        fi
        sleep 0.1
    done
    local status=0
    wait "$worker" 2>/dev/null || status=$?
    worker=
    draw_bar "$(finished)"
    [ ! -t 1 ] || printf '\n'
    if [ "$status" -ne 0 ] && [ "$count" -eq 0 ]; then
        echo "the worker failed with status $status:" >&2
        tail -n 20 "$DEMO/work.log" >&2
        exit 1
    fi
}

# What a worker does is any program: payload on stdin, result on stdout, the exit status decides.
cat >"$DEMO/task.sh" <<'TASK'
read -r number
sleep "$DEMO_PACE"
if [ "$number" -eq 13 ]; then
    echo "number 13 cannot be helped" >&2
    exit 100 # failed for good
fi
if [ $((number % 25)) -eq 0 ] && [ "$MILLRACE_ATTEMPT" -eq 1 ]; then
    echo "busy, come back later" >&2
    exit 1 # failed, to be retried
fi
factor "$number"
echo "$number" >>"$DEMO/finished"
TASK
: >"$DEMO/finished"
began=$SECONDS

say "1. Hand over $tasks tasks. Each is on disk before its id is printed."
show "seq $tasks | millrace enqueue -q demo -t factor --lines"
seq "$tasks" | "$millrace" enqueue -q demo -t factor --lines >"$DEMO/ids"
echo "  $(wc -l <"$DEMO/ids") ids, the first is $(head -n 1 "$DEMO/ids")"
"$millrace" queue list

say "2. Work on them with $slots processes at once, in plain shell. After a third: kill -9."
show "millrace work -q demo -c $slots --burst -- sh task.sh"
work_until $((tasks / 3))
echo "  killed. What was acknowledged is still there, and the tasks it was running are waiting again:"
"$millrace" queue list

say "3. Start the worker again. Some tasks fail the first time and will be retried."
show "millrace work -q demo -c $slots --burst -- sh task.sh"
work_until
"$millrace" queue list

say "4. Failed tasks wait for their retry; we do not, and run them now."
show "millrace task run -q demo --state retry --yes"
"$millrace" task run -q demo --state retry --yes
work_until

say "5. One task failed for good. It is kept for a person to look at, with the reason."
show "millrace dead list"
"$millrace" dead list
show "millrace queue list"
"$millrace" queue list

all=$(finished)
say "$tasks tasks handed over, $all done, 1 dead letter, nothing lost, in $((SECONDS - began)) s."
if [ "$all" -ne $((tasks - 1)) ]; then
    echo "demo: expected $((tasks - 1)) tasks done, not $all" >&2
    exit 1
fi
