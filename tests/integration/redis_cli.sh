#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The command line on a Redis of its own: every command, what it can lose, and what is refused how.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

redis_start main 'appendonly yes' 'appendfsync everysec'
export MILLRACE_BROKER=$redis

# ---- every command --------------------------------------------------------------------------

id=$(m enqueue -q mail hello)
is "in Asynq's list" "$id" "$(r lrange 'asynq:{mail}:pending' 0 -1)"
is "known to Asynq" mail "$(r smembers asynq:queues)"
is "state" pending "$(m task show "$id" --json | jq -r .state)"
is "payload" hello "$(m task show "$id" --json | jq -r .payload)"
is "listed" "$id" "$(m task list -q mail --json | jq -r '.[].id')"
m work -q mail --burst --quiet -- sh -c 'tr a-z A-Z'
is "result" HELLO "$(m task show "$id" --json | jq -r .result)"
is "counted" 1 "$(m queue show mail --json | jq -r .processed_total)"
is "waited for" done "$(
    "$MILLRACE" work -q wait --quiet -- echo done &
    worker=$!
    m enqueue -q wait --wait --wait-timeout 20s x
    kill "$worker"
)"

m queue set slow --rate 3/200ms --quiet
seq 7 | m enqueue -q slow --lines --quiet
m work -q slow --burst --quiet -- true
is "none is left behind a rate" 0 "$(m queue show slow --json | jq -r .pending)"

# What is meant for a stream that is closed does not go to the connection.
"$MILLRACE" enqueue -q closed x <&- >&- 2>&- && fail "the id could not be printed"
is "given in" 1 "$(m queue show closed --json | jq -r .pending)"
"$MILLRACE" work -q closed --burst -- cat <&- >&- 2>&-
is "and run" '0 1' "$(m queue show closed --json | jq -r '[.pending,.processed_total]|join(" ")')"

printf '%s\n' a b c | m enqueue -q bulk --lines --quiet
is "lines" 3 "$(m queue show bulk --json | jq -r .pending)"
m queue pause bulk --quiet
is "paused" true "$(m queue show bulk --json | jq -r .paused)"
m queue resume bulk --quiet
m queue set bulk --max-length 3 --quiet
refuses 1 'maximum length' enqueue -q bulk d
m queue rm bulk --force --quiet
refuses 3 'queue bulk' queue show bulk

refused=$(m enqueue -q mail --delay 1h later)
m task run "$refused" --quiet
is "run now" pending "$(m task show "$refused" --json | jq -r .state)"
m task archive "$refused" --quiet
is "archived" "$refused" "$(m dead list --json | jq -r '.[].id')"
m dead requeue "$refused" --quiet
m task cancel "$refused" --quiet
m task delete "$refused" --quiet
refuses 3 "$refused" task show "$refused"
m enqueue -q mail --id twice x --quiet >/dev/null
refuses 4 'twice' enqueue -q mail --id twice x
refuses 4 'twice' enqueue -q other --id twice x
m task why twice >/dev/null
expect 0 node list
refuses 2 'not supported' backup "$room/copy"
r acl setuser led on '>x' '~asynq:{*' '~asynq:[^m]*' '~asynq:mr:[^c]*' '&*' +@all >/dev/null
refuses 5 'cannot see who leads' --broker "${redis/:\/\//:\/\/led:x@}" node leader
refuses 3 'nobody has led' node leader
r acl setuser poor on '>x' '~*' '&*' +@all -zadd >/dev/null # which is given by a script
refuses 5 'cannot enqueue' --broker "${redis/:\/\//:\/\/poor:x@}" enqueue -q mail --priority 5 x

# ---- namespaces -----------------------------------------------------------------------------

m enqueue --namespace blue -q mail --id sky x >/dev/null
is "apart" sky "$(r lrange 'blue:asynq:{mail}:pending' 0 -1)"
refuses 3 sky task show sky
is "there" pending "$(m task show sky --namespace blue --json | jq -r .state)"

# ---- what it can lose -----------------------------------------------------------------------

line='this Redis (appendonly yes, appendfsync everysec, maxmemory-policy noeviction, replicas 0, wait-replicas 0) can lose the last second of acknowledged work in a crash'
for command in 'queue list' 'queue show mail' 'work -q none --burst -- cat'; do
    # shellcheck disable=SC2086
    expect 0 $command
    grep -qF "$line" err || fail "$command: $(cat err)"
