#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Started without stdin, stdout or stderr, in every combination: what is meant for them goes nowhere, and never
# into the store, which holds all that was acknowledged. Input that cannot be read is no empty input.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

# without FDS CODE ARG...: the program without these descriptors; what it says on the others is in out and err.
without() {
    local fds=$1 want=$2 got=0 fd
    shift 2
    (
        for fd in $fds; do eval "exec $fd>&-"; done
        exec "$MILLRACE" "$@"
    ) </dev/null >"$room/out" 2>"$room/err" || got=$?
    [ "$got" -eq "$want" ] || fail "without $fds: exit code $got, not $want: millrace $* ($(cat "$room/err"))"
}

# says TEXT FDS: on stderr, where there is one.
says() { [[ $2 == *2* ]] || grep -qF -- "$1" "$room/err" || fail "without $2 it said: $(cat "$room/err")"; }

for fds in 0 1 2 '0 1' '0 2' '1 2' '0 1 2'; do
    export MILLRACE_BROKER=file:$room/without-${fds// /-}
    printf '%s\n' a b c | m enqueue --retention 1h --lines --quiet 2>/dev/null
    code=0
    [[ $fds != *1* ]] || code=1 # the id could not be printed
    without "$fds" "$code" enqueue --retention 1h d
    [ "$code" -eq 0 ] || says 'cannot write to standard output' "$fds"
    code=0
    [[ $fds != *0* ]] || code=1
    without "$fds" "$code" enqueue --lines
    [ "$code" -eq 0 ] || says 'cannot read standard input' "$fds"
    m fsck >/dev/null || fail "without $fds: enqueue has damaged the store"
    is "all that was given in, without $fds" 4 "$(m queue show default --json | jq .pending)"
    without "$fds" 0 work --burst -- sh -c 'cat; echo said >&2'
    m fsck >/dev/null || fail "without $fds: work has damaged the store"
    is "all was run, without $fds" '0 4' "$(m queue show default --json | jq -r '[.pending,.completed]|join(" ")')"
    is "as it was given in, without $fds" 'a b c d' \
        "$(m task list --state completed --json | jq -r 'map(.id)[]' | while read -r id; do
            m task show "$id" --json | jq -r .result
        done | sort | xargs)"
done
