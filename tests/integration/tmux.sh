#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The command line as a person sees it: a real shell in a real terminal (tmux), every command typed, its
# screen read. Live views, their keys, wrong options, narrow terminals, Ctrl-C and Ctrl-Z.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"
source "$(dirname "${BASH_SOURCE[0]}")/serve_lib.bash"

tm() { env -u TMUX tmux -S "$room/tmux" -f /dev/null "$@"; }
trap 'tm kill-server 2>/dev/null || true
for p in "${servers[@]}"; do kill -9 "$p" 2>/dev/null || true; done
chmod -R u+rwX "$room" 2>/dev/null; rm -rf "$room"' EXIT

# ---- the terminal ----

screen() { tm capture-pane -p -t main "$@"; }
key() { tm send-keys -t main "$@"; }
type_in() { tm send-keys -t main -l -- "$1"; }

# is_so COMMAND...: waits like until_true, 20 s or so many looks as $looks says, and shows the screen when
# it was in vain.
is_so() {
    local i
    for ((i = 0; i < ${looks:-400}; i++)); do
        if "$@"; then
            return
        fi
        sleep 0.05
    done
    fail "waited in vain for: $*; the screen:
$(screen)"
}

has() { screen | grep -qF -- "$1"; }
lacks() { ! has "$1"; }
sees() { is_so has "$1"; }
misses() { is_so lacks "$1"; }
prompts() { [ "$(screen | grep . | tail -1)" = "[$1]\$" ]; }

# begin COMMAND: types it to the shell, for an empty screen. It must be seen before the prompt of the last
# one can be taken for its own.
begin() {
    type_in "clear; $1"
    sees "clear; ${1:0:10}"
    key Enter
}

# run CODE COMMAND [TEXT...]: types the command on an empty screen, waits for the prompt with its exit
# code, looks for the texts; but for errors, no line may be wider than the terminal.
run() {
    local code=$1 command=$2 text
    shift 2
    begin "$command"
    is_so prompts "$code"
    for text in "$@"; do
        has "$text" || fail "$command does not show \"$text\" but:
$(screen)"
    done
    [ "$code" -ne 0 ] || is_so fits
}

# Lines that the terminal broke are joined here.
fits() { [ "$(screen -J | sed 's/ *$//' | wc -L)" -le "$(tm display -p -t main '#{pane_width}')" ]; }
size() { tm resize-window -t main -x "$1" -y "$2"; }
full_screen() { [ "$(tm display -p -t main '#{alternate_on}')" = "$1" ]; }

# given_back CODE: the shell has its terminal again, as it was.
given_back() {
    is_so full_screen 0
    is_so prompts "$1"
    is "cursor" 1 "$(tm display -p -t main '#{cursor_flag}')"
    run 0 'stty -a | grep -oE " -?(icanon|echo)\b"' ' icanon' ' echo'
    lacks -icanon || fail "the terminal is raw"
}

# of_top SIGNAL: to the program that fills the screen.
of_top() { kill -"$1" "$(pgrep -P "$(tm display -p -t main '#{pane_pid}')" -x millrace)"; }

start
mkdir "$room/bin"
ln -s "$(realpath "$MILLRACE")" "$room/bin/millrace"
cat >"$room/rc" <<END
PS1='[\$?]\$ ' PATH=$room/bin:\$PATH HISTFILE=
export MILLRACE_BROKER=$MILLRACE_BROKER
END
tm new-session -d -s main -x 110 -y 42 "cd '$room' && exec bash --noprofile --rcfile '$room/rc' -i"
is_so prompts 0

# ---- every command ----

