#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# 108 and 110 of a server on a Redis with PostgreSQL, where the others of their numbers are on a folder with SQLite.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"
source "$here/postgres_lib.bash"
source "$here/job_lib.bash"

ulimit -n "$(ulimit -Hn)" || true
redis_start main
postgres_start
serve_args=(--broker "$redis" --store "$postgres")
start "${serve_args[@]}"
check_tokens
check_events
stop 0
