#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Brings what a target needs on Debian 12, as root or through sudo:
#
#   setup.sh build   compiler, build tools, libraries
#   setup.sh demo    and what the demo speaks with
#   setup.sh package and what makes Debian packages
#   setup.sh test    and what the tests and checks use (the default)
#   setup.sh fuzz    and clang with libFuzzer, what checks packages, and what HTTP is measured beside
#   setup.sh peers   what the tests use, and the servers that `make peers` measures beside ours
#
# None of the servers that others are measured beside is started, now or at boot.
#
# Asks dpkg first and calls apt only when something is missing, so it needs no network (and no root)
# on a machine that has everything.

set -eu

build="gcc libc6-dev make cmake ninja-build pkg-config libjansson-dev libcmocka-dev
libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libssl-dev zlib1g-dev libhiredis-dev
libmicrohttpd-dev libgnutls28-dev libyaml-dev libsqlite3-dev libpq-dev tzdata nodejs npm"
demo="$build jq espeak-ng sox"
package="$build dpkg-dev file"
test="$demo dpkg-dev file lld clang-format python3 man-db openssl curl systemd python3-grpcio python3-grpc-tools
chromium iproute2 tmux zsh fish redis-tools postgresql"
fuzz="$test clang libclang-rt-14-dev lintian debootstrap nginx-light wrk"
peers="$test beanstalkd gearman-job-server nats-server rabbitmq-server libnats-dev librabbitmq-dev nginx-light wrk"

case "${1:-test}" in
build) wanted=$build ;;
demo) wanted=$demo ;;
package) wanted=$package ;;
test) wanted=$test ;;
fuzz) wanted=$fuzz ;;
peers) wanted=$peers ;;
*)
    echo "setup: unknown set '$1' (build, demo, package, test, fuzz or peers)" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: not a Debian system; please see to these packages yourself: $wanted" >&2
    exit 0
fi

is_installed() {
    [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)" = "install ok installed" ]
}

missing=
for package in $wanted; do
    # These may come with another package (pkgconf, a newer nodejs); the command is what counts.
    case $package in
    pkg-config | npm) command -v "$package" >/dev/null 2>&1 && continue ;;
    esac
    if ! is_installed "$package"; then
        echo "setup: $package is missing"
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1; then
    sudo=sudo
else
    echo "setup: cannot install without root or sudo; as root, run: apt-get install$missing" >&2
    exit 1
fi

# Packages of servers start them by themselves, and at each boot. Those that come now only to be measured shall not: this file
# says so while they are installed, and their units are switched off behind that.
policy=${MR_POLICY_FILE:-/usr/sbin/policy-rc.d}
own_policy=
silenced=
begin_silence() {
    for package in beanstalkd gearman-job-server nats-server rabbitmq-server erlang-base nginx-common; do
        is_installed "$package" || silenced="$silenced $package"
    done
    if [ ! -e "$policy" ]; then
        own_policy=1
        trap end_policy EXIT
        printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
        $sudo chmod 755 "$policy"
    fi
}
end_policy() {
    [ -z "$own_policy" ] || $sudo rm -f "$policy"
    own_policy=
}
end_silence() {
    end_policy
    command -v systemctl >/dev/null 2>&1 || return 0
    for package in $silenced; do
        for unit in $(dpkg-query -L "$package" 2>/dev/null | sed -n 's#.*/systemd/system/\([^/]*\.s[a-z]*\)$#\1#p'); do
            $sudo systemctl disable "$unit" >/dev/null 2>&1 || true
        done
    done
}

# $sudo is empty or one word, $missing a list of words: both are meant to be split.
echo "setup: apt-get update"
$sudo apt-get update -qq
echo "setup: apt-get install$missing"
case "${1:-test}" in fuzz | peers) begin_silence ;; esac
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
case "${1:-test}" in fuzz | peers) end_silence ;; esac
echo "setup: done"