done
expect 0 queue list --quiet
is "quiet" "" "$(cat err)"
expect 0 queue list --json
is "with --json" "" "$(cat err)"
expect 0 queue list --wait-replicas 2
grep -q 'wait-replicas 2) acknowledges nothing: it has fewer replicas' err || fail "$(cat err)"

# ---- waiting for replicas -------------------------------------------------------------------

refuses 7 'not enough replicas have it' enqueue --wait-replicas 1 x
MILLRACE_WAIT_REPLICAS=1 refuses 7 'not enough replicas have it' enqueue x
MILLRACE_WAIT_REPLICAS=lots refuses 2 'MILLRACE_WAIT_REPLICAS: "lots" is not a whole number' enqueue x
refuses 2 '--wait-replicas' enqueue --wait-replicas -1 x
refuses 2 '--wait-replicas is for a Redis' --broker "$store" enqueue --wait-replicas 1 x

# ---- the archive ----------------------------------------------------------------------------

figures() { m queue show gone --json | jq -r '[.archived,.trimmed,.quarantined]|join(" ")'; }
printf '%s\n' a b c d e | m enqueue -q gone --lines --quiet
m work -q gone --burst --quiet --archive-max 3 -- sh -c 'exit 100'
is "trimmed by the flag" '3 2 0' "$(figures)"
m enqueue -q gone --quiet x >/dev/null
MILLRACE_ARCHIVE_MAX=1 m work -q gone --burst --quiet -- sh -c 'exit 100'
is "trimmed by the variable" '1 5 0' "$(figures)"
r zincrby 'asynq:{gone}:archived' -10 "$(r zrange 'asynq:{gone}:archived' 0 0)" >/dev/null
m enqueue -q gone --quiet x >/dev/null
MILLRACE_ARCHIVE_MAX=9 m work -q gone --burst --quiet --archive-for 5s -- sh -c 'exit 100'
is "trimmed by time" '1 6 0' "$(figures)"
expect 0 queue show gone
grep -q 'failed 7, trimmed off the archive 6' out || fail "$(cat out)"
refuses 2 '--archive-max' work --archive-max 0 -- cat
refuses 2 '--archive-for: "1ms" is below 1s' work --archive-for 1ms -- cat
MILLRACE_ARCHIVE_FOR=long refuses 2 'MILLRACE_ARCHIVE_FOR: "long" is not a duration' work -- cat
refuses 2 '--archive-max is for a Redis' --broker "$store" work --archive-max 1 -- cat
refuses 2 '--archive-for is for a Redis' config check --broker "$store" --archive-for 1d

# ---- partitions -----------------------------------------------------------------------------

m queue set wide --partitions 4 --assign consistent-hash --quiet
seq 40 | m enqueue -q wide --lines --quiet
for list in wide 'wide~2' 'wide~3' 'wide~4'; do
    is "round robin: $list" 10 "$(r llen "asynq:{$list}:pending")"
done
is "one queue" 'wide 4 40' "$(m queue show wide --json | jq -r '[.queue,.partitions,.pending]|join(" ")')"
is "in the list" wide "$(m queue list --json | jq -r '.[].queue' | grep wide)"
expect 0 queue show wide
grep -q '4 partitions, consistent-hash' out || fail "$(cat out)"
is "how, as JSON" consistent-hash "$(m queue show wide --json | jq -r .assign)"
refuses 2 'wide~2 is a partition of queue wide; set that one' queue set 'wide~2' --partitions 2
m queue set 'outer~2' --partitions 2 --quiet
refuses 4 'so it cannot be a partition of outer' queue set outer --partitions 2
refuses 2 'has at most 125 bytes' queue set "$(printf '%0126d' 0)" --partitions 2
r del asynq:mr:parts >/dev/null
expect 0 fsck --repair "$redis"
grep -q 'queue wide: its partitions: not in the table of all that have some: written again' out err || fail "$(cat out err)"
is "one queue again" 'wide 4 40' "$(m queue show wide --json | jq -r '[.queue,.partitions,.pending]|join(" ")')"
id=$(m enqueue -q wide --partition 3 named)
is "obeyed" 'wide 3' "$(m task show "$id" --json | jq -r '[.queue,.partition]|join(" ")')"
expect 0 task show "$id"
grep -q '^partition  *3$' out || fail "$(cat out)"
refuses 2 'queue wide has no partition 5' enqueue -q wide --partition 5 x
is "as JSON" 2 "$(m enqueue --json '{"queue":"wide","partition":2,"payload":"x"}' | jq -r .id |
    xargs "$MILLRACE" task show --json | jq .partition)"
