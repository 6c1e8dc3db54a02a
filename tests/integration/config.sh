#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The settings of the server, checked and shown without one.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
unset MILLRACE_LOG_SEGMENT # what nobody set is shown here

cat >good.yaml <<'YAML'
# A server for one machine.
data: ./tasks
listen: 127.0.0.1:8400
grace: 3s
payload-max: 2MiB
YAML

expect 0 config check good.yaml
grep -q 'good.yaml: the settings are right' err || fail "$(cat err)"
expect 0 config check
expect 0 config check --config good.yaml
refuses 2 'give the file once' config check good.yaml --config good.yaml
refuses 3 'nowhere.yaml' config check nowhere.yaml

# Where each value comes from: flag, environment, file, default.
MILLRACE_GRACE=4s expect 0 config show --effective --config good.yaml --grpc 127.0.0.1:8401 --json
value() { jq -r --arg name "$1" '.[]|select(.name == $name)|[.value,.source,.place]|join(" ")' out; }
is grpc '127.0.0.1:8401 flag --grpc' "$(value grpc)"
is grace '4s environment MILLRACE_GRACE' "$(value grace)"
is listen '127.0.0.1:8400 file good.yaml:3' "$(value listen)"
is rate '0 default ' "$(value rate)"
is tls-cert ' not set ' "$(value tls-cert)"
is insecure 'false default ' "$(value insecure)"
is store 'sqlite in the folder default ' "$(value store)"
is archive-max '9999 default ' "$(value archive-max)"

# Without --effective only what somebody set; in a table as well.
expect 0 config show --config good.yaml
is "rows" 'config data grace listen payload-max' "$(tail -n +2 out | awk '{print $1}' | sort | xargs)"
expect 0 config show
is "nothing set" 0 "$(tail -n +2 out | wc -l)"

# A password in a URL is not shown.
expect 0 config show --broker redis://someone:hunter2@cache:6379/0 --json
is "the URL" 'redis://***@cache:6379/0 flag --broker' "$(value broker)"
! grep -q hunter2 out err || fail "the password was shown"
expect 0 config show --store postgres://someone:hunter2@db/mill --alarm https://me:hunter2@pager/x --json
is "the store" 'postgres://***@db/mill flag --store' "$(value store)"
is "the alarm" 'https://***@pager/x flag --alarm' "$(value alarm)"
! grep -q hunter2 out err || fail "the password of the store or the alarm was shown"
expect 0 config show --store 'postgres://db/mill?password=hunter2&user=someone' --json
is "a password in the query" 'postgres://db/mill?password=***&user=someone flag --store' "$(value store)"
expect 0 config show --store sqlite:/srv/jobs.db --alarm "$room/tell me@home" --json
is "a file" 'sqlite:/srv/jobs.db flag --store' "$(value store)"
is "a command" "$room/tell me@home flag --alarm" "$(value alarm)"

# Errors name file, line, key and what is near; the unit tests have the rest.
printf 'data: x\ntls-crt: y\n' >bad.yaml
refuses 2 'bad.yaml:2: unknown key tls-crt; did you mean tls-cert?' config check bad.yaml
refuses 2 'bad.yaml:2' config show --config bad.yaml
printf 'payload-max: lots\n' >bad.yaml
refuses 2 'bad.yaml:1: payload-max: "lots" is not a size' config check bad.yaml
MILLRACE_LISTEN=here refuses 2 'MILLRACE_LISTEN: "here" is not an address' config check
refuses 2 'unknown option --lisen; did you mean --listen?' config check --lisen x
for prefix in mill / /mill/ //mill '/a b' /../x "/$(printf 'x%.0s' {1..128})"; do
    refuses 2 'is no path such as /mill' config check --http-prefix "$prefix"
done
refuses 2 'is open to other machines' config check --grpc 0.0.0.0:7401
expect 0 config check --grpc 0.0.0.0:7401 --insecure

# Also what is wrong only beside other settings names who said it.
printf 'grace: 3s\nbroker: millrace://x:1\n' >bad.yaml
refuses 2 'bad.yaml:2: broker: millrace://x:1 is a server' config check bad.yaml
printf 'grace: 3s\nlisten: "0.0.0.0:9"\n' >bad.yaml
refuses 2 'bad.yaml:2: listen 0.0.0.0:9 is open to other machines' config check bad.yaml
printf 'tls-cert: x\n' >bad.yaml
refuses 2 'bad.yaml:1: tls-cert needs --tls-key beside it' config check bad.yaml
printf 'data: a\nbroker: file:b\n' >bad.yaml
refuses 2 'bad.yaml:1: data a and bad.yaml:2: broker file:b are two folders' config check bad.yaml
MILLRACE_GRPC=0.0.0.0:9 refuses 2 'MILLRACE_GRPC 0.0.0.0:9 is open to other machines' config check
