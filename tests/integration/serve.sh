#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The life of a server: starting, being ready, stopping with grace and at once, and what it refuses.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

# With nothing at all it is ready within a second; other work on the machine may spoil some attempts.
took=1000
for ((i = 0; i < 10 && took >= 1000; i++)); do
    data=$room/new$i
    begin=$(date +%s%N)
    start
    took=$((($(date +%s%N) - begin) / 1000000))
    stop 0
    rm -r "$data"
done
((took < 1000)) || fail "never ready within a second; the last time after $took ms"

# It says so in one line, and that it stops in another.
data=$room/data
start
is "lines before the stop" 1 "$(wc -l <"$room/server.err")"
grep -qE '^ready http=127\.0\.0\.1:[0-9]+ grpc=127\.0\.0\.1:[0-9]+$' "$room/server.err" ||
    fail "$(cat "$room/server.err")"
[ ! -s "$room/server.out" ] || fail "something on standard output"

# Health, over HTTP and gRPC.
is livez 'live 200' "$(get /livez)"
is readyz 'ready 200' "$(get /readyz)"
is "another path" 404 "$(get /nothing | sed 's/.* //')"
is "another method" 405 "$(get /livez -X POST | sed 's/.* //')"
is "health by gRPC" 0 "$(call grpc.health.v1.Health/Check)"

# The folder has one owner, which is named.
refuses 6 "in use by process $server" serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0
refuses 6 "if that one is a server, use it: --broker millrace://127.0.0.1:7401" queue list --broker "file:$data"
refuses 6 "in use by process $server" token create --role admin --data "$data"
# Who takes the port of HTTP for that of gRPC is told.
refuses 6 "its port for gRPC" queue list --broker "millrace://$http"
# So have ports.
refuses 6 "$http: the port is in use" serve --data "$room/b" --listen "$http" --grpc 127.0.0.1:0
refuses 6 "$grpc: the port is in use by another process; stop that, or give --grpc another one" \
    serve --data "$room/b" --listen 127.0.0.1:0 --grpc "$grpc"
refuses 2 '192.0.2.1:0: this machine has no such address' \
    serve --data "$room/b" --insecure --listen 127.0.0.1:0 --grpc 192.0.2.1:0
refuses 2 '192.0.2.1:0: this machine has no such address' \
    serve --data "$room/b" --insecure --listen 192.0.2.1:0 --grpc 127.0.0.1:0
is "still well" 'ready 200' "$(get /readyz)"

# SIGTERM ends it with exit code 0, and the folder is free.
stop 0
m --broker "file:$data" --quiet enqueue -q kept --id one payload >/dev/null
start
is "the task from before" pending "$(m task show one --json | jq -r .state)"

# kill -9 is as good as a stop.
m --quiet enqueue -q kept --id two payload >/dev/null
kill -9 "$server"
ends 137
start
is "the task from before the kill" pending "$(m task show two --json | jq -r .state)"
stop 0

# SIGINT is as good as SIGTERM.
start
kill -INT "$server"
ends 0

# While a worker holds a task the stop waits, says that it is not ready, and a second signal ends it.
start --drain-timeout 5m
hold
kill -TERM "$server"
until_true grep -q stopping "$room/server.err"
is "not ready" 503 "$(get /readyz | sed 's/.* //')"
is "still live" 'live 200' "$(get /livez)"
kill -0 "$server" || fail "it did not wait for the worker"
kill -TERM "$server"
ends 143
let_go

# The wait has a limit.
start --drain-timeout 200ms
hold
stop 0
let_go