keyed=$(for _ in 1 2 3; do m task show "$(m enqueue -q wide --key same x)" --json | jq .partition; done | sort -u)
is "a key has one partition" 1 "$(wc -l <<<"$keyed")"
m queue set wide --partitions 2 --quiet
expect 0 fsck "$redis"
expect 0 migrate --yes --queue wide "$redis" "file:$room/wide"
is "with its partitions" '2 consistent-hash' \
    "$(m --broker "file:$room/wide" queue show wide --json | jq -r '[.partitions,.assign]|join(" ")')"
is "moved" 45 "$(m --broker "file:$room/wide" queue show wide --json | jq .pending)"
expect 0 migrate --yes --queue wide "file:$room/wide" "$redis"
is "and back" 45 "$(m queue show wide --json | jq .pending)"
m queue resume wide --quiet
m work -q wide --burst --quiet -- cat
is "worked off" '0 45' "$(m queue show wide --json | jq -r '[.pending,.processed_total]|join(" ")')"
expect 0 fsck "$redis"
m queue rm wide --force --quiet
is "nothing is left" '' "$(r --scan --pattern 'asynq:{wide*')"
is "its partitions stay known" "1 4 0" "$(r hget asynq:mr:parts wide)"

# ---- refused --------------------------------------------------------------------------------

r config set maxmemory 1 >/dev/null
refuses 1 'the memory of this Redis is full (maxmemory): new work is refused until there is space' enqueue x
! grep -q script err || fail "$(cat err)"
r config set maxmemory 0 >/dev/null

for url in redis:// redis://:6379 redis://host:port redis://host:99999 redis://h/x 'redis://a:1,b:2' redis+unix: \
    redis+sentinel://h:1 redis+cluster:// rediss:// redis+other://h 'redis://half%2@h'; do
    refuses 2 "${url%%:*}" --broker "$url" queue list
done
refuses 2 'braces' enqueue -q 'a{b}' x
refuses 2 'rediss://' --broker "$redis" --tls-ca "$room/none.pem" queue list

# aside CODE TEXT ARG...: refuses, in the background, since an open waits for a broker that is away.
asides=()
aside() {
    (
        room=$(mktemp -d -p "$room")
        refuses "$@"
    ) &
    asides+=($!)
}
aside 6 "127.0.0.1:1" --broker redis://127.0.0.1:1 queue list
aside 6 'nobody listens there' --broker redis://127.0.0.1:1 bench --only redis-process
aside 6 'nobody listens there' --broker redis://127.0.0.1:1 bench --only redis-latency-p99
aside 6 "$room/none" --broker "redis+unix:$room/none" queue list
aside 6 "127.0.0.1:$redis_port: no connection in time" --broker "rediss://127.0.0.1:$redis_port" queue list
aside 6 '127.0.0.1:1' serve --data "$room/none" --broker redis://127.0.0.1:1 --listen 127.0.0.1:0 --grpc 127.0.0.1:0

redis_start locked 'requirepass secret'
for url in "$redis" "redis://:wrong@127.0.0.1:$redis_port" "redis://nobody:secret@127.0.0.1:$redis_port"; do
    refuses 5 "127.0.0.1:$redis_port" --broker "$url" fsck
    refuses 5 "127.0.0.1:$redis_port" --broker "$url" queue list
    line=$(cat err)
    for row in redis-process redis-latency-p99; do
        refuses 5 "$line" --broker "$url" bench --only "$row"
    done
    ! grep -qE 'wrong|secret' err || fail "a password was shown: $(cat err)"
done
expect 0 --broker "redis://:secret@127.0.0.1:$redis_port" queue list
m --broker "redis://default:secret@127.0.0.1:$redis_port/3" enqueue x >/dev/null
is "its database" 1 "$(r -a secret --no-auth-warning -n 3 llen 'asynq:{default}:pending')"

