#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# serve --rate by HTTP: a caller is his token or his address, whatever his connections; who sends too much is told when to come
# back. By gRPC: tests/unit/test_api.c.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start --rate 2
v1=/api/v1
as() { echo "Authorization: Bearer $1"; }
one=$(as "$(token --role admin)")
two=$(as "$(token --role admin)")
# batch N: a body of so many tasks.
batch() { jq -nc --argjson n "$1" '[range($n) | {queue: "a"}]'; }
# back: the seconds of Retry-After.
back() { sed -n 's/^[Rr]etry-[Aa]fter: \([0-9]*\).*/\1/p' "$room/headers"; }

# More than goes in a second goes at once, and is owed: nothing of the same token goes until 198 are paid.
ask 200 POST $v1/tasks -H "$one" -d "$(batch 400)"
is "all of them" 400 "$(m queue show a --json | jq .pending)"
errs 429 BUSY POST $v1/tasks -H "$one" -D "$room/headers" -d '{"queue":"a"}'
left=$(back)
[ "$left" -gt 100 ] && [ "$left" -le 200 ] || fail "Retry-After: $left"
is "why" "over the rate of 2 a second: try again in $left s" "$(of_it .error.message)"
errs 429 BUSY POST $v1/tasks -H "$one" -d "$(batch 400)"
errs 429 BUSY POST $v1/queues/a/pause -H "$one"
errs 429 BUSY POST $v1/timers -H "$one" -d '{"name":"t","kind":"every","expression":"1h"}'
errs 429 BUSY POST $v1/jobs -H "$one" -d '{"input":"a"}'
errs 429 BUSY POST $v1/jobs/none/cancel -H "$one"
grep -q 'Queues/Pause' <(grep BUSY "$room/server.err") || fail "no line of what was refused"
grep -q 'Jobs/Submit' <(grep BUSY "$room/server.err") || fail "no line of a job that was refused"
is "nothing was done" 'false 400' "$(m queue show a --json | jq -r '"\(.paused) \(.pending)"')"

# Looking is free, and so is what a worker does.
ask 200 GET "$v1/queues/a" -H "$one"
ask 200 POST $v1/take -H "$one" -d '{"queues":{"a":1},"max":2}'
ask 200 POST $v1/finish -H "$one" -d "$(jq -c '[.items[] | {id, epoch, outcome: "ok"}]' "$room/body")"

# Another token has a rate of its own, and so has who shows none. A refusal takes nothing from it.
ask 200 POST $v1/queues/a/pause -H "$two"
ask 200 POST $v1/queues/a/resume
soon() { [ "$(curl -s -o "$room/body" -w '%{http_code}' -H "$two" -d "$(batch 3)" "http://$http$v1/tasks")" = 200 ]; }
until_true soon
is "then it is owed" 429 "$(curl -s -o "$room/body" -w '%{http_code}' -H "$two" -d '{"queue":"a"}' "http://$http$v1/tasks")"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0

# Without one nothing is counted.
start
for _ in 1 2 3; do ask 200 POST $v1/tasks -H "$one" -d "$(batch 400)"; done
stop 0
