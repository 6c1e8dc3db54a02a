#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Help, versions and wrong arguments: one clear line, the right exit code, and nothing changed.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

# Help begins with an example and goes to stdout, wherever it is asked for.
for command in enqueue work "queue list" "queue set" "task list" "task cancel" "task why" \
    "dead requeue" bench selftest backup fsck migrate; do
    # shellcheck disable=SC2086
    expect 0 $command --help
    grep -q "^  millrace ${command%% *}" <(head -1 "$room/out") || fail "$command: no example first"
    grep -q '^usage: millrace' "$room/out" || fail "$command: no usage"
    [ ! -s "$room/err" ] || fail "$command --help wrote to stderr"
done
expect 0 -h
expect 0 help task
grep -q prioritise "$room/out"
expect 0 --version
grep -qE '^millrace [0-9]+\.[0-9]+' "$room/out" || fail "version"

# What was typed, and the nearest known thing.
refuses 2 'no command'
refuses 2 'unknown command enquue; did you mean enqueue?' enquue
refuses 2 'unknown verb lst; did you mean list?' task lst
refuses 2 'unknown option --retires; did you mean --retry? (see millrace enqueue --help)' \
    enqueue --retires 3
refuses 2 'unknown option --prio; did you mean --priority?' enqueue --prio 3 x
refuses 2 'unknown option --tok; did you mean --token-file?' queue list --tok x
refuses 2 'unknown command enq; did you mean enqueue?' enq x
refuses 2 'unknown option -z' enqueue -z
refuses 2 'needs one of list, show' task
refuses 2 'needs a value' enqueue --queue
refuses 2 'takes no value' enqueue --json=1
refuses 2 'missing: millrace task show ID' --broker "$store" task show
refuses 2 'unexpected argument y' --broker "$store" enqueue x y
refuses 2 'unexpected argument extra: millrace bench (see' bench extra

# Bad values name the option.
refuses 2 '--delay: "-5s" must not be negative' --broker "$store" enqueue --delay -5s x
refuses 2 '--delay: "5" is not a duration' --broker "$store" enqueue --delay 5 x
refuses 2 '--at: "soon" is not a time' --broker "$store" enqueue --at soon x
refuses 2 '--retry: "-1" must not be negative' --broker "$store" enqueue --retry -1 x
refuses 2 '--retry: "99999999" is over the limit of 65535' --broker "$store" enqueue --retry 99999999 x
refuses 2 '--retry: "9999999999999999999999" is over the limit of 65535' --broker "$store" enqueue \
    --retry 9999999999999999999999 x
refuses 2 '--delay: "99999999999999d" is too long' --broker "$store" enqueue --delay 99999999999999d x
refuses 2 '--delay: must not be after the year 9999 (see' --broker "$store" enqueue --delay 9999999d x
refuses 2 '--header: over the limit of 16384 bytes' --broker "$store" enqueue \
    --header "a=$(printf 'x%.0s' {1..17000})" x
refuses 2 '-c: "100000" is over the limit of 4096' --broker "$store" work -c 100000 -- true
refuses 2 '-c: "0" is below 1' --broker "$store" work -c 0 -- true
refuses 2 '-t: "ma*il" has a * that is not at its end' --broker "$store" work -t 'ma*il' -- true
refuses 2 'the seconds are missing: millrace task prioritise ID... SECONDS' --broker "$store" \
    task prioritise u1
refuses 2 '"ten" is not a number of seconds' --broker "$store" task prioritise -q u ten --yes
refuses 2 '--priority: "high" is not a number' --broker "$store" enqueue --priority high x
refuses 2 '--priority: must be within 10 years (see' --broker "$store" enqueue --priority 1e12 x
refuses 2 '--queue: "" is empty' --broker "$store" enqueue --queue '' x
refuses 2 'is not valid UTF-8' --broker "$store" enqueue -q $'a\xff' x
refuses 2 'control characters or braces' --broker "$store" enqueue -q 'a{b}' x
refuses 2 'over the limit of 128 bytes' --broker "$store" enqueue -q "$(printf 'q%.0s' {1..129})" x
refuses 2 'is not NAME=VALUE' --broker "$store" enqueue --header nonsense x
refuses 2 'is none of reject, ignore, replace' --broker "$store" enqueue --unique 1h \
    --on-duplicate maybe x
