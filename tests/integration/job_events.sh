#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# 108: the events of jobs over HTTP, as a real server sends them to real connections. A thousand of them watch one job.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

ulimit -n "$(ulimit -Hn)" || true
start
token=$(m token create --role viewer --json | jq -r .token)
token_id=$(m token list --json | jq -r '.[0].id')
EVENTS_HTTP=$http EVENTS_TOKEN=$token EVENTS_TOKEN_ID=$token_id timeout 120 python3 "$here/job_events.py"
grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"

# A watch goes on over the death of the server, and misses no version.
seq 40 >lines
m job submit -q slow lines >id
m job watch "$(cat id)" --json >seen 2>watch.err &
watch=$!
servers+=("$watch")
until_true test -s seen
"$MILLRACE" --quiet work -q slow -c 1 -- sh -c 'cat; sleep 0.05' >/dev/null 2>&1 &
servers+=("$!")
until_true grep -q '"done":[1-9]' seen
kill -9 "$server"
wait "$server" || true
start --grpc "$grpc"
await "$watch"
is "how the watch ended" 0 "$code"
jq -s -e 'length > 3 and ([.[].version] | . == [range(.[0]; .[0] + length)])' seen >/dev/null ||
    fail "versions: $(jq -c .version seen | tr '\n' ' ')"
is "the end" 'succeeded 40' "$(tail -n 1 seen | jq -r '"\(.state) \(.done)"')"
stop 0
