#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Timers over HTTP: made, put, paused, resumed, run and deleted; what came by GET goes back by PUT; what is wrong is said;
# tokens have what is theirs.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
v1=/api/v1
post() { ask "$1" POST "$v1$2" -d "$3" "${@:4}"; }

# ---- making ---------------------------------------------------------------------------------------

post 201 /timers '{"name":"n","kind":"cron","expression":"0 3 * * *","tz":"Europe/Berlin","queue":"q","type":"t","payload":"p",
    "headers":{"k":"v"},"priority":2,"max_retry":3,"timeout_ms":5000,"misfire":"skip","overlap":"queue","strategy":"key:K","times":9}'
is "as the command line has it" "$(m timer show n --json | jq -cS .)" "$(jq -cS . "$room/body")"
is "what was said" 'cron 0 3 * * * q t p v 3 5000 skip queue key:K 9 active' \
    "$(of_it '[.kind, .expression, .queue, .type, .payload, .headers.k, .max_retry, .timeout_ms, .misfire, .overlap, .strategy, .times, .state] | map(tostring) | join(" ")')"
post 409 /timers '{"name":"n","kind":"manual"}'
is "there already" 'CONFLICT timer n: it is there already' "$(of_it '"\(.error.code) \(.error.message)"')"
post 201 "/timers?app=other" '{"name":"n","kind":"every","expression":"1h"}'
is "of another app" other "$(of_it .app)"
for body in '' '[]' '{}' '{"name":"x"}' '{"name":"x","kind":"hope"}' '{"name":"x","kind":"cron","expression":"hope"}' \
    '{"name":"x","kind":"every"}' '{"name":"x","kind":"manual","strategy":"key"}' '{"name":"x","kind":"manual","misfire":"x"}' \
    '{"name":"x","kind":"manual","overlap":"x"}' '{"name":"x","kind":"manual","state":"x"}' '{"name":"x","kind":"manual","tz":"No/Where"}' \
    '{"name":"x","kind":"manual","cron":"x"}' '{"name":"x","kind":"manual","payload":1}' '{"name":"x\n","kind":"manual"}' \
    '{"name":"x","kind":"manual","times":-1}' '{"name":"x","kind":"manual","max_running":5000000000}' '{"kind":"manual"}' \
    '{"name":"x","kind":"manual","headers":{"a":1}}' '{"name":7,"kind":"manual"}'; do
    errs 400 INVALID POST $v1/timers -d "$body"
done

# ---- changing -------------------------------------------------------------------------------------

ask 200 GET $v1/timers/n
cp "$room/body" timer
ask 200 PUT $v1/timers/n -d @timer
is "as it was" "$(jq -cS 'del(.version)' timer)" "$(jq -cS 'del(.version)' "$room/body")"
jq '.payload = "other" | .if_version = .version' "$room/body" >new
ask 200 PUT $v1/timers/n -d @new
is "changed" other "$(of_it .payload)"
errs 409 CONFLICT PUT $v1/timers/n -d @new
ask 200 POST $v1/timers/n/pause
is "paused" paused "$(of_it .state)"
ask 200 PUT $v1/timers/n -d '{"kind":"every","expression":"2h"}'
is "a pause stays, the rest has its default" 'paused every default' "$(of_it '"\(.state) \(.kind) \(.queue)"')"
is "it is the same timer" "$(jq -r .id timer)" "$(of_it .id)"
ask 200 POST $v1/timers/n/resume
is "resumed" active "$(of_it .state)"
ask 200 PUT $v1/timers/new -d '{"kind":"manual","queue":"q","type":"t"}'
is "one that is not there is made" manual "$(of_it .kind)"
errs 400 INVALID PUT $v1/timers/new -d '{"name":"old","kind":"manual"}'
ask 200 POST $v1/timers/new/run
ran() { [ "$(m timer history new --json | jq length)" = 1 ]; }
until_true ran
ask 200 GET "$v1/timers/new/history"
is "its firing" manual "$(of_it '.items[0].cause')"
ask 200 GET "$v1/timers/n/next?limit=10"
is "when" 10 "$(of_it '.items | length')"
ask 200 DELETE $v1/timers/new
errs 404 NOT_FOUND GET $v1/timers/new
for verb in pause resume run; do errs 404 NOT_FOUND POST $v1/timers/new/$verb; done
errs 404 NOT_FOUND DELETE $v1/timers/new

# ---- who ------------------------------------------------------------------------------------------

as() { echo "Authorization: Bearer $1"; }
viewer=$(as "$(token --role viewer)")
few=$(as "$(token --role producer --queue 'few*' --priority-max 10)")
errs 403 DENIED POST $v1/timers -H "$viewer" -d '{"name":"x","kind":"manual"}'
errs 403 DENIED POST $v1/timers/n/pause -H "$viewer"
errs 403 DENIED DELETE $v1/timers/n -H "$few"
errs 403 DENIED POST "$v1/timers?app=few" -H "$few" -d '{"name":"x","kind":"manual","queue":"other"}'
errs 403 DENIED POST "$v1/timers?app=few" -H "$few" -d '{"name":"x","kind":"manual","priority":11}'
errs 403 DENIED POST $v1/timers -H 'Origin: http://evil.example' -d '{"name":"x","kind":"manual"}'
post 201 "/timers?app=few" '{"name":"x","kind":"manual"}' -H "$few"
ask 200 DELETE "$v1/timers/x?app=few" -H "$few"
grep -q 'Timers/Delete' "$room/server.err" || fail "no line of what was deleted"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
