#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Who may use a server: tokens made, listed and revoked while it runs and while it does not, TLS on both
# ports, certificates of clients.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
unset MILLRACE_TOKEN MILLRACE_TOKEN_FILE

# id_of TOKEN
id_of() { cut -d_ -f2 <<<"$1"; }

# list_with TOKEN: the exit code of a call for admins.
list_with() {
    local code=0
    MILLRACE_TOKEN=$1 m token list >"$room/out" 2>"$room/err" || code=$?
    echo "$code"
}

# ---- without a server

refuses 3 "no store at $data" token list --data "$data"
refuses 3 "no store at $data" token revoke 000000000000 --data "$data"
refuses 2 '/dev/null is not a folder' token create --role admin --data /dev/null
[ ! -e "$data" ] || fail "looking made a folder"
first=$(m --quiet token create --role admin --data "$data")
[[ $first =~ ^mr_[0-9a-f]{12}_[0-9a-f]{64}$ ]] || fail "the token is $first"
is "rights of the file" 600 "$(stat -c %a "$data/tokens")"
! grep -q "${first##*_}" "$data/tokens" || fail "the secret is in the file"
spare=$(m --quiet token create --role viewer --queue 'mail-*' --priority-max 10 --quota 5 --data "$data")
is "as JSON" "viewer mail-* 10 5 0" \
    "$(m token list --data "$data" --json | jq -r '.[1]|[.role,.queue,.priority_max,.quota,.used]|join(" ")')"
m --quiet token revoke "$(id_of "$spare")" --data "$data"
is "revoked" 1 "$(m token list --data "$data" --json | jq '[.[]|select(.revoked_ms > 0)]|length')"
refuses 3 'no token 000000000000' token revoke 000000000000 --data "$data"
refuses 2 'is none of admin, producer, worker, viewer' token create --role king --data "$data"
refuses 2 '--role is missing' token create --data "$data"
refuses 6 'nobody listens' --broker millrace://127.0.0.1:1 token list

# ---- with one: on this machine no token is needed, but one that is shown counts

start
is "without a token" 2 "$(m token list --json | jq length)"
is "with the first one" 0 "$(list_with "$first")"
is "with a wrong one" 5 "$(list_with "${first%?}$([[ $first == *0 ]] && echo 1 || echo 0)")"
is "with a revoked one" 5 "$(list_with "$spare")"
grep -q 'was revoked' "$room/err" || fail "$(cat "$room/err")"
is "with nonsense" 5 "$(list_with nonsense)"
viewer=$(m --quiet token create --role viewer)
is "of another role" 5 "$(list_with "$viewer")"

# A revoke holds at once, for the server and on disk.
second=$(MILLRACE_TOKEN=$first m --quiet token create --role admin)
is "with the second one" 0 "$(list_with "$second")"
MILLRACE_TOKEN=$first m --quiet token revoke "$(id_of "$second")"
is "after the revoke" 5 "$(list_with "$second")"
grep -q "token=$(id_of "$first") .*method=Tokens/Revoke about=\"$(id_of "$second")\" result=OK" \
    "$room/server.err" || fail "no audit line: $(cat "$room/server.err")"
! grep -q "${second##*_}" "$room/server.err" || fail "a secret was written"

# A worker whose token goes ends and says so; it does not ask for ever.
hand=$(MILLRACE_TOKEN=$first m --quiet token create --role worker)
MILLRACE_TOKEN=$hand m work -- true >"$room/out" 2>"$room/err" &
worker=$!
until [ "$(m node list --json 2>"$room/err2" | jq length)" = 1 ]; do sleep 0.05; done
MILLRACE_TOKEN=$first m --quiet token revoke "$(id_of "$hand")"
code=0
wait "$worker" || code=$?
is "the end of its worker" 5 "$code"
grep -q 'was revoked\|denied' "$room/err" || fail "$(cat "$room/err")"

