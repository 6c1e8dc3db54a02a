#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A worker that has nothing but curl: take with a long poll, extend, finish; leases that are lost, cancels, workers that are
# gone, tokens for some queues, and a server that stops while somebody waits.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
v1=/api/v1
# post STATUS PATH BODY ARG...
post() { ask "$1" POST "$v1$2" -d "$3" "${@:4}"; }
state() { m task show "$1" --json | jq -r .state; }
state_is() { [ "$(state "$1")" = "$2" ]; }
# run_of I: of the last take, as an item of finish without its outcome.
run_of() { jq -c ".items[$1] | {id, epoch}" "$room/taken"; }
# take BODY ARG...
take() {
    post 200 /take "$@"
    cp "$room/body" "$room/taken"
}
idle() { [ "$(m node list --json | jq length)" = 0 ]; }

# ---- taking and finishing -------------------------------------------------------------------------

take '{"queues":{"q":1}}'
is "nothing there" 0 "$(of_it '.items | length')"
until_true idle
for i in 1 2 3 4; do m enqueue -q q --id t$i --retention 1h --retry 3 "payload $i" >/dev/null; done
take '{"queues":{"q":1,"other":2},"node":"curl","max":10,"lease_ms":60000}'
is "taken" 't1 t2 t3 t4' "$(of_it '[.items[].id] | join(" ")')"
is "as it is" 'payload 1 active' "$(of_it '.items[0] | "\(.payload) \(.state)"')"
is "who has it" 'curl 4' "$(m node list --json | jq -r '.[] | "\(.node) \(.in_hand)"')"
# Who mixes them up has ended nothing, and lost nothing.
post 200 /finish "[$(jq -c '{id: .items[1].id, epoch: .items[0].epoch, outcome: "ok"}' "$room/taken")]"
is "another one's epoch" STALE "$(of_it '.[0].error.code')"
is "both run" 'active active' "$(state t1) $(state t2)"
post 200 /finish "[$(run_of 0 | jq -c '. + {outcome: "ok", result: "done"}'),$(run_of 1 | jq -c '. + {outcome: "error", error: "no luck", delay_ms: 600000}'),
    $(run_of 2 | jq -c '. + {outcome: "handback"}')]"
is "all are well" '[{"id":"t1"},{"id":"t2"},{"id":"t3"}]' "$(jq -c . "$room/body")"
is "its result" 'completed done' "$(m task show t1 --json | jq -r '"\(.state) \(.result)"')"
is "its error" 'retry no luck 1' "$(m task show t2 --json | jq -r '"\(.state) \(.last_error) \(.retried)"')"
is "back" pending "$(state t3)"
post 200 /finish "$(run_of 0 | jq -c '. + {outcome: "ok"}')"
is "twice" STALE "$(of_it '.[0].error.code')"
post 200 /extend "[$(run_of 3),$(run_of 0)]"
is "of those in hand" 'false STALE' "$(of_it '[.[0].cancelled, .[1].error.code] | map(tostring) | join(" ")')"
m task cancel t4 >/dev/null
told() { post 200 /extend "[$(run_of 3)]" && [ "$(of_it '.[0].cancelled')" = true ]; }
until_true told
post 200 /finish "$(run_of 3 | jq -c '. + {outcome: "drop"}')"
is "dropped" '' "$(of_it '.[0].error // ""')"
until_true idle

# ---- waiting --------------------------------------------------------------------------------------

