#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Jobs from the command line, over HTTP and in a folder: flags, JSON, exit codes, what is shown, events. The numbers
# are those of the acceptance tests.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/job_lib.bash"

# What the worker does, by the type of the task.
cat >task.sh <<TASK
case \$MILLRACE_TASK_TYPE in
upper) tr a-z A-Z ;;
count) wc -c ;;
fragile)
    read -r word
    [ "\$word" != bad ] || [ -e "$room/mended" ] || { echo "bad word" >&2; exit 100; }
    echo "\$word"
    ;;
esac
TASK

start --job-commands
seq 1 50 | sed 's/^/line /' >lines

# ---- 99: an input becomes parts, all of them or none ---------------------------------------------

expect 0 job submit --name first --stage upper lines
id=$(cat "$room/out")
[ "$(wc -l <"$room/out")" -eq 1 ] || fail "more than the id on stdout"
is "parts" 50 "$(of "$id" total)"
is "how it stands" 'first created 0 0 upper default lines concat fail-fast' \
    "$(m job show "$id" --json | jq -r '[.name, .state, .done, .failed, .stages[0].type, .queue, .split,
        .reduce, .policy] | map(tostring) | join(" ")')"
for key in id name state total done failed running stages rate eta_ms priority created_ms finished_ms segments; do
    m job show "$id" --json | jq -e "has(\"$key\")" >/dev/null || fail "no $key in a job"
done
m --quiet job show "$id" --parts --limit 3 --json >"$room/parts"
is "its first parts" '0 0 0 waiting' "$(jq -r '.[0] | [.index, .stage, .round, .state] | map(tostring) | join(" ")' "$room/parts")"
for key in job index stage round state task_id error; do
    jq -e ".[0] | has(\"$key\")" "$room/parts" >/dev/null || fail "no $key in a part"
done
is "the list" "$id" "$(m job list --json | jq -r '.[].id')"
is "in another state" '[]' "$(m --quiet job list --state failed --json)"
m job list | grep -q "^$id  first  default  created  *0/50" || fail "no line"
m job show "$id" | grep -qx 'waits  *no worker takes from its queue default: millrace work -q default -- CMD' || fail "not why it waits"
refuses 2 'the input is empty' job submit /dev/null
refuses 3 'cannot read nowhere' job submit nowhere
refuses 2 'split' job submit --split slices lines
refuses 2 'reduce' job submit --reduce stir lines
refuses 3 'not found' job show 01a1e36b-0000-7000-8000-000000000000
refuses 3 'millrace: job nonsense: not found' job cancel nonsense
refuses 3 'millrace: job nonsense: not found' job result nonsense
refuses 3 'not found' job watch 01a1e36b-0000-7000-8000-000000000000
is "nothing was made of those" 1 "$(m job list --json | jq length)"

# ---- a worker, the result, the end ----------------------------------------------------------------

refuses 4 "$id" job result "$id" # there is none yet
"$MILLRACE" --quiet work -c 4 -- sh "$room/task.sh" >/dev/null 2>&1 &
servers+=("$!")
expect 0 job watch "$id"
grep -q "job $id succeeded: 50 of 50 parts" "$room/err" || fail "said: $(cat "$room/err")"
[ ! -s "$room/out" ] || fail "stdout of a watch: $(cat "$room/out")"
! m job show "$id" | grep -q '^waits' || fail "it waits for nothing any more"
is "the result" "$(tr a-z A-Z <lines)" "$(m job result "$id")"
refuses 4 'it has ended: see millrace job show' job cancel "$id"
refuses 4 'nothing of it has failed: see millrace job show' job retry "$id"

# JSON lines: one for each version, and the last one is the end.
m job submit --stage upper --reduce lines --watch --json lines >"$room/json"
is "the last line" succeeded "$(tail -n 1 "$room/json" | jq -r .state)"
jq -s -e '[.[].version] as $v | $v == ($v | sort | unique)' "$room/json" >/dev/null || fail "versions do not rise"
jq -s -e '[.[].done] as $v | $v == ($v | sort)' "$room/json" >/dev/null || fail "progress went back"

# From standard input, split otherwise, by a command, in two stages.
is "standard input" 'ONETWO' \
    "$(printf 'one\ntwo\n' | m --quiet job submit --stage upper --watch - >"$room/id" && m job result "$(cat "$room/id")" | tr -d '\n')"
sum=$(m --quiet job submit --split chars:10 --stage upper --stage count --pipeline --reduce sum --watch lines)
is "two stages, and a sum" "$(wc -c <lines)" "$(m job result "$sum")"
is "both stages show" '2 count' "$(m job show "$sum" --json | jq -r '[(.stages | length), .stages[1].type] | map(tostring) | join(" ")')"
made=$(m --quiet job submit --split 'command:sort -r' --stage upper --watch lines)
is "the lines of a command" "$(sort -r lines | tr a-z A-Z)" "$(m job result "$made")"
refuses 1 'has failed with status 3' job submit --split 'command:echo x; exit 3' --stage upper lines
joined=$(m --quiet job submit --stage upper --reduce 'command:cat * | wc -l' --watch lines)
is "a command that reduces" 50 "$(m job result "$joined" | tr -d ' ')"

# ---- 106: a part that fails, exit code 8, retry ---------------------------------------------------

