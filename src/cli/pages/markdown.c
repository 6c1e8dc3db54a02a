/* SPDX-License-Identifier: Apache-2.0 */
/* The reference in Markdown: commands, settings, errors, routes and figures, each from the table that the program itself goes by. */
#include "api/http_door.h"
#include "api/metrics_text.h"
#include "api/tokens.h"
#include "cli/pages/pages.h"
#include "cli/settings.h"

/* Text of a table's cell: nothing in it ends the cell or is taken for markup. */
static void put(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (strchr("|*_<>[]`\\", *text))
            fputc('\\', file);
        fputc(*text == '\n' ? ' ' : *text, file);
    }
}

/* The same, set as code. Inside of it only the bar counts. */
static void put_code(FILE *file, const char *text)
{
    fputc('`', file);
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', file);
        fputc(*text, file);
    }
    fputc('`', file);
}

static void put_head(FILE *file, const char *columns)
{
    fprintf(file, "\n| %s |\n|", columns);
    for (const char *p = columns; p; p = strchr(p + 1, '|'))
        fputs(" --- |", file);
    fputc('\n', file);
}

static void put_option(FILE *file, const struct cli_option *option)
{
    char name[160];
    snprintf(name, sizeof name, "%s%c%s--%s%s%s%s", option->letter ? "-" : "",
             option->letter ? option->letter : ' ', option->letter ? ", " : "", option->name,
             option->value ? " " : "", option->value ? option->value : "",
             option->note == CLI_REPEATS ? "..." : "");
    fputs("| ", file);
    put_code(file, name[0] == ' ' ? name + 1 : name);
    fputs(" | ", file);
    put(file, option->help);
    if (cli_default(option)) {
        fputs(" (default ", file);
        put_code(file, cli_default(option));
        fputc(')', file);
    }
    fputs(" |\n", file);
}

static void put_options(FILE *file, const struct cli_option *options, size_t n)
{
    if (n > 0)
        put_head(file, "option | meaning");
    for (size_t i = 0; i < n; i++)
        if (pages_shown(&options[i]))
            put_option(file, &options[i]);
}

static void put_verb(FILE *file, const struct cli_command *command, const struct cli_verb *verb)
{
    fprintf(file, "\n### millrace %s%s%s\n\n", command->name, verb->name ? " " : "",
            verb->name ? verb->name : "");
    put(file, verb->about);
    fprintf(file, "\n\n```text\nmillrace %s%s%s [OPTIONS]%s%s\n", command->name,
            verb->name ? " " : "", verb->name ? verb->name : "", *verb->synopsis ? " " : "",
            verb->synopsis);
    for (size_t i = 0; verb->examples && verb->examples[i]; i++)
        fprintf(file, "%s%s\n", i == 0 ? "\n" : "", verb->examples[i]);
    fputs("```\n", file);
    put_options(file, verb->options, verb->options_n);
}

static void put_commands(FILE *file)
{
    fputs("\n## Commands\n", file);
    for (size_t i = 0; cli_commands[i]; i++)
        for (size_t k = 0; k < cli_commands[i]->verbs_n; k++)
            put_verb(file, cli_commands[i], &cli_commands[i]->verbs[k]);
    fputs("\n## Options of every command\n", file);
    put_options(file, cli_global_options, cli_global_options_n);
    fputs("\n## Exit codes\n", file);
    put_head(file, "code | meaning");
    for (size_t i = 0; i < cli_exits_n; i++)
        fprintf(file, "| %d | %s |\n", cli_exits[i].code, cli_exits[i].meaning);
    fputs("| 128 + N | ended by signal N |\n", file);
}

