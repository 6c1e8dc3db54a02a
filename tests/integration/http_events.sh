#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# /events over HTTP: everything there is, then what changes; who comes back goes on where it was, a reader that is stuck is
# dropped and holds nobody up, tokens see what is theirs.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/http_lib.bash"
start
errs 400 INVALID GET "/api/v1/events?queue=%01"
errs 403 DENIED GET /api/v1/events -H 'Origin: http://evil.example'
few=$(m token create --role viewer --queue 'few*' --json)
export EVENTS_HTTP=$http
EVENTS_TOKEN=$(jq -r .token <<<"$few") EVENTS_TOKEN_ID=$(jq -r .id <<<"$few")
export EVENTS_TOKEN EVENTS_TOKEN_ID
errs 403 DENIED GET "/api/v1/events?queue=other" -H "Authorization: Bearer $EVENTS_TOKEN"
errs 403 DENIED GET /api/v1/events -H "Authorization: Bearer $(token --role worker)"
"$here/http_events.py"
grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
stop 0