run 0 "millrace --help" 'usage: millrace COMMAND' 'live view of queues and workers'
run 0 "millrace enqueue -q w --id a1 hello" a1
run 0 "seq 3 | millrace enqueue --lines -q w | wc -l" 3
run 0 "millrace enqueue -q later --id l1 --delay 1h x" l1
run 0 "millrace work -q w --burst -- sh -c 'cat; exit 0'"
run 0 "millrace queue list" QUEUE PENDING later w
run 0 "millrace queue show w" 'in all: processed 4, failed 0' 'waited: '
run 0 "millrace queue pause w" 'is paused'
run 0 "millrace queue list" 'paused'
run 0 "millrace queue resume w" 'is running'
run 0 "millrace queue set w --max-length 50" 'is set'
run 0 "millrace task list -q w" a1 completed hello
run 0 "millrace task show a1" 'state        completed' 'result       hello'
run 0 "millrace task why a1" completed
run 0 "millrace task why l1" scheduled
run 0 "millrace task prioritise l1 60" 'prioritised 1 task'
run 0 "millrace task run l1" 'run 1 task'
run 0 "millrace task archive l1" 'archived 1 task'
run 0 "millrace dead list" l1 archived
run 0 "millrace dead show l1" 'state        archived'
run 0 "millrace dead requeue l1" 'requeued 1 task'
run 0 "millrace task cancel l1" 'cancelled 1 task'
run 0 "millrace dead purge --yes" 'purged 1 task'
run 0 "millrace task delete -q w --state completed --dry-run" 'would have deleted 4 tasks'
begin "millrace task delete -q w --state completed"
sees 'delete 4 tasks? Type yes:'
type_in yes
key Enter
sees 'deleted 4 tasks'
run 0 "millrace node list" 'no nodes'
run 0 "millrace token create --role viewer --queue 'w*' >t1; wc -l <t1" 1
run 0 "millrace token list" ROLE viewer
run 0 "millrace token revoke \$(millrace token list --json | jq -r '.[0].id')"
run 0 "millrace config check --data x"
run 0 "millrace config show --effective | head -n 30" SETTING drain-timeout 30s default
run 0 "millrace backup \$PWD/copy"
run 0 "millrace fsck file:copy" 'segment' 'records'
run 0 "millrace --broker file:copy queue rm w --force" 'is removed'
run 0 "millrace --broker file:copy top --once --interval 100ms" 'tasks 0' later
run 124 "timeout -s INT 1 millrace serve --data other --listen 127.0.0.1:0 --grpc 127.0.0.1:0" 'ready http=' stopping
begin "millrace work -q w -c 1 -- cat"
is_so eval "m node list --json | jq -e 'length == 1' >/dev/null"
key C-c
is_so prompts 0
run 0 "millrace selftest --crash 1" 'was killed 1 time' passed
run 0 "millrace bench --only memory --tasks 1000 --broker file:copy" memory bytes

# ---- mistakes ----

run 2 "millrace enqueue --prio 3 x" 'unknown option --prio; did you mean --priority?'
run 2 "millrace queu list" 'did you mean queue?'
run 2 "millrace --broker file:copy enqueue --wait x" 'needs a server'
run 3 "millrace task show nobody" 'not found'
run 6 "millrace --broker millrace://127.0.0.1:1 queue list" 'no server at 127.0.0.1:1: nobody listens there'
run 1 "millrace top --once | grep -c 'every 1s' | grep 2"

# ---- colours, and none of them ----

m enqueue -q w x >/dev/null
run 0 "millrace queue list" QUEUE
screen -e | grep -q $'\033\[1m' || fail "no colours on a terminal"
run 0 "millrace queue list --no-color" QUEUE
screen -e | grep -q $'\033\[' && fail "colours with --no-color"
run 0 "NO_COLOR=1 millrace queue list" QUEUE
screen -e | grep -q $'\033\[' && fail "colours with NO_COLOR"
run 0 "millrace queue list | od -c | grep -c '033' || true" 0

run 2 "TERM=dumb millrace top" 'top needs a terminal that can draw'
run 130 "TERM=dumb timeout --foreground -s INT --preserve-status 1 millrace queue list --watch 500ms" QUEUE
[ "$(screen | grep -c QUEUE)" -ge 2 ] || fail "not one table behind the other"

# ---- a narrow terminal ----

m enqueue -q w --id wide "$(printf 'long %.0s' {1..60})" >/dev/null
for columns in 25 40 60; do
    size "$columns" 42
    run 0 "millrace queue list" QUEUE PENDING
    run 0 "millrace top --once --interval 100ms" QUEUE
    [ "$columns" -gt 36 ] || continue # an id is never cut
    run 0 "millrace task list -q w" ID wide
    run 0 "millrace token list" ID
done
size 110 42

# ---- waiting for a task ----

"$MILLRACE" work -q sums -c 2 --node adder -- sh -c 'n=$(cat); [ "$n" != bad ] || { echo no number >&2; exit 100; }; eval "echo \$(($n))"' \
    >/dev/null 2>&1 &
worker=$!
servers+=("$worker")
run 0 "millrace enqueue -q sums --wait '1 + 2'" 3
run 8 "millrace enqueue -q sums --wait bad" 'failed: no number'
run 7 "millrace enqueue -q none --id slow --wait --wait-timeout 200ms x" 'task slow has not ended in time'
begin "millrace enqueue -q none --id slow2 --wait x"
sees 'waiting for task slow2'
key C-c
is_so prompts 130
sees 'interrupted; task slow2 goes on'
lacks 'waiting for task slow2' || fail "what it waited for is left behind"
run 0 "millrace node list" adder live 0/2 sums

# ---- progress ----

begin "for i in {1..40}; do echo \$i; sleep 0.05; done | millrace enqueue --lines -q drip >ids"
is_so eval "screen | grep -qE '^enqueue  [0-9]+ tasks  [0-9]+/s'"
is_so prompts 0
lacks 'tasks  ' || fail "the progress is left behind"
run 0 "wc -l <ids" 40
run 0 "seq 5 | millrace enqueue --lines -q drip --quiet >ids" 5
seq 3000000 >"$room/many"
begin "millrace enqueue --lines -q many --retention 0 <many >ids"
is_so eval "screen | grep -qE '^enqueue \[#+ *\] +[1-9][0-9]%  [0-9]+ tasks  [0-9]+/s  [0-9a-z]+ left'"
key C-c
is_so prompts 130
sees 'tasks are on disk'
begin "millrace task delete -q many --yes"
is_so eval "screen | grep -qE '^looking  [0-9]+ tasks'"
is_so eval "screen | grep -qE '^delete \[#+ *\] +[0-9]+%  [0-9]+ tasks  [0-9]+/s  [0-9a-z]+ left'"
is_so prompts 0
has 'left' && fail "the progress is left behind"