static void put_settings(FILE *file)
{
    fputs("\n## Settings of the server\n\nEach is a flag `--NAME`, a variable and a key of the "
          "file of settings.\n",
          file);
    put_head(file, "setting | variable | default | meaning");
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct cli_option *row = &SETTINGS_ROWS[i];
        char variable[64];
        settings_variable(row, variable);
        fprintf(file, "| `%s` | `%s` | ", row->name, variable);
        if (cli_default(row))
            put_code(file, cli_default(row));
        fputs(" | ", file);
        put(file, row->help);
        fputs(" |\n", file);
    }
}

static void put_errors(FILE *file)
{
    fputs("\n## Errors\n\nWhat to do about each: errors.md.\n", file);
    put_head(file, "code | text | worth trying again | exit code | gRPC | HTTP");
    for (int i = 0; i < MR_ERR_COUNT; i++) {
        enum mr_err err = (enum mr_err)i;
        fprintf(file, "| `%s` | %s | %s | %d | %d | %d |\n", mr_err_name(err), mr_err_text(err),
                mr_err_retriable(err) ? "yes" : "no", mr_err_exit_code(err),
                mr_err_grpc_status(err), mr_err_http_status(err));
    }
}

static void put_roles(FILE *file, unsigned roles)
{
    bool first = true;
    for (int role = MR_ROLE_NONE + 1; role < MR_ROLE_COUNT; role++)
        if (roles & MR_ROLE_BIT(role)) {
            fprintf(file, "%s%s", first ? "" : ", ", mr_role_name((enum mr_role)role));
            first = false;
        }
    fputs(first ? "everybody" : "", file);
}

static void put_routes(FILE *file)
{
    fputs("\n## Routes of HTTP\n\nParameters, bodies and answers in detail: `GET /openapi.json`.\n",
          file);
    put_head(file, "route | does | for | parameters | body | answer");
    for (size_t i = 0; i < http_rows_n; i++) {
        const struct http_row *row = &http_rows[i];
        fprintf(file, "| `%s %s` | ", row->method, row->path);
        put(file, row->summary);
        fputs(" | ", file);
        put_roles(file, row->roles);
        fputs(" | ", file);
        put(file, row->query ? row->query : "");
        fprintf(file, " | %s | %s |\n", row->body ? row->body : "",
                row->answer ? row->answer
                : row->type ? row->type
                            : "");
    }
}

static void put_figures(FILE *file)
{
    struct http_figure figure;
    fputs(
        "\n## Figures\n\nOf `GET /metrics`. Their labels, and how they are counted: metrics.md.\n",
        file);
    put_head(file, "name | type | what");
    for (size_t i = 0; http_figure_at(i, &figure); i++) {
        fprintf(file, "| `" METRICS_PREFIX "%s` | %s | ", figure.name, figure.type);
        put(file, figure.help);
        fputs(" |\n", file);
    }
}

void page_reference(FILE *file)
{
    fprintf(file,
            "# Reference\n\nMillrace %s. Made from the tables of the program when it was built: "
            "commands, options, "
            "settings, errors, routes, figures.\n",
            mr_version());
    put_commands(file);
    put_settings(file);
    put_errors(file);
    put_routes(file);
    put_figures(file);
}

/* Those that the unit of systemd gives itself are left out. */
static bool in_file(const struct cli_option *row)
{
    return strcmp(row->name, "config") != 0 && strcmp(row->name, "data") != 0;
}

void page_settings(FILE *file)
{
    fputs("# Settings of `millrace serve`: lines NAME: VALUE. What stands here behind a # is the "
          "default, or an example of the form.\n"
          "# Each is also a flag (--NAME) and a variable (MILLRACE_NAME), which count more. See "
          "millrace-serve(1);\n"
          "# `millrace config check FILE` says whether this file is right.\n",
          file);
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct cli_option *row = &SETTINGS_ROWS[i];
        if (!in_file(row))
            continue;
        fprintf(file, "\n# %s\n#%s: %s\n", row->help, row->name,
                row->fallback           ? row->fallback
                : row->kind == CLI_FLAG ? "no"
                : row->value            ? row->value
                                        : "");
    }
}
