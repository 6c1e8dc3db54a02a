#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A newcomer's first hour, by a machine: in a Debian 12 that has nothing but its base system, and a clone of what is committed
# here, the commands that the README begins with. As root, since the system is a folder that is entered; about 20 minutes.
#
#   bare.sh [TARGET...]     targets of the Makefile (default: demo test)
#
# The system is made by debootstrap, once, and unpacked anew for each run; MR_DEBIAN_MIRROR says from where.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What is mounted and started here ends with this script.
if [ -z "${MR_BARE:-}" ]; then
    exec env MR_BARE=1 unshare --mount --pid --fork --kill-child "scripts/$(basename "$0")" "$@"
fi
[ $# -gt 0 ] || set -- demo test

room=$PWD/build/bare
root=$room/root
mirror=${MR_DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir -p "$room"
rm -rf --one-file-system "$root"

if [ ! -f "$room/base.tar" ]; then
    echo "bare: debootstrap"
    debootstrap --variant=minbase bookworm "$root" "$mirror" >"$room/debootstrap.log" 2>&1 || {
        tail -n 20 "$room/debootstrap.log" >&2
        exit 1
    }
    tar -C "$root" --one-file-system -cf "$room/base.tar.new" .
    mv "$room/base.tar.new" "$room/base.tar"
    rm -rf --one-file-system "$root"
fi

mkdir "$root"
tar -C "$root" -xf "$room/base.tar"
git clone -q . "$root/srv/millrace"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Who has a mirror with a certificate of its own trusts it there, too.
if [ -d /usr/local/share/ca-certificates ]; then
    cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
fi

# there COMMAND...: in the clone, with nothing of this environment.
there() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv TERM=dumb sh -c 'cd /srv/millrace && "$@"' sh "$@"
}

# Its base system has no make: the README says so, and this is its line.
prepare=$(sed -n 's/^\(apt-get install .*\)  *#.*/\1/p' README.md | head -n 1)
[ -n "$prepare" ] || {
    echo "bare: the README does not say what is installed first" >&2
    exit 1
}
echo "bare: $prepare"
there sh -c "apt-get update -qq && $prepare" >"$room/apt.log" 2>&1 || {
    tail -n 20 "$room/apt.log" >&2
    exit 1
}

for target; do
    began=$SECONDS
    echo "bare: make $target"
    there make "$target" </dev/null
    echo "bare: make $target passed in $((SECONDS - began)) s"
done
