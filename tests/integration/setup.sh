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
export CALLS=$room/calls MR_POLICY_FILE=$room/policy

# stand_in NAME: the body of the command, from stdin.
stand_in() {
    { echo '#!/bin/sh'; cat; } >"$room/bin/$1"
    chmod +x "$room/bin/$1"
}

# Packages named in $MISSING are missing.
stand_in dpkg-query <<'BODY'
for package; do :; done
if [ "$1" = -L ]; then
    printf '%s\n' /. "/lib/systemd/system/$package.service" "/usr/share/doc/$package"
    exit
fi
case " $MISSING " in *" $package "*) exit 1 ;; esac
printf 'install ok installed'
BODY
stand_in apt-get <<'BODY'
echo "apt-get $*" >>"$CALLS"
if [ -e "$MR_POLICY_FILE" ]; then echo "policy $("$MR_POLICY_FILE" || echo $?)" >>"$CALLS"; fi
BODY
stand_in systemctl <<'BODY'
echo "systemctl $*" >>"$CALLS"
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

# Servers that come for a comparison are neither started nor switched on, and those that were there stay as they are.
set_up 0 "beanstalkd rabbitmq-server erlang-base" peers
expect "apt-get update -qq
$install beanstalkd rabbitmq-server
policy 101
systemctl disable beanstalkd.service
systemctl disable rabbitmq-server.service
systemctl disable erlang-base.service
"
[ ! -e "$MR_POLICY_FILE" ]

# So are those that the long tests measure HTTP beside.
set_up 0 "nginx-light nginx-common" fuzz
expect "apt-get update -qq
$install nginx-light
policy 101
systemctl disable nginx-common.service
"

# A policy that is there is not ours to remove.
printf '#!/bin/sh\nexit 104\n' >"$MR_POLICY_FILE"
chmod +x "$MR_POLICY_FILE"
set_up 0 "beanstalkd" peers
expect "apt-get update -qq
policy 104
$install beanstalkd
policy 104
systemctl disable beanstalkd.service
"
[ -e "$MR_POLICY_FILE" ]
rm "$MR_POLICY_FILE"

# An unknown set is refused.
status=0
set_up 0 "" everything 2>/dev/null || status=$?
[ "$status" -eq 2 ]
expect ""
