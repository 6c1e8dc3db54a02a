/* SPDX-License-Identifier: Apache-2.0 */
/* Help, made from the tables: the example first, then what there is to say about each option. */
#include "cli/cli.h"
#include "cli/out.h"

enum { NAME_COLUMN = 28, EXITS_A_LINE = 6 };

static void print_option(const struct cli_option *option)
{
    char left[80];
    snprintf(left, sizeof left, "%c%c%s --%s%s%s%s", option->letter ? '-' : ' ',
             option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
             option->value ? " " : "", option->value ? option->value : "",
             option->note == CLI_REPEATS ? "..." : "");
    out_printf("  %-*s %s", NAME_COLUMN, left, option->help);
    if (cli_default(option))
        out_printf(" (default %s)", cli_default(option));
    out_printf("\n");
}

bool cli_verb_has(const struct cli_verb *verb, const char *name)
{
    for (size_t i = 0; verb && i < verb->options_n; i++)
        if (strcmp(verb->options[i].name, name) == 0)
            return true;
    return false;
}

/* Without those that the verb `but` has under the same name; NULL: all. */
static void print_options(const char *title, const struct cli_option *options, size_t n,
                          const struct cli_verb *but)
{
    if (n == 0)
        return;
    out_printf("\n%s%s%s\n", out_colour(OUT_BOLD), title, out_colour(OUT_PLAIN));
    for (size_t i = 0; i < n; i++)
        if (options[i].note != CLI_NOT_HERE && !cli_verb_has(but, options[i].name))
            print_option(&options[i]);
}

static void print_examples(const struct cli_verb *verb)
{
    for (size_t i = 0; verb->examples && verb->examples[i]; i++)
        out_printf("  %s\n", verb->examples[i]);
}

/* The first line of what is said of each; its own help has the rest. */
static void list_verbs(const struct cli_command *command)
{
    for (size_t i = 0; i < command->verbs_n; i++) {
        char left[80];
        if (!command->verbs[i].name)
            continue;
        snprintf(left, sizeof left, "%s %s", command->verbs[i].name, command->verbs[i].synopsis);
        out_printf("  %-*s %.*s\n", NAME_COLUMN, left, (int)strcspn(command->verbs[i].about, "\n"),
                   command->verbs[i].about);
    }
    out_printf("\nmillrace %s VERB --help says more about each.\n", command->name);
}

static void help_verb(const struct cli_command *command, const struct cli_verb *verb)
{
    print_examples(verb);
    out_printf("\n%s\n\nusage: millrace %s%s%s [OPTIONS]%s%s\n", verb->about, command->name,
               verb->name ? " " : "", verb->name ? verb->name : "", *verb->synopsis ? " " : "",
               verb->synopsis);
    print_options("options", verb->options, verb->options_n, NULL);
    print_options("options of every command", cli_global_options, cli_global_options_n, verb);
    if (verb->name || command->verbs_n == 1)
        return;
    out_printf("\n%sverbs%s\n", out_colour(OUT_BOLD), out_colour(OUT_PLAIN));
    list_verbs(command);
}

static void help_command(const struct cli_command *command)
{
    for (size_t i = 0; i < command->verbs_n; i++)
        out_printf("  %s\n", command->verbs[i].examples[0]);
    out_printf("\n%s\n\nusage: millrace %s VERB [OPTIONS] ...\n\n", command->about, command->name);
    list_verbs(command);
}

static void help_all(void)
{
    out_printf("  millrace enqueue --broker file:./tasks -q mail 'hello'\n"
               "  millrace work --broker file:./tasks -q mail --burst -- cat\n\n"
               "Background work that is done once you hand it over.\n\n"
               "usage: millrace COMMAND [OPTIONS] ...\n\n");
    for (size_t i = 0; cli_commands[i]; i++)
        out_printf("  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->about);
    print_options("options of every command", cli_global_options, cli_global_options_n, NULL);
    out_printf("\nexit codes:");
    for (size_t i = 0; i < cli_exits_n; i++)
        out_printf("%s%d %s",
                   i == 0              ? " "
                   : i == EXITS_A_LINE ? ",\n            "
                                       : ", ",
                   cli_exits[i].code, cli_exits[i].meaning);
    out_printf("\n\nmillrace COMMAND --help says more about each.\n");
}

void cli_help(const struct cli *cli)
{
    if (cli->command && cli->verb)
        help_verb(cli->command, cli->verb);
    else if (cli->command)
        help_command(cli->command);
    else
        help_all();
}
