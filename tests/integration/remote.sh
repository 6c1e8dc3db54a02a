#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Producers and workers as processes of their own, on a server that is killed under them: every task
# that was acknowledged ends once. Then the same roads over TLS.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

tasks=${MR_TASKS:-300} # at most 1000: a page
kills=${MR_KILLS:-5}

# work_on QUEUE: a worker that writes down what it runs.
work_on() {
    "$MILLRACE" work -q "$1" -c 4 -- \
        sh -c 'echo "$MILLRACE_TASK_ID" >>"$0"; sleep 0.01' "$room/ran.$1" >/dev/null 2>&1 &
    worker=$!
    servers+=("$worker")
}

completed() { m queue show "$1" --json | jq -r .completed; }
all_completed() { [ "$(completed "$1")" -eq "$2" ]; }

# ---- kills under load

start
port=$grpc
work_on load
slow_lines() { for ((i = 0; i < tasks; i++)); do echo "line $i" && sleep 0.005; done; }
slow_lines | "$MILLRACE" enqueue --lines -q load >"$room/acked" 2>"$room/producer.err" &
producer=$!
for ((i = 0; i < kills; i++)); do
    sleep 0.3
    kill -9 "$server"
    ends 137
    start --grpc "$port"
done
wait "$producer" || fail "the producer gave up: $(cat "$room/producer.err")"
is "acknowledged" "$tasks" "$(sort -u "$room/acked" | wc -l)"
until_true all_completed load "$tasks"
is "what is kept" "$(sort "$room/acked" | md5sum)" \
    "$(m task list -q load --state completed --limit 1000 --json | jq -r '.[].id' | sort | md5sum)"
is "what ran" "$(sort "$room/acked" | md5sum)" "$(sort -u "$room/ran.load" | md5sum)"
is "in the archive" 0 "$(m queue show load --json | jq -r .archived)"

# A worker that stops says so: what it holds is free at once, long before the grace is over.
m --quiet enqueue -q held --id held x >/dev/null
rm -f "$room/began"
"$MILLRACE" work -q held -c 1 --drain-timeout 0 -- sh -c "touch '$room/began'; exec sleep 300" \
    >/dev/null 2>&1 &
holder=$!
servers+=("$holder")
until_true test -e "$room/began"
is "while it runs" active "$(m task show held --json | jq -r .state)"
kill -TERM "$holder"
wait "$holder" || true
is "when it is gone" pending "$(m task show held --json | jq -r .state)"
kill -TERM "$worker"
wait "$worker" || fail "the worker ended with $?"

# Without a server: exit code 6 and what to do.
stop 0
refuses 6 "$port" --broker "millrace://$port" queue list

# A server has one namespace; who means another is told so before anything is done.
start --namespace blue
export MILLRACE_BROKER=millrace://$grpc
is "whoever names none" 1 "$(m enqueue --id b1 x | wc -l)"
is "whoever names it" b1 "$(m --namespace blue task show b1 --json | jq -r .id)"
refuses 2 'this server has the namespace blue, not green' --namespace green enqueue x
stop 0

# ---- TLS

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=server" \
    -addext "subjectAltName=DNS:localhost" -keyout "$room/server.key" -out "$room/server.pem" \
    2>/dev/null
start --tls-cert "$room/server.pem" --tls-key "$room/server.key"
export MILLRACE_BROKER=millraces://localhost:${grpc##*:} SSL_CERT_FILE=$room/server.pem
is "over TLS" 50 "$(seq 50 | m enqueue --lines -q tls | wc -l)"
work_on tls
until_true all_completed tls 50
is "runs over TLS" 50 "$(sort -u "$room/ran.tls" | wc -l)"
SSL_CERT_FILE=/dev/null refuses 6 "localhost:${grpc##*:}" queue list
refuses 6 "localhost:${grpc##*:}" --broker "millrace://localhost:${grpc##*:}" queue list
