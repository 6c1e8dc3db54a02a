#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What people need of many tasks over HTTP: why one waits, those with a text in them, one thing done to all that fit with the
# count first, the archive by its errors, figures of the last hour, who is asking.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
v1=/api/v1
post() { ask "$1" POST "$v1$2" -d "$3" "${@:4}"; }
as() { echo "Authorization: Bearer $1"; }

# ---- why ------------------------------------------------------------------------------------------

post 200 /tasks '{"queue":"a","id":"one","payload":"The Needle is here"}'
ask 200 GET $v1/tasks/one/why
is "as the command line says" "$(m task why one --json | jq -cS .)" "$(jq -cS . "$room/body")"
is "nobody takes it" no_worker "$(of_it '.reasons[0].reason')"
ask 200 PATCH $v1/queues/a -d '{"concurrency":3}'
ask 200 GET $v1/tasks/one/why
errs 404 NOT_FOUND GET $v1/tasks/none/why

# ---- texts ----------------------------------------------------------------------------------------

seq -f 'hay %g' 300 | m enqueue -q b -t straw --lines --quiet 2>/dev/null
ask 200 GET "$v1/tasks?text=needle"
is "in a payload" one "$(of_it '[.items[].id] | join(" ")')"
ask 200 GET "$v1/tasks?text=STRAW&limit=1000"
is "in a type" 300 "$(of_it '.items | length')"
found=0
next=
while :; do
    ask 200 GET "$v1/tasks?text=hay%2029&limit=7${next:+&cursor=$next}"
    n=$(of_it '.items | length')
    [ "$n" -le 7 ] || fail "$n on a page of 7"
    found=$((found + n))
    next=$(of_it '.next // "" | @uri')
    [ -n "$next" ] || break
done
is "by pages" 11 "$found"
errs 400 INVALID GET "$v1/tasks?text=$(printf 'x%.0s' {1..129})"

# ---- many at once ---------------------------------------------------------------------------------

post 200 /tasks/bulk '{"action":"archive","queue":"b","text":"hay 1","dry_run":true}'
is "counted" '{"matched":111,"done":0,"failed":0,"more":false}' "$(jq -c . "$room/body")"
is "nothing was done" 300 "$(m queue show b --json | jq .pending)"
post 200 /tasks/bulk '{"action":"archive","queue":"b","text":"hay 1","max":100}'
is "done" '100 100 0 true' "$(of_it '"\(.matched) \(.done) \(.failed) \(.more)"')"
post 200 /tasks/bulk '{"action":"archive","queue":"b","text":"hay 1"}'
is "the rest, and what is there already" '111 11 100' "$(of_it '"\(.matched) \(.done) \(.failed)"')"
post 200 /tasks/bulk '{"action":"delete","state":"pending","type":"straw"}'
is "deleted" '189 189' "$(of_it '"\(.matched) \(.done)"')"
for body in '' '{}' '{"action":"archive"}' '{"action":"hope","all":true}' '{"action":"run","state":"hope"}' '{"action":"run","all":true,"queue":"b"}' \
    '{"action":"run","queue":"b","max":0}' '{"action":"run","queue":"b","max":10001}' '{"action":"run","queue":1}' \
    '{"action":"run","queue":"\n"}' '{"action":"run","que":"b"}' '{"action":"run","all":"yes"}'; do
    errs 400 INVALID POST $v1/tasks/bulk -d "$body"
done
errs 404 NOT_FOUND POST $v1/tasks/bulk -d '{"action":"run","queue":"none"}'

# ---- the archive by its errors --------------------------------------------------------------------

for i in 1 2 3; do post 200 /tasks "{\"queue\":\"bad\",\"id\":\"e$i\",\"max_retry\":0}"; done
post 200 /take '{"queues":{"bad":1},"max":10}'
jq -c '[.items[] | {id, epoch, outcome: "fatal", error: (if .id == "e3" then "<b>other</b>" else "no luck\nat line 7" end)}]' "$room/body" >ends
ask 200 POST $v1/finish -d @ends
ask 200 GET "$v1/dead/groups?queue=bad"
is "groups" 'no luck:2 <b>other</b>:1' "$(of_it '[.items[] | "\(.error):\(.count)"] | join(" ")')"
is "one of them" 'bad null false' "$(of_it '"\(.items[0].queue) \(.next) \(.more)"')"
ask 200 GET $v1/dead/groups
is "the largest first" 111 "$(of_it '.items[0].count')"
errs 404 NOT_FOUND GET "$v1/dead/groups?queue=none"
post 200 /dead/requeue '{"error":"no luck","dry_run":true}'
is "counted" '2 0' "$(of_it '"\(.matched) \(.done)"')"
post 200 /dead/requeue '{"queue":"bad","error":"no luck"}'
is "requeued" '2 2' "$(of_it '"\(.matched) \(.done)"')"
post 200 /dead/requeue '{"queue":"bad","type":"none"}'
is "none of that type" 0 "$(of_it .matched)"
post 200 /dead/requeue '{"all":true}'
is "all" '112 112' "$(of_it '"\(.matched) \(.done)"')"
for body in '{"error":1}' '{"queue":"bad","all":true}' '{"dry_run":true}' '{"state":"pending"}' '{"ids":["e1"],"all":true}'; do
    errs 400 INVALID POST $v1/dead/requeue -d "$body"
