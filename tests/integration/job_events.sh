#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# 108: the events of jobs over HTTP, as a real server sends them to real connections. A thousand of them watch one job.
# On a Redis with PostgreSQL: job_shared.sh.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/job_lib.bash"

ulimit -n "$(ulimit -Hn)" || true
start
check_events
stop 0
