#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Man pages and completions as they are installed: the pages have no faults and name every option that
# --help names; bash completes; the completions for zsh and fish know every command, verb and option.

set -euo pipefail
: "${MR_BINARY_DIR:?is set by ctest: the folder of the release build}"
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

DESTDIR=$room/root cmake --install "$MR_BINARY_DIR" --prefix /usr >/dev/null
share=$room/root/usr/share
bash_file=$share/bash-completion/completions/millrace
zsh_file=$share/zsh/site-functions/_millrace
fish_file=$share/fish/vendor_completions.d/millrace.fish

# page NAME: the text of a man page; fails on any warning of the formatter.
page() {
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings=w -P cat -l "$share/man/man1/$1.1" >/dev/null 2>"$room/err"
    LC_ALL=C.UTF-8 MANWIDTH=200 man --warnings=w -P cat -l "$share/man/man1/$1.1" 2>>"$room/err"
    [ ! -s "$room/err" ] || fail "$1.1: $(cat "$room/err")"
}

# options_of ARG...: the long options that --help names.
options_of() { m "$@" --help | grep -oE '^ +(-[a-z], )? *--[a-z-]+' | grep -oE -- '--[a-z-]+'; }

# words_of ARG...: the commands or verbs that --help lists.
words_of() { m "$@" --help | sed -n '/^usage:/,$p' | awk '/^  [a-z]/ { print $1 }'; }

check_options() {
    local text=$1 option
    shift
    for option in $(options_of "$@"); do
        grep -qE -- "(^|[ ,])$option( |$)" <<<"$text" || fail "the man page of $* lacks $option"
        grep -q -- "'$option:" "$zsh_file" || fail "zsh lacks $option"
        grep -q -- "-l ${option#--}" "$fish_file" || fail "fish lacks $option"
    done
}

page millrace >"$room/top"
commands=$(words_of)
is "commands" "$(grep -o '&cli_' "$MR_SOURCE_DIR/src/cli/commands.c" | wc -l)" "$(wc -w <<<"$commands")"
for command in $commands; do
    grep -q "millrace-$command(1)" "$room/top" || fail "millrace(1) lacks $command"
    text=$(page "millrace-$command")
    verbs=$(words_of "$command")
    ! m "$command" --help | grep -q "^usage: millrace $command \[OPTIONS\]" || check_options "$text" "$command"
    for verb in $verbs; do
        grep -q "millrace $command $verb \[OPTIONS\]" <<<"$text" || fail "no $command $verb"
        check_options "$text" "$command" "$verb"
        grep -q "'$verb:" "$zsh_file" || fail "zsh lacks $verb"
        grep -qE -- "-a $verb( |$)" "$fish_file" || fail "fish lacks $verb"
    done
done

# completes WANT WORD...: what bash offers for the last word.
completes() {
    local want=$1
    shift
    is "completion of $*" "$want" "$(
        # shellcheck disable=SC1090
        source "$bash_file"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMPREPLY=()
        _millrace
        echo "${COMPREPLY[*]}"
    )"
}
completes enqueue millrace en
completes "$(xargs <<<"$commands")" millrace ''
completes "$(words_of queue | xargs)" millrace queue ''
completes --broker millrace --bro
completes '--tls-cert' millrace serve --tls-ce
completes prioritise millrace task pr
completes show millrace --broker file : ./x queue sh
completes list millrace --broker = file : ./x dead li
completes --state millrace task list --st
completes pending millrace task list --state pe
completes pending millrace task list --state = pe
completes --on-duplicate millrace enqueue hello --on
completes replace millrace enqueue --on-duplicate rep
completes '' millrace queue list --forc
completes --force millrace queue rm --forc
completes '' millrace work -- env fo
completes status millrace nameserver ''
completes --peer-ca millrace nameserver --peer-
completes --nameserver millrace nameserver status --nameser

# The names of queues, live. One that a shell would run is quoted, and run by nobody.
PATH=$(dirname "$MILLRACE"):$PATH
export MILLRACE_BROKER=$store
m enqueue -q mail x >/dev/null
m enqueue -q "make \$(touch $room/run) \`touch $room/run\`" x >/dev/null
live() {
    # shellcheck disable=SC2086
    completes "$1" $2
}
live mail 'millrace queue show mai'
live mail 'millrace enqueue -q mai'
live '' 'millrace queue show mail mai'
live mail "millrace queue pause --broker $store mai"
live '' "millrace --broker file:$room/none queue show mai"
m timer create nightly --manual >/dev/null 2>&1
live nightly 'millrace timer show nig'
live nightly 'millrace timer update --app default nig'
live '' 'millrace timer create nig'
live "$(printf %q "make \$(touch $room/run) \`touch $room/run\`")" 'millrace task list --queue mak'
MILLRACE_BROKER=millrace://127.0.0.1:1 live '' 'millrace queue show mai'
fish_offers() { fish --no-config -c "source '$fish_file'; complete -C '$1'" | cut -f 1; }
is "fish offers" "mail" "$(fish_offers 'millrace queue show mai')"
is "fish offers" "mail" "$(fish_offers 'millrace enqueue --queue mai')"
is "fish offers" "prioritise" "$(fish_offers 'millrace task pri')"
cat >"$room/zsh.zsh" <<'EOF'
# What zsh would offer: the completion as zsh runs it, its last step printed.
compadd() { print -rl -- "${@[2,-1]}"; }
_describe() { print -rl -- "${(@P)@[-1]%%:*}"; }
_millrace() { source "$zsh_file"; }
words=(${(z)line}) CURRENT=$#words
_millrace
EOF
zsh_offers() { line=$1 zsh_file=$zsh_file zsh -f "$room/zsh.zsh" | grep "^$2" || true; }
is "zsh offers" mail "$(zsh_offers 'millrace queue show mai' mai)"
is "zsh offers" mail "$(zsh_offers 'millrace enqueue -q mai' mai)"
is "zsh offers" '' "$(zsh_offers 'millrace queue show mail mai' mai)"
is "zsh offers" prioritise "$(zsh_offers 'millrace task pri' pri)"
is "zsh offers" '--tls-ca' "$(zsh_offers 'millrace serve --tls-ca' --tls-ca)" # once, though it is a global one, too
[ ! -e "$room/run" ] || fail "the name of a queue was run"
# shellcheck disable=SC1090
case $(source "$bash_file" && complete -p millrace) in *'-F _millrace millrace') ;; *) fail "not registered" ;; esac
