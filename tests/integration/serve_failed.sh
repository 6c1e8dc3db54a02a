#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A disk that fails under the server: it ends instead of going on in doubt, and the next start goes on
# from what was acknowledged.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

# Syncs that fail from the moment a file is there.
cat >"$room/shim.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd)
{
    static int (*real)(int fd);
    if (access(getenv("FAIL_WHEN"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}
C
gcc -shared -fPIC "$room/shim.c" -o "$room/shim.so"
# An instrumented program wants its own library first.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0

FAIL_WHEN=$room/fail LD_PRELOAD=$room/shim.so start
m --quiet enqueue --id kept x >/dev/null
touch "$room/fail"
expect 1 enqueue --id doubtful x
ends 1
grep -q "the store in $data failed" "$room/server.err" || fail "$(cat "$room/server.err")"
rm "$room/fail"

start
is "what was acknowledged" pending "$(m task show kept --json | jq -r .state)"
is readyz 'ready 200' "$(get /readyz)"
stop 0
