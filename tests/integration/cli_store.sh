#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folder behind a file: URL: backup, fsck, damage, and folders that cannot be used.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
export MILLRACE_BROKER=$store

{ seq 500; echo a-payload-to-be-found; seq 501 999; } | m enqueue -q a --lines >"$room/ids"

# A sound store.
expect 0 fsck "$store"
grep -q '^1 segment, .* 1000 tasks' "$room/out" || fail "$(cat "$room/out")"
expect 0 --json fsck
is "fsck as JSON" 'true 1000 0' "$(jq -r '[.ok,.tasks,.damaged]|join(" ")' "$room/out")"

# A new one takes as much of the disk as its log files are long.
MILLRACE_LOG_SEGMENT=4MiB m --broker "file:$room/small" enqueue x >/dev/null
MILLRACE_LOG_SEGMENT=16MiB m --broker "file:$room/large" enqueue x >/dev/null
is "files of the log" "$((4 << 20)) $((16 << 20))" "$(stat -c %s "$room"/small/log-* "$room"/large/log-* | sort -nu | xargs)"
MILLRACE_LOG_SEGMENT=1MiB refuses 2 'MILLRACE_LOG_SEGMENT: "1MiB" is below 4194304' --broker "file:$room/tiny" enqueue x
[ ! -e "$room/tiny" ]
refuses 2 '--log-segment: "2GiB" is over the limit of 1073741824' serve --log-segment 2GiB --data "$room/tiny"

# A limit on the size of files is an error as any other, and no signal.
(
    ulimit -f 1000
    refuses 1 ' MiB, and a limit on the size of files (ulimit -f)' \
        --broker "file:$room/short" enqueue x
)
expect 0 --broker "file:$room/short" enqueue x

# A backup is a store of its own.
expect 0 backup "$room/copy"
is "copied" 1000 "$(m --broker "file:$room/copy" queue show a --json | jq .pending)"
refuses 2 'copy: not empty' backup "$room/copy"
touch "$room/file"
refuses 2 'file: not a folder' backup "$room/file"
ln -s "$room/store" "$room/link"
for inside in "$room/store" "$room/store/copy/deep" "$room/copy/../store/copy" "$room/link/copy"; do
    refuses 2 'inside the store itself' backup "$inside"
done
expect 0 fsck "file:$room/copy"
m --quiet --broker "file:$room/copy" task delete -q a --yes
is "the original is not touched" 1000 "$(count a pending)"

# Damage in the middle is named, stops the start, and is set aside by --repair alone.
segment=$(grep -rlaF a-payload-to-be-found "$room/store" | sort | head -1)
offset=$(grep -aboF -m1 a-payload-to-be-found "$segment" | head -1 | cut -d: -f1)
printf 'damage' | dd of="$segment" bs=1 seek="$offset" conv=notrunc status=none
expect 1 fsck "$store"
grep -q 'damaged' "$room/err" || fail "$(cat "$room/err")"
grep -qF ': 1 damaged place, 0 mismatches; ' "$room/err" || fail "$(cat "$room/err")"
is "findings" 1 "$(grep -c 'at offset .*: damaged record' "$room/out")"
refuses 1 "$(basename "$segment")" queue list
expect 0 --json fsck --repair "$store"
is "repaired" 'true 0 1' "$(jq -r '[.ok,.damaged,.repaired]|join(" ")' "$room/out")"
expect 0 fsck "$store"
rest=$(count a pending)
((rest >= 700 && rest < 1000)) || fail "$rest tasks left of 1000"

# A lost meta file is told, and restored from the log; a lost log is told.
cp -r "$room/copy" "$room/lost"
rm "$room/lost/meta"
expect 1 fsck "file:$room/lost"
grep -q '^meta at offset 0: missing' "$room/out" || fail "$(cat "$room/out")"
is "a check changes nothing" no "$([ -e "$room/lost/meta" ] && echo yes || echo no)"
refuses 1 'millrace fsck --repair' --broker "file:$room/lost" queue list
expect 0 fsck --repair "file:$room/lost"
grep -q '1 damaged place repaired' "$room/err" || fail "$(cat "$room/err")"
expect 0 fsck "file:$room/lost"
rm "$room"/lost/log-*
refuses 1 'the log is missing' fsck "file:$room/lost"
refuses 1 'the log is missing' --broker "file:$room/lost" enqueue x

# A folder with something else under the name of a store's file is left as it is.
mkdir "$room/strange"
echo notes >"$room/strange/meta"
refuses 1 'strange/meta' --broker "file:$room/strange" enqueue x
is "nothing is left there" meta "$(ls -A "$room/strange")"

# A store in use is refused by name of the process that has it.
"$MILLRACE" --quiet work -q none -- true &
worker=$!
until_true grep -qx "$worker" "$room/store/lock"
refuses 6 "in use by process $worker;" fsck "$store"
kill "$worker"
wait "$worker" || true

# What is not a store, or not for us, is told apart and left as it is.
refuses 3 'nowhere' fsck "file:$room/nowhere"
refuses 2 'fsck checks a folder' fsck http://x
refuses 5 '/sys/store' --broker file:/sys/store enqueue x
refuses 5 '/proc/store: cannot make the folder: not allowed' --broker file:/proc/store enqueue x
echo text >"$room/plain"
refuses 1 plain --broker "file:$room/plain" enqueue x
refuses 1 'plain: not a folder' fsck "file:$room/plain"
refuses 1 'plain: not a folder' fsck --repair "file:$room/plain"
mkdir "$room/other"
echo text >"$room/other/notes"
refuses 1 other --broker "file:$room/other" enqueue x
is "a folder with other files" notes "$(ls -A "$room/other")"
mkdir "$room/fake"
echo text >"$room/fake/log-00000001"
refuses 1 'log-00000001' --broker "file:$room/fake" enqueue x
is "a file that is not a log" log-00000001 "$(ls -A "$room/fake")"
