#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Signals while the disk takes its time: a start ends at the first one, the last steps of a stop at the
# second, and the next start finds everything.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"

# While a file is there nothing is written through; it is told when somebody waits for that.
cat >"$room/shim.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static void hang(void)
{
    for (int told = 0; access(getenv("HANG_WHEN"), F_OK) == 0; usleep(10000))
        if (!told++)
            close(open(getenv("HANG_TOLD"), O_CREAT | O_WRONLY, 0600));
}

#define SLOW(type, name, args, ...)                                                                \
    type name args                                                                                 \
    {                                                                                              \
        hang();                                                                                    \
        return ((type(*) args)dlsym(RTLD_NEXT, #name))(__VA_ARGS__);                               \
    }
SLOW(int, fdatasync, (int fd), fd)
SLOW(int, fsync, (int fd), fd)
SLOW(int, unlink, (const char *path), path)
SLOW(int, rename, (const char *from, const char *to), from, to)
C
gcc -shared -fPIC "$room/shim.c" -o "$room/shim.so"
# An instrumented program wants its own library first.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
export HANG_WHEN=$room/hang HANG_TOLD=$room/told

# begin: a server that will not become ready.
begin() {
    rm -f "$HANG_TOLD"
    LD_PRELOAD=$room/shim.so "$MILLRACE" serve --data "$data" --listen 127.0.0.1:0 \
        --grpc 127.0.0.1:0 >/dev/null 2>"$room/server.err" </dev/null &
    server=$!
    servers+=("$server")
    until_true test -e "$HANG_TOLD"
}

at_its_end() { ! grep -qsx mr-stop /proc/"$server"/task/*/comm; }

touch "$HANG_WHEN"
for signal in TERM INT; do
    begin
    kill -"$signal" "$server"
    ends $((128 + $(kill -l "$signal")))
    ! grep -q '^ready' "$room/server.err" || fail "it was ready"
done
rm "$HANG_WHEN" "$HANG_TOLD"

LD_PRELOAD=$room/shim.so start
m --quiet enqueue --id kept x >/dev/null
touch "$HANG_WHEN"
kill -TERM "$server"
until_true test -e "$HANG_TOLD"
# Its grace is over: what is left is the store.
until_true at_its_end
gone && fail "it did not wait for the disk"
kill -TERM "$server"
ends 143
rm "$HANG_WHEN"
start
is "what was acknowledged" pending "$(m task show kept --json | jq -r .state)"
stop 0
