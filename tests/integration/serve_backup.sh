#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is of every queue of a server: a backup, which is made on the disk of the server, and figures.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
unset MILLRACE_TOKEN MILLRACE_TOKEN_FILE

start
m --quiet enqueue -q bank --id kept x >/dev/null
m --quiet enqueue -q mail-in x >/dev/null

m --quiet token create --role admin --queue 'mail-*' >"$room/mail"
refuses 5 'a backup is of every queue' --token-file "$room/mail" backup "$room/copy"
[ ! -e "$room/copy" ] || fail "there is a copy"
expect 2 backup copy
grep -q 'copy: the copy is made on the machine of the server' "$room/err" || fail "$(cat "$room/err")"
[ ! -e copy ] || fail "there is a copy"
expect 0 timer create nightly --manual
m --quiet token create --role admin >"$room/admin"
expect 0 backup "$room/copy"
grep -q "copied to $room/copy, on the server's machine" "$room/err" || fail "$(cat "$room/err")"
is "in the copy" pending "$(m --broker "file:$room/copy" task show kept --json | jq -r .state)"
is "a timer in the copy" manual "$(m --broker "file:$room/copy" timer show nightly --json | jq -r .kind)"
# Who had a token before has it in a server on the copy; its file is as secret as it was.
is "tokens in the copy" "$(m token list --json | jq -c .)" "$(m token list --data "$room/copy" --json | jq -c .)"
is "who may read tokens" "$(stat -c %a "$data/tokens")" "$(stat -c %a "$room/copy/tokens")"
is "who may read them" 640 "$(stat -c %a "$room/copy/store.db")"
expect 0 --broker "file:$room/copy" backup "$room/second"
is "in the copy of a folder" manual "$(m --broker "file:$room/second" timer show nightly --json | jq -r .kind)"
expect 0 --broker "file:$room/plain" enqueue x
expect 0 --broker "file:$room/plain" backup "$room/third"
[ ! -e "$room/third/store.db" ] || fail "timers of a folder without any"

m --quiet token create --role viewer --queue 'mail-*' >"$room/mail"
figures() { m "$@" top --once --json | jq -r '.. | objects | select(has("disk_bytes")) | "\(.tasks) \(.disk_bytes > 0)"'; }
is "figures for everybody" '2 true' "$(figures)"
is "figures of some queues" '1 false' "$(figures --token-file "$room/mail")"
expect 0 --token-file "$room/mail" top --once
grep -q 'tasks 1' "$room/out" || fail "$(cat "$room/out")"
! grep -q 'disk' "$room/out" || fail "$(cat "$room/out")"
stop 0