printf 'good\nbad\nfine\n' >words
expect 8 job submit --stage fragile --watch words
broken=$(cat "$room/out")
grep -q "job $broken failed" "$room/err" || fail "said: $(cat "$room/err")"
is "it failed" failed "$(of "$broken" state)"
refuses 4 "$broken" job result "$broken"
expect 0 job submit --stage fragile --policy finish --reduce json --watch words
partly=$(cat "$room/out")
is "with failures" 'succeeded 2 1' "$(m job show "$partly" --json | jq -r '[.state, .done, .failed] | map(tostring) | join(" ")')"
is "which part" '1 bad word' "$(m job show "$partly" --parts --state failed --json |
    jq -r '.[] | [.index, (.error | gsub("\\s+$"; ""))] | map(tostring) | join(" ")')"
touch mended
expect 0 job retry "$partly"
expect 0 job watch "$partly"
is "all of it now" 'succeeded 3 0' "$(m job show "$partly" --json | jq -r '[.state, .done, .failed] | map(tostring) | join(" ")')"

# ---- 111: cancel ----------------------------------------------------------------------------------

expect 0 job submit -q idle lines
gone=$(cat "$room/out")
"$MILLRACE" job watch "$gone" 2>"$room/watched" &
watched=$!
until_true grep -qx "millrace: job $gone waits: no worker takes from its queue idle: millrace work -q idle -- CMD" "$room/watched"
expect 0 job cancel "$gone"
ended=0
wait "$watched" || ended=$?
is "who watched it" 8 "$ended"
is "cancelled" cancelled "$(of "$gone" state)"
expect 8 job watch "$gone"

# ---- over HTTP ------------------------------------------------------------------------------------

api=http://$http/api/v1/jobs
is "one job" "$id" "$(curl -s "$api/$id" | jq -r .id)"
is "its result" "$(tr a-z A-Z <lines | md5sum)" "$(curl -s "$api/$id/result" | md5sum)"
is "a page of parts" '2 true' "$(curl -s "$api/$id/parts?limit=2" | jq -r '"\(.items | length) \(.next != null)"')"
is "the list" true "$(curl -s "$api?state=cancelled" | jq ".items[0].id == \"$gone\" and .next == null")"
is "unknown" '404 NOT_FOUND' "$(curl -s -o "$room/body" -w '%{http_code}' \
    "$api/01a1e36b-0000-7000-8000-000000000000") $(jq -r .error.code "$room/body")"
is "made" 'created 2' "$(curl -s -d '{"parts":["a","b"],"stages":["upper"],"name":"posted"}' "$api" |
    jq -r '"\(.state) \(.total)"')"
is "with a split" 3 "$(curl -s -d '{"input":"a\nb\nc\n","stages":["upper"]}' "$api" | jq .total)"
is "what is wrong is named" 'INVALID true' "$(curl -s -d '{"inptu":"x"}' "$api" |
    jq -r '"\(.error.code) \(.error.message | test("inptu"))"')"
is "cancel is a conflict when it is over" 409 "$(curl -s -o /dev/null -w '%{http_code}' -X POST "$api/$id/cancel")"

# 108: the events of a job that has ended: its end, and nothing more; from then on nothing.
curl -s -N -m 20 "$api/$id/events" >"$room/events"
is "the end" 'event: end' "$(grep '^event:' "$room/events")"
version=$(sed -n 's/^id: //p' "$room/events")
is "its version" "$(of "$id" version)" "$version"
is "nothing twice" '204 0' "$(curl -s -N -m 20 -H "Last-Event-ID: $version" -w '%{http_code} %{size_download}' "$api/$id/events")"

# ---- 110: tokens ----------------------------------------------------------------------------------

check_tokens
grep -q 'method=Jobs/Submit.*result=OK' "$room/server.err" || fail "no line of audit"

# ---- burst: parts that are no tasks yet are waited for ---------------------------------------------

expect 0 job submit -q burst --stage upper --stage count lines
burst=$(cat "$room/out")
expect 0 work -q burst -c 4 --burst -- sh "$room/task.sh"
grep -q '^millrace: 100 done, 0 failed' "$room/err" || fail "said: $(tail -n 1 "$room/err")"
until_true state_is "$burst" succeeded

stop 0

# ---- in a folder, without a server ----------------------------------------------------------------

export MILLRACE_BROKER=$store
expect 0 job submit --stage upper lines
own=$(cat "$room/out")
is "in a folder" '50 created' "$(m job show "$own" --json | jq -r '"\(.total) \(.state)"')"
refuses 2 'needs a server' job watch "$own"
refuses 2 'needs a server' job submit --watch lines
# A worker with --burst does all of it and puts it together, though nothing is a task when it comes.
expect 0 job submit -q burst --reduce sum lines
burst=$(cat "$room/out")
expect 0 work -q burst --burst -- wc -l
grep -q '^millrace: 50 done, 0 failed' "$room/err" || fail "said: $(tail -n 1 "$room/err")"
is "its result" 50 "$(m job result "$burst")"
# The folder is the worker's until it ends; it also gives out the parts, and puts them together.
"$MILLRACE" --quiet work -c 4 -- sh -c "tr a-z A-Z; echo >>'$room/ran'" >/dev/null 2>&1 &
worked=$!
servers+=("$worked")
all_ran() { [ -e ran ] && [ "$(wc -l <ran)" -ge 50 ]; }
until_true all_ran
# Nobody can look meanwhile: the last results are taken within a second, or by the next one.
ended() {
    sleep 1
    kill -TERM "$worked"
    wait "$worked" || true
    state_is "$own" succeeded && return
    "$MILLRACE" --quiet work -- false >/dev/null 2>&1 &
    worked=$!
    servers+=("$worked")
    return 1
}
until_true ended
is "its result" "$(tr a-z A-Z <lines)" "$(m job result "$own")"
