/* SPDX-License-Identifier: Apache-2.0 */
/* Walking through the options of all commands. */
#include <stdlib.h>

#include "cli/pages/pages.h"

enum { VALUED_MAX = 128 };

struct valued {
    const struct cli_option *options[VALUED_MAX];
    size_t n;
};

bool pages_takes_value(const struct cli_option *option)
{
    return option->kind != CLI_FLAG && option->kind != CLI_MAYBE_DURATION;
}

const char *pages_names(const struct cli_verb *verb)
{
    static const char *const names[] = {
        [CLI_WORDS_PLAIN] = NULL,
        [CLI_FIRST_IS_QUEUE] = "queues",
        [CLI_FIRST_IS_TIMER] = "timers",
        [CLI_FIRST_IS_JOB] = "jobs",
    };
    return names[verb->words];
}

size_t pages_first_verb(const struct cli_command *command)
{
    return command->verbs[0].name ? 0 : 1;
}

bool pages_shown(const struct cli_option *option)
{
    return option->note != CLI_NOT_HERE;
}

/* A name that takes a value here and none there could not be completed. */
static bool known(const struct valued *valued, const struct cli_option *option)
{
    for (size_t i = 0; i < valued->n; i++) {
        if (strcmp(valued->options[i]->name, option->name) != 0)
            continue;
        mr_assert(valued->options[i]->letter == option->letter);
        mr_assert(pages_takes_value(option));
        return true;
    }
    return false;
}

static void add(struct valued *valued, const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!pages_shown(&options[i]) || known(valued, &options[i]) ||
            !pages_takes_value(&options[i]))
            continue;
        mr_assert(valued->n < VALUED_MAX);
        valued->options[valued->n++] = &options[i];
    }
}

void pages_valued(void (*each)(FILE *file, const struct cli_option *option), FILE *file)
{
    struct valued valued = {0};
    add(&valued, cli_global_options, cli_global_options_n);
    for (size_t i = 0; cli_commands[i]; i++)
        for (size_t k = 0; k < cli_commands[i]->verbs_n; k++)
            add(&valued, cli_commands[i]->verbs[k].options, cli_commands[i]->verbs[k].options_n);
    for (size_t i = 0; i < valued.n; i++)
        each(file, valued.options[i]);
}

void pages_pattern(FILE *file, const struct cli_option *option)
{
    fprintf(file, "--%s", option->name);
    if (option->letter)
        fprintf(file, "|-%c", option->letter);
}

static void put_alternative(FILE *file, const struct cli_option *option)
{
    bool first = option == &cli_global_options[0];
    fputs(first ? "" : "|", file);
    pages_pattern(file, option);
}

void pages_valued_pattern(FILE *file)
{
    mr_assert(pages_takes_value(&cli_global_options[0]));
    pages_valued(put_alternative, file);
}

void pages_choices(FILE *file, const struct cli_option *option)
{
    for (size_t i = 0; option->choices[i]; i++)
        fprintf(file, " %s", option->choices[i]);
}
