#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Debian packages: what is in them and what they ask for, and that a program can be built with what they bring. With MR_PACKAGE=full
# (in `make test-long`) lintian finds no error in them, and in a bare Debian 12 they are installed, used, upgraded over a store
# with data, removed and purged. That system is made once by debootstrap, and kept in the build folder.

set -euo pipefail
: "${MR_BINARY_DIR:?is set by ctest: the folder of the release build}"
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"

version=$(cat "$MR_SOURCE_DIR/VERSION")
architecture=$(dpkg --print-architecture)
names=(millrace "libmillrace${version%%.*}" libmillrace-dev)

# pack RELEASE: makes them below $room/RELEASE.
pack() {
    cpack --config "$MR_BINARY_DIR/CPackConfig.cmake" -B "$room/$1" -D CPACK_DEBIAN_PACKAGE_RELEASE="$1" \
        >"$room/cpack.log" 2>&1 || fail "cpack: $(cat "$room/cpack.log")"
}

deb() { echo "$room/$2/$1_$version-$2_$architecture.deb"; }

# has FILE PATTERN...: of the list in FILE each pattern has a line.
has() {
    local list=$1 pattern
    shift
    for pattern; do
        grep -qE -- "$pattern" "$list" || fail "$(basename "$list") has nothing like $pattern: $(cat "$list")"
    done
}

check_contents() {
    local name package
    for name in "${names[@]}"; do
        package=$(deb "$name" 1)
        [ -f "$package" ] || fail "no $package: $(ls "$room/1")"
        is "version of $name" "$version-1" "$(dpkg-deb -f "$package" Version)"
        dpkg-deb -c "$package" | awk '{ print $1, $2, $6 }' >"$room/$name"
        has "$room/$name" "/usr/share/doc/$name/copyright$" "/usr/share/doc/$name/changelog.Debian.gz$"
        ! grep -v ' root/root ' "$room/$name" || fail "$name: a file is not root's"
        ! grep -E '^-....w|^-.......w' "$room/$name" || fail "$name: others may write a file"
        dpkg-deb -x "$package" "$room/tree"
    done
    has "$room/millrace" '^-rwxr-xr-x .*/usr/bin/millrace$' '/lib/systemd/system/millrace.service$' \
        '/lib/systemd/system/millrace-nameserver.service$' '/usr/share/man/man1/millrace.1.gz$' \
        '/usr/share/man/man1/millrace-enqueue.1.gz$' '/usr/share/bash-completion/completions/millrace$' \
        '/usr/share/zsh/.*/_millrace$' '/usr/share/fish/.*/millrace.fish$' '/usr/share/doc/millrace/docs/reference.md$' \
        '/usr/share/millrace/alerts.yml$' '/usr/share/millrace/grafana.json$'
    has "$room/${names[1]}" '^-rw-r--r-- .*/libmillrace\.so\.[0-9.]+$'
    has "$room/libmillrace-dev" '/usr/include/millrace.h$' '/libmillrace\.a$' '/libmillrace\.so$' '/pkgconfig/millrace.pc$' '\.proto$'
    ! grep -E '/usr/(include|share/millrace/proto)' "$room/millrace" || fail "that is for libmillrace-dev"
}