redis_start replica "replicaof 127.0.0.1 ${MILLRACE_BROKER##*:}"
aside 6 'replica' --broker "$redis" enqueue x
aside 6 'is a read-only replica' --broker "$redis" bench --only redis-process
in_step() { r info replication | grep -q 'master_link_status:up'; }
until_true in_step
expect 0 enqueue --wait-replicas 1 x
expect 0 queue list --wait-replicas 1
grep -q 'replicas 1, wait-replicas 1) can lose the last second' err || fail "$(cat err)"

# odd VERSION: starts something at $odd that says it is a Redis of this version, and otherwise OK to everything.
odd() {
    rm -f "$room/odd-port"
    python3 "$room/odd.py" "$room/odd-port" "$1" 2>/dev/null &
    servers+=($!)
    until_true test -s "$room/odd-port"
    odd=redis://127.0.0.1:$(cat "$room/odd-port")
}
cat >"$room/odd.py" <<'PYTHON'
import os, socket, sys, threading

INFO = b"# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\n" % sys.argv[2].encode()

def serve(client):
    stream = client.makefile("rwb")
    while line := stream.readline():
        words = []
        for _ in range(int(line[1:])):
            words.append(stream.read(int(stream.readline()[1:]) + 2)[:-2])
        info = words[0].upper() == b"INFO"
        stream.write(b"$%d\r\n%s\r\n" % (len(INFO), INFO) if info else b"+OK\r\n")
        stream.flush()

listener = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
PYTHON

# A Redis that cannot be used says why, and that is no mistake in the URL.
odd 7.0.15
refuses 1 'an answer that makes no sense' --broker "$odd" enqueue x
refuses 1 'an answer that makes no sense' --broker "$odd" queue list
odd garbage
refuses 2 'gives a version that cannot be read: garbage; 6.2.0 or newer is needed' --broker "$odd" enqueue x
odd 6.0.16
cluster=redis+cluster://${MILLRACE_BROKER##*/}
sentinel=redis+sentinel://${MILLRACE_BROKER##*/}/mymaster
for command in 'enqueue x' 'queue list' 'work -q none --burst -- cat' fsck 'bench --only redis-process' \
    'bench --only redis-recovery' "serve --data $room/none --listen 127.0.0.1:0"; do
    # shellcheck disable=SC2086
    refuses 2 'is version 6.0.16; 6.2.0 or newer is needed' --broker "$odd" $command
    # shellcheck disable=SC2086
    refuses 2 'is not part of a Cluster: use redis://' --broker "$cluster" $command
    # shellcheck disable=SC2086
    refuses 2 'it is no Sentinel: use redis://' --broker "$sentinel" $command
done

# ---- TLS ------------------------------------------------------------------------------------

certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1' -keyout "$room/$1.key" -out "$room/$1.pem" 2>/dev/null
}
certificate server
certificate client
redis_start tls 'port 0' 'tls-port PORT' "tls-cert-file $room/server.pem" "tls-key-file $room/server.key" \
    "tls-ca-cert-file $room/client.pem" 'tls-auth-clients yes'
tls=rediss://127.0.0.1:$redis_port
ours=(--tls-cert "$room/client.pem" --tls-key "$room/client.key")
m --broker "$tls" --tls-ca "$room/server.pem" "${ours[@]}" enqueue -q mail safe >/dev/null
m --broker "rediss://localhost:$redis_port" --tls-ca "$room/server.pem" "${ours[@]}" work -q mail --burst --quiet -- cat
aside 6 'certificate' --broker "$tls" "${ours[@]}" queue list
aside 6 "127.0.0.1:$redis_port" --broker "$tls" --tls-ca "$room/server.pem" queue list
refuses 2 '--tls-cert needs --tls-key' --broker "$tls" --tls-cert "$room/client.pem" queue list
refuses 3 '--tls-ca: cannot read' --broker "$tls" --tls-ca "$room/nowhere" queue list
aside 6 "127.0.0.1:$redis_port" --broker "redis://127.0.0.1:$redis_port" queue list
data=$room/secure
start --broker "$tls" --broker-tls-ca "$room/server.pem" --broker-tls-cert "$room/client.pem" \
    --broker-tls-key "$room/client.key"
is "through the server" 1 "$(m queue show mail --json | jq .completed)"
stop 0

