#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Timers from the command line, at a server and in a folder: flags, JSON, exit codes, what is shown. The numbers are
# those of the acceptance tests.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

# of NAME FIELD: of a timer.
of() { m timer show "$1" --json | jq -r ".$2"; }
has() { [ "$(of "$1" "$2")" = "$3" ]; }
# newest NAME FIELD: of its last firing.
newest() { m --quiet timer history "$1" --limit 1 --json | jq -r ".[0].$2"; }
newest_is() { [ "$(newest "$1" state)" = "$2" ]; }
# keys: of the object on standard input.
keys() { jq -r 'keys_unsorted | sort | join(" ")'; }

start
is "who may read the store" 640 "$(stat -c %a "$data/store.db")"

# ---- making, looking ----------------------------------------------------------------------------

expect 0 timer create nightly --cron '30 2 * * *' --tz Europe/Berlin -q backup -t dump \
    --retry 3 --timeout 10m --misfire all --overlap skip --strategy tag:big --end 2099-01-01T00:00:00Z 'all of it'
id=$(cat "$room/out")
is "the id" "$id" "$(of nightly id)"
[ "$(wc -l <"$room/out")" -eq 1 ] || fail "more than the id on stdout"
is "the definition" \
    'cron|30 2 * * *|Europe/Berlin|backup|dump|all of it|active|all|skip|tag:big|default|3|600000' \
    "$(m timer show nightly --json | jq -r '[.kind, .expression, .tz, .queue, .type, .payload, .state,
        .misfire, .overlap, .strategy, .app, .max_retry, .timeout_ms] | map(tostring) | join("|")')"
for key in name id app version kind expression tz queue type payload state next_ms last_ms misfire \
    overlap strategy start_ms end_ms firings_total; do
    m timer show nightly --json | keys | grep -qw "$key" || fail "no $key in a timer"
done
is "the list" nightly "$(m timer list --json | jq -r '.[].name')"
is "of another app" '[]' "$(m timer list --app other --json)"
is "in another state" '[]' "$(m timer list --state paused --json)"
m timer list | grep -q '^nightly  *default  *cron 30 2 \* \* \* Europe/Berlin  *active' || fail "no line"

expect 0 timer create whole --manual --priority 60 --header tenant=ada --retry 0
m timer show whole >"$room/shown"
for line in 'priority *60 s ahead' 'header *tenant=ada' 'retry *none'; do
    grep -qx "$line" "$room/shown" || fail "timer show has no $line"
done
expect 0 timer rm whole

# 96: what is next, in its own zone, and as numbers.
m timer show nightly >"$room/shown"
is "next firings shown" 5 "$(grep -c 'T02:30:00+0[12]:00$' "$room/shown")"
is "how many are next" 3 "$(m timer next nightly -n 3 --json | jq length)"
is "the first of them" "$(of nightly next_ms)" "$(m timer next nightly -n 1 --json | jq '.[0]')"
is "of one that is only tried out" 'T09:00:00+09:00' \
    "$(m timer next --cron '0 9 L * *' --tz Asia/Tokyo -n 1 | grep -o 'T09:00:00+09:00')"
is "that needs no broker" 2 \
    "$(MILLRACE_BROKER=millrace://127.0.0.1:1 m timer next --every 1h -n 2 --json | jq length)"
refuses 2 'give the NAME of a timer' timer next
refuses 2 'not both' timer next nightly --every 1h

# ---- 10: what is wrong is refused at once, in the words of the rule -----------------------------

refuses 2 'cron, column 1: 61 is no minute; expected 0-59' timer create bad --cron '61 * * * *'
refuses 2 'Nowhere/City' timer create bad --cron '* * * * *' --tz Nowhere/City
refuses 2 "no time zone 'Europe/Berln'" timer create bad --cron '* * * * *' --tz Europe/Berln
refuses 2 'every' timer create bad --every soon
refuses 2 'say when it fires' timer create bad
refuses 2 'has one of' timer create bad --every 1s --manual
refuses 2 '--strategy: "tag" is none of' timer create bad --manual --strategy tag
refuses 2 '--misfire' timer create bad --manual --misfire never
refuses 2 '--app: "" is empty' timer create bad --manual --app ''
code=0
head -c 1100000 /dev/zero | tr '\0' x | m timer create bad --manual - 2>"$room/err" || code=$?
is "of a long payload" 2 "$code"
grep -q 'over the limit of 1048576 bytes' "$room/err" || fail "a long payload: $(cat "$room/err")"
refuses 3 'timer bad: not found; --app APP says whose' timer show bad
is "dead letters of them" '[]' "$(m dead list --json)"

