#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Node's @grpc/grpc-js as producer and worker, from the .proto files alone: in the clear, and with
# mutual TLS and a token. The packages are those of the lock file, kept in the build folder.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/../integration/cli_lib.bash"
source "$here/../integration/serve_lib.bash"

packages=${MR_BINARY_DIR:?is set by ctest: the build folder}/interop-node
if ! cmp -s "$here/node/package-lock.json" "$packages/installed.json"; then
    mkdir -p "$packages"
    cp "$here/node/package.json" "$here/node/package-lock.json" "$packages"
    (cd "$packages" && npm ci --no-audit --no-fund --loglevel=error)
    cp "$here/node/package-lock.json" "$packages/installed.json"
fi
cp "$here/node/interop.mjs" "$packages"

run_node() { timeout 120 node "$packages/interop.mjs" "$here/../../proto" "$@"; }

start
run_node "$grpc"
stop 0

certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
        -keyout "$room/$1.key" -out "$room/$1.pem" 2>/dev/null
}
certificate server
certificate client
data=$room/secure
m token create --role admin --data "$data" >"$room/token" 2>/dev/null
start --grpc 0.0.0.0:0 --tls-cert "$room/server.pem" --tls-key "$room/server.key" \
    --tls-ca "$room/client.pem"
run_node "127.0.0.1:${grpc##*:}" "$room/server.pem" "$room/client.pem" "$room/client.key" "$room/token"
stop 0