# ---- a server in front of it ----------------------------------------------------------------

redis_start front
data=$room/front
start --broker "$redis" --archive-max 1
grep -q 'this Redis (appendonly no' "$room/server.err" || fail "serve: $(cat "$room/server.err")"
id=$(m enqueue -q mail through)
is "in the Redis" "$id" "$(r lrange 'asynq:{mail}:pending' 0 -1)"
m work -q mail --burst --quiet -- cat
is "done" through "$(m task show "$id" --json | jq -r .result)"
printf '%s\n' a b c | m enqueue -q gone --lines --quiet
m work -q gone --burst --quiet -- sh -c 'exit 100'
is "trimmed by the server's setting" '1 2 0' "$(figures)"
is "ready" 'ready 200' "$(get /readyz)"
stop 0
refuses 2 'the URL of the Redis' config check --broker redis://host:port
refuses 2 '--wait-replicas is for a Redis' config check --wait-replicas 1
refuses 2 '--broker-tls-ca is for a Redis with TLS' config check --broker "$redis" --broker-tls-ca x
expect 0 config check --broker "$redis" --wait-replicas 2

# ---- fsck -----------------------------------------------------------------------------------

id=$(m --broker "$redis" enqueue -q torn lost)
expect 0 fsck "$redis"
is "task" 1 "$(r del "asynq:{torn}:t:$id")"
expect 1 fsck "$redis"
is "finding" "queue torn: $id: an id in pending of a task that is not there" "$(head -n 1 "$room/out")"
expect 0 fsck --repair "$redis"
expect 0 --json fsck "$redis"
is "fsck as JSON" 'true 0' "$(jq -r '[.ok,.damaged]|join(" ")' "$room/out")"
refuses 2 'give file:DIR or redis://HOST:PORT' fsck millrace://localhost

# ---- one queue that cannot be used ------------------------------------------------------------

r set 'asynq:{odd}:pending' oops >/dev/null
id=$(m --broker "$redis" enqueue -q even --retention 1h x)
"$MILLRACE" --broker "$redis" work -q odd -q even -- cat 2>"$room/odd.err" &
worker=$!
is_done() { [ "$(m --broker "$redis" task show "$id" --json | jq -r .state)" = completed ]; }
until_true is_done
until_true grep -q 'redis.refused error=FAILED text="queue odd: WRONGTYPE ' "$room/odd.err"
kill "$worker"
await "$worker"
is "the worker of the other" 0 "$code"
expect 1 --broker "$redis" work -q odd --burst --quiet -- cat
grep -q 'queue odd: WRONGTYPE' "$room/err" || fail "$(cat "$room/err")"
r sadd asynq:queues odd >/dev/null
refuses 1 'millrace: queue odd: WRONGTYPE' --broker "$redis" queue show odd
r srem asynq:queues odd >/dev/null
refuses 2 'a host must be HOST:PORT' --broker 'redis://a b:1' enqueue x
expect 1 fsck "$redis"
is "odd key" 'queue odd: pending: a key of a type that is not ours' "$(grep 'queue odd: pending' "$room/out")"
is "gone" 1 "$(r del 'asynq:{odd}:pending')"

# ---- the bench, which leaves nothing behind --------------------------------------------------

export MILLRACE_BROKER=
expect 0 bench --broker "$redis" --seconds 0.2 --json --only redis-enqueue-batch --only redis-process \
    --only redis-latency-p99 --only redis-idle-commands
is "rows" 'redis-enqueue-batch redis-process redis-latency-p99 redis-idle-commands redis-idle-cpu' \
    "$(jq -r 'map(.name)|join(" ")' out)"
jq -e 'all(.[]; .yardstick_value > 0 and (.met|type == "boolean"))' out >/dev/null || fail "$(cat out)"
is "left behind" "" "$(r --scan | grep bench || true)"
refuses 2 'redis-memory is measured on a Redis' bench --only redis-memory
refuses 2 'disk is not measured at' bench --broker "$redis" --only disk

# ---- away -----------------------------------------------------------------------------------

export MILLRACE_BROKER=$redis
redis_kill
aside 6 "127.0.0.1:$redis_port" enqueue x
for pid in "${asides[@]}"; do
    await "$pid"
    is "refused aside" 0 "$code"
done
