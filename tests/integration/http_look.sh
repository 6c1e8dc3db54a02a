#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Looking over HTTP: every route that only looks answers as its document says, with the same objects as the command line;
# pages, filters, roles, what is wrong, gzip.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
v1=/api/v1

# ---- the document ---------------------------------------------------------------------------------

curl -s "http://$http/openapi.json" >"$room/openapi"
is "the kind of document" 3.1.0 "$(jq -r .openapi "$room/openapi")"
# Whatever it names is there: no path of it is unknown to the server.
while read -r method path; do
    path=${path//\{*\}/x}
    got=$(curl -s -g -m 5 -o "$room/body" -w '%{http_code}' -X "$method" "http://$http$path" || true)
    case $got in
    404) grep -q 'no such path' "$room/body" && fail "$method $path is not there" ;;
    405 | 5*) fail "$method $path: $got" ;;
    esac
done < <(jq -r '.paths | to_entries[] | .key as $p | .value | keys[] | ascii_upcase + " " + $p' "$room/openapi")
# Each name of a schema that is used is one.
jq -r '.. | objects | .["$ref"]? // empty' "$room/openapi" | sed 's|.*/||' | sort -u |
    while read -r name; do jq -e ".components.schemas.$name" "$room/openapi" >/dev/null || fail "no schema $name"; done

# ---- queues and tasks -----------------------------------------------------------------------------

ask 200 GET $v1/queues
is "no queues" '{"items":[],"next":null}' "$(jq -c . "$room/body")"
for q in a b c; do seq 5 | m enqueue -q $q -t kind-$q --lines --quiet 2>/dev/null; done
m enqueue -q a --delay 1h --id later 'when it is time' >/dev/null
printf '\377\376' | m enqueue -q b --id bytes - >/dev/null
ask 200 GET $v1/queues
is "queues" 'a b c' "$(of_it '[.items[].queue] | join(" ")')"
is "as the command line has them" "$(m queue list --json | jq -cS 'map(del(.oldest_pending_ms))')" \
    "$(jq -cS '.items | map(del(.oldest_pending_ms))' "$room/body")"
ask 200 GET "$v1/queues?limit=2"
is "a page" 'a b' "$(of_it '[.items[].queue] | join(" ")')"
ask 200 GET "$v1/queues?limit=2&cursor=$(of_it .next)"
is "the next" 'c null' "$(of_it '[.items[].queue, .next] | map(tostring) | join(" ")')"
ask 200 GET $v1/queues/a
is "one" '5 1' "$(of_it '"\(.pending) \(.scheduled)"')"
errs 404 NOT_FOUND GET $v1/queues/none
errs 400 INVALID GET "$v1/queues/%01x"
errs 400 INVALID GET "$v1/queues/%7bx%7d"
is "why it is no name" 'queue: must be UTF-8 without control characters or braces' "$(of_it .error.message)"
for limit in 0 -1 x 1001 ''; do errs 400 INVALID GET "$v1/queues?limit=$limit"; done

ask 200 GET $v1/tasks/later
is "as the command line has it" "$(m task show later --json | jq -cS .)" "$(jq -cS . "$room/body")"
is "its payload" 'when it is time' "$(of_it .payload)"
ask 200 GET $v1/tasks/bytes
is "bytes" '//4=' "$(of_it .payload_base64)"
errs 404 NOT_FOUND GET $v1/tasks/none
errs 404 NOT_FOUND GET $v1/tasks/%ff%fe
ask 200 GET "$v1/tasks?queue=a&state=scheduled"
is "of a state" later "$(of_it '[.items[].id] | join(" ")')"
ask 200 GET "$v1/tasks?type=kind-c"
is "of a type" 5 "$(of_it '.items | length')"
seen=0
next=
while :; do
    ask 200 GET "$v1/tasks?limit=4${next:+&cursor=$next}"
    seen=$((seen + $(of_it '.items | length')))
    next=$(of_it '.next // "" | @uri')
    [ -n "$next" ] || break
