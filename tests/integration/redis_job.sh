#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Jobs of a server on a Redis: a worker straight on it, and the server is killed on the way.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

redis_start main
start --broker "$redis"
seq 1 60 | sed 's/^/line /' >lines

# On the Redis itself nobody knows of jobs.
MILLRACE_BROKER=$redis refuses 2 'are with a server' job list
MILLRACE_BROKER=$redis refuses 2 'are with a server' job submit lines

# A worker that knows nothing of the server, and a server that dies on the way.
"$MILLRACE" --broker "$redis" --quiet work -c 2 -- sh -c 'tr a-z A-Z; sleep 0.02' >/dev/null 2>&1 &
servers+=("$!")
m job submit lines >id
done_is() { [ "$(m job show "$(cat id)" --json | jq .done)" -ge "$1" ]; }
until_true done_is 10
kill -9 "$server"
wait "$server" 2>/dev/null || true
start --broker "$redis"
expect 0 job watch "$(cat id)"
is "the result" "$(tr a-z A-Z <lines | md5sum)" "$(m job result "$(cat id)" | md5sum)"
stop 0
