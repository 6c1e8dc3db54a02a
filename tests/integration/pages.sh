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
    LC_ALL=C.UTF-8 MANWIDTH=200 man --warnings=w -P cat -l "$share/man/man1/$1.1" 2>"$room/err"
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
    [ -n "$verbs" ] || check_options "$text" "$command"
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
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        _millrace
        echo "${COMPREPLY[*]}"
    )"
}
completes enqueue millrace en
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
# shellcheck disable=SC1090
case $(source "$bash_file" && complete -p millrace) in *'-F _millrace millrace') ;; *) fail "not registered" ;; esac