curl -s -d '{"queues":{"w":1},"node":"first","wait_ms":30000}' "http://$http$v1/take" >"$room/waited" &
waiter=$!
# waits NODE
waits() { m node list --json | jq -e ".[] | select(.node == \"$1\")" >/dev/null; }
until_true waits first
m enqueue -q w --id w1 x >/dev/null
wait "$waiter"
is "what it waited for" w1 "$(jq -r '.items[0].id' "$room/waited")"
# Who has gone gets nothing: it goes to the next, and nobody has crashed.
curl -s -m 1 -d '{"queues":{"g":1},"node":"waits","wait_ms":30000}' "http://$http$v1/take" >/dev/null && fail "something came"
m enqueue -q g --id g1 x >/dev/null
take_g() { take '{"queues":{"g":1},"node":"next","wait_ms":100}' && [ "$(of_it '.items[0].id')" = g1 ]; }
until_true take_g
is "nobody has crashed" 0 "$(of_it '.items[0].crashes')"
# ... and its place is free long before its time is over.
curl -s -m 1 -d '{"queues":{"g":1},"node":"left","wait_ms":60000}' "http://$http$v1/take" >/dev/null && fail "something came"
left=$SECONDS
left_is_gone() { ! waits left; }
until_true left_is_gone
[ $((SECONDS - left)) -lt 40 ] || fail "it was waited for"
# Who says nothing for so long has lost it.
m enqueue -q l --id l1 x >/dev/null
take '{"queues":{"l":1},"node":"silent","lease_ms":1000}'
until_true state_is l1 pending
is "that is a crash" 1 "$(m task show l1 --json | jq .crashes)"
post 200 /finish "$(run_of 0 | jq -c '. + {outcome: "ok"}')"
is "too late" STALE "$(of_it '.[0].error.code')"
post 200 /extend "$(run_of 0)"
is "likewise" STALE "$(of_it '.[0].error.code')"

# ---- what is wrong --------------------------------------------------------------------------------

for body in '' '[]' '{}' '{"queues":{}}' '{"queues":{"q":0}}' '{"queues":{"q":"1"}}' '{"queues":["q"]}' '{"queues":{"a\nb":1}}' \
    '{"queues":{"q":1},"max":0}' '{"queues":{"q":1},"max":101}' '{"queues":{"q":1},"wait_ms":60001}' '{"queues":{"q":1},"lease_ms":10}' \
    '{"queues":{"q":1},"node":""}' '{"queues":{"q":1},"nod":"a"}'; do
    errs 400 INVALID POST $v1/take -d "$body"
done
for body in '' '{}' '[{}]' '[7]' '[{"id":"a","epoch":1,"outcome":"hope"}]' '[{"id":"a","epoch":"1","outcome":"ok"}]' '[{"id":"a","outcome":"ok"}]'; do
    errs 400 INVALID POST $v1/finish -d "$body"
done
post 200 /finish '[{"id":"none","epoch":1,"outcome":"ok"}]'
is "what nobody has" NOT_FOUND "$(of_it '.[0].error.code')"
errs 400 INVALID POST $v1/extend -d '[{"id":7}]'

# ---- who ------------------------------------------------------------------------------------------

as() { echo "Authorization: Bearer $1"; }
producer=$(as "$(token --role producer)")
mine=$(as "$(token --role worker --queue 'mine*')")
other=$(as "$(token --role worker --queue 'mine*')")
for path in take extend finish; do errs 403 DENIED POST $v1/$path -d '{"queues":{"q":1}}' -H "$producer"; done
errs 403 DENIED POST $v1/take -d '{"queues":{"q":1}}' -H "$mine"
m enqueue -q mine --id m1 x >/dev/null
take '{"queues":{"mine":1}}' -H "$mine"
post 200 /finish "$(run_of 0 | jq -c '. + {outcome: "ok"}')" -H "$other"
is "what another one took" STALE "$(of_it '.[0].error.code')"
post 200 /finish "$(run_of 0 | jq -c '. + {outcome: "ok"}')" -H "$mine"
is "its own" '' "$(of_it '.[0].error // ""')"

# ---- a stop ---------------------------------------------------------------------------------------

m enqueue -q s --id s1 x >/dev/null
take '{"queues":{"s":1},"lease_ms":600000}'
curl -s -d '{"queues":{"nothing":1},"node":"last","wait_ms":60000}' "http://$http$v1/take" >"$room/waited" &
until_true waits last
grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
is "who waited is told" UNAVAILABLE "$(jq -r .error.code "$room/waited")"
start
is "what was in hand is there" 'pending 0' "$(m task show s1 --json | jq -r '"\(.state) \(.crashes)"')"
grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
