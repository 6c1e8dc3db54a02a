#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Debian's gRPC for Python as producer and worker, from the .proto files alone: in the clear, and with
# mutual TLS and a token.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/../integration/cli_lib.bash"
source "$here/../integration/serve_lib.bash"

run_python() { timeout 120 /usr/bin/python3 "$here/python/interop.py" "$here/../../proto" "$@"; }

start
run_python "$grpc"
stop 0

certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
        -keyout "$room/$1.key" -out "$room/$1.pem" 2>/dev/null
}
certificate server
certificate client
data=$room/secure
m token create --role admin --data "$data" >"$room/token"
start --grpc 0.0.0.0:0 --tls-cert "$room/server.pem" --tls-key "$room/server.key" \
    --tls-ca "$room/client.pem"
run_python "127.0.0.1:${grpc##*:}" --tls "$room/server.pem" "$room/client.pem" "$room/client.key" \
    --token "$room/token"
stop 0
