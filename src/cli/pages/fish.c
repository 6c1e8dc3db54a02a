/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for fish: a line for everything that can be typed, with the words it needs before it. */
#include "cli/pages/pages.h"

#define NAMES "-a '(millrace __complete %s -- (commandline -opc)[2..-1] 2>/dev/null)'"

static void put_text(FILE *file, const char *text)
{
    fputs(" -d '", file);
    for (; *text && *text != '\n'; text++)
        fprintf(file, "%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
    fputs("'\n", file);
}

/* Under which words a line counts; NULL for none. */
static void put_condition(FILE *file, const char *command, const char *verb)
{
    fputs("complete -c millrace", file);
    if (command)
        fprintf(file, " -n '__fish_seen_subcommand_from %s", command);
    if (verb)
        fprintf(file, "; and __fish_seen_subcommand_from %s", verb);
    if (command)
        fputc('\'', file);
}

static void put_options(FILE *file, const struct cli_command *command, const struct cli_verb *verb,
                        const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct cli_option *option = &options[i];
        if (!pages_shown(option))
            continue;
        put_condition(file, command ? command->name : NULL, verb ? verb->name : NULL);
        if (option->letter)
            fprintf(file, " -s %c", option->letter);
        fprintf(file, " -l %s", option->name);
        if (strcmp(option->name, "queue") == 0) {
            fprintf(file, " -x " NAMES, "queues");
        } else if (option->choices) {
            fputs(" -x -a '", file);
            pages_choices(file, option);
            fputc('\'', file);
        } else if (pages_takes_value(option)) {
            fputs(" -r", file);
        }
        put_text(file, option->help);
    }
}

static void put_verbs(FILE *file, const struct cli_command *command)
{
    size_t first = pages_first_verb(command);
    for (size_t i = first; i < command->verbs_n; i++) {
        fprintf(file,
                "complete -c millrace -f -n '__fish_seen_subcommand_from %s; and not "
                "__fish_seen_subcommand_from",
                command->name);
        for (size_t k = first; k < command->verbs_n; k++)
            fprintf(file, " %s", command->verbs[k].name);
        fprintf(file, "' -a %s", command->verbs[i].name);
        put_text(file, command->verbs[i].about);
    }
}

void page_fish(FILE *file)
{
    fputs("# fish completion for millrace; made from the tables of the program.\n", file);
    put_options(file, NULL, NULL, cli_global_options, cli_global_options_n);
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *command = cli_commands[i];
        fprintf(file, "complete -c millrace -f -n __fish_use_subcommand -a %s", command->name);
        put_text(file, command->about);
        put_verbs(file, command);
        for (size_t k = 0; k < command->verbs_n; k++) {
            const struct cli_verb *verb = &command->verbs[k];
            put_options(file, command, verb, verb->options, verb->options_n);
            if (!pages_names(verb))
                continue;
            put_condition(file, command->name, verb->name);
            fprintf(file, " -f " NAMES "\n", pages_names(verb));
        }
    }
}
