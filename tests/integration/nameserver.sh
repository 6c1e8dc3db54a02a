#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Nameservers as processes, with servers and workers that register: 67 and 76 to 80 of the acceptance tests of timers, with short times
# by settings; what status shows, who may call, signals and exit codes.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
unset MILLRACE_NAMESERVER MILLRACE_TOKEN MILLRACE_TOKEN_FILE

# ports N: so many that nobody listens on.
ports() {
    python3 - "$1" <<'END'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))
END
}

# names NAME PORT ARG...: a nameserver; its number is ${pid[NAME]}.
declare -A pid=()
names() {
    local name=$1 port=$2
    shift 2
    : >"$room/$name.err"
    "$MILLRACE" nameserver --listen "127.0.0.1:$port" --data "$room/none" "$@" 2>>"$room/$name.err" </dev/null &
    pid[$name]=$!
    servers+=("$!")
    until_true is_ready "$name"
    grep -q '^ready ' "$room/$name.err" || fail "no nameserver: $(cat "$room/$name.err")"
}
is_ready() { grep -q '^ready ' "$room/$1.err" || ! kill -0 "${pid[$1]}" 2>/dev/null; }

# ends_with NAME SIGNAL CODE
ends_with() {
    kill "-$2" "${pid[$1]}"
    await "${pid[$1]}"
    is "exit code of $1" "$3" "$code"
}

# work NAME ARG...: a worker that does nothing much.
work() {
    local name=$1
    shift
    "$MILLRACE" --quiet work -c 1 --drain-timeout 1s "$@" -- true >"$room/$name.out" 2>&1 </dev/null &
    pid[$name]=$!
    servers+=("$!")
}

# status LIST JQ: of what status shows of these nameservers.
status() { m --quiet nameserver status --nameserver "$1" --workers --json 2>/dev/null | jq -r "$2"; }
# shows LIST JQ WANT
shows() { [ "$(status "$1" "$2")" = "$3" ]; }

### What is wrong is said in one line.
refuses 2 'is not an address' nameserver --peer nowhere
refuses 2 '--listen 0.0.0.0:0 is open to other machines' nameserver --listen 0.0.0.0:0 --data "$room/none"
refuses 2 '--health 0.0.0.0:0 is open to other machines' nameserver --listen 127.0.0.1:0 --health 0.0.0.0:0
refuses 2 '--tls-cert and --tls-key go together' nameserver --tls-cert x
refuses 2 'unknown verb stats; did you mean status?' nameserver stats
refuses 2 'is not an address' nameserver status --nameserver 127.0.0.1
refuses 2 'is not an address' work --nameserver , --broker "$store" -- true
refuses 2 'unknown option --perr; did you mean --peer?' nameserver --perr=x
read -r p1 p2 p3 p4 < <(ports 4)
refuses 6 "127.0.0.1:$p1" nameserver status --nameserver "127.0.0.1:$p1"
refuses 6 'start one with `millrace nameserver`' queue list --broker "names://127.0.0.1:$p1"
refuses 6 'none of 2 nameservers answers' nameserver status --nameserver "127.0.0.1:$p1,127.0.0.1:$p2"
m nameserver --help | grep -q 'millrace nameserver status' && fail "the help of one is that of the other"
m nameserver --help | grep -q '^  status ' || fail "the help lacks the verb"
m nameserver status --help | grep -q -- '--workers' || fail "the help of status lacks --workers"

