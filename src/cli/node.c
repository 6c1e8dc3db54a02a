/* SPDX-License-Identifier: Apache-2.0 */
/* millrace node: who works for a broker. */
#include "base/text.h"
#include "cli/out.h"
#include "cli/show.h"
#include "cli/watch.h"

static const struct out_column columns[] = {
    {"NODE", OUT_LEFT},
    {"ROLE", OUT_LEFT | OUT_SPARE(7)},
    {"STATE", OUT_LEFT | OUT_SPARE(1)},
    {"BUSY", OUT_RIGHT | OUT_SPARE(2)},
    {"IN HAND", OUT_RIGHT | OUT_SPARE(3)},
    {"LAST BEAT", OUT_LEFT | OUT_SPARE(4)},
    {"STARTED", OUT_LEFT | OUT_SPARE(6)},
    {"QUEUES", OUT_STRETCH | OUT_SPARE(5)},
};

static enum out_colour colour_of(enum mr_node_state state)
{
    return state == MR_NODE_LIVE ? OUT_GREEN : state == MR_NODE_SUSPECT ? OUT_YELLOW : OUT_RED;
}

static void add_queues(struct out_table *table, const struct mr_node_info *node)
{
    struct mr_buf text = {0};
    for (size_t i = 0; i < node->queues_n; i++) {
        cli_must(mr_buf_append(&text, " ", i > 0));
        cli_must(mr_buf_append_slice(&text, node->queues[i].name));
        if (node->queues[i].weight > 1)
            cli_must(mr_buf_printf(&text, "=%u", node->queues[i].weight));
    }
    out_cell_bytes(table, OUT_PLAIN, mr_buf_slice(&text));
    mr_buf_done(&text);
}

struct out_table *node_table(void)
{
    return out_table_new(columns, CLI_LEN(columns));
}

void node_row(struct out_table *table, const struct mr_node_info *node)
{
    char beat[48], started[48];
    int64_t now_ms = out_now_ms();
    out_relative(node->last_beat_ms, now_ms, beat);
    out_relative(node->started_ms, now_ms, started);
    out_cell_bytes(table, OUT_BOLD, node->name);
    out_cell(table, OUT_PLAIN, mr_node_role_name(node->role));
    out_cell(table, colour_of(node->state), mr_node_state_name(node->state));
    out_cellf(table, OUT_PLAIN, "%u/%u", node->busy, node->slots);
    out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)node->in_hand);
    out_cell(table, OUT_PLAIN, beat);
    out_cell(table, OUT_PLAIN, started);
    add_queues(table, node);
}

/* Which of its slots are busy is not known, only how many. */
static void slots_json(struct jw *jw, const struct mr_node_info *node)
{
    jw_array_begin(jw, "slots");
    for (uint32_t i = 0; i < node->slots && i < MR_SLOTS_MAX; i++)
        jw_text(jw, NULL, i < node->busy ? "working" : "pending");
    jw_array_end(jw);
}

void node_json(struct jw *jw, const struct mr_node_info *node)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "node", node->name);
    jw_text(jw, "role", mr_node_role_name(node->role));
    jw_text(jw, "state", mr_node_state_name(node->state));
    jw_uint(jw, "incarnation", node->incarnation);
    jw_int(jw, "started_ms", node->started_ms);
    jw_int(jw, "last_beat_ms", node->last_beat_ms);
    jw_uint(jw, "in_hand", node->in_hand);
    jw_uint(jw, "concurrency", node->slots);
    slots_json(jw, node);
    jw_array_begin(jw, "queues");
    for (size_t i = 0; i < node->queues_n; i++)
        jw_bytes(jw, NULL, node->queues[i].name);
    jw_array_end(jw);
    jw_array_begin(jw, "types");
    for (size_t i = 0; i < node->types_n; i++)
        jw_bytes(jw, NULL, node->types[i]);
    jw_array_end(jw);
    jw_array_begin(jw, "partitions");
    jw_array_end(jw);
    jw_array_begin(jw, "tags");
    jw_array_end(jw);
    jw_bool(jw, "leader", false);
    jw_object_end(jw);
}

static int list_once(struct cli *cli, void *args)
{
    (void)args;
    struct mr_node_list *list = NULL;
    enum mr_err err = mr_node_list_get(cli->client, &list);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot list nodes");
    size_t n = mr_node_list_count(list);
    if (cli->json) {
        struct jw jw = {0};
        jw_array_begin(&jw, NULL);
        for (size_t i = 0; i < n; i++)
            node_json(&jw, mr_node_list_at(list, i));
        jw_array_end(&jw);
        jw_finish(&jw);
    } else if (n > 0) {
        struct out_table *table = node_table();
        for (size_t i = 0; i < n; i++)
            node_row(table, mr_node_list_at(list, i));
        out_table_flush(table);
        out_table_free(table);
    } else {
        cli_note(cli, "no nodes");
    }
    mr_node_list_free(list);
    return CLI_OK;
}

static int run_list(struct cli *cli, void *args_)
{
    struct watch_args *args = args_;
    return watch_run(cli, &args->watch, list_once, args);
}

static const struct cli_option list_options[] = {
    WATCH_OPTION(struct watch_args, watch),
};

static const struct cli_verb verbs[] = {
    {.name = "list",
     .synopsis = "",
     .about = "Lists the workers and masters that are connected, with what they do.",
     .examples = CLI_EXAMPLES("millrace node list", "millrace node list --watch"),
     CLI_OPTIONS(list_options, struct watch_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_list},
};

const struct cli_command cli_node = {.name = "node",
                                     .about = "the workers and masters of a broker",
                                     .verbs = verbs,
                                     .verbs_n = CLI_LEN(verbs)};
