#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# serve --alarm: a command, or a signed POST, is told once of each firing that failed and of each misfire that is not made
# up for; one that cannot be reached is a line in the log, and holds up nobody.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

fails() { m --quiet work -q fails --burst -- sh -c 'echo broken >&2; exit 1' >/dev/null 2>&1 || true; }
lines() { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }
# once FILE: the events in it, sorted.
events() { jq -r '"\(.event) \(.app) \(.timer)"' "$1" | sort; }

# ---- a command -----------------------------------------------------------------------------------

start --alarm "cat >>'$room/told'"
expect 0 timer create bad --manual -q fails --retry 0
expect 0 timer create good --manual -q fine
expect 0 timer run bad
expect 0 timer run good
m --quiet work -q fine --burst -- cat >/dev/null
fails
until_true lines "$room/told" 1
expect 0 timer run bad
fails
until_true lines "$room/told" 2
is "what was told" $'failed default bad\nfailed default bad' "$(events "$room/told")"
is "of which task" "$(m timer history bad --json | jq -r '.[].task_id' | sort)" "$(jq -r .task_id "$room/told" | sort)"
is "why" 2 "$(jq -r .reason "$room/told" | grep -c broken)"
is "two events" 2 "$(jq -r .id "$room/told" | sort -u | wc -l)"

# What was planned while no server was there, and is not made up for.
expect 0 timer create skipped --every 200ms --misfire skip -q nobody
stop 0
is "nobody is told more than that" 2 "$(wc -l <"$room/told")"
sleep 0.6 # no condition: time has to pass without a server
start --timer-misfire 100ms --alarm "cat >>'$room/told'"
until_true lines "$room/told" 3
is "the misfire" 'misfired default skipped' "$(events "$room/told" | tail -n 1)"
# On a busy machine there are more behind it, of one time each.
is "from when to when" true "$(sed -n 3p "$room/told" | jq '.until_ms >= .planned_ms')"
expect 0 timer rm skipped
stop 0

# ---- a URL ---------------------------------------------------------------------------------------

cat >"$room/hook.py" <<'PYTHON'
import hashlib, hmac, http.server, sys

room = sys.argv[1]
refuse = 1  # the first try, which is repeated


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        global refuse
        body = self.rfile.read(int(self.headers["Content-Length"]))
        want = "sha256=" + hmac.new(b"pepper", body, hashlib.sha256).hexdigest()
        good = self.headers["Millrace-Signature"] == want and self.path == "/hook?x=1"
        good = good and self.headers["Content-Type"] == "application/json"
        self.send_response(500 if refuse else 204 if good else 403)
        self.end_headers()
        name = "tried" if refuse else "posted" if good else "wrong"
        refuse = 0
        with open(room + "/" + name, "ab") as file:
            file.write(body)

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
with open(room + "/hook.port.new", "w") as file:
    file.write(str(server.server_address[1]))
import os

os.rename(room + "/hook.port.new", room + "/hook.port")
server.serve_forever()
PYTHON
python3 "$room/hook.py" "$room" &
servers+=("$!")
until_true test -e "$room/hook.port"
echo pepper >"$room/secret"
start --alarm "http://127.0.0.1:$(cat "$room/hook.port")/hook?x=1" --alarm-secret-file "$room/secret"
expect 0 timer run bad
fails
until_true lines "$room/posted" 1
is "posted" 'failed default bad' "$(events "$room/posted")"
is "the same event as was tried first" "$(jq -r .id "$room/tried")" "$(jq -r .id "$room/posted")"
[ ! -e "$room/wrong" ] || fail "a wrong signature: $(cat "$room/wrong")"
stop 0

# ---- somebody who is not there -------------------------------------------------------------------

start --alarm 'exit 3'
expect 0 timer run bad
fails
has_failed() { [ "$(m --quiet timer history bad --limit 1 --json | jq -r '.[0].state')" = failed ]; }
until_true has_failed
stop 0 # which does not wait for the next try
grep -q 'event=alarm.failed .*it ended with 3' "$room/server.err" || fail "not said: $(cat "$room/server.err")"
refuses 2 'is no URL' serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --alarm 'http://'
refuses 2 'neither a command nor' serve --data "$data" --alarm 'ftp://there/x'
echo >"$room/empty"
refuses 2 'is empty' serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --alarm http://x/ --alarm-secret-file "$room/empty"
refuses 2 'needs --alarm' serve --data "$data" --alarm-secret-file "$room/secret"
refuses 3 'cannot use the secret' serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --alarm http://x/ --alarm-secret-file "$room/none"