# Tokens come from a file as well.
printf '%s\n' "$first" >"$room/token"
is "from --token-file" 5 "$(m --token-file "$room/token" token list --json | jq length)"
is "from MILLRACE_TOKEN_FILE" 5 "$(MILLRACE_TOKEN_FILE=$room/token m token list --json | jq length)"
refuses 3 "$room/nowhere" --token-file "$room/nowhere" token list
: >"$room/empty"
refuses 2 'not a file with a token' --token-file "$room/empty" token list

# What the server says with a refusal reaches whoever asked.
m --quiet token create --role producer --queue 'mail-*' >"$room/mail"
refuses 5 'is for queues mail-*, not for bank' --token-file "$room/mail" enqueue -q bank hello
refuses 5 'is of a producer; this call is for admin' --token-file "$room/mail" queue pause mail-in
refuses 5 'is of a producer, who takes results, not tasks' --token-file "$room/mail" work -- cat
refuses 5 'is for queues and topics mail-*, not for news' --token-file "$room/mail" result take --topic news
# The results of jobs are nobody's but the server's: nobody takes them, and nobody makes them up.
refuses 5 "is the server's own" enqueue --topic millrace-jobs --id 01890000-0000-7000-8000-000000000000.1.0.0.0 x
refuses 5 "is the server's own" result take --topic millrace-jobs
m --quiet token revoke "$(id_of "$(cat "$room/mail")")"
stop 0

# ---- everybody needs one

start --require-token
refuses 5 'token' token list
is "with the first one" 0 "$(list_with "$first")"
is "revoked before the restart" 5 "$(list_with "$second")"
is "health needs none" 0 "$(call grpc.health.v1.Health/Check)"
is "nor over HTTP" 'ready 200' "$(get /readyz)"

# A file that was changed behind the server's back counts after SIGHUP; one that cannot be read does not.
cp "$data/tokens" "$room/tokens.kept"
sed -i "/^$(id_of "$first") /d" "$data/tokens"
kill -HUP "$server"
until_true grep -q 'tokens.reload live=1' "$room/server.err"
is "taken out of the file" 5 "$(list_with "$first")"
echo nonsense >"$data/tokens"
kill -HUP "$server"
until_true grep -q 'level=error event=tokens.reload' "$room/server.err"
cp "$room/tokens.kept" "$data/tokens"
kill -HUP "$server"
until_true grep -q 'tokens.reload live=2' "$room/server.err"
is "put back" 0 "$(list_with "$first")"
stop 0
echo nonsense >"$data/tokens"
refuses 1 "$data/tokens: not a file of tokens" serve --data "$data" --listen 127.0.0.1:0 \
    --grpc 127.0.0.1:0
cp "$room/tokens.kept" "$data/tokens"

# ---- TLS

make_key() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout "$room/$1.key" \
        -out "$room/$1.pem" 2>/dev/null
}
make_key server
make_key client
make_key stranger
# Long expired: only `openssl ca` makes such a one.
mkdir "$room/ca"
: >"$room/ca/index.txt"
echo 01 >"$room/ca/serial"
printf '[ca]\ndefault_ca=it\n[it]\ndatabase=%s\nserial=%s\nnew_certs_dir=%s\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n' \
    "$room/ca/index.txt" "$room/ca/serial" "$room/ca" >"$room/ca/conf"
openssl req -new -key "$room/server.key" -subj /CN=old -out "$room/ca/request" 2>/dev/null
openssl ca -batch -selfsign -config "$room/ca/conf" -keyfile "$room/server.key" -in "$room/ca/request" \
    -startdate 20200101000000Z -enddate 20200102000000Z -out "$room/old.pem" -notext 2>/dev/null

# secure ARG...: the status of /readyz over TLS, 000 when there is no answer.
secure() {
    curl -s -o /dev/null -w '%{http_code}' --cacert "$room/server.pem" "$@" \
        "https://localhost:${http##*:}/readyz" || true
}

