#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The trace context of W3C goes with a task from wherever it is enqueued (command line, JSON, HTTP, gRPC) to whoever runs it (a
# command, HTTP), in retries as well, and from there to what that enqueues; what is none goes nowhere.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
unset TRACEPARENT TRACESTATE BAGGAGE
start
parent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
other=00-11111111111111111111111111111111-2222222222222222-00
# traced ARG...: the program, in that trace.
traced() { TRACEPARENT=$parent TRACESTATE=v=1 BAGGAGE=user=7 m "$@"; }
# ran QUEUE: what its tasks found in their environment, one line each, in their order. The worker itself is in another trace.
ran() {
    TRACEPARENT=$other TRACESTATE=w=2 BAGGAGE=who=worker m work -q "$1" --burst --concurrency 1 -- sh -c \
        'echo "${TRACEPARENT-none} ${TRACESTATE-none} ${BAGGAGE-none} ${MILLRACE_HEADER_TRACEPARENT-none}" >>'"$room/ran.$1" \
        >"$room/work" 2>&1 || fail "$(cat "$room/work")"
    cat "$room/ran.$1"
}
whole="$parent v=1 user=7 $parent"

traced enqueue -q flags x >/dev/null
traced enqueue -q flags --header "traceparent=$other" x >/dev/null
m enqueue -q flags x >/dev/null
TRACEPARENT=00-zz m enqueue -q flags x >/dev/null
is "from flags and the environment" "$whole
$other none user=7 $other
none none none none
none none none none" "$(ran flags)"

printf '1\n2\n' | traced enqueue -q lines --lines >/dev/null
is "of lines" "$whole
$whole" "$(ran lines)"
traced enqueue --json '[{"queue":"json","payload":"","headers":{"x":"1"}},{"queue":"json","payload":""}]' >/dev/null
is "of JSON" "$whole
$whole" "$(ran json)"

# By HTTP, as whoever asks by HTTP says it; and to a worker that has nothing else.
curl -sf -H "traceparent: $parent" -H 'tracestate: v=1' -H 'baggage: user=7' \
    -d '[{"queue":"http","payload":"a"},{"queue":"http","payload":"b","headers":{"traceparent":"'"$other"'"}}]' "http://$http/api/v1/tasks" >/dev/null
curl -sf -H 'traceparent: nonsense' -d '{"queue":"http","payload":"c"}' "http://$http/api/v1/tasks" >/dev/null
is "taken by HTTP" "$parent v=1 user=7
$other null user=7
null null null" "$(curl -sf -d '{"queues":{"http":1},"max":3}' "http://$http/api/v1/take" |
    jq -r '.items[] | .headers // {} | "\(.traceparent) \(.tracestate) \(.baggage)"')"

# A single call of gRPC: EnqueueRequest { tasks { queue: "grpc" } }.
printf '\0\0\0\0\010\012\006\012\004grpc' | curl -s -o /dev/null --http2-prior-knowledge -H 'content-type: application/grpc' \
    -H 'te: trailers' -H "traceparent: $parent" -H 'tracestate: v=1' -H 'baggage: user=7' --data-binary @- \
    "http://$grpc/millrace.v1.Tasks/Enqueue"
is "by gRPC" "$whole" "$(ran grpc)"

# What a task enqueues belongs to its trace, and a second run of it to the same.
traced enqueue -q outer x >/dev/null
m work -q outer --burst -- "$MILLRACE" enqueue -q inner y >/dev/null 2>&1
is "from a task" "$whole" "$(ran inner)"
id=$(traced enqueue -q again --retry 0 x)
m work -q again --burst -- false >/dev/null 2>&1 || true
m dead requeue "$id" >/dev/null 2>&1
is "a second run" "$whole" "$(ran again)"
stop 0