done

# ---- settings of a queue: all that is wrong is found before any is set ------------------------------

errs 400 INVALID PATCH $v1/queues/a -d '{"max_length":7,"partitions":1000}'
is "nothing was set" 0 "$(m queue show a --json | jq .max_length)"

# ---- who ------------------------------------------------------------------------------------------

ask 200 GET $v1/session
is "without a token" 'admin null null' "$(of_it '"\(.role) \(.token) \(.queue)"')"
few=$(as "$(token --role viewer --queue 'b*')")
ask 200 GET $v1/session -H "$few"
is "with one" 'viewer b*' "$(of_it '"\(.role) \(.queue)"')"
errs 401 DENIED GET $v1/session -H 'Authorization: Bearer mr_nonsense'
errs 403 DENIED POST $v1/tasks/bulk -d '{"action":"delete","all":true}' -H "$few"
errs 403 DENIED GET $v1/tasks/one/why -H "$few"
errs 403 DENIED GET $v1/history -H "$few"
errs 403 DENIED GET "$v1/dead/groups?queue=a" -H "$few"
some=$(as "$(token --role admin --queue 'b*')")
errs 403 DENIED POST $v1/tasks/bulk -d '{"action":"delete","queue":"a"}' -H "$some"
post 200 /tasks/bulk '{"action":"archive","all":true,"dry_run":true}' -H "$some"
is "its own queues" 114 "$(of_it .matched)"

# ---- many who ask for all queues at once are answered together, each with what it may see --------------

seq 30 | xargs -P 15 -I{} curl -s -o "$room/all{}" "http://$http$v1/queues"
seq 10 | xargs -P 10 -I{} curl -s -o "$room/few{}" -H "$few" "http://$http$v1/queues" &
asked=$!
seq 30 | xargs -P 15 -I{} curl -s -o "$room/more{}" "http://$http$v1/queues"
wait "$asked"
is "all of them" 'a b bad' "$(cat "$room"/all* "$room"/more* | jq -r '[.items[].queue] | join(" ")' | sort -u)"
is "how many answers" 60 "$(cat "$room"/all* "$room"/more* | jq -s length)"
is "some of them" 'b bad' "$(cat "$room"/few* | jq -r '[.items[].queue] | join(" ")' | sort -u)"
for i in 1 2 3; do
    post 200 /tasks '{"queue":"a"}'
    ask 200 GET $v1/queues
    is "what was just done is seen" $((1 + i)) "$(of_it '.items[] | select(.queue == "a") | .pending')"
done

# ---- many lists at once: they wait for each other, and nobody is sent away ---------------------------

curl -s -Z --parallel-max 60 -w '%{http_code}\n' -o /dev/null "http://$http$v1/tasks?limit=300&text=a&n=[1-120]" \
    -o /dev/null "http://$http/metrics?n=[1-20]" >"$room/codes" 2>/dev/null
is "how they were answered" '140 200' "$(sort "$room/codes" | uniq -c | xargs)"

# ---- the last hour --------------------------------------------------------------------------------

points() {
    ask 200 GET $v1/history
    [ "$(of_it '.backlog | length')" -ge "$1" ]
}
waits() {
    points 1 && [ "$(of_it '.backlog[-1]')" = "$1" ]
}
until_true waits 118
n=$(of_it '.backlog | length')
seq 5 | m enqueue -q h --lines --quiet 2>/dev/null
until_true points $((n + 1))
is "how often" 5000 "$(of_it .step_ms)"
has_ring() { [ "$(curl -s -o "$room/body" -w '%{http_code}' "http://$http$v1/history?queue=h")" = 200 ]; }
until_true has_ring
ask 200 GET "$v1/history?queue=h"
is "of one queue" '5 5' "$(of_it '"\(.backlog[-1]) \([.enqueued[] | . // 0] | add)"')"
errs 404 NOT_FOUND GET "$v1/history?queue=none"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0

# ---- below a prefix -------------------------------------------------------------------------------

start --http-prefix /mill
status() { curl -s -o "$room/body" -w '%{http_code}' "http://$http$1"; }
is "below it" '200 200 200' "$(status /mill/livez) $(status /mill/api/v1/queues) $(status /mill/openapi.json)"
is "where the document is" . "$(of_it '.servers[0].url')"
is "not beside it" '404 404 404' "$(status /livez) $(status /api/v1/queues) $(status /milliard/livez)"
is "itself" "308 http://$http/mill/" "$(curl -s -o /dev/null -w '%{http_code} %{redirect_url}' "http://$http/mill")"
stop 0