# ---- watching ----

begin "millrace queue list --watch 200ms"
sees 'every 200ms; q ends'
sees drip
misses fresh
m enqueue -q fresh x >/dev/null
sees fresh
is_so full_screen 1
size 50 12
sees 'every 200ms; q ends'
is_so fits
size 110 42
key q
given_back 0
begin "millrace task show wide --watch 200ms"
sees 'state        pending'
key C-c
is_so prompts 130
has 'state        pending' || fail "the last frame is gone"
run 3 "millrace task show nobody --watch" 'not found'
run 0 "timeout -s INT 1 millrace queue show w --watch 100ms --json >frames; jq -s 'length > 2' frames" true

# ---- top ----

run 2 "millrace top | cat; (exit \${PIPESTATUS[0]})" 'top needs a terminal'
m --quiet queue rm many
begin "millrace top --interval 200ms"
sees 'adder'
is_so full_screen 1
sees 'DONE/S'
sees '>  drip'
key Down
sees '>  fresh'
key Escape '[A' # in two pieces, as from afar
sees '>  drip'
key Down
sees '>  fresh'
key k
sees '>  drip'
key p
sees 'queue drip is paused'
sees 'paused'
key p
sees 'queue drip is running'
key '/'
type_in su
sees '>  sums'
misses drip
key Enter
key r
sees 'requeue 1 archived task of sums? y/n'
key n
sees 'nothing done'
key Enter
sees 'queue sums, all tasks'
key s s
sees 'queue sums, pending tasks'
sees 'no tasks'
key s s s
sees 'queue sums, archived tasks'
sees 'no number'
key Enter
sees 'last error   no number'
key q
sees 'ATTEMPT'
key r
sees 'requeue task'
key y
sees 'is requeued'
key Escape
sees 'QUEUE'
key '?'
sees 'choose a row, or scroll'
size 60 24
for text in 'the tasks of a queue, one task' 'of a queue, or one' 'esc lifts it' 'of the last minute, 99'; do sees "$text"; done
key q
sees 'DONE/S  PAUSED'
size 40 12
sees 'QUEUE  PENDING'
is_so fits
size 110 42
sees 'WAIT P99'
m enqueue -q newcomer x >/dev/null
sees newcomer
key C-z
is_so full_screen 0
sees 'Stopped'
type_in fg
key Enter
is_so full_screen 1
sees newcomer
key q
given_back 0
for signal in INT:130 TERM:143 ABRT:134; do
    begin "ulimit -c 0; millrace top"
    sees newcomer
    is_so full_screen 1
    of_top "${signal%:*}"
    given_back "${signal#*:}"
done

# A server that hangs holds nobody.
begin "millrace top --interval 200ms"
sees newcomer
kill -STOP "$server"
sleep 0.5 # it asks, and gets no answer
key C-z
looks=60 is_so full_screen 0 # long before the call itself is given up
begin fg
is_so full_screen 1
key C-c
looks=60 is_so full_screen 0
given_back 130
kill -CONT "$server"

# A server that goes away and comes back.
begin "millrace top --interval 200ms"
sees newcomer
stop 0
sees '! broker out of reach; trying again'
"$MILLRACE" serve --data "$data" --listen "$http" --grpc "$grpc" >/dev/null 2>&1 &
servers+=($!)
misses '! broker out of reach'
sees newcomer
key C-c
given_back 130

# ---- completions, at the press of a key ----

pages=${MR_BINARY_DIR:?is set by ctest: the folder of the build}/pages
mkdir "$room/zsh"
cp "$pages/_millrace" "$room/zsh/"
cat >"$room/zsh/.zshrc" <<END
PS1='[%?]\$ ' fpath=($room/zsh \$fpath)
autoload -U compinit && compinit -u -d $room/zcompdump
END
# completes: whichever shell runs there offers the queue that came, and an option.
completes() {
    type_in 'millrace queue show newc'
    key Tab
    sees 'millrace queue show newcomer'
    type_in '--wat'
    key Tab
    sees 'show newcomer --watch'
    key C-c
}
run 0 "source $pages/millrace.bash"
completes
begin "ZDOTDIR=$room/zsh zsh -i"
is_so prompts 0
completes
type_in exit
key Enter
begin "fish --no-config --init-command 'source $pages/millrace.fish; function fish_prompt; echo fish; end'"
is_so eval 'screen | grep -q ^fish'
completes
