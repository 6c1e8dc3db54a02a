# SPDX-License-Identifier: Apache-2.0
#
# Sourced, behind cli_lib.bash, by the tests that need a server of their own on free ports.

servers=()
trap 'for p in "${servers[@]}"; do kill -9 "$p" 2>/dev/null || true; done
chmod -R u+rwX "$room" 2>/dev/null; rm -rf "$room"' EXIT

# start ARG...: a server on the folder $data, whose address pairs become $http and $grpc, its number
# $server, its standard error $room/server.err.
data=$room/data
start() {
    : >"$room/server.err"
    "$MILLRACE" serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 "$@" \
        >"$room/server.out" 2>>"$room/server.err" </dev/null &
    server=$!
    servers+=("$server")
    until_true ready_or_gone
    grep -q '^ready ' "$room/server.err" || fail "no server: $(cat "$room/server.err")"
    read_addresses
    export MILLRACE_BROKER=millrace://$grpc
}

ready_or_gone() {
    grep -q '^ready ' "$room/server.err" || ! kill -0 "$server" 2>/dev/null
}

read_addresses() {
    http=$(sed -n 's/^ready http=\([^ ]*\) grpc=.*/\1/p' "$room/server.err")
    grpc=$(sed -n 's/^ready http=[^ ]* grpc=\([^ ]*\)$/\1/p' "$room/server.err")
}

# ends CODE: the server has ended, or does so soon, with this exit code.
ends() {
    local got=0
    until_true gone
    wait "$server" || got=$?
    is "exit code of the server" "$1" "$got"
}

gone() { ! kill -0 "$server" 2>/dev/null; }

# stop CODE: by SIGTERM.
stop() {
    kill -TERM "$server"
    ends "$1"
}

# get PATH [ARG...]: status and body of a GET, on one line.
get() {
    local path=$1
    shift
    curl -s -w ' %{http_code}' "$@" "http://$http$path" | tr -d '\n'
}

# call METHOD: one empty gRPC request; the value of grpc-status.
call() {
    local tries status
    for ((tries = 0; tries < 20; tries++)); do
        status=0
        printf '\0\0\0\0\0' | curl -s -o "$room/answer" -D "$room/headers" --http2-prior-knowledge \
            -H 'content-type: application/grpc' -H 'te: trailers' "${@:2}" --data-binary @- \
            "http://$grpc/$1" || status=$?
        # Debian's curl loses an answer that comes before it has sent all of the request, and says 92.
        [ "$status" -eq 92 ] && [ ! -s "$room/headers" ] || break
    done
    sed -n 's/^grpc-status: \([0-9]*\).*/\1/p' "$room/headers"
}

# hold: a worker with a task that does not end.
hold() {
    rm -f "$room/held"
    m --quiet enqueue -q held x >/dev/null
    "$MILLRACE" work -q held -c 1 --drain-timeout 0 -- \
        sh -c "touch '$room/held'; exec sleep 300" >/dev/null 2>&1 &
    worker=$!
    servers+=("$worker")
    until_true test -e "$room/held"
}

# let_go: the worker goes.
let_go() {
    kill -9 "$worker"
    wait "$worker" || true
}
