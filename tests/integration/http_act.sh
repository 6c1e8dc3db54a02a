#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Acting over HTTP: tasks are enqueued, stopped, run again and deleted, queues paused, set and removed; what is wrong is said
# for each item, nothing of it is larger in memory than it is, and the audit has what people did.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
v1=/api/v1
# post STATUS PATH BODY ARG...
post() { ask "$1" POST "$v1$2" -d "$3" "${@:4}"; }

# ---- enqueue --------------------------------------------------------------------------------------

post 200 /tasks '{"queue":"a","id":"one","payload":"hello","headers":{"k":"v"},"priority":2.5}'
is "its answer" '{"id":"one","state":"pending"}' "$(jq -c . "$room/body")"
is "what came" 'hello v 3600000' "$(m task show one --json | jq -r '"\(.payload) \(.headers.k) \(.retention_ms)"')"
post 409 /tasks '{"queue":"a","id":"one","payload":"again"}'
is "once more" 'CONFLICT pending one' "$(of_it '"\(.error.code) \(.error.state) \(.id)"')"
post 200 /tasks '[{"queue":"a","payload_base64":"//4="},{"queue":"a","id":"one"},{"quue":"a"},7,{"queue":"a","delay_ms":60000}]'
is "for each" 'pending CONFLICT INVALID INVALID scheduled' "$(of_it '[.[] | .error.code // .state] | join(" ")')"
is "what is wrong" 'unknown field "quue"; did you mean "queue"?' "$(of_it '.[2].error.message')"
post 200 /tasks '[]'
post 200 /tasks "[$(printf '{"queue":"many"},%.0s' {1..999}){\"queue\":\"many\"}]"
is "a thousand" 1000 "$(m queue show many --json | jq .pending)"
errs 413 TOO_BIG POST $v1/tasks -d "[$(printf '{"queue":"many"},%.0s' {1..1000}){\"queue\":\"many\"}]"
for body in '' x '"a"' '{"payload":1}' '{"queue":"a\nb"}' '{"id":""}' '{"id":"a","id":"b"}' '{"state":"active"}' \
    '{"payload":"a","payload_base64":"YQ=="}' '{"priority":1e300}' '{"delay_ms":-1}' '{"max_retry":1.5}' '{"on_duplicate":"hope"}' \
    '{"headers":{"a":1}}' '{"headers":[]}' '{"partition":0}' '{"payload":"\ud800"}'; do
    errs 400 INVALID POST $v1/tasks -d "$body"
done
errs 413 TOO_BIG POST $v1/tasks -d '{"headers":{"a":{"b":{}}}}'
head -c 1100000 /dev/zero | tr '\0' x >long
{ printf '{"payload":"'; cat long; printf '"}'; } >body
errs 413 TOO_BIG POST $v1/tasks --data-binary @body
# A few bytes of JSON are many in memory.
for item in '{}' '[]' '1' '""'; do
    { printf '['; { yes "$item," || true; } | head -c 12000000 | tr -d '\n'; printf '""]'; } >bomb
    errs 413 TOO_BIG POST $v1/tasks --data-binary @bomb
done

# ---- tasks and queues -----------------------------------------------------------------------------

post 200 /tasks/one/archive ''
is "archived" archived "$(m task show one --json | jq -r .state)"
errs 409 WRONG_STATE POST $v1/tasks/one/archive
post 200 /dead/requeue '{"ids":["one","none"]}'
is "requeued" 'one null NOT_FOUND' "$(of_it '[.[0].id, .[0].error, .[1].error.code] | map(tostring) | join(" ")')"
is "pending again" pending "$(m task show one --json | jq -r .state)"
for body in '{}' '{"ids":[]}' '{"ids":[1]}' '{"ids":"one"}' '[]' '{"id":"one"}'; do errs 400 INVALID POST $v1/dead/requeue -d "$body"; done
post 200 /tasks/one/cancel ''
post 200 /tasks/one/run ''
ask 200 DELETE $v1/tasks/one
errs 404 NOT_FOUND DELETE $v1/tasks/one
errs 404 NOT_FOUND POST $v1/tasks/none/run