check_control() {
    local path setting
    dpkg-deb -f "$(deb millrace 1)" Depends >"$room/depends"
    has "$room/depends" 'libc6' 'libssl3' 'tzdata'
    dpkg-deb -f "$(deb libmillrace-dev 1)" Depends >"$room/depends"
    has "$room/depends" "^${names[1]} \(= $version-1\)"
    dpkg-deb -e "$(deb millrace 1)" "$room/control"
    while read -r path; do
        [ -f "$room/tree$path" ] || fail "$path is a conffile and not there"
    done <"$room/control/conffiles"
    is "files in /etc" "$(sort "$room/control/conffiles")" "$(cd "$room/tree" && find etc -type f | sed 's|^|/|' | sort)"
    # What others wrote and the program has in it is named with its licence.
    for path in $(jq -r '.dependencies | keys[] | select(. != "esbuild")' "$MR_SOURCE_DIR/web/package.json"); do
        has "$room/tree/usr/share/doc/millrace/copyright" "^Files:.* web/node_modules/${path%%/*}/"
    done
    for path in postinst prerm postrm; do
        sh -n "$room/control/$path"
    done
    # The file of settings sets nothing, and names each of them but those that the unit gives.
    m config check "$room/tree/etc/millrace/millrace.yaml" >/dev/null
    for setting in $(m config show --effective --json | jq -r '.[].name' | grep -vxE 'config|data'); do
        grep -q "^#$setting: " "$room/tree/etc/millrace/millrace.yaml" || fail "millrace.yaml lacks $setting"
    done
    is "settings of the package" "MILLRACE_CONFIG=/etc/millrace/millrace.yaml" "$(grep -v '^#' "$room/tree/etc/default/millrace" | xargs)"
}

# What the packages bring is enough for a C program.
check_development() {
    local library
    library=$(dirname "$(find "$room/tree" -name libmillrace.so)")
    cat >"$room/user.c" <<'PROGRAM'
#include <millrace.h>
#include <stdio.h>

int main(void)
{
    puts(mr_version());
    return 0;
}
PROGRAM
    # pkg-config prints words that are meant to be split.
    # shellcheck disable=SC2046
    gcc -std=c17 -Wall -Werror "$room/user.c" -o "$room/user" \
        $(PKG_CONFIG_PATH=$library/pkgconfig pkg-config --cflags --libs millrace)
    is "version of the library" "$version" "$(LD_LIBRARY_PATH=$library "$room/user")"
    is "version of the program" "millrace $version" "$("$room/tree/usr/bin/millrace" --version)"
}

# ---- in a bare Debian 12 ----------------------------------------------------------------------------

# The packages that ours need, by their first names: what debootstrap is to bring along, so that dpkg alone can install ours.
needed() {
    dpkg-deb -f "$(deb millrace 1)" Depends
    dpkg-deb -f "$(deb "${names[1]}" 1)" Depends
}

