/* SPDX-License-Identifier: Apache-2.0 */
/* millrace token: who may use a server. */
#include "cli/token.h"

#include <stdlib.h>

#include "cli/jw.h"
#include "cli/out.h"
#include "cli/server.h"
#include "client/client.h"

struct token_args {
    struct cli_value data, role, queue, priority_max, quota;
};

/* In the order of enum mr_role, without MR_ROLE_NONE. */
static const char *const roles[] = {"admin", "producer", "worker", "viewer", NULL};

/* ---- where ---------------------------------------------------------------------------------- */

/* --data, else a file: broker, else the server; dir holds the folder's name. */
static int find_place(struct cli *cli, const struct token_args *args, char dir[MR_PATH_MAX],
                      struct token_place *place, const struct token_ops **ret_ops)
{
    *place = (struct token_place){.cli = cli};
    const char *folder = args->data.given ? args->data.text : cli_file_dir(cli->broker);
    if (!folder && !cli_is_server(cli->broker))
        return cli_usage(cli,
                         "--broker: \"%.200s\" has no tokens; give millrace://HOST:PORT or "
                         "--data DIR",
                         cli->shown);
    *ret_ops = &token_server;
    if (!folder)
        return CLI_OK;
    struct mr_detail detail = {0};
    char url[MR_PATH_MAX + sizeof "file:"];
    int n = snprintf(url, sizeof url, "file:%s", folder);
    enum mr_err err = n < (int)sizeof url ? MR_OK : MR_TOO_BIG;
    if (err == MR_OK)
        err = mr_url_dir(url, mr_slice_str(cli->namespace_), dir, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot use", folder, &detail);
    place->dir = dir;
    *ret_ops = &token_folder;
    return CLI_OK;
}

/* ---- showing -------------------------------------------------------------------------------- */

static void put_json(struct jw *jw, const struct mr_token *token, const char *text)
{
    jw_object_begin(jw, NULL);
    jw_text(jw, "id", token->id);
    jw_text(jw, "role", mr_role_name(token->role));
    jw_text(jw, "queue", token->queue);
    jw_bool(jw, "priority_limited", token->priority_limited);
    jw_real(jw, "priority_max", token->priority_max_s);
    jw_uint(jw, "quota", token->quota);
    jw_uint(jw, "used", token->used);
    jw_int(jw, "created_ms", token->created_ms);
    jw_int(jw, "revoked_ms", token->revoked_ms);
    if (text)
        jw_text(jw, "token", text);
    jw_object_end(jw);
}

static void put_row(struct out_table *table, const struct mr_token *token, int64_t now_ms)
{
    char when[48];
    out_cell(table, OUT_PLAIN, token->id);
    out_cell(table, OUT_PLAIN, mr_role_name(token->role));
    out_cell_bytes(table, OUT_PLAIN, mr_slice_str(token->queue));
    if (token->priority_limited)
        out_cellf(table, OUT_PLAIN, "%g", token->priority_max_s);
    else
        out_cell(table, OUT_DIM, "-");
    if (token->quota > 0)
        out_cellf(table, OUT_PLAIN, "%llu/%llu", (unsigned long long)token->used,
                  (unsigned long long)token->quota);
    else
        out_cell(table, OUT_DIM, "-");
    out_relative(token->created_ms, now_ms, when);
    out_cell(table, OUT_PLAIN, when);
    out_relative(token->revoked_ms, now_ms, when);
    out_cell(table, token->revoked_ms ? OUT_RED : OUT_DIM, when);
}

static void show_list(const struct cli *cli, const struct mr_token *list, size_t n)
{
    static const struct out_column columns[] = {
        {"ID", OUT_LEFT},
        {"ROLE", OUT_LEFT},
        {"QUEUE", OUT_STRETCH | OUT_SPARE(1)},
        {"PRIORITY", OUT_RIGHT | OUT_SPARE(4)},
        {"QUOTA", OUT_RIGHT | OUT_SPARE(3)},
        {"CREATED", OUT_LEFT | OUT_SPARE(5)},
        {"REVOKED", OUT_LEFT | OUT_SPARE(2)},
    };
    if (cli->json) {
        struct jw jw = {0};
        jw_array_begin(&jw, NULL);
        for (size_t i = 0; i < n; i++)
            put_json(&jw, &list[i], NULL);
        jw_array_end(&jw);
        jw_finish(&jw);
        return;
    }
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    int64_t now_ms = out_now_ms();
    for (size_t i = 0; i < n; i++)
        put_row(table, &list[i], now_ms);
    out_table_flush(table);
    out_table_free(table);
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static int read_wanted(const struct cli *cli, const struct token_args *args,
                       struct mr_token *wanted)
{
    if (!args->role.given)
        return cli_usage(cli, "--role is missing: admin, producer, worker or viewer");
    const char *queue = args->queue.given ? args->queue.text : "*";
    const char *problem = cli_name_problem(queue);
    if (problem)
        return cli_usage(cli, "--queue: \"%.200s\" %s", queue, problem);
    *wanted = (struct mr_token){
        .role = (enum mr_role)(args->role.number + 1),
        .priority_limited = args->priority_max.given,
        .priority_max_s = args->priority_max.real,
        .quota = (uint64_t)args->quota.number,
    };
    snprintf(wanted->queue, sizeof wanted->queue, "%s", queue);
    return CLI_OK;
}

static int run_create(struct cli *cli, void *args)
{
    struct token_place place;
    const struct token_ops *ops;
    char dir[MR_PATH_MAX], text[MR_TOKEN_TEXT_LEN + 1];
    struct mr_token wanted, token;
    int code = read_wanted(cli, args, &wanted);
    if (code == CLI_OK)
        code = find_place(cli, args, dir, &place, &ops);
    if (code == CLI_OK)
        code = ops->create(&place, &wanted, &token, text);
    if (code != CLI_OK)
        return code;
    if (cli->json) {
        struct jw jw = {0};
        put_json(&jw, &token, text);
        jw_finish(&jw);
    } else {
        out_printf("%s\n", text);
        cli_note(cli, "token %s for %s on queues %s; it is shown this once and kept as a hash",
                 token.id, mr_role_name(token.role), token.queue);
    }
    return CLI_OK;
}

static int run_list(struct cli *cli, void *args)
{
    struct token_place place;
    const struct token_ops *ops;
    char dir[MR_PATH_MAX];
    struct mr_token *list = NULL;
    size_t n = 0;
    int code = find_place(cli, args, dir, &place, &ops);
    if (code == CLI_OK)
        code = ops->list(&place, &list, &n);
    if (code == CLI_OK)
        show_list(cli, list, n);
    free(list);
    return code;
}

static int run_revoke(struct cli *cli, void *args)
{
    struct token_place place;
    const struct token_ops *ops;
    char dir[MR_PATH_MAX];
    int code = find_place(cli, args, dir, &place, &ops);
    if (code == CLI_OK)
        code = ops->revoke(&place, cli->words[0]);
    if (code == CLI_OK)
        cli_note(cli, "token %s is revoked", cli->words[0]);
    return code;
}

/* ---- rows ----------------------------------------------------------------------------------- */

#define OPT(field, kind_, value_, help_)                                                           \
    .kind = kind_, .offset = offsetof(struct token_args, field), .value = value_, .help = help_

static const struct cli_option options[] = {
    {.name = "data", OPT(data, CLI_TEXT, "DIR", "a folder that no server has open")},
    {.name = "role",
     OPT(role, CLI_CHOICE, "ROLE", "admin, producer, worker or viewer"),
     .choices = roles},
    {.name = "queue",
     .letter = 'q',
     OPT(queue, CLI_TEXT, "PATTERN", "only these queues; * stands for any text (default: all)")},
    {.name = "priority-max",
     OPT(priority_max, CLI_REAL, "SECONDS", "the highest priority it may give to a task")},
    {.name = "quota", OPT(quota, CLI_COUNT, "N", "it may enqueue so many tasks in all"), .min = 1},
};

enum { DATA_ONLY = 1 }; /* of the options, for list and revoke */

static const struct cli_verb verbs[] = {
    {.name = "create",
     .synopsis = "",
     .about = "Makes a token and prints it, once.\n"
              "Admins may do everything, producers enqueue and look, workers take and finish,\n"
              "viewers look.",
     .examples = CLI_EXAMPLES("millrace token create --role producer --queue 'mail-*'",
                              "millrace token create --role admin --data ./millrace-data"),
     .options = options,
     .options_n = CLI_LEN(options),
     .args_size = sizeof(struct token_args),
     .run = run_create},
    {.name = "list",
     .synopsis = "",
     .about = "Lists the tokens, oldest first, without their secrets.",
     .examples = CLI_EXAMPLES("millrace token list"),
     .options = options,
     .options_n = DATA_ONLY,
     .args_size = sizeof(struct token_args),
     .run = run_list},
    {.name = "revoke",
     .synopsis = "ID",
     .about = "Ends a token: calls with it are refused from now on.",
     .examples = CLI_EXAMPLES("millrace token revoke 3f5a0c9be712"),
     .options = options,
     .options_n = DATA_ONLY,
     .args_size = sizeof(struct token_args),
     .words_min = 1,
     .words_max = 1,
     .run = run_revoke},
};

const struct cli_command cli_token = {
    .name = "token", .about = "who may use a server", .verbs = verbs, .verbs_n = CLI_LEN(verbs)};
