# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the tests of the command line. Gives a room of its own that goes at the end, the program as
# `m`, and checks that name what they found.

: "${MILLRACE:?is set by ctest: the program under test}"
unset MILLRACE_BROKER MILLRACE_NAMESPACE
room=$(mktemp -d)
trap 'chmod -R u+rwX "$room" 2>/dev/null; rm -rf "$room"' EXIT
cd "$room"
store=file:$room/store

m() { timeout 60 "$MILLRACE" "$@"; }

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect CODE ARG...: runs the program; stdout goes to $room/out, stderr to $room/err.
expect() {
    local want=$1 got=0
    shift
    m "$@" >"$room/out" 2>"$room/err" </dev/null || got=$?
    [ "$got" -eq "$want" ] || fail "exit code $got, not $want: millrace $* ($(cat "$room/err"))"
}

# refuses CODE TEXT ARG...: exits so, says one line on stderr that holds the text, nothing on stdout.
refuses() {
    local want=$1 text=$2
    shift 2
    expect "$want" "$@"
    [ "$(wc -l <"$room/err")" -eq 1 ] || fail "not one line: millrace $* said: $(cat "$room/err")"
    grep -qF -- "$text" "$room/err" || fail "millrace $* said: $(cat "$room/err"), not: $text"
    [ ! -s "$room/out" ] || fail "millrace $* wrote to stdout: $(cat "$room/out")"
}

# is WHAT WANT GOT
is() { [ "$2" = "$3" ] || fail "$1: \"$3\", not \"$2\""; }

# field ID NAME: of a task in the store.
field() { m --broker "$store" task show "$1" --json | jq -r ".$2"; }

# count QUEUE STATE
count() { m --broker "$store" queue show "$1" --json | jq -r ".$2"; }

# until_true COMMAND...: waits for a condition, up to 30 seconds.
until_true() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$@"; then
            return
        fi
        sleep 0.05
    done
    fail "waited in vain for: $*"
}

# await PID: waits for a process in the background; $code is how it ended.
await() {
    code=0
    wait "$1" || code=$?
}