# make_base: $base is a tar file of a Debian 12 with nothing but its base and these.
make_base() {
    local include key mirror=${MR_DEBIAN_MIRROR:-http://deb.debian.org/debian}
    include=$(needed | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' | sort -u | paste -sd,)
    key=$(sha256sum <<<"$include" | cut -c 1-16)
    base=$MR_BINARY_DIR/package-base-$key.tar
    [ ! -f "$base" ] || return 0
    debootstrap --variant=minbase --include="$include" bookworm "$room/base" "$mirror" >"$room/debootstrap.log" 2>&1 ||
        fail "debootstrap: $(tail -n 20 "$room/debootstrap.log")"
    tar -C "$room/base" --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* --exclude=./var/cache/apt/* \
        -cf "$base.new" .
    mv "$base.new" "$base"
    rm -rf "$room/base"
}

# inside COMMAND...: in the bare system, with a network and processes of its own: what is left running there goes with it.
inside() {
    unshare --net sh -c 'ip link set lo up && exec "$@"' sh \
        unshare --mount --pid --fork --kill-child --root "$room/bare" --mount-proc \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/srv "$@"
}

make_bare() {
    mkdir "$room/bare"
    tar -C "$room/bare" -xf "$base"
    mkdir -p "$room/bare/dev" "$room/bare/proc"
    [ -c "$room/bare/dev/null" ] || mknod -m 666 "$room/bare/dev/null" c 1 3
    [ -c "$room/bare/dev/urandom" ] || mknod -m 444 "$room/bare/dev/urandom" c 1 9
    cp "$room"/1/*.deb "$room"/2/*.deb "$room/bare/srv"
    # What is done there: the unit's own command, with its variables, since no systemd runs.
    cat >"$room/bare/srv/serve.sh" <<'INSIDE'
set -eu
set -a
. /etc/default/millrace
set +a
command=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/millrace.service | sed 's|%S|/var/lib|g')
(eval "exec $command") 2>/srv/serve.log &
server=$!
until grep -q '^ready' /srv/serve.log; do
    kill -0 $server || { cat /srv/serve.log >&2; exit 1; }
    sleep 0.1
done
sh -eu -c "$1"
kill $server
wait $server
INSIDE
}

# with_server SCRIPT: run in the bare system while the server is there.
with_server() { inside sh /srv/serve.sh "$1"; }

check_in_bare() {
    make_base
    make_bare
    inside sh -c "dpkg -i /srv/*-1_*.deb" >"$room/dpkg.log" 2>&1 || fail "dpkg: $(cat "$room/dpkg.log")"
    is "version there" "millrace $version" "$(inside millrace --version)"
    inside millrace enqueue --broker file:/srv/own 'hello' >/dev/null
    inside millrace work --broker file:/srv/own --burst -- tee /srv/said >/dev/null
    is "the first task" "hello" "$(cat "$room/bare/srv/said")"
    # A store with data, and settings of the machine's own.
    echo 'payload-max: 2MiB' >>"$room/bare/etc/millrace/millrace.yaml"
    with_server 'for i in 1 2 3; do millrace enqueue -q mail --id done-$i $i; done
        millrace work -q mail --burst -- cat
        for i in 1 2 3; do millrace enqueue -q mail --id wait-$i $i; done
        millrace timer create nightly --cron "0 2 * * *" --tz Europe/Berlin -q mail x' >"$room/used.log" 2>&1 ||
        fail "used: $(cat "$room/used.log")"
    # The upgrade asks nothing, keeps both, and the store opens.
    inside sh -c "DEBIAN_FRONTEND=noninteractive dpkg -i /srv/*-2_*.deb" >"$room/dpkg.log" 2>&1 </dev/null ||
        fail "dpkg: $(cat "$room/dpkg.log")"
    is "upgraded" "$version-2" "$(inside dpkg-query -W -f '${Version}' millrace)"
    has "$room/bare/etc/millrace/millrace.yaml" '^payload-max: 2MiB$'
    is "its setting" 2MiB "$(inside sh -c '. /etc/default/millrace && millrace config show --config "$MILLRACE_CONFIG" --json' | jq -r '.[] | select(.name == "payload-max").value')"
    with_server 'millrace task show done-3 --json >/srv/done
        millrace timer next nightly -n 1 >/srv/next
        millrace work -q mail --burst -- tee -a /srv/worked' >"$room/used.log" 2>&1 || fail "used: $(cat "$room/used.log")"
    is "a task from before" completed "$(jq -r .state "$room/bare/srv/done")"
    [ -s "$room/bare/srv/next" ] || fail "the timer is gone"
    is "tasks from before" "123" "$(grep -o . "$room/bare/srv/worked" | sort | tr -d '\n')"
    # Removed, then purged: the settings go with the second, what was acknowledged with neither.
    inside dpkg -r libmillrace-dev "${names[1]}" millrace >"$room/dpkg.log" 2>&1 || fail "dpkg: $(cat "$room/dpkg.log")"
    [ ! -e "$room/bare/usr/bin/millrace" ] || fail "the program is still there"
    [ -f "$room/bare/etc/millrace/millrace.yaml" ] || fail "the settings went with the program"
    inside dpkg -P millrace >"$room/dpkg.log" 2>&1 || fail "dpkg: $(cat "$room/dpkg.log")"
    [ ! -e "$room/bare/etc/millrace/millrace.yaml" ] || fail "the settings were not purged"
    [ -f "$room/bare/var/lib/millrace/meta" ] || fail "the tasks are gone: $(ls "$room/bare/var/lib/millrace")"
}

pack 1
check_contents
check_control
check_development
[ "${MR_PACKAGE:-}" = full ] || exit 0
lintian --allow-root --fail-on error "$room"/1/*.deb >"$room/lintian" || fail "lintian: $(cat "$room/lintian")"
cat "$room/lintian"
pack 2
check_in_bare