### 79: three keep each other in step: what registers at one is seen at all, each once.
list=127.0.0.1:$p1,127.0.0.1:$p2,127.0.0.1:$p3
short=(--interval 500ms --worker-ttl 6s --server-ttl 6s --hold 1s)
peers=(--peer "127.0.0.1:$p1" --peer "127.0.0.1:$p2" --peer "127.0.0.1:$p3")
names n1 "$p1" "${short[@]}" "${peers[@]}" --health 127.0.0.1:0
names n2 "$p2" "${short[@]}" "${peers[@]}"
names n3 "$p3" "${short[@]}" "${peers[@]}"
refuses 6 'in use' nameserver --listen "127.0.0.1:$p1" --data "$room/none"
start --nameserver "127.0.0.1:$p4,$list" --register-every 300ms --weight 50
work w1 --nameserver "127.0.0.1:$p1" --register-every 300ms --node twin --app mail
until_true shows "$list" '[.nameservers[].workers] | join(" ")' "1 1 1"
### 76: two workers of one name on one machine are two.
work w2 --nameserver "127.0.0.1:$p3" --register-every 300ms --node twin --app mail
until_true shows "$list" '[.nameservers[].workers] | join(" ")' "2 2 2"
is "76: workers of the app" "mail 2" "$(status "$list" '.apps[] | "\(.app) \(.workers)"')"
is "76: their names" "twin twin" "$(status "$list" '[.workers[].worker] | join(" ")')"
until_true shows "$list" '[.nameservers[] | .servers, .complete] | join(" ")' "1 true 1 true 1 true"
same_view() { shows "$list" '[.nameservers[].view] | unique | length' 1; }
until_true same_view
is "the server" "$grpc 50" "$(status "$list" '.servers[] | "\(.address) \(.weight)"')"
is "its workers' server" "$grpc" "$(status "$list" '.workers[0].server')"

### What people see; and the same from the server.
expect 0 nameserver status --nameserver "$list"
for word in NAMESERVER SERVER ADDRESS LOAD WEIGHT APP WORKERS mail live; do
    grep -q "$word" "$room/out" || fail "status lacks $word: $(cat "$room/out")"
done
expect 0 node list --servers
grep -q '^SERVER ' "$room/out" || fail "no servers: $(cat "$room/out")"
seen() { [ "$(m node list --servers --json | jq -r '[(.servers | length), .view, .complete, .servers[0].registered, .servers[0].weight] | join(" ")')" = "1 true true true 50" ]; }
until_true seen
refuses 2 'asks a server' node list --servers --broker "$store"
refuses 2 'two lists' node list --servers --slots

### Health.
http=$(sed -n 's/^ready http=\([^ ]*\) grpc=.*/\1/p' "$room/n1.err")
is "live" "live 200" "$(get /livez)"
is "ready" "ready 200" "$(get /readyz)"
server_grpc=$grpc grpc=127.0.0.1:$p1
is "health of gRPC" 0 "$(call grpc.health.v1.Health/Check)"
# An answer that comes before curl has sent all may be lost to it: then it asks again.
unknown_method() {
    local status='' i
    for i in 1 2 3 4 5; do
        status=$(call millrace.v1.Tasks/Enqueue)
        [ -z "$status" ] || break
    done
    echo "$status"
}
is "no such method" 12 "$(unknown_method)"
is "an empty registration" 3 "$(call millrace.v1.Names/Register)"
# Nonsense does no harm.
for method in Register List Look Exchange; do
    head -c 4000 /dev/urandom | curl -s -o /dev/null --max-time 5 --http2-prior-knowledge -H 'content-type: application/grpc' \
        -H 'te: trailers' --data-binary @- "http://$grpc/millrace.v1.Names/$method" || true
done
is "after nonsense" 0 "$(call millrace.v1.Names/Look)"
grpc=$server_grpc

### 77: one that lives is never taken for dead; a killed one goes everywhere.
for ((i = 0; i < 20; i++)); do
    is "77: living workers" "2 2 2" "$(status "$list" '[.nameservers[].workers] | join(" ")')"
    sleep 0.1
done
is "77: expired" "0 0 0" "$(status "$list" '[.nameservers[].expired] | join(" ")')"
ends_with w2 KILL 137
until_true shows "$list" '[.nameservers[].workers] | join(" ")' "1 1 1"
until_true same_view
# Who says good-bye is gone at once.
work w3 --nameserver "$list" --register-every 300ms --app mail
until_true shows "$list" '[.nameservers[].workers] | join(" ")' "2 2 2"
ends_with w3 TERM 0
until_true shows "$list" '[.nameservers[].workers] | join(" ")' "1 1 1"
[ "$(status "$list" '.nameservers[0].left')" -ge 1 ] || fail "77: nobody has left"

