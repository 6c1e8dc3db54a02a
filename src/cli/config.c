/* SPDX-License-Identifier: Apache-2.0 */
/* millrace config: are the settings of the server right, what are they, and who said so. */
#include <assert.h>

#include "cli/jw.h"
#include "cli/out.h"
#include "cli/serve.h"
#include "cli/settings.h"

/* ---- check ---------------------------------------------------------------------------------- */

static int run_check(struct cli *cli, void *args)
{
    struct settings *settings = args;
    if (cli->words_n > 0 && settings->config.given)
        return cli_usage(cli, "%s and --config: give the file once", cli->words[0]);
    if (cli->words_n > 0)
        settings->config = (struct cli_value){.given = true, .text = cli->words[0]};
    struct serve_plan plan;
    int code = settings_load(cli, settings);
    if (code == CLI_OK)
        code = serve_plan(cli, settings, &plan);
    if (code == CLI_OK)
        cli_note(cli, "%s: the settings are right",
                 settings->config.given ? settings->config.text : "no file");
    settings_done(settings);
    return code;
}

/* ---- show ----------------------------------------------------------------------------------- */

/* The value as people wrote it, but no password. */
static void show_value(const struct settings *settings, size_t row, struct mr_buf *buf)
{
    const struct cli_value *value = settings_value(settings, row);
    mr_buf_clear(buf);
    if (SETTINGS_ROWS[row].kind == CLI_FLAG) {
        cli_must(mr_buf_printf(buf, "%s", value->given ? "true" : "false"));
        return;
    }
    const char *otherwise = SETTINGS_ROWS[row].otherwise;
    const char *text = value->text ? value->text : otherwise ? otherwise : "";
    char shown[MR_URL_SHOWN_MAX];
    /* An alarm may be a command as well. */
    bool url = value == &settings->broker || value == &settings->store ||
               (value == &settings->alarm && strncmp(text, "http", strlen("http")) == 0);
    cli_must(mr_buf_printf(buf, "%s", url ? mr_url_shown(text, shown) : text));
}

static const char *const source_names[] = {
    [SETTINGS_NONE] = "not set", [SETTINGS_DEFAULT] = "default",
    [SETTINGS_FILE] = "file",    [SETTINGS_ENVIRONMENT] = "environment",
    [SETTINGS_FLAG] = "flag",
};

/* A default in words is one, too, and of a flag it is no. */
static enum settings_source source_of(const struct settings *settings, size_t row)
{
    const struct cli_option *option = &SETTINGS_ROWS[row];
    enum settings_source source = settings->origins[row].source;
    bool is_default = option->kind == CLI_FLAG || option->otherwise != NULL;
    return source == SETTINGS_NONE && is_default ? SETTINGS_DEFAULT : source;
}

/* Where exactly: the variable, the line, or nothing. */
static void show_place(const struct settings *settings, size_t row, char *text, size_t cap)
{
    const struct settings_origin *origin = &settings->origins[row];
    text[0] = '\0';
    if (origin->source == SETTINGS_FILE)
        snprintf(text, cap, "%s:%u", settings->config.text, origin->line);
    char name[64];
    settings_variable(&SETTINGS_ROWS[row], name);
    if (origin->source == SETTINGS_ENVIRONMENT)
        snprintf(text, cap, "%s", name);
    if (origin->source == SETTINGS_FLAG)
        snprintf(text, cap, "--%s", SETTINGS_ROWS[row].name);
}

static bool is_shown(const struct settings *settings, size_t row)
{
    enum settings_source source = source_of(settings, row);
    if (SETTINGS_ROWS[row].note == CLI_NOT_HERE)
        return false;
    return settings->effective.given || (source != SETTINGS_NONE && source != SETTINGS_DEFAULT);
}

static void show_json(const struct settings *settings)
{
    struct jw jw = {0};
    struct mr_buf value = {0};
    char place[MR_PATH_MAX + 16];
    jw_array_begin(&jw, NULL);
    for (size_t i = 0; i < SETTINGS_N; i++) {
        if (!is_shown(settings, i))
            continue;
        show_value(settings, i, &value);
        show_place(settings, i, place, sizeof place);
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "name", SETTINGS_ROWS[i].name);
        jw_bytes(&jw, "value", mr_buf_slice(&value));
        jw_text(&jw, "source", source_names[source_of(settings, i)]);
        jw_text(&jw, "place", place);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    jw_finish(&jw);
    mr_buf_done(&value);
}

static void show_table(const struct settings *settings)
{
    static const struct out_column columns[] = {
        {"SETTING", OUT_LEFT}, {"VALUE", OUT_STRETCH}, {"FROM", OUT_LEFT | OUT_SPARE(1)}};
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    struct mr_buf value = {0};
    char place[MR_PATH_MAX + 16];
    for (size_t i = 0; i < SETTINGS_N; i++) {
        if (!is_shown(settings, i))
            continue;
        show_value(settings, i, &value);
        show_place(settings, i, place, sizeof place);
        enum settings_source source = source_of(settings, i);
        bool set = source > SETTINGS_DEFAULT;
        out_cell(table, OUT_PLAIN, SETTINGS_ROWS[i].name);
        out_cell_bytes(table, set ? OUT_BOLD : OUT_PLAIN, mr_buf_slice(&value));
        out_cell_bytes(table, OUT_DIM, mr_slice_str(set ? place : source_names[source]));
    }
    out_table_flush(table);
    out_table_free(table);
    mr_buf_done(&value);
}

static int run_show(struct cli *cli, void *args)
{
    struct settings *settings = args;
    int code = settings_load(cli, settings);
    if (code == CLI_OK && cli->json)
        show_json(settings);
    else if (code == CLI_OK)
        show_table(settings);
    settings_done(settings);
    return code;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static const struct cli_verb verbs[] = {
    {.name = "check",
     .synopsis = "[FILE]",
     .about = "Tells whether `millrace serve` would take these settings: file, environment, flags.",
     .examples = CLI_EXAMPLES("millrace config check millrace.yaml"),
     .options = SETTINGS_ROWS,
     .options_n = SETTINGS_FLAGS_N,
     .args_size = sizeof(struct settings),
     .words_max = 1,
     .run = run_check},
    {.name = "show",
     .synopsis = "",
     .about = "Shows the settings of the server and where each value comes from; passwords never.",
     .examples = CLI_EXAMPLES("millrace config show --effective --config millrace.yaml"),
     .options = settings_table,
     .options_n = 1 + SETTINGS_FLAGS_N,
     .args_size = sizeof(struct settings),
     .run = run_show},
};

const struct cli_command cli_config = {.name = "config",
                                       .about = "check and show the settings of the server",
                                       .verbs = verbs,
                                       .verbs_n = CLI_LEN(verbs)};
