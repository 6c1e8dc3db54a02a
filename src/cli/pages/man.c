/* SPDX-License-Identifier: Apache-2.0 */
/* Man pages in the man(7) macros. */
#include <ctype.h>

#include "cli/pages/pages.h"

/* Text as troff takes it: what it would read as a command or as typography is escaped. */
static void put(FILE *file, const char *text)
{
    bool line_begins = true;
    for (; *text; text++) {
        if (line_begins && (*text == '.' || *text == '\''))
            fputs("\\&", file);
        if (*text == '\\')
            fputs("\\e", file);
        else if (*text == '-')
            fputs("\\-", file);
        else if (*text == '\'')
            fputs("\\(aq", file);
        else
            fputc(*text, file);
        line_begins = *text == '\n';
    }
}

/* Text between a start and an end that are troff already. */
static void put_in(FILE *file, const char *before, const char *text, const char *after)
{
    fputs(before, file);
    put(file, text);
    fputs(after, file);
}

static void put_title(FILE *file, const char *command)
{
    fputs(".\\\" Made from the tables of the program.\n.TH MILLRACE", file);
    for (const char *p = command ? command : ""; *p; p++)
        fprintf(file, "%s%c", p == command ? "\\-" : "", toupper((unsigned char)*p));
    fprintf(file, " 1 \"\" \"Millrace %s\" \"User Commands\"\n", mr_version());
}

static void put_option(FILE *file, const struct cli_option *option)
{
    fputs(".TP\n", file);
    if (option->letter)
        fprintf(file, "\\fB\\-%c\\fR, ", option->letter);
    put_in(file, "\\fB\\-\\-", option->name, "\\fR");
    if (option->value)
        put_in(file, " \\fI", option->value, "\\fR");
    if (option->note == CLI_REPEATS)
        fputs(" ...", file);
    put_in(file, "\n", option->help, cli_default(option) ? " (default " : "\n");
    if (cli_default(option))
        put_in(file, "", cli_default(option), ")\n");
}

static void put_options(FILE *file, const char *title, const struct cli_option *options, size_t n)
{
    if (n > 0)
        fputs(title, file);
    for (size_t i = 0; i < n; i++)
        if (pages_shown(&options[i]))
            put_option(file, &options[i]);
}

/* Without those that a verb of the command has under the same name. */
static void put_global_options(FILE *file, const struct cli_command *command)
{
    fputs(".SH OPTIONS OF EVERY COMMAND\n", file);
    for (size_t i = 0; i < cli_global_options_n; i++) {
        bool own = false;
        for (size_t k = 0; command && k < command->verbs_n; k++)
            own = own || cli_verb_has(&command->verbs[k], cli_global_options[i].name);
        if (!own)
            put_option(file, &cli_global_options[i]);
    }
}

static void put_synopsis(FILE *file, const struct cli_command *command, const struct cli_verb *verb)
{
    put_in(file, "\\fBmillrace ", command->name, "");
    if (verb->name)
        put_in(file, " ", verb->name, "");
    put_in(file, "\\fR [\\fIOPTIONS\\fR]", *verb->synopsis ? " " : "", "");
    put_in(file, "", verb->synopsis, "\n");
}

static void put_examples(FILE *file, const struct cli_verb *verb)
{
    fputs(".nf\n", file);
    for (size_t i = 0; verb->examples[i]; i++)
        put_in(file, "", verb->examples[i], "\n");
    fputs(".fi\n", file);
}

static void put_verb(FILE *file, const struct cli_command *command, const struct cli_verb *verb)
{
    put_in(file, ".SS ", verb->name, "\n");
    put_synopsis(file, command, verb);
    put_in(file, ".PP\n", verb->about, "\n");
    put_options(file, "", verb->options, verb->options_n);
    fputs(".PP\n", file);
    put_examples(file, verb);
}

static void put_see_also(FILE *file, const struct cli_command *but)
{
    fputs(".SH SEE ALSO\n", file);
    if (but)
        fputs(".BR millrace (1),\n", file);
    for (size_t i = 0; cli_commands[i]; i++)
        if (cli_commands[i] != but)
            fprintf(file, ".BR millrace\\-%s (1)%s\n", cli_commands[i]->name,
                    cli_commands[i + 1] && cli_commands[i + 1] != but ? "," : "");
}

void page_man_command(FILE *file, const struct cli_command *command)
{
    put_title(file, command->name);
    put_in(file, ".SH NAME\nmillrace\\-", command->name, " \\- ");
    put_in(file, "", command->about, "\n.SH SYNOPSIS\n");
    for (size_t i = 0; i < command->verbs_n; i++) {
        fputs(i > 0 ? ".br\n" : "", file);
        put_synopsis(file, command, &command->verbs[i]);
    }
    const struct cli_verb *first = &command->verbs[0];
    if (!first->name) {
        put_in(file, ".SH DESCRIPTION\n", first->about, "\n");
        put_options(file, ".SH OPTIONS\n", first->options, first->options_n);
        fputs(".SH EXAMPLES\n", file);
        put_examples(file, first);
    }
    size_t verb = pages_first_verb(command);
    fputs(verb < command->verbs_n ? ".SH VERBS\n" : "", file);
    for (size_t i = verb; i < command->verbs_n; i++)
        put_verb(file, command, &command->verbs[i]);
    put_global_options(file, command);
    put_see_also(file, command);
}

static void put_pair(FILE *file, const char *name, const char *meaning)
{
    put_in(file, ".TP\n\\fB", name, "\\fR\n");
    put_in(file, "", meaning, "\n");
}

void page_man(FILE *file)
{
    put_title(file, NULL);
    put_in(file, ".SH NAME\nmillrace \\- ", "background work that is done once you hand it over",
           "\n.SH SYNOPSIS\n\\fBmillrace\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] ...\n");
    fputs(".SH COMMANDS\n", file);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(file, ".TP\n.BR millrace\\-%s (1)\n", cli_commands[i]->name);
        put_in(file, "", cli_commands[i]->about, "\n");
    }
    put_global_options(file, NULL);
    fputs(".SH EXIT STATUS\n", file);
    for (size_t i = 0; i < cli_exits_n; i++) {
        char code[16];
        snprintf(code, sizeof code, "%d", cli_exits[i].code);
        put_pair(file, code, cli_exits[i].meaning);
    }
    put_pair(file, "128 + N", "ended by signal N");
    fputs(".SH ENVIRONMENT\n", file);
    put_pair(file, "MILLRACE_BROKER", "where tasks live, unless --broker says it");
    put_pair(file, "MILLRACE_NAMESPACE", "the namespace, unless --namespace says it");
    put_pair(file, "MILLRACE_TOKEN", "the token for a server, unless --token-file names a file");
    put_pair(file, "MILLRACE_TOKEN_FILE", "a file with it");
    put_pair(file, "MILLRACE_TLS_CA, MILLRACE_TLS_CERT, MILLRACE_TLS_KEY",
             "what --tls-ca, --tls-cert and --tls-key say");
    put_pair(file, "NO_COLOR", "no colours, when it is set and not empty");
    put_see_also(file, NULL);
}