start --listen 0.0.0.0:0 --grpc 0.0.0.0:0 --tls-cert "$room/server.pem" --tls-key "$room/server.key"
is "over TLS" 200 "$(secure)"
is "without trust" none "$(curl -s "https://localhost:${http##*:}/readyz" || echo none)"
is "below TLS 1.2" 000 "$(secure --tls-max 1.1)"
is "without TLS" none "$(curl -s "http://localhost:${http##*:}/readyz" || echo none)"
openssl s_client -connect "localhost:${grpc##*:}" -alpn h2 -CAfile "$room/server.pem" </dev/null \
    2>/dev/null | grep -q 'ALPN protocol: h2' || fail "no TLS on the gRPC port"
MILLRACE_BROKER=millraces://localhost:${grpc##*:} SSL_CERT_FILE=$room/server.pem m token list \
    >/dev/null || fail "no call over TLS"
refuses 6 'must have the name or address that --broker gives' --broker "millraces://127.0.0.2:${grpc##*:}" \
    --tls-ca "$room/server.pem" queue list
stop 0

start --tls-cert "$room/server.pem" --tls-key "$room/server.key" --tls-ca "$room/client.pem"
is "with a certificate" 200 "$(secure --cert "$room/client.pem" --key "$room/client.key")"
is "with a stranger's" 403 "$(secure --cert "$room/stranger.pem" --key "$room/stranger.key")"
is "with none" 403 "$(secure)"

# The command line shows the certificate, and says what is wrong with it before it connects.
export MILLRACE_BROKER=millraces://localhost:${grpc##*:}
expect 0 --tls-ca "$room/server.pem" --tls-cert "$room/client.pem" --tls-key "$room/client.key" queue list
MILLRACE_TLS_CA=$room/server.pem MILLRACE_TLS_CERT=$room/client.pem MILLRACE_TLS_KEY=$room/client.key \
    expect 0 token list
refuses 6 '--tls-cert' --tls-ca "$room/server.pem" queue list
refuses 6 'the server does not trust the certificate of --tls-cert' --tls-ca "$room/server.pem" \
    --tls-cert "$room/stranger.pem" --tls-key "$room/stranger.key" queue list
refuses 6 '--tls-ca FILE names whom to trust' --tls-ca "$room/stranger.pem" --tls-cert "$room/client.pem" --tls-key "$room/client.key" \
    queue list
refuses 2 '--tls-cert needs --tls-key beside it' --tls-cert "$room/client.pem" queue list
refuses 3 "--tls-ca: cannot read $room/none.pem: not found" --tls-ca "$room/none.pem" queue list
refuses 6 'it may want TLS: millraces://' --broker "millrace://$grpc" queue list
refuses 2 '--tls-ca is for a broker with TLS, millraces://HOST:PORT or rediss://HOST:PORT, not file:x' --broker file:x \
    --tls-ca "$room/server.pem" queue list
stop 0

refuses 3 "$room/none.pem" serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 \
    --tls-cert "$room/none.pem" --tls-key "$room/server.key"
for command in serve 'config check'; do
    # shellcheck disable=SC2086
    refuses 2 "--tls-key: TLS: cannot use the key $room/client.key: key values mismatch" $command --data "$data" \
        --tls-cert "$room/server.pem" --tls-key "$room/client.key"
done
refuses 3 "--tls-cert: cannot read $room/none.pem: not found" config check --tls-cert "$room/none.pem" \
    --tls-key "$room/none.key"
expect 0 config check --tls-cert "$room/server.pem" --tls-key "$room/server.key" --tls-ca "$room/client.pem"
expect 0 config check --tls-cert "$room/old.pem" --tls-key "$room/server.key"
grep -qF "TLS: the certificate $room/old.pem has expired: peers will not trust it" "$room/err" || fail "$(cat "$room/err")"
printf 'tls-cert: %s\ntls-key: %s\n' "$room/server.pem" "$room/client.key" >"$room/tls.yaml"
refuses 2 "$room/tls.yaml:2: tls-key: TLS: cannot use the key" config check "$room/tls.yaml"
