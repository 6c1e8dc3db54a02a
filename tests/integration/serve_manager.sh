#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What a service manager hears from the server, through a real socket, and the unit that is installed.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

# A manager that writes down what it hears, with the time in ms.
python3 - "$room/notify" "$room/heard" <<'PYTHON' &
import socket, sys, time

manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(sys.argv[1])
with open(sys.argv[2], "a", buffering=1) as heard:
    while True:
        for word in manager.recv(4096).decode().split("\n"):
            print(int(time.monotonic() * 1000), word, file=heard)
PYTHON
servers+=($!)
until_true test -S "$room/notify"

export NOTIFY_SOCKET=$room/notify
WATCHDOG_USEC=400000 start
until_true grep -q 'READY=1' "$room/heard"
until_true eval '[ "$(grep -c WATCHDOG=1 "$room/heard")" -ge 5 ]'
# At half the interval, and never so late that it would have been taken for dead by a quiet machine.
grep WATCHDOG=1 "$room/heard" | awk 'NR > 1 && $1 - last < 150 { exit 1 } { last = $1 }' ||
    fail "more often than at half the interval: $(cat "$room/heard")"
kill -HUP "$server"
stop 0
until_true grep -q 'STOPPING=1' "$room/heard"
is "told once each" '1 1' "$(grep -c READY=1 "$room/heard") $(grep -c STOPPING=1 "$room/heard")"

# Without a watchdog none is fed; meant for another process, neither.
: >"$room/heard"
WATCHDOG_USEC=100000 WATCHDOG_PID=1 start
until_true grep -q 'READY=1' "$room/heard"
is livez 'live 200' "$(get /livez)"
stop 0
! grep -q WATCHDOG "$room/heard" || fail "fed: $(cat "$room/heard")"

# The units say what systemd understands.
for unit in millrace millrace-nameserver; do
    sed "s|/usr/bin/millrace|$MILLRACE|" "$(dirname "$(dirname "$here")")/packaging/$unit.service" >"$room/$unit.service"
    systemd-analyze verify --man=no "$room/$unit.service" >"$room/verify" 2>&1 ||
        fail "$(cat "$room/verify")"
    [ ! -s "$room/verify" ] || fail "$(cat "$room/verify")"
done
# Tasks have a folder, and backups one beside it, for it may write to no other.
grep -qx 'ExecStart=.* --data %S/millrace' "$room/millrace.service" &&
    grep -qx 'StateDirectory=millrace millrace-backup' "$room/millrace.service" ||
    fail "the unit has no folder for backups"
