#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A sync that fails stops the store, and the worker on it: it says so in one line, ends, and lets go of the
# store. What was acknowledged is there afterwards. The kernel's fdatasync is replaced by one that fails as
# soon as a file says so.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
export MILLRACE_BROKER=$store

cat >"$room/sync.c" <<END
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd)
{
    if (access("$room/broken", F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
END
cc -shared -fPIC -o "$room/sync.so" "$room/sync.c"

# An instrumented program wants its own library first.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0

# work_broken ARG...: a worker whose disk breaks in its first run; said is what it said at the end.
work_broken() {
    rm -f "$room/broken"
    code=0
    LD_PRELOAD=$room/sync.so timeout 30 "$MILLRACE" work "$@" \
        -- sh -c "unset LD_PRELOAD; touch $room/broken" 2>"$room/err" || code=$?
    is "exit code ($(cat "$room/err"))" 1 "$code"
    said=$(tail -n 1 "$room/err")
    [[ $said == *"the worker on $store has ended: input/output error"* ]] || fail "said: $said"
    ! grep -q -e 'take.failed' -e 'finish.refused' "$room/err" || fail "said: $(cat "$room/err")"
    is "nobody holds the store, and it is sound" 0 "$(m fsck >/dev/null && echo 0)"
}

for way in --burst ""; do
    m enqueue --lines <<<$'a\nb\nc' >/dev/null
    # shellcheck disable=SC2086 # no option is no word
    work_broken $way
    expect 0 work --burst -- true
    is "all is done on a sound disk" 0 "$(m queue show default --json | jq '.pending + .active')"
done