# ---- changing -----------------------------------------------------------------------------------

refuses 4 'timer nightly is there already' timer create nightly --manual
version=$(of nightly version)
expect 0 timer update nightly --every 1h 'less'
is "what is given replaces" 'every|1h|less' \
    "$(m timer show nightly --json | jq -r '[.kind, .expression, .payload] | join("|")')"
is "the rest stays" 'backup|dump|skip' \
    "$(m timer show nightly --json | jq -r '[.queue, .type, .overlap] | join("|")')"
is "the id as well" "$id" "$(of nightly id)"
[ "$(of nightly version)" -gt "$version" ] || fail "the version did not rise"
refuses 4 "has version $(of nightly version), not $version" timer update nightly --every 2h --if-version "$version"
expect 0 timer update nightly --every 2h --if-version "$(of nightly version)"
refuses 2 'nothing to change' timer update nightly
refuses 3 'timer bad: not found' timer update bad --manual
expect 0 timer pause nightly
is "paused" 'paused 0' "$(of nightly state) $(of nightly next_ms)"
expect 0 timer next nightly
grep -q 'timer nightly is paused, so it fires at none of them' "$room/err" || fail "said: $(cat "$room/err")"
expect 0 timer resume nightly
is "resumed" active "$(of nightly state)"
refuses 3 'timer bad: not found' timer pause bad
expect 0 timer update nightly --no-wait 'soon'
until_true has nightly payload soon
grep -q 'method=Timers/Send about="put default/nightly" result=OK' "$room/server.err" || fail "no line of audit"
refuses 4 'is there already' timer create nightly --manual
grep -q 'method=Timers/Send about="put default/nightly" result=CONFLICT' "$room/server.err" || fail "no refusal in the audit"

# A delay that is changed is counted from now, however old the timer is.
expect 0 timer create once --delay 1ms -q nobody
until_true has once state finished
sleep 0.2 # no condition: it gets older than what comes
expect 0 timer update once --delay 100ms
until_true has once firings_total 2
refuses 2 'delay, column 1' timer update once --delay soon
expect 0 timer rm once

# ---- firing: 14, and the states of a firing -----------------------------------------------------

expect 0 timer create job --manual -q work --retry 0 'payload'
expect 0 timer run job
until_true newest_is job dispatched
for key in timer planned_ms until_ms state reason task_id attempt started_ms finished_ms; do
    m timer history job --json | jq '.[0]' | keys | grep -qw "$key" || fail "no $key in a firing"
done
m --quiet work -q work --burst -- sh -c 'cat; sleep 0.1' >/dev/null
until_true newest_is job succeeded
is "when it ran" true \
    "$(m timer history job --json | jq '.[0] | .planned_ms <= .started_ms and .started_ms + 100 <= .finished_ms')"
is "the task of it" "completed payload" \
    "$(m task show "$(newest job task_id)" --json | jq -r '"\(.state) \(.payload)"')"

# 91: stopped while it runs, and run again.
expect 0 timer run job
"$MILLRACE" --quiet work -q work -c 1 -- sh -c "touch '$room/runs'; exec sleep 300" >/dev/null 2>&1 &
worker=$!
servers+=("$worker")
until_true test -e "$room/runs"
until_true newest_is job running
planned=$(newest job planned_ms)
expect 0 timer update job --every 1h # what comes next is not what is meant
expect 0 timer stop job
until_true newest_is job stopped
expect 0 timer update job --manual
refuses 4 'timer job' timer stop job --planned "$planned"
kill "$worker"
wait "$worker" || true
expect 0 timer rerun job --planned "$planned"
m --quiet work -q work --burst -- cat >/dev/null
until_true newest_is job succeeded
is "its run" 1 "$(newest job run)"
refuses 2 '--planned T says which' timer rerun job
refuses 3 'has no such firing' timer rerun job --planned 1000
expect 0 timer run job
expect 0 timer run job
refuses 2 '2 firings of job are not over' timer stop job
m --quiet work -q work --burst -- cat >/dev/null