done
is "all of them, by pages" 17 "$seen"
errs 400 INVALID GET "$v1/tasks?state=hope"
is "which there are" "state: 'hope' is none of scheduled, pending, active, retry, archived, completed, aggregating" "$(of_it .error.message)"
errs 400 INVALID GET "$v1/tasks?cursor=nonsense"
errs 400 INVALID GET "$v1/tasks?queue=%02timers"
errs 404 NOT_FOUND GET "$v1/tasks?queue=none"

# ---- nodes, timers, the archive -------------------------------------------------------------------

hold
ask 200 GET $v1/nodes
is "who works" '1 held' "$(of_it '.items[] | select(.role == "worker") | "\(.in_hand) \(.queues[0])"')"
# What its slots do is told a moment later.
same_nodes() {
    ask 200 GET $v1/nodes
    [ "$(m node list --json | jq -cS 'map(del(.last_beat_ms))')" = "$(jq -cS '.items | map(del(.last_beat_ms))' "$room/body")" ]
}
until_true same_nodes
ask 200 GET $v1/leader
let_go
m timer create nightly --cron '0 3 * * *' -q a >/dev/null
m timer create hourly --every 1h -q b >/dev/null
ask 200 GET $v1/timers
is "timers" 'hourly nightly' "$(of_it '[.items[].name] | join(" ")')"
ask 200 GET $v1/timers/nightly
is "as the command line has it" "$(m timer show nightly --json | jq -cS .)" "$(jq -cS . "$room/body")"
ask 200 GET "$v1/timers/hourly/next?limit=3"
is "when" 3 "$(of_it '.items | length')"
ask 200 GET $v1/timers/hourly/history
errs 404 NOT_FOUND GET $v1/timers/none
errs 400 INVALID GET "$v1/timers?state=hope"
m task archive later >/dev/null
ask 200 GET $v1/dead
is "the archive" later "$(of_it '[.items[].id] | join(" ")')"
ask 200 GET "$v1/dead?cursor=$(of_it .next)"
is "and behind it" '0 null' "$(of_it '"\(.items | length) \(.next)"')"
errs 400 INVALID GET "$v1/dead?cursor=x"
ask 200 GET $v1/version
is "the version" "$("$MILLRACE" --version | sed 's/.* //')" "$(of_it .version)"

# ---- how ------------------------------------------------------------------------------------------

curl -s -D "$room/head" -H 'Accept-Encoding: gzip' "http://$http$v1/tasks" >"$room/packed"
grep -qi '^content-encoding: gzip' "$room/head" || fail "not packed: $(cat "$room/head")"
is "unpacked" 18 "$(gzip -dc "$room/packed" | jq '.items | length')"
curl -s -D "$room/head" -H 'Accept-Encoding: gzip;q=0, br' "http://$http$v1/tasks" | jq . >/dev/null || fail "packed"
errs 403 DENIED GET $v1/queues -H 'Origin: http://evil.example'
errs 403 DENIED GET $v1/tasks/later -H 'Host: evil.example'
is "other methods are named" 'Allow: GET' \
    "$(curl -s -o /dev/null -D - -X PUT "http://$http$v1/leader" | tr -d '\r' | grep -i '^allow')"

# ---- who ------------------------------------------------------------------------------------------

errs 401 DENIED GET $v1/queues -H 'Authorization: Bearer mr_nonsense'
worker=$(token --role worker)
for path in queues queues/a tasks tasks/later timers dead; do
    errs 403 DENIED GET $v1/$path -H "Authorization: Bearer $worker"
done
ask 200 GET $v1/nodes -H "Authorization: Bearer $worker"
some=(-H "Authorization: Bearer $(token --role viewer --queue 'a*')")
ask 200 GET $v1/queues "${some[@]}"
is "what it may see" a "$(of_it '[.items[].queue] | join(" ")')"
ask 200 GET "$v1/tasks?limit=1000" "${some[@]}"
is "of tasks" a "$(of_it '[.items[].queue] | unique | join(" ")')"
errs 403 DENIED GET $v1/queues/b "${some[@]}"
errs 403 DENIED GET $v1/tasks/bytes "${some[@]}"
errs 403 DENIED GET "$v1/tasks?queue=b" "${some[@]}"
errs 403 DENIED GET "$v1/dead?cursor=o" "${some[@]}"
errs 403 DENIED GET "$v1/timers/hourly" "${some[@]}"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