post 200 /queues/a/pause ''
is "paused" true "$(m queue show a --json | jq .paused)"
post 200 /queues/a/resume ''
is "no more" false "$(m queue show a --json | jq .paused)"
errs 404 NOT_FOUND POST $v1/queues/none/pause
ask 200 PATCH $v1/queues/a -d '{"max_length":7,"rate":5,"rate_ms":60000,"concurrency":3,"partitions":2,"assign":"consistent-hash"}'
is "set" '7 5 60000 3 2 consistent-hash' "$(m queue show a --json | jq -r '"\(.max_length) \(.rate) \(.rate_ms) \(.concurrency) \(.partitions) \(.assign)"')"
ask 200 PATCH $v1/queues/a -d '{"rate":0}'
for body in '{}' '[]' '{"max":1}' '{"rate":-1}' '{"partitions":1000}' '{"assign":"hope"}' '{"max_length":"7"}'; do
    errs 400 INVALID PATCH $v1/queues/a -d "$body"
done
errs 409 WRONG_STATE DELETE $v1/queues/many
errs 400 INVALID DELETE "$v1/queues/many?force=perhaps"
ask 200 DELETE "$v1/queues/many?force=true"
errs 404 NOT_FOUND GET $v1/queues/many

# ---- who ------------------------------------------------------------------------------------------

for header in 'Origin: http://evil.example' 'Host: evil.example'; do
    errs 403 DENIED POST $v1/tasks -H "$header" -d '{}'
    errs 403 DENIED POST $v1/queues/a/pause -H "$header"
done
as() { echo "Authorization: Bearer $1"; }
viewer=$(as "$(token --role viewer)")
few=$(as "$(token --role producer --queue 'few*' --quota 2 --priority-max 10)")
some=$(as "$(token --role admin --queue 'few*')")
errs 403 DENIED POST $v1/tasks -H "$viewer" -d '{}'
errs 403 DENIED POST $v1/queues/a/pause -H "$viewer"
errs 403 DENIED DELETE $v1/tasks/x -H "$few"
errs 403 DENIED POST $v1/tasks -H "$few" -d '{"queue":"a"}'
errs 403 DENIED POST $v1/tasks -H "$few" -d '{"queue":"few","priority":11}'
post 200 /tasks '[{"queue":"few","id":"f1"},{"queue":"few","id":"f1"},{"queue":"few","id":"f2"},{"queue":"few","id":"f3"}]' -H "$few"
is "within its quota" 'pending CONFLICT DENIED' "$(of_it '[.[0].state, .[1].error.code, .[3].error.code] | join(" ")')"
id=$(m enqueue -q a x)
errs 403 DENIED POST "$v1/tasks/$id/archive" -H "$some"
errs 403 DENIED POST $v1/queues/a/pause -H "$some"
post 200 /tasks/f1/archive '' -H "$some"
errs 403 DENIED POST $v1/dead/requeue -d '{"ids":["f1"]}' -H "$some"
grep -q 'method=Queues/Pause about=a .*DENIED' <(tr '\t' ' ' <"$room/server.err") ||
    grep 'Queues/Pause' "$room/server.err" | grep -q DENIED || fail "no line of what was refused"
grep -q 'Tasks/Delete' "$room/server.err" || fail "no line of what was deleted"
post 200 /dead/requeue '{"ids":["f1"]}'
grep -q 'Tasks/Requeue about="1 task" result=OK' "$room/server.err" || fail "no line of one that was requeued"
errs 403 DENIED POST $v1/tasks -H "$few" -d '{"payload":"to no queue"}'
[[ $(of_it .error.message) == *' is for queues few*, not for default' ]] || fail "$(of_it .error.message)"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