# What cannot be used is named in one line.
refuses 5 '/sys/data' serve --data /sys/data --listen 127.0.0.1:0 --grpc 127.0.0.1:0
refuses 2 '--data: /dev/null is not a folder' serve --data /dev/null
refuses 2 'cannot read the settings in /tmp: it is a folder' serve --config /tmp
mkdir "$room/other"
echo text >"$room/other/notes"
refuses 1 'notes' serve --data "$room/other" --listen 127.0.0.1:0 --grpc 127.0.0.1:0
refuses 2 'the URL of the Redis' serve --broker redis://127.0.0.1:port
refuses 2 'give --data DIR' serve --broker millrace://127.0.0.1:7401
refuses 2 'are two folders' serve --data a --broker file:b
MILLRACE_BROKER=file:b expect 0 config check --data a
MILLRACE_BROKER=file:b MILLRACE_DATA=a refuses 2 'are two folders' config check
refuses 2 'is no URL of a store; give sqlite:FILE or postgres://' serve --store mysql://x
refuses 2 '--timer-levels: "soon" is not a duration' serve --timer-levels 5s,soon
refuses 2 '--app: "" is empty' serve --app ''
refuses 3 'store.db' serve --data "$room/c" --store "sqlite:$room/no/such/store.db" --listen 127.0.0.1:0 --grpc 127.0.0.1:0
refuses 2 '--replicas needs a store that the servers share: --store postgres://...' serve --replicas 1
refuses 2 '--replicas is for tasks in a folder; a Redis has --wait-replicas' serve --replicas 1 --broker redis://127.0.0.1:1
refuses 2 '--replica-peer needs --replicas 1 beside it' serve --replica-peer 127.0.0.1:7401
refuses 2 '--replica-peer: "127.0.0.1:7401,nobody" is no list of HOST:PORT,...' serve --replicas 1 --store postgres://db/x \
    --replica-peer 127.0.0.1:7401,nobody
refuses 2 '--replica-ca is for servers with TLS' serve --replicas 1 --store postgres://db/x --replica-ca "$0"
refuses 2 '--nameserver: "nowhere" is not an address' serve --nameserver nowhere
refuses 2 '--nameserver: "" is not an address' serve --nameserver 127.0.0.1:7410,
refuses 2 '--nameserver-ca is for nameservers with TLS' serve --nameserver 127.0.0.1:7410 --nameserver-ca /dev/null
refuses 2 '--nameserver-token-file needs --nameserver' serve --nameserver-token-file /dev/null
refuses 2 '--weight: "0" is below 1' serve --weight 0
refuses 3 "$room/audit/x" serve --data "$data" --audit-file "$room/audit/x"

# An address for other machines needs tokens and TLS, or somebody who says that it need not.
refuses 2 'add --tls-cert FILE --tls-key FILE and a token' serve --data "$room/c" --grpc 0.0.0.0:0
refuses 2 '--listen [::]:0 is open to other machines' serve --data "$room/c" --listen '[::]:0'
m --quiet token create --role admin --data "$room/c" >/dev/null
refuses 2 'add --tls-cert FILE --tls-key FILE or --insecure' serve --data "$room/c" --grpc 0.0.0.0:0
refuses 2 'add a token (millrace token create' serve --data "$room/d" --grpc 0.0.0.0:0 \
    --tls-cert x --tls-key y
refuses 2 'needs --tls-key' serve --data "$room/c" --tls-cert x
start --grpc 0.0.0.0:0 --insecure
is "the open address" 0 "$(call grpc.health.v1.Health/Check)"
stop 0

# The settings of a file count, and those of the environment before them.
cat >"$room/serve.yaml" <<'YAML'
drain-timeout: 3m
grace: 2s
audit-file: audit-of-the-file
YAML
MILLRACE_CONFIG=$room/serve.yaml MILLRACE_AUDIT_FILE=$room/audit.log start
m --quiet token create --role viewer >/dev/null
is "audit lines" 1 "$(grep -c 'method=Tokens/Create .* result=OK' "$room/audit.log")"
# Whoever moves the audit file away gets a new one by SIGHUP.
mv "$room/audit.log" "$room/audit.old"
kill -HUP "$server"
until_true test -e "$room/audit.log"
m --quiet token create --role viewer >/dev/null
is "audit lines in the new file" 1 "$(wc -l <"$room/audit.log")"
stop 0
echo "listn: x" >>"$room/serve.yaml"
refuses 2 'serve.yaml:4: unknown key listn; did you mean listen?' serve --config "$room/serve.yaml"
