#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The HTTP door of jobs and those who mean harm: bodies that are too big, half there, or larger in memory than they are;
# pages of somebody else; what is no JSON, no id, no cursor. Every answer is JSON, and the server goes on.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/job_lib.bash"
start
api=http://$http/api/v1/jobs
port=${http##*:}

# answers STATUS CODE ARG...: curl with these arguments; the answer is an error of this kind, in JSON.
answers() {
    is "status of ${*:3}" "$1" "$(curl -s -o "$room/body" -w '%{http_code}' "${@:3}")"
    is "code of ${*:3}" "$2" "$(jq -r .error.code "$room/body")"
}
# peak: KiB that the server has had in memory at most.
peak() { sed -n 's/^VmHWM: *\([0-9]*\) kB/\1/p' "/proc/$server/status"; }

# ---- how much -------------------------------------------------------------------------------------

head -c 17000000 /dev/zero | tr '\0' x >big
answers 413 TOO_BIG --data-binary @big "$api"
before=$(peak)
# Who may not submit sends nothing: it is told so by its headers.
seen=$(curl -s -o "$room/body" -w '%{http_code} %{size_upload}' -H 'Authorization: Bearer mr_nonsense' \
    -H 'Expect: 100-continue' --expect100-timeout 20 --data-binary @<(head -c 15000000 big) "$api")
is "a stranger's megabytes" '401 0' "$seen"
# A few bytes of JSON are many in memory: values are not made of what cannot be right.
for item in '{}' '[]' '[[[[' '1' '""' '{"a":1}'; do
    { printf '{"parts":['; { yes "$item," || true; } | head -c 12000000 | tr -d '\n'; printf '""]}'; } >bomb
    status=$(curl -s -o "$room/body" -w '%{http_code}' --data-binary @bomb "$api")
    case $status in 400 | 413) ;; *) fail "$item: $status" ;; esac
    jq -e .error.message "$room/body" >/dev/null || fail "$item: $(head -c 300 "$room/body")"
done
{ printf '{'; seq 1000000 | sed 's/.*/"k&":1,/' | tr -d '\n'; printf '"a":1}'; } >bomb
answers 400 INVALID --data-binary @bomb "$api"
grown=$(($(peak) - before))
[ "$grown" -lt 150000 ] || fail "the server has grown by $grown KiB"
# A table whose header stands before each of its rows.
{ printf '{"split":"csv","input":"'; head -c 1000000 big; seq 200 | sed 's/.*/\\n&/' | tr -d '\n'; printf '"}'; } >bomb
answers 413 TOO_BIG --data-binary @bomb "$api"
is "jobs of those" 0 "$(m job list --json | jq length)"
# Many small parts are a job all the same.
{ printf '{"queue":"many","split":"bytes:1","input":"'; head -c 200000 big; printf '"}'; } >many
is "many parts" 200000 "$(curl -s --data-binary @many "$api" | jq .total)"

# ---- half of it -----------------------------------------------------------------------------------

for body in '{"input":"a\nb\n"' ''; do
    { printf 'POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n%s' "$body"; } >half
    timeout 20 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; cat half >&3" || fail "no connection"
done
is "no job came of a half" 1 "$(m job list --json | jq length)"

# ---- what it says ---------------------------------------------------------------------------------

for body in '' 'x' '[]' '"input"' '{"input":1}' '{"parts":"a"}' '{"parts":[]}' '{"parts":["a",1]}' '{"input":"a","parts":["a"]}' \
    '{"input":""}' '{"input":"a","input":"b"}' '{"input":"a","name":{"x":1}}' '{"input":"a","queue":"a\u0000b"}' \
    '{"input":"a","queue":"a\nb"}' '{"input":"a","stages":["a",[]]}' '{"input":"a","stages":[""]}' '{"input":"a","split":"command:id"}' \
    '{"input":"a","split":"chars:0"}' '{"input":"a","priority":"high"}' '{"input":"a","priority":1e300}' '{"input":"a","max_retry":-1}' \
    '{"input":"a","policy":"hope"}' '{"input":"a","timeout_ms":1.5}' '{"input":"a","retention_ms":-1}' '{"input":"a\ud800"}'; do
    answers 400 INVALID -d "$body" "$api"
done
answers 413 TOO_BIG -d "{\"input\":\"a\",\"name\":\"$(head -c 200 big)\"}" "$api"
answers 413 TOO_BIG -d "{\"input\":\"a\",\"reduce\":\"command:$(head -c 5000 big)\"}" "$api"
{ printf '{"input":"'; head -c 1100000 big; printf '"}'; } >long
answers 413 TOO_BIG --data-binary @long "$api"
answers 400 INVALID --data-binary @<(printf '{"input":"\xff\xfe"}') "$api"
is "a command" '501 UNSUPPORTED' "$(curl -s -o "$room/body" -w '%{http_code}' -d '{"input":"a","reduce":"command:touch came"}' \
    "$api") $(jq -r .error.code "$room/body")"
for query in limit=-1 limit=1001 limit=x state=hope cursor=x cursor=-1 "cursor=$(printf '9%.0s' {1..100})" queue=%ff%00 queue=%7b; do
    answers 400 INVALID "$api?$query"
done
for id in %ff%fe nonsense "$(head -c 200 big)" 01a1e36b-0000-7000-8000-00000000000g '%0aaudit%20time=0'; do
    for path in '' /parts /result /events; do answers 404 NOT_FOUND "$api/$id$path"; done
    answers 404 NOT_FOUND -X POST "$api/$id/cancel"
    iconv -f UTF-8 -t UTF-8 "$room/body" >/dev/null || fail "$id: not UTF-8"
done
is "lines of audit that somebody else has written" 0 "$(grep -c '^audit time=0' "$room/server.err" || true)"
answers 405 INVALID -X DELETE "$api/x"
id=$(curl -s -d '{"input":"a"}' "$api" | jq -r .id)
for last in x -5 0 99999999999999999999 5000000000 '1, 2'; do
    curl -s -N -m 2 -H "Last-Event-ID: $last" "$api/$id/events" >"$room/events" || true
    grep -q '^event: progress' "$room/events" || fail "Last-Event-ID $last: $(head -c 300 "$room/events")"
done

# ---- pages of somebody else -----------------------------------------------------------------------

for header in 'Origin: http://evil.example' 'Origin: null' "Origin: http://127.0.0.1:$((port + 1))" 'Host: evil.example' "Host: evil.example:$port"; do
    answers 403 DENIED -H "$header" -H 'Content-Type: text/plain' -d '{"input":"a"}' "$api"
    answers 403 DENIED -H "$header" -X POST "$api/$id/cancel"
    answers 403 DENIED -H "$header" "$api/$id"
done
is "nothing was cancelled" created "$(of "$id" state)"
for host in "127.0.0.1:$port" "localhost:$port" localhost "[::1]:$port"; do
    is "by $host" 200 "$(curl -s -o /dev/null -w '%{http_code}' -H "Host: $host" -H "Origin: http://$host" "$api/$id")"
done
key=$(token --role producer)
is "who has a token comes from anywhere" 200 "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $key" \
    -H 'Origin: https://ours.example' -H 'Host: ours.example' "$api/$id")"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
