/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for zsh, on the same plan as that for bash, with descriptions. */
#include "cli/pages/pages.h"

static const char head[] = "#compdef millrace\n"
                           "# Made from the tables of the program.\n"
                           "local command='' verb='' names='' only='' plain=0 i\n"
                           "local -a nouns options globals known\n"
                           "for ((i = 2; i < CURRENT; i++)); do\n"
                           "    case $words[i] in\n"
                           "    (--)\n"
                           "        [[ $command == work ]] || return\n"
                           "        shift $i words\n"
                           "        ((CURRENT -= i))\n"
                           "        _normal\n"
                           "        return\n"
                           "        ;;\n"
                           "    (";

static const char middle[] = ") ((i++)) ;;\n"
                             "    (-*) ;;\n"
                             "    (*)\n"
                             "        if [[ -z $command ]]; then\n"
                             "            command=$words[i]\n"
                             "        elif [[ -z $verb ]]; then\n"
                             "            verb=$words[i]\n"
                             "        else\n"
                             "            ((plain++))\n"
                             "        fi\n"
                             "        ;;\n"
                             "    esac\n"
                             "done\n"
                             "case $words[CURRENT-1] in\n";

/* A command's own option of the same name stands for the global one. */
static const char tail[] = "for i in \"${globals[@]}\"; do\n"
                           "    [[ -n ${(M)options:#${i%%:*}:*} ]] || options+=(\"$i\")\n"
                           "done\n"
                           "if [[ -n $names ]]; then\n"
                           "    known=(\"${(@f)$($words[1] __complete $names -- "
                           "\"${(@Q)words[2,-1]}\" 2>/dev/null)}\")\n"
                           "    compadd -- ${known:#}\n"
                           "    [[ -n $only ]] && return\n"
                           "fi\n"
                           "[[ -n $nouns ]] && _describe word nouns\n"
                           "_describe -o option options\n";

/* 'WORD:TEXT' as _describe wants it. */
static void put_entry(FILE *file, const char *dashes, const char *word, const char *text)
{
    fprintf(file, " '%s%s:", dashes, word);
    for (; *text && *text != '\n'; text++)
        fputs(*text == '\'' ? "'\\''" : (const char[]){*text, 0}, file);
    fputc('\'', file);
}

static void put_choices(FILE *file, const struct cli_option *option)
{
    if (!option->choices)
        return;
    fputc('(', file);
    pages_pattern(file, option);
    fputs(") compadd --", file);
    pages_choices(file, option);
    fputs("; return ;;\n", file);
}

static void put_options(FILE *file, const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!pages_shown(&options[i]))
            continue;
        if (options[i].letter)
            put_entry(file, "-", (const char[]){options[i].letter, 0}, options[i].help);
        put_entry(file, "--", options[i].name, options[i].help);
    }
}

static void put_command(FILE *file, const struct cli_command *command)
{
    size_t first = pages_first_verb(command);
    bool verbs = first < command->verbs_n;
    if (verbs) {
        fprintf(file, "(\"%s \") nouns=(", command->name);
        for (size_t i = first; i < command->verbs_n; i++)
            put_entry(file, "", command->verbs[i].name, command->verbs[i].about);
        fputs(")", file);
        if (first > 0) { /* without a verb it has options of its own */
            fputs(" options=(", file);
            put_options(file, command->verbs[0].options, command->verbs[0].options_n);
            fputs(")", file);
        }
        fputs(" ;;\n", file);
    }
    for (size_t i = verbs ? first : 0; i < command->verbs_n; i++) {
        const struct cli_verb *verb = &command->verbs[i];
        const char *names = pages_names(verb);
        if (verb->options_n == 0 && !names)
            continue;
        fprintf(file, "(\"%s %s\"%s) options=(", command->name, verbs ? verb->name : "",
                verbs ? "" : "*");
        put_options(file, verb->options, verb->options_n);
        fprintf(file, ")%s%s ;;\n", names ? "; ((plain)) || names=" : "", names ? names : "");
    }
}

void page_zsh(FILE *file)
{
    fputs(head, file);
    pages_valued_pattern(file);
    fputs(middle, file);
    pages_valued(put_choices, file);
    fputs("(" PAGES_QUEUE_OPTION ") names=queues only=1 ;;\n(", file);
    pages_valued_pattern(file);
    fputs(") _files; return ;;\nesac\ncase \"$command $verb\" in\n(\" \") nouns=(", file);
    for (size_t i = 0; cli_commands[i]; i++)
        put_entry(file, "", cli_commands[i]->name, cli_commands[i]->about);
    fputs(") ;;\n", file);
    for (size_t i = 0; cli_commands[i]; i++)
        put_command(file, cli_commands[i]);
    fputs("esac\nglobals=(", file);
    put_options(file, cli_global_options, cli_global_options_n);
    fputs(")\n", file);
    fputs(tail, file);
}
