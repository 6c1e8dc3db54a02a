#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The set-up script, with dpkg, apt, sudo and id replaced by stand-ins that write down their calls: it
# calls apt only for what is missing, updates first, and goes through sudo when it is not root.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
mkdir "$room/bin"
export CALLS=$room/calls

# stand_in NAME: the body of the command, from stdin.
stand_in() {
    { echo '#!/bin/sh'; cat; } >"$room/bin/$1"
    chmod +x "$room/bin/$1"
}

# Packages named in $MISSING are missing.
stand_in dpkg-query <<'BODY'
for package; do :; done
case " $MISSING " in *" $package "*) exit 1 ;; esac
printf 'install ok installed'
BODY
stand_in apt-get <<'BODY'
echo "apt-get $*" >>"$CALLS"
BODY
stand_in sudo <<'BODY'
echo "sudo" >>"$CALLS"
exec "$@"
BODY
stand_in id <<'BODY'
echo "$USER_ID"
BODY

# set_up USER-ID MISSING SET: runs the script, its calls go to $CALLS.
set_up() {
    : >"$CALLS"
    USER_ID=$1 MISSING=$2 PATH="$room/bin:$PATH" scripts/setup.sh "$3"
}

# expect TEXT: the calls were exactly these.
expect() {
    diff <(printf '%s' "$1") "$CALLS"
}

install='apt-get install -qq -y --no-install-recommends'

set_up 1000 "" test
expect ""

set_up 0 "cmake libjansson-dev" build
expect "apt-get update -qq
$install cmake libjansson-dev
"

set_up 1000 "jq" test
expect "sudo
apt-get update -qq
sudo
$install jq
"

# What only the tests need is not installed for a build.
set_up 0 "jq clang" build
expect ""

# An unknown set is refused.
status=0
set_up 0 "" everything 2>/dev/null || status=$?
[ "$status" -eq 2 ]
expect ""