### 80: killing any one is not noticed. Tasks and timers go on.
work t1 --nameserver "$list" --register-every 300ms -q ticks --app default --broker "millrace://$grpc"
# What workers get of plain tasks is a server's load, too.
seq 5 | m --quiet enqueue --lines -q ticks >/dev/null 2>&1
loaded() { [ "$(status "$list" '.servers[0].load')" -ge 5 ]; }
until_true loaded
m timer create tick --every 200ms -q ticks >/dev/null
runs() { m queue show ticks --json | jq -r .processed_total; }
ran() { [ "$(runs)" -ge "$1" ]; }
until_true ran 2
ends_with n1 KILL 137
before=$(runs)
sleep 7 # longer than anything is remembered that does not register elsewhere
until_true ran $((before + 5))
rest=127.0.0.1:$p2,127.0.0.1:$p3
# Who knew that one alone is gone with it; all others are there.
is "80: who is there" "1 1 1 1" "$(status "$rest" '[.nameservers[] | .servers, .workers] | join(" ")')"
is "80: the dead one is shown" "false true true" "$(status "$list" '[.nameservers[].answers] | join(" ")')"
m nameserver status --nameserver "$list" 2>"$room/err" | grep -q 'does not answer' || fail "80: status: $(cat "$room/err")"
# The first of a list may be dead for who begins.
work w4 --nameserver "$list" --register-every 300ms --app mail
until_true shows "$rest" '[.nameservers[].workers] | join(" ")' "2 2"
ends_with w4 TERM 0
names n1 "$p1" "${short[@]}" "${peers[@]}"
until_true shows "$list" '[.nameservers[] | .servers, .workers] | join(" ")' "1 2 1 2 1 2"

### 78: all are away, then back: what runs goes on, the lists stay, nothing moves.
moves=$(m node list --servers --json | jq -r '.moves | length')
ends_with n2 TERM 0
ends_with n3 INT 0
ends_with n1 TERM 0
before=$(runs)
until_true ran $((before + 5))
is "78: the server still knows itself, and that it knows too little" "1 false" \
    "$(m node list --servers --json | jq -r '"\(.servers | length) \(.complete)"')"
names n1 "$p1" "${short[@]}"
until_true shows "127.0.0.1:$p1" '.nameservers[0] | "\(.servers) \(.workers) \(.complete)"' "1 2 true"
is "78: moves" "$moves" "$(m node list --servers --json | jq -r '.moves | length')"
until_true ran $((before + 10))

is "by way of the nameserver" 1 "$(m node list --servers --broker "names://127.0.0.1:$p1" --json | jq -r '.servers | length')"

### 67: the third worker of an app cuts it in two; that is shown with its reason.
parts() { m node list --servers --json | jq -r '[.subapps[] | select(.app == "default") | .slots] | join(" ")'; }
cut() { [ "$(parts)" = "$1" ]; }
is "67: one worker" 64 "$(parts)"
work t2 --nameserver "127.0.0.1:$p1" --register-every 300ms -q ticks --app default
work t3 --nameserver "127.0.0.1:$p1" --register-every 300ms -q ticks --app default
until_true cut "32 32"
grep -q split <<<"$(status "127.0.0.1:$p1" '.moves[0].reason')" || fail "67: $(status "127.0.0.1:$p1" .moves)"
before=$(runs)
until_true ran $((before + 5))
expect 0 nameserver status --nameserver "127.0.0.1:$p1"
grep -qE '^balance: (even|below the floor|cooling down|a move is on its way|no subApp would make it better|registry incomplete)$' "$room/out" ||
    fail "67: status does not say why nothing moves: $(cat "$room/out")"
grep -q '^MOVED ' "$room/out" || fail "67: status lacks moves: $(cat "$room/out")"
ends_with t2 TERM 0
ends_with t3 TERM 0
# Who knows only nameservers finds the servers by them, also when the first is dead.
(unset MILLRACE_BROKER && exec "$MILLRACE" --quiet work --nameserver "127.0.0.1:$p2,127.0.0.1:$p1" --register-every 300ms -q found -- \
    sh -c "touch '$room/found'") >"$room/found.out" 2>&1 </dev/null &
