#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that the document of the server names, sent wrong: each field of each body, each parameter, bodies that are none.
# Each is refused with one clear line, and the server stays up.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
"$here/http_bad.py" "$http"
is "it is up" 200 "$(curl -s -o /dev/null -w '%{http_code}' "http://$http/livez")"
grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
