#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What a newer version has written is refused by every command, with one line that says so and exit code 1, and left as it is; and
# what clients of an earlier version relied on over HTTP is still there. With MR_GOLDEN=make the next list of that is written.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
golden=$here/../golden
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
source "$here/redis_lib.bash"

# ---- a folder -----------------------------------------------------------------------------------

m --broker "$store" enqueue --id t x >/dev/null
cp -r "$room/store" "$room/old"
cp -r "$room/store" "$room/board"

# newer FOLDER FILE AT...: one of its files gets a higher version, which stands at these places in it; nobody opens the folder now.
newer() {
    local folder=$1 file=$2 at before command
    shift 2
    for at; do
        printf '\2' | dd of="$folder/$file" bs=1 seek="$at" conv=notrunc status=none
    done
    before=$(cd "$folder" && cat meta board log-* | sha256sum)
    for command in 'enqueue x' 'queue list' 'task show t' 'work --burst -- cat' "backup $room/copy" fsck 'fsck --repair'; do
        # shellcheck disable=SC2086
        refuses 1 "$file: format version 2 is newer than this program knows" --broker "file:$folder" $command
    done
    refuses 1 'format version 2 is newer' serve --data "$folder" --listen 127.0.0.1:0 --grpc 127.0.0.1:0
    is "the store is left alone" "$before" "$(cd "$folder" && cat meta board log-* | sha256sum)"
}

# Its description, twice in the file, is looked at before anything that a version may change.
newer "$room/store" meta 8 4104
newer "$room/board" board 8
is "the same in its own version" pending "$(m --broker "file:$room/old" task show t --json | jq -r .state)"

# ---- a database, tokens -------------------------------------------------------------------------

start
curl -sf "http://$http/openapi.json" | "$golden/flat_openapi.py" >"$room/routes" || fail "no openapi.json"
kill "$server"
ends 0
unset MILLRACE_BROKER
python3 -c "import sqlite3; d = sqlite3.connect('$data/store.db'); d.execute('UPDATE meta SET schema = 99'); d.commit()"
refuses 1 'schema 99' serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0
rm "$data"/store.db*
echo "millrace-tokens 2" >"$data/tokens"
chmod 600 "$data/tokens"
refuses 1 'version' serve --data "$data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0
is "the tokens are left alone" "millrace-tokens 2" "$(cat "$data/tokens")"

# ---- a Redis ------------------------------------------------------------------------------------

redis_start main
m --broker "$redis" enqueue --id t x >/dev/null
redis-cli -p "$redis_port" set asynq:mr:format 2 >/dev/null
for command in 'enqueue x' 'queue list' 'work --burst -- cat' fsck 'bench --only redis-process' \
    'bench --only redis-latency-p99'; do
    # shellcheck disable=SC2086
    refuses 1 'format version 2' --broker "$redis" $command
done
refuses 1 'format version 2' --broker "$redis" serve --data "$room/none" --listen 127.0.0.1:0 --grpc 127.0.0.1:0

# ---- HTTP ---------------------------------------------------------------------------------------

number=1
for (( ; ; number++)); do
    [ -e "$golden/http/$number.txt" ] || break
    missing=$(LC_ALL=C comm -23 "$golden/http/$number.txt" "$room/routes")
    [ -z "$missing" ] || fail "of version $number of the HTTP API is missing:"$'\n'"$(head -n 5 <<<"$missing")"
done
if [ "${MR_GOLDEN:-}" = make ]; then
    mkdir -p "$golden/http"
    (set -o noclobber && cat "$room/routes" >"$golden/http/$number.txt")
    number=$((number + 1))
fi
[ "$number" -gt 1 ] || fail "there is no list of routes in $golden/http"
unlisted=$(LC_ALL=C comm -13 <(LC_ALL=C sort -u "$golden"/http/*.txt) "$room/routes")
[ -z "$unlisted" ] || fail "in no list of $golden/http, where MR_GOLDEN=make puts it:"$'\n'"$(head -n 5 <<<"$unlisted")"