pid[found]=$!
servers+=("$!")
m enqueue -q found x >/dev/null
until_true test -e "$room/found"
ends_with found TERM 0
m timer rm tick >/dev/null
ends_with t1 TERM 0
ends_with w1 TERM 0
stop 0
until_true shows "127.0.0.1:$p1" '.nameservers[0] | "\(.servers) \(.workers)"' "0 0"
ends_with n1 TERM 0

### Tokens: lists are for all, workers register with the role worker, servers with admin.
mkdir "$room/tokens"
for role in admin worker viewer; do
    m token create --role "$role" --data "$room/tokens" >"$room/$role.token"
done
m token create --role worker --queue 'mail*' --data "$room/tokens" >"$room/mail.token"
names n1 "$p1" --require-token --data "$room/tokens" --token-file "$room/admin.token" "${short[@]}"
one=127.0.0.1:$p1
refuses 5 'token' nameserver status --nameserver "$one"
expect 0 nameserver status --nameserver "$one" --token-file "$room/viewer.token"
refuses 5 'token' queue list --broker "names://$one"
refuses 5 'is for queues mail*' nameserver status --nameserver "$one" --token-file "$room/mail.token"
status_admin() { m --quiet nameserver status --nameserver "$one" --json --token-file "$room/admin.token" 2>/dev/null | jq -r "$1"; }
admits() { [ "$(status_admin '.nameservers[0] | "\(.servers) \(.workers)"')" = "$1" ]; }
work w5 --nameserver "$one" --register-every 200ms --app web --token-file "$room/viewer.token" --broker "$store"
start --nameserver "$one" --register-every 200ms --nameserver-token-file "$room/admin.token"
until_true admits "1 0"
work w6 --nameserver "$one" --register-every 200ms --app web --token-file "$room/mail.token" --broker "file:$room/s6"
work w7 --nameserver "$one" --register-every 200ms --app web --token-file "$room/worker.token" --broker "file:$room/s7"
until_true admits "1 1"
sleep 1
admits "1 1" || fail "somebody registered who may not: $(status_admin '.nameservers[0]')"
stop 0
start --nameserver "$one" --register-every 200ms --nameserver-token-file "$room/worker.token"
sleep 1
is "a server without the role" 0 "$(status_admin '.nameservers[0].servers')"
kill -HUP "${pid[n1]}"
until_true grep -q tokens.reload "$room/n1.err"
stop 0
ends_with w7 TERM 0
ends_with n1 TERM 0

### TLS: nameservers among each other, servers and workers that register, who looks and who enqueues; nothing without it.
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout "$room/$1.key" -out "$room/$1.pem" 2>/dev/null
}
certificate all
certificate stranger
tls=(--tls-cert "$room/all.pem" --tls-key "$room/all.key")
both=127.0.0.1:$p1,127.0.0.1:$p2
names n1 "$p1" "${short[@]}" --peer "127.0.0.1:$p2" "${tls[@]}" --peer-ca "$room/all.pem"
names n2 "$p2" "${short[@]}" --peer "127.0.0.1:$p1" "${tls[@]}" --peer-ca "$room/all.pem"
start --nameserver "namess://127.0.0.1:$p1" --nameserver-ca "$room/all.pem" --register-every 200ms "${tls[@]}"
unset MILLRACE_BROKER
work w8 --nameserver "namess://127.0.0.1:$p2" --register-every 200ms -q web --tls-ca "$room/all.pem"
secure() { m --quiet nameserver status --nameserver "namess://$both" --json --tls-ca "$room/all.pem" 2>/dev/null | jq -r "$1"; }
in_step() { [ "$(secure '[.nameservers[] | .servers, .workers] | join(" ")')" = "1 1 1 1" ]; }
until_true in_step
expect 0 enqueue --broker "namess://$both" --tls-ca "$room/all.pem" -q web --wait --wait-timeout 20s
refuses 6 "127.0.0.1:$p1" nameserver status --nameserver "127.0.0.1:$p1"
refuses 6 "127.0.0.1:$p1" nameserver status --nameserver "namess://127.0.0.1:$p1" --tls-ca "$room/stranger.pem"
ends_with w8 TERM 0
stop 0
ends_with n1 TERM 0
ends_with n2 TERM 0
echo "nameservers are fine"