refuses 2 '--unique-key needs --unique' --broker "$store" enqueue --unique-key k x
refuses 2 'exclude each other' --broker "$store" enqueue --delay 1s --at 2000000000 x
refuses 2 'is none of scheduled, pending' --broker "$store" task list --state waiting
refuses 2 'needs a server' --broker "$store" enqueue --wait x
refuses 2 '--wait-timeout needs --wait' enqueue --wait-timeout 1s x
refuses 2 '--wait is for one task; --lines makes many' enqueue --wait --lines
refuses 2 'may be gone before it is read' enqueue --wait --retention 0 x
refuses 2 '--wait is for one task, not for an array' enqueue --wait --json '[]'
refuses 2 '--watch: "1ms" is below 100ms' --broker "$store" queue list --watch 1ms
refuses 2 '--watch: "soon" is not a duration' --broker "$store" queue list --watch=soon
refuses 2 '--interval: "0s" is below 100ms' --broker "$store" top --interval 0s
refuses 2 'top needs a terminal' --broker "$store" top
for rate in 5 5/ /s x/s -1/s 5/0s 5/2d 100001/s 5/s/s; do
    refuses 2 'is not a rate such as' --broker "$store" queue set q --rate "$rate"
done
refuses 2 '--retry-wait: "36601d" is too long' --broker "$store" queue set q --retry-wait 36601d
topic=$(printf 't%.0s' {1..128})
refuses 2 "--topic: \"$topic\" has 128 bytes, the limit is 127" --broker "$store" enqueue --topic "$topic" x
refuses 2 'has 128 bytes, the limit is 127' --broker "$store" result take --topic "$topic"
refuses 2 '--limit-key: give --rate or --concurrency' --broker "$store" queue set q --limit-key k
refuses 2 '--partition: they are counted from 1' --broker "$store" enqueue --partition 0 x
refuses 2 '--partitions: a queue has at least 1' --broker "$store" queue set q --partitions 0
refuses 2 'is none of round-robin, consistent-hash' --broker "$store" queue set q --assign any
expect 2 --broker "$store" enqueue --json '{"payload":"x","partition":0}'
is "a partition that no queue has" '"partition" must be a whole number from 1 to 64' \
    "$(jq -r .error.message "$room/out")"
refuses 2 'nothing to set' --broker "$store" queue set q
refuses 2 'QUEUE=WEIGHT' --broker "$store" work -q a=0 -- true
refuses 2 'follows --' --broker "$store" work cat
refuses 2 'command to run is missing' --broker "$store" work -q a
refuses 3 'no such command' --broker "$store" work -- no-such-command-here
refuses 3 'no such command' --broker "$store" work -- ./no-such-command-here
for command in /tmp . /etc/passwd; do
    refuses 5 "cannot run $command: not a file that may be executed" --broker "$store" work -- $command
done
refuses 2 'did you mean process' bench --only proces

# A name shown back cannot act on the terminal.
refuses 2 '\x1b[31m' --broker "$store" $'\x1b[31m'

expect 2 --broker "$store" enqueue --json '{"nonsense":1}'
expect 1 --broker "$store" enqueue --json '[{"nonsense":1}]'

# None of this has made a store; looking at one that is not there does not either.
[ ! -e "$room/store" ] || fail "a refused command made a store"
refuses 3 'no store at' --broker "$store" queue list
refuses 3 'no store at' --broker "$store" task delete x
mkdir "$room/empty"
refuses 3 'no store at' --broker "file:$room/empty" queue list
refuses 3 'no store at' --broker "file:$room/empty" backup "$room/copy"
is "an empty folder stays empty" "" "$(ls -A "$room/empty")"
[ ! -e "$room/store" ] || fail "looking made a store"

# Brokers that are not there, or that this build cannot serve.
refuses 6 'nobody listens' --broker millrace://127.0.0.1:1 enqueue x
refuses 6 'cannot use redis://127.0.0.1:1: ' --broker redis://127.0.0.1:1 queue list
refuses 2 'nonsense' --broker nonsense enqueue x
refuses 2 '"frob:x" is no URL of a broker' --broker frob:x enqueue x
refuses 2 '--broker: "" is empty' --broker '' enqueue x

# Global options stand before or after; the environment counts less than the flag.
MILLRACE_BROKER=redis://nowhere expect 0 enqueue x --broker "$store"
MILLRACE_BROKER=$store expect 0 --json queue list
is "queues in the store of the environment" default "$(jq -r '.[0].queue' "$room/out")"

# A namespace that is not there is named.
refuses 3 'no namespace b at' --broker "$store" --namespace b queue list