# One that fires by itself, and fails.
expect 0 timer create often --every 200ms --times 2 -q fails --retry 0 x
until_true has often state finished
m --quiet work -q fails --burst -- sh -c 'echo broken >&2; exit 1' >/dev/null 2>&1 || true
until_true newest_is often failed
is "why" broken "$(newest often reason | grep -o broken)"
is "how many" 2 "$(m timer history often --json | jq length)"
is "firings_total" 2 "$(of often firings_total)"

# 96, 97: figures of all of it.
m timer status --json >"$room/status"
is "of the status" 'true true true 0' \
    "$(jq -r '[(.fired >= 2), (.applied >= 8), (.apps[0].owner != ""), .operations_waiting]
        | map(tostring) | join(" ")' "$room/status")"
m timer status | grep -q '^lateness  *p50' || fail "no lateness"

# ---- removing -----------------------------------------------------------------------------------

expect 0 timer rm often
refuses 3 'timer often: not found' timer rm often
is "what it was" 2 "$(m timer history often --json | jq length)"
refuses 3 'timer often: not found' timer show often
is "dead letters of that" '[]' "$(m dead list --json | jq -c '[.[] | select(.operation)]')"

# ---- 98: tokens ---------------------------------------------------------------------------------

m token create --role producer --queue 'shop*' >"$room/shop"
m token create --role viewer >"$room/viewer"
as() { m --token-file "$room/$1" "${@:2}"; }
expect 0 --token-file "$room/shop" timer create cart --app shop --every 1h
refuses 5 'is for apps and queues shop*, not for default' --token-file "$room/shop" timer create cart --every 1h
refuses 5 'not for backup' --token-file "$room/shop" timer create cart2 --app shop -q backup --every 1h
refuses 5 'not for default' --token-file "$room/shop" timer show nightly
refuses 5 'not for default' --token-file "$room/shop" timer rm nightly
is "what it sees" cart "$(as shop timer list --json | jq -r '.[].name')"
refuses 5 'viewer' --token-file "$room/viewer" timer run cart --app shop
is "what a viewer sees" 'cart job nightly' "$(as viewer timer list --json | jq -r '[.[].name] | sort | join(" ")')"
stop 0
start --require-token
is "without a token" 16 "$(call millrace.v1.Timers/List)"
stop 0

# ---- an app that is a server's before it has a timer --------------------------------------------

data=$room/apps
start --app shop
owned() { m timer status --json | jq -e '.apps[] | select(.app == "shop" and .owner != "")' >/dev/null; }
until_true owned
expect 0 timer create cart --app shop --every 100ms -q carts
expect 0 timer create other --every 100ms
cart_fires() { [ "$(m timer show cart --app shop --json | jq .firings_total)" -ge 2 ]; }
until_true cart_fires
is "of an app that is nobody's" 0 "$(of other firings_total)"
stop 0

# ---- a namespace does not divide a store --------------------------------------------------------

data=$room/spaces
start --namespace shop --store "sqlite:$room/shop.db"
grep -q 'each namespace needs a database of its own' "$room/server.err" || fail "nothing said of namespaces"
stop 0

# ---- in a folder, without a server ---------------------------------------------------------------

unset MILLRACE_BROKER
expect 0 --broker "$store" timer create tick --every 100ms -q ticks x
expect 0 --broker "$store" timer list
is "nobody fires while one only looks" 0 \
    "$(m --broker "$store" timer show tick --json | jq .firings_total)"
timeout 60 "$MILLRACE" --broker "$store" work -q ticks -- sh -c "echo >>'$room/ticks'" 2>"$room/worker.err" &
worker=$!
servers+=("$worker")
ticked() { [ -e "$room/ticks" ] && [ "$(wc -l <"$room/ticks")" -ge 3 ]; }
until_true ticked
kill "$worker"
wait "$worker" || true
! grep 'event=' "$room/worker.err" || fail "a worker tells what a server would"
[ "$(m --broker "$store" timer history tick --json | jq '[.[] | select(.state == "succeeded")] | length')" -ge 2 ] ||
    fail "not in the ledger"
refuses 3 'no store at' --broker "file:$room/none" timer list
