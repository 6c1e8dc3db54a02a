#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A text is spoken: cut into paragraphs, said by several workers with espeak-ng, joined into one WAV file by sox, while
# one of the workers is killed with SIGKILL. At the end the length of the recording is computed from the file, and held
# against that of the same paragraphs spoken one after another, without Millrace.
#
# MILLRACE is the program (default build/millrace). DEMO_PACE is how many seconds a worker takes longer than it needs, so
# that there is something to see. DEMO_OUT is where the recording goes (default: it is removed). Exits 1 when anything
# is missing.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

millrace=$(realpath "${MILLRACE:-build/millrace}")
pace=${DEMO_PACE:-1.2}
text=$PWD/scripts/demo.txt
workers_n=3

for needed in espeak-ng sox; do
    command -v "$needed" >/dev/null || {
        echo "demo: $needed is missing; scripts/setup.sh demo brings it" >&2
        exit 1
    }
done

DEMO=$(mktemp -d)
export DEMO DEMO_PACE=$pace
processes=()
clean_up() {
    for process in "${processes[@]}"; do
        kill -9 "$process" 2>/dev/null || true
    done
    rm -rf "$DEMO" 2>/dev/null || rm -rf "$DEMO" # whoever was killed may just have written
}
trap clean_up EXIT
trap 'exit 130' INT TERM

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '%s  $ %s%s\n' "$dim" "$*" "$plain"; }

# samples FILE: of a WAV file with one channel of 16 bits; from its size, since 44 bytes are its head.
samples() { echo $((($(stat -c %s "$1") - 44) / 2)); }
# rate FILE: samples a second, as its head says.
rate() { od -An -tu4 -j24 -N4 "$1" | tr -d ' '; }
# seconds SAMPLES RATE: with one digit behind the point.
seconds() { awk -v n="$1" -v r="$2" 'BEGIN { printf "%.1f", n / r }'; }

# What a worker does is any program: payload on stdin, result on stdout.
cat >"$DEMO/speak.sh" <<'TASK'
wav=$(mktemp "$DEMO/part.XXXXXX")
espeak-ng --stdin -w "$wav"
sleep "$DEMO_PACE"
cat "$wav"
rm -f "$wav"
TASK
# What puts the parts together finds them as files, in their order.
cat >"$DEMO/join.sh" <<'JOIN'
for part in *; do set -- "$@" -t wav "$part"; done
sox "$@" joined.wav
cat joined.wav
JOIN

start_server() {
    "$millrace" serve --data "$DEMO/data" --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --job-commands --grace 1s \
        >/dev/null 2>"$DEMO/server.log" &
    processes+=("$!")
    disown
    for ((i = 0; i < 600; i++)); do
        grep -q '^ready ' "$DEMO/server.log" && break
        sleep 0.05
    done
    grpc=$(sed -n 's/^ready http=[^ ]* grpc=\([^ ]*\)$/\1/p' "$DEMO/server.log")
    [ -n "$grpc" ] || {
        cat "$DEMO/server.log" >&2
        exit 1
    }
    export MILLRACE_BROKER=millrace://$grpc
}

# field NAME: of the job.
field() { "$millrace" job show "$job" --json | jq -r ".$1"; }

# kill_one: the first worker, once a third of the paragraphs is spoken. In the background.
kill_one() {
    while [ "$(field done)" -lt $((paragraphs / 3)) ]; do sleep 0.1; done
    kill -9 "${workers[0]}"
    echo killed >"$DEMO/killed"
}

began=$SECONDS
start_server
# As the job is cut: a paragraph ends with its blank line.
paragraphs=$(awk 'BEGIN { RS = "" } END { print NR }' "$text")

say "1. $workers_n workers, each of which says one paragraph at a time."
show "millrace work -q demo -t speak -c 1 -- sh speak.sh"
workers=()
for ((i = 0; i < workers_n; i++)); do
    "$millrace" --quiet work -q demo -t speak -c 1 -- sh "$DEMO/speak.sh" >/dev/null 2>"$DEMO/worker.$i.log" &
    workers+=("$!")
    processes+=("$!")
    disown # the shell says nothing of its end
done

say "2. A text of $paragraphs paragraphs becomes a job. sox will join what they say."
show "millrace job submit --split paragraphs --stage speak --reduce 'command:sox ...' -q demo demo.txt"
job=$("$millrace" job submit --name demo --split paragraphs --stage speak --reduce "command:sh $DEMO/join.sh" \
    -q demo "$text")
echo "  its id is $job"

say "3. After a third of it one worker is killed: kill -9."
show "millrace job watch $job"
kill_one &
killer=$!
processes+=("$killer")
"$millrace" job watch "$job"
wait "$killer"

say "4. The result is one WAV file."
show "millrace job result $job >demo.wav"
"$millrace" job result "$job" >"$DEMO/demo.wav"
parts_done=$(field done)
hz=$(rate "$DEMO/demo.wav")
got=$(samples "$DEMO/demo.wav")

# The same paragraphs, cut at the same places, one after another.
awk -v to="$DEMO/para." 'BEGIN { n = 1000 } { print >(to n) } /^$/ { close(to n++) }' "$text"
want=0
for paragraph in "$DEMO"/para.*; do
    espeak-ng --stdin -w "$DEMO/alone.wav" <"$paragraph"
    want=$((want + $(samples "$DEMO/alone.wav")))
done
[ -z "${DEMO_OUT:-}" ] || cp "$DEMO/demo.wav" "$DEMO_OUT"

echo "  $(seconds "$got" "$hz") s of speech, computed from $(stat -c %s "$DEMO/demo.wav") bytes at $hz Hz;"
echo "  spoken without workers and kills it is $(seconds "$want" "$hz") s."
say "$parts_done of $paragraphs paragraphs survived the kill, in their order, each once, in $((SECONDS - began)) s."
if [ "$parts_done" -ne "$paragraphs" ] || [ ! -e "$DEMO/killed" ] || [ "$got" -ne "$want" ]; then
    echo "demo: $parts_done of $paragraphs parts, $got samples instead of $want" >&2
    exit 1
fi
