#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# /metrics: it is what Prometheus reads and docs/metrics.md says, alerts and board use nothing else (http_metrics.py), figures
# are those of the server, names that callers choose do no harm, and who may not see all queues sees none.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
odd='a"b\c'
m enqueue -q mail -t greet --retention 1h x >/dev/null
m enqueue -q mail -t greet --retention 1h y >/dev/null
m enqueue -q mail -t bad --retry 0 z >/dev/null
m enqueue -q "$odd" -t "$odd" z >/dev/null
m work -q mail --burst -- sh -c 'test "$MILLRACE_TASK_TYPE" = greet' >/dev/null 2>&1 || true
m queue pause "$odd" >/dev/null 2>&1
m timer create daily --cron '0 3 * * *' --queue other >/dev/null 2>&1
m queue set busy --concurrency 1 >/dev/null 2>&1
seq 60 | jq -c '{queue: "many", type: "t\(.)", payload: ""}' | jq -cs . | m enqueue --json - >/dev/null
m enqueue -q busy x >/dev/null
m enqueue -q busy y >/dev/null

# A worker by HTTP: one run ends well, and ends once more; the other one is kept back by the limit.
post() { curl -s -d "$2" "http://$http/api/v1/$1"; }
taken=$(post take '{"queues":{"busy":1},"max":5}')
is "taken under a limit" 1 "$(jq '.items | length' <<<"$taken")"
end=$(jq -c '[.items[] | {id, epoch, outcome: "ok"}]' <<<"$taken")
post finish "$end" >/dev/null
is "a second end" STALE "$(post finish "$end" | jq -r '.[0].error.code')"
curl -s -o /dev/null "http://$http/nothing"

scrape() { curl -s -D "$room/head" -o "$room/metrics" "$@" "http://$http/metrics"; }
scrape
scrape # it tells of the first
grep -qi '^content-type: text/plain; version=0.0.4' "$room/head" || fail "$(cat "$room/head")"
"$here/http_metrics.py" "$room/metrics" "$here/../.." >"$room/commands" || fail "see above"

# Whatever an alert tells people to run is there.
[ -s "$room/commands" ] || fail "the alerts name no command"
sort -u "$room/commands" | while read -r verb sub; do
    case $verb in
    task | queue | dead | timer | node | result) m "$verb" "$sub" --help ;;
    *) m "$verb" --help ;;
    esac >/dev/null 2>&1 || fail "alerts name millrace $verb $sub"
done

# has NAME VALUE: such a line.
has() { grep -qxF -- "millrace_$1 $2" "$room/metrics" || fail "no $1 $2: $(grep -F "millrace_${1%%\{*}" "$room/metrics" | head -n 9)"; }
has 'queue_tasks{queue="mail",state="completed"}' 2
has 'queue_tasks{queue="mail",state="archived"}' 1
has 'queue_tasks{queue="a\"b\\c",state="pending"}' 1
has 'queue_paused{queue="a\"b\\c"}' 1
has 'queue_paused{queue="mail"}' 0
has 'tasks_enqueued_total{queue="a\"b\\c",type="a\"b\\c"}' 1
has 'tasks_enqueued_total{queue="mail",type="greet"}' 2
has 'tasks_finished_total{queue="mail",type="greet",result="completed"}' 2
has 'tasks_finished_total{queue="mail",type="bad",result="archived"}' 1
has 'tasks_enqueued_total{queue="many",type="other"}' 10
has 'task_attempts_total{queue="mail",outcome="ok"}' 2
has 'task_attempts_total{queue="mail",outcome="error"}' 1
has 'task_attempts_total{queue="busy",outcome="ok"}' 1
has 'tasks_enqueued_total{queue="busy",type="task"}' 2
has 'tasks_finished_total{queue="busy",type="task",result="completed"}' 1
has 'task_wait_seconds_count{queue="mail"}' 3
has 'task_run_seconds_bucket{queue="mail",le="+Inf"}' 3
has 'limit_throttled_total{queue="busy",limit="queue"}' 1
has tasks 66
has 'tombstones_total{reason="deleted"}' 0
has 'schedule_store_up' 1
has 'schedule_runs_total{result="cancelled"}' 0
has 'retention_removed_total{kind="firing"}' 0
has 'schedule_recovery_total{event="recovered"}' 0
has 'schedule_timers_in_memory' 0
has store_failed 0
has stale_results_refused_total 1
has 'http_request_seconds_count{route="none",code="404"}' 1
has 'http_request_seconds_count{route="GET /metrics",code="200"}' 1
has 'http_request_seconds_count{route="POST /api/v1/take",code="200"}' 1
has 'build_info{version="'"$("$MILLRACE" --version | sed 's/.* //')"'"}' 1
# above NAME: its figure is above 0.
above() { awk -v name="millrace_$1" '$1 == name && $2 > 0 { found = 1 } END { exit !found }' "$room/metrics" || fail "no $1"; }
above store_free_bytes
above 'store_bytes{kind="disk"}'
above store_fsync_seconds_count
above store_group_commit_records_sum

printf '1\n2\n3\n' | m job submit -q parts >/dev/null
scrape
has 'jobs_total{event="loaded"}' 1
has 'job_parts_total{event="loaded"}' 3
has 'retention_removed_total{kind="job"}' 0

for token in "$(token --role worker)" "$(token --role producer)" "$(token --role viewer --queue 'm*')"; do
    is "who may not" 403 "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "http://$http/metrics")"
done
is "a viewer may" 200 "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(token --role viewer)" "http://$http/metrics")"

grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
