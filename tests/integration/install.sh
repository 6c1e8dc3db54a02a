#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make install` leaves is enough for a user: a program compiled by pkg-config alone, against the
# shared and the static library, enqueues a task that the installed command then shows.

set -euo pipefail
: "${MR_BINARY_DIR:?is set by ctest: the folder of the release build}"

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
# The unit of systemd starts the program where it was put, whatever the prefix.
for prefix in /opt/mill /usr; do
    DESTDIR=$room cmake --install "$MR_BINARY_DIR" --prefix "$prefix" >"$room/install.log"
    for unit in 'millrace serve' 'millrace-nameserver nameserver'; do
        file=$room$prefix/lib/systemd/system/${unit% *}.service
        program=$(sed -n "s/^ExecStart=\([^ ]*\) ${unit#* } .*/\1/p" "$file")
        [[ $program == "$prefix/bin/millrace" && -x $room$program ]] || {
            echo "below $prefix the unit ${unit% *} starts '$program'"
            exit 1
        }
    done
done

root=$room/usr
library=$(dirname "$(find "$root" -name libmillrace.so)")
export PKG_CONFIG_PATH=$library/pkgconfig
export LD_LIBRARY_PATH=$library

cat >"$room/user.c" <<'PROGRAM'
#include <millrace.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct mr_client *client;
    struct mr_detail detail;
    if (argc != 3 || mr_client_open(argv[1], NULL, &client, &detail) != MR_OK)
        return 1;
    struct mr_task_options task = {.id = mr_slice_str(argv[2]), .payload = mr_slice_str("hello")};
    struct mr_enqueue_result result;
    enum mr_err err = mr_enqueue(client, &task, 1, &result);
    mr_client_close(client);
    if (err != MR_OK || result.err != MR_OK)
        return 1;
    printf("%s %s\n", mr_version(), result.id);
    return 0;
}
PROGRAM

# pkg-config prints words that are meant to be split.
# shellcheck disable=SC2046
gcc -std=c17 -pedantic -Wall -Wextra -Werror "$room/user.c" -o "$room/shared" \
    $(pkg-config --cflags --libs millrace)
# shellcheck disable=SC2046
gcc -std=c17 -pedantic -Wall -Wextra -Werror "$room/user.c" -o "$room/static" \
    $(pkg-config --cflags millrace) "$library/libmillrace.a" \
    $(pkg-config --libs-only-l --static millrace | sed 's/-lmillrace//')

version=$(pkg-config --modversion millrace)
for kind in shared static; do
    said=$("$room/$kind" "file:$room/store" "task-$kind")
    [ "$said" = "$version task-$kind" ] || {
        echo "the $kind program said '$said'"
        exit 1
    }
    "$root/bin/millrace" --broker "file:$room/store" task show "task-$kind" | grep -q "task-$kind"
done
"$root/bin/millrace" --version | grep -qF "$version"

# Every function of the header is in the shared library, and nothing else is exported.
grep -v '^typedef' "$root/include/millrace.h" | sed 's,/\*.*\*/,,; /^ \*/d; /^#/d' |
    grep -oE '\bmr_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$room/declared"
nm -D --defined-only "$library/libmillrace.so" | awk '$2 == "T" { print $3 }' |
    sed 's/@.*//' | sort -u >"$room/exported"
diff "$room/declared" "$room/exported"

# Clients of other languages find the .proto files.
protoc-c --descriptor_set_out="$room/descriptors" -I "$root/share/millrace/proto" \
    "$root"/share/millrace/proto/millrace/v1/*.proto
