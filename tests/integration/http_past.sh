#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What was, over HTTP: the events of a task, told also after a restart as far as they are known; nodes that are suspect or drain;
# who has led; servers and whose apps are.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
v1=/api/v1
post() { ask "$1" POST "$v1$2" -d "$3" "${@:4}"; }
as() { echo "Authorization: Bearer $1"; }

# ---- a task's events --------------------------------------------------------------------------------

# fail_it ERROR: the next run of queue q, by a worker called hand.
fail_it() {
    post 200 /take '{"queues":{"q":1},"node":"hand","max":1,"wait_ms":20000}'
    is "taken" one "$(of_it '.items[].id')"
    jq -c --arg error "$1" '[.items[] | {id, epoch, outcome: "error", error: $error, delay_ms: 1}]' "$room/body" >ends
    ask 200 POST $v1/finish -d @ends
}
of_events() { of_it '[.items[] | .event + (if .attempt then "\(.attempt)" else "" end)] | join(" ")'; }

post 200 /tasks '{"queue":"q","id":"one","max_retry":9}'
ask 200 GET $v1/tasks/one/events
is "it came" 'enqueued 0' "$(of_events) $(of_it .missing)"
fail_it $'<script>boom()</script>\e[31m\r\n\u202e'
fail_it 'once more'
ask 200 POST $v1/tasks/one/archive
ask 200 POST $v1/tasks/one/run
ask 200 GET $v1/tasks/one/events
is "all that was" 'enqueued started1 error1 started2 error2 archive run 0' "$(of_events) $(of_it .missing)"
is "by whom" 'hand hand hand hand' "$(of_it '[.items[] | .node // empty] | join(" ")')"
is "what was said" $'<script>boom()</script>\e[31m\r\n\u202e' "$(of_it '.items[2].text')"
is "in the order of time" true "$(of_it '[.items[].ms] | . == sort')"
fail_it 'the counts began anew'
fail_it 'and go on'
ask 200 GET $v1/tasks/one/events
is "runs of both counts" 'started1 error1 started2 error2' "$(of_it '[.items[7:][] | .event + "\(.attempt)"] | join(" ")')"
is "all of them are known" 0 "$(of_it .missing)"
post 200 /tasks '{"queue":"later","id":"due","delay_ms":3600000}'
ask 200 GET $v1/tasks/due/events
is "it will be" 'enqueued due' "$(of_events)"
errs 404 NOT_FOUND GET $v1/tasks/none/events
few=$(as "$(token --role viewer --queue 'b*')")
errs 403 DENIED GET $v1/tasks/one/events -H "$few"

# ---- nodes ------------------------------------------------------------------------------------------

state_of() { [ "$(curl -s "http://$http$v1/nodes" | jq -r --arg node "$1" '.items[] | select(.node == $node) | .state')" = "$2" ]; }
"$MILLRACE" work -q slow -c 2 --node leaves -- sleep 30 2>"$room/leaves.err" &
leaves=$!
servers+=("$leaves")
until_true state_of leaves live
curl -sN "http://$http$v1/events" >"$room/events" &
events=$!
servers+=("$events")
m enqueue -q slow x >/dev/null
in_hand() { [ "$(curl -s "http://$http$v1/nodes" | jq '[.items[].in_hand] | add')" = 1 ]; }
until_true in_hand
kill -TERM "$leaves"
until_true state_of leaves draining
told() { grep '^data: ' "$room/events" | cut -c7- | jq -e --arg node "$1" --arg state "$2" 'select(.node == $node and .state == $state)' >/dev/null; }
until_true told leaves draining
is "the command says so, too" draining "$(m node list --json | jq -r '.[] | select(.node == "leaves") | .state')"
kill -9 "$leaves"
wait "$leaves" 2>/dev/null || true
until_true told leaves suspect
kill "$events"

# ---- who has led ------------------------------------------------------------------------------------

"$MILLRACE" work -q slow -c 1 --node heir -- true 2>/dev/null &
heir=$!
servers+=("$heir")
led() { [ "$(curl -s "http://$http$v1/leader/history" | jq -r '[.items[].node] | join(" ")')" = 'heir leaves' ]; }
until_true led
ask 200 GET $v1/leader/history
is "one at a time" true "$(of_it '.items[0].until_ms == null and .items[1].until_ms <= .items[0].since_ms and .items[1].since_ms <= .items[1].until_ms')"
is "terms rise" true "$(of_it '.items[0].term > .items[1].term and .watched_ms > 0')"
kill "$heir"
wait "$heir" 2>/dev/null || true

# ---- servers ----------------------------------------------------------------------------------------

m timer create nightly --cron '0 3 * * *' --app night
owned() {
    ask 200 GET $v1/servers
    [ "$(of_it '[.subapps[] | select(.app == "night" and .owner != "")] | length')" = 1 ]
}
until_true owned
is "as the command says" "$(m node list --servers --json | jq -cS 'del(.servers[].load, .subapps[].load)')" "$(jq -cS 'del(.servers[].load, .subapps[].load)' "$room/body")"
is "its own" "$(of_it '.servers[0].server')" "$(of_it '.subapps[] | select(.app == "night") | .owner')"
ask 200 GET $v1/servers -H "$few"
is "no app of others" 0 "$(of_it '.subapps | length')"
errs 403 DENIED GET $v1/servers -H "$(as "$(token --role worker)")"

# ---- after a restart what is not known any more is said -----------------------------------------------

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
start
ask 200 GET $v1/tasks/one/events
is "the last failure alone" 'enqueued error2 1' "$(of_it '[.items[] | select(.event != "due") | .event + (if .attempt then "\(.attempt)" else "" end)] | join(" ")') $(of_it .missing)"
stop 0
