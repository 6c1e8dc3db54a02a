#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Results on the command line: taken, committed and given back, on a folder, at a server and on a Redis.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

receipts() { jq -r '.[].receipt'; }

# put_and_run: one task that ends well and one that does not.
put_and_run() {
    m --quiet enqueue --topic news --id "$1" hello >/dev/null
    m --quiet work --burst -c 1 -- tr a-z A-Z >/dev/null 2>&1
    m --quiet enqueue --topic news --id "$2" --retry 0 -t bad x >/dev/null
    m --quiet work --burst -c 1 -- false >/dev/null 2>&1 || true
}

# ---- a folder

export MILLRACE_BROKER=$store
put_and_run a b
m result take --topic news --json >"$room/taken"
jq -e 'length == 2 and (.[0] | .task_id == "a" and .queue == "default" and .topic == "news" and .outcome == "ok"
    and .attempt == 1 and .final and .result == "HELLO" and .error == "" and .finished_ms > 0
    and (.cancel_requested | not) and .partition == 1 and .type == "task")
    and (.[1] | .task_id == "b" and .outcome == "error" and .final and .result == "" and (.error | length > 0))' \
    "$room/taken" >/dev/null || fail "fields of results: $(cat "$room/taken")"
expect 0 result take --topic news --max 1
grep -qE '^TASK +TYPE +OUTCOME' "$room/out" || fail "no header"
is "at most one" 2 "$(wc -l <"$room/out")"
is "they are no tasks" 0 "$(m task list --state pending --json | jq length)"
is "and have no queue" default "$(m queue list --json | jq -r 'map(.queue)|join(" ")')"
# The one that was taken again has a newer receipt.
refuses 4 'another master has got it' result commit "$(receipts <"$room/taken" | head -n 1)"
expect 0 result commit "$(receipts <"$room/taken" | tail -n 1)"
expect 0 result commit "$(receipts <"$room/taken" | tail -n 1)"
grep -q 'committed already' "$room/err" || fail "$(cat "$room/err")"
m result take --topic news --json | receipts | xargs "$MILLRACE" result commit
refuses 3 "topic news: nothing to take" result take --topic news
refuses 2 'not a receipt' result commit nonsense
refuses 2 'not a receipt' result commit nonsense.1
refuses 2 'not a receipt' result commit a9993e364706816aba3e25717850c26c9cd0d89d.1 # of a Redis

# ---- a server, a Redis, and a server before that Redis: the first two tasks, and two more

# shared ID ID ID ID
shared() {
    put_and_run "$1" "$2"
    m result take --topic news --max 1 --json >"$room/first"
    is "the oldest" "$1" "$(jq -r '.[0].task_id' "$room/first")"
    m result take --topic news --node second --json >"$room/second"
    is "the first one is held, though its taker is gone" "$2" "$(jq -r '.[0].task_id' "$room/second")"
    is "masters" 'master master' "$(m node list --json | jq -r 'map(.role)|join(" ")')"
    refuses 3 "topic news: nothing to take" result take --topic news --node third
    is "who took nothing does not stay" 0 "$(m node list --json | jq 'map(select(.name == "third")) | length')"
    expect 0 result commit "$(receipts <"$room/first")" "$(receipts <"$room/second")"
    expect 0 result commit "$(receipts <"$room/first")"
    grep -q 'committed already' "$room/err" || fail "$(cat "$room/err")"
    refuses 2 'not a receipt' result commit nonsense.1
    is "they are no tasks" 0 "$(m task list --state pending --json | jq length)"
    is "and have no queue" default "$(m queue list --json | jq -r 'map(.queue)|join(" ")')"
    (sleep 0.3 && put_and_run "$3" "$4") &
    expect 0 result take --topic news --wait 20s
    grep -q "^$3 " "$room/out" || fail "$(cat "$room/out")"
    wait $!
}

start
shared c d e f

redis_start main
export MILLRACE_BROKER=$redis
shared g h i j

start --broker "$redis" --namespace other
shared k l m n
