/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion for bash. It finds command and verb among the words before the cursor, for which it must
 * know the options with a value, and offers what the tables have there, and the names of queues and
 * timers that the broker has. Bash splits words at = and :, so both stand alone. The names are quoted, and never
 * given to compgen, which would run what is between backticks in them.
 */
#include "cli/pages/pages.h"

static const char head[] =
    "# bash completion for millrace; made from the tables of the program.\n"
    "_millrace() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command='' verb='' words='' names='' plain=0 line i\n"
    "    [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    [ \"$cur\" = = ] && cur=''\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        --)\n"
    "            ((i == COMP_CWORD - 1)) && [ \"$command\" = work ] &&\n"
    "                mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
    "            return\n"
    "            ;;\n"
    "        :|=) ((i++)) ;;\n"
    "        ";

static const char middle[] = ")\n"
                             "            [ \"${COMP_WORDS[i + 1]}\" = = ] && ((i++))\n"
                             "            ((i++))\n"
                             "            ;;\n"
                             "        -*) ;;\n"
                             "        *)\n"
                             "            if [ -z \"$command\" ]; then\n"
                             "                command=${COMP_WORDS[i]}\n"
                             "            elif [ -z \"$verb\" ]; then\n"
                             "                verb=${COMP_WORDS[i]}\n"
                             "            else\n"
                             "                plain=$((plain + 1))\n"
                             "            fi\n"
                             "            ;;\n"
                             "        esac\n"
                             "    done\n"
                             "    case $prev in\n";

static const char tail[] = "        esac\n"
                           "        ;;\n"
                           "    esac\n"
                           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                           "    [[ -n $names && $cur != -* ]] || return 0\n"
                           "    read -ra line <<<\"$COMP_LINE\"\n"
                           "    while IFS= read -r i; do\n"
                           "        [[ $i == \"$cur\"* ]] && COMPREPLY+=(\"$(printf %q \"$i\")\")\n"
                           "    done < <(\"${COMP_WORDS[0]}\" __complete $names -- "
                           "\"${line[@]:1}\" 2>/dev/null)\n"
                           "    return 0\n"
                           "}\n"
                           "complete -o default -F _millrace millrace\n";

static void put_choices(FILE *file, const struct cli_option *option)
{
    if (!option->choices)
        return;
    fputs("    ", file);
    pages_pattern(file, option);
    fputs(") words='", file);
    pages_choices(file, option);
    fputs("' ;;\n", file);
}

/* What every command has stands in the script once. */
static bool is_global(const struct cli_option *option)
{
    for (size_t i = 0; i < cli_global_options_n; i++)
        if (option != &cli_global_options[i] &&
            strcmp(option->name, cli_global_options[i].name) == 0)
            return true;
    return false;
}

static void put_options(FILE *file, const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!pages_shown(&options[i]) || is_global(&options[i]))
            continue;
        if (options[i].letter)
            fprintf(file, " -%c", options[i].letter);
        fprintf(file, " --%s", options[i].name);
    }
}

/* The rows of the inner case: command and verb, what may follow. */
static void put_row(FILE *file, const struct cli_command *command, const struct cli_verb *verb)
{
    const char *names = pages_names(verb);
    if (verb->options_n == 0 && !names)
        return;
    fprintf(file, "        \"%s %s\"%s) words+='", command->name, verb->name ? verb->name : "",
            verb->name ? "" : "*");
    put_options(file, verb->options, verb->options_n);
    fprintf(file, "'%s%s ;;\n", names ? "; ((plain)) || names=" : "", names ? names : "");
}

static void put_command(FILE *file, const struct cli_command *command)
{
    size_t first = pages_first_verb(command);
    if (first < command->verbs_n) {
        fprintf(file, "        \"%s \") [[ $cur == -* ]] || words='", command->name);
        for (size_t i = first; i < command->verbs_n; i++)
            fprintf(file, " %s", command->verbs[i].name);
        fputs("'", file);
        if (first > 0) { /* without a verb it has options of its own */
            fputs("; [[ $cur != -* ]] || words+='", file);
            put_options(file, command->verbs[0].options, command->verbs[0].options_n);
            fputs("'", file);
        }
        fputs(" ;;\n", file);
    }
    for (size_t i = first < command->verbs_n ? first : 0; i < command->verbs_n; i++)
        put_row(file, command, &command->verbs[i]);
}

void page_bash(FILE *file)
{
    fputs(head, file);
    pages_valued_pattern(file);
    fputs(middle, file);
    pages_valued(put_choices, file);
    fputs("    " PAGES_QUEUE_OPTION ") names=queues ;;\n    ", file);
    pages_valued_pattern(file);
    fputs("|:) return ;;\n    *)\n        words='", file);
    put_options(file, cli_global_options, cli_global_options_n);
    /* Options among commands or verbs only for who has begun one. */
    fputs("'\n        case \"$command $verb\" in\n        \" \") [[ $cur == -* ]] || words='",
          file);
    for (size_t i = 0; cli_commands[i]; i++)
        fprintf(file, " %s", cli_commands[i]->name);
    fputs("' ;;\n", file);
    for (size_t i = 0; cli_commands[i]; i++)
        put_command(file, cli_commands[i]);
    fputs(tail, file);
}
