#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# /metrics: every line is of the form that Prometheus reads, every name has its help and type once, figures are those
# of the server, names of queues do no harm, and who may not see all queues sees none.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
odd='a"b\c'
m enqueue -q mail --retention 1h x >/dev/null
m enqueue -q mail --retention 1h y >/dev/null
m enqueue -q "$odd" z >/dev/null
m work -q mail --burst -- true >/dev/null 2>&1
m queue pause "$odd" >/dev/null 2>&1
scrape() { curl -s -D "$room/head" -o "$room/metrics" "$@" "http://$http/metrics"; }
scrape
grep -qi '^content-type: text/plain; version=0.0.4' "$room/head" || fail "$(cat "$room/head")"
# has NAME VALUE: such a line.
has() { grep -qxF -- "millrace_$1 $2" "$room/metrics" || fail "no $1 $2: $(grep -F "${1%%\{*}" "$room/metrics")"; }
has 'queue_tasks{queue="mail",state="completed"}' 2
has 'queue_tasks{queue="a\"b\\c",state="pending"}' 1
has 'queue_paused{queue="a\"b\\c"}' 1
has 'queue_paused{queue="mail"}' 0
has 'task_attempts_total{queue="mail",outcome="ok"}' 2
has 'task_attempts_total{queue="mail",outcome="error"}' 0
has tasks 3
has 'build_info{version="'"$("$MILLRACE" --version | sed 's/.* //')"'"}' 1
bad=$(grep -vE '^# (HELP|TYPE) millrace_[a-z_]+ .+$|^millrace_[a-z_]+(\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\})? [-+0-9.e]+$' "$room/metrics" || true)
is "lines of no form" '' "$bad"
is "names with two types" '' "$(grep '^# TYPE' "$room/metrics" | cut -d' ' -f3 | sort | uniq -d)"
is "figures without a type" '' "$(comm -13 <(grep '^# TYPE' "$room/metrics" | cut -d' ' -f3 | sort -u) \
    <(grep -v '^#' "$room/metrics" | sed 's/[{ ].*//' | sort -u))"
is "counters are named so" '' "$(grep '^# TYPE.* counter$' "$room/metrics" | cut -d' ' -f3 | grep -v '_total$' || true)"

for token in "$(token --role worker)" "$(token --role producer)" "$(token --role viewer --queue 'm*')"; do
    is "who may not" 403 "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "http://$http/metrics")"
done
is "a viewer may" 200 "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(token --role viewer)" "http://$http/metrics")"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
