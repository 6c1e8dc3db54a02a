/* SPDX-License-Identifier: Apache-2.0 */
/* millrace node: who works for a broker. */
#include "base/text.h"
#include "cli/out.h"
#include "cli/plan_show.h"
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

struct jw_crew node_crew(const struct mr_node_list *list)
{
    struct jw_crew crew = {0};
    if (!list)
        return crew;
    crew.leader = mr_node_list_leader(list);
    crew.assignments = mr_node_list_assignment(list, 0);
    while (mr_node_list_assignment(list, crew.assignments_n))
        crew.assignments_n++; /* they stand one behind the other */
    return crew;
}

static enum out_colour colour_of(enum mr_node_state state)
{
    return state == MR_NODE_LIVE ? OUT_GREEN : state == MR_NODE_SUSPECT ? OUT_YELLOW : OUT_RED;
}

/* "[1,4]" */
static void add_owned(struct mr_buf *text, uint64_t bits)
{
    const char *before = "[";
    for (unsigned i = 1; bits != 0; i++, bits >>= 1) {
        if ((bits & 1) == 0)
            continue;
        cli_must(mr_buf_printf(text, "%s%u%s", before, i, bits == 1 ? "]" : ""));
        before = ",";
    }
}

static void add_queues(struct out_table *table, const struct jw_crew *crew,
                       const struct mr_node_info *node)
{
    struct mr_buf text = {0};
    for (size_t i = 0; i < node->queues_n; i++) {
        if (!mr_node_serves(node, i))
            continue;
        cli_must(mr_buf_append(&text, " ", text.len > 0));
        cli_must(mr_buf_append_slice(&text, node->queues[i].name));
        if (node->queues[i].weight > 1)
            cli_must(mr_buf_printf(&text, "=%u", node->queues[i].weight));
        add_owned(&text, jw_node_owns(crew, node, node->queues[i].name));
    }
    struct mr_slice tags[MR_TAKE_QUEUES_MAX];
    size_t tags_n = mr_node_tags(node, tags, MR_TAKE_QUEUES_MAX);
    for (size_t i = 0; i < tags_n; i++)
        cli_must(mr_buf_printf(&text, " @%.*s", (int)tags[i].len, (const char *)tags[i].data));
    out_cell_bytes(table, OUT_PLAIN, mr_buf_slice(&text));
    mr_buf_done(&text);
}

struct out_table *node_table(void)
{
    return out_table_new(columns, CLI_LEN(columns));
}

void node_row(struct out_table *table, const struct mr_node_list *list,
              const struct mr_node_info *node)
{
    char beat[48], started[48];
    int64_t now_ms = out_now_ms();
    struct jw_crew crew = node_crew(list);
    out_relative(node->last_beat_ms, now_ms, beat);
    out_relative(node->started_ms, now_ms, started);
    out_cell_bytes(table, OUT_BOLD, node->name);
    out_cellf(table, OUT_PLAIN, "%s%s", mr_node_role_name(node->role),
              jw_node_leads(&crew, node) ? ", leads" : "");
    out_cell(table, jw_node_drains(node) ? OUT_YELLOW : colour_of(node->state),
             jw_node_state(node));
    out_cellf(table, OUT_PLAIN, "%u/%u", node->busy, node->slots);
    out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)node->in_hand);
    out_cell(table, OUT_PLAIN, beat);
    out_cell(table, OUT_PLAIN, started);
    add_queues(table, &crew, node);
}

struct list_args {
    struct cli_value watch, slots, servers;
};

static const struct out_column slot_columns[] = {
    {"NODE", OUT_LEFT},
    {"SLOT", OUT_RIGHT},
    {"MACHINE", OUT_RIGHT | OUT_SPARE(2)},
    {"STATE", OUT_LEFT},
    {"SINCE", OUT_LEFT | OUT_SPARE(1)},
    {"TASK", OUT_LEFT},
    {"TYPE", OUT_STRETCH},
};

static void slot_rows(struct out_table *table, const struct mr_node_info *node)
{
    for (size_t i = 0; i < node->slot_infos_n; i++) {
        const struct mr_slot_info *slot = &node->slot_infos[i];
        char since[48];
        out_relative(slot->since_ms, out_now_ms(), since);
        out_cell_bytes(table, OUT_BOLD, node->name);
        out_cellf(table, OUT_PLAIN, "%zu", i);
        out_cellf(table, OUT_PLAIN, "%u", slot->machine);
        out_cell(table, slot->state == MR_SLOT_ERROR ? OUT_RED : OUT_PLAIN,
                 mr_slot_state_name(slot->state));
        out_cell(table, OUT_PLAIN, since);
        out_cell_bytes(table, OUT_PLAIN, slot->id);
        out_cell_bytes(table, OUT_PLAIN, slot->type);
    }
}

static void print_nodes(const struct mr_node_list *list, bool slots)
{
    struct out_table *table =
        slots ? out_table_new(slot_columns, CLI_LEN(slot_columns)) : node_table();
    for (size_t i = 0; i < mr_node_list_count(list); i++)
        if (slots)
            slot_rows(table, mr_node_list_at(list, i));
        else
            node_row(table, list, mr_node_list_at(list, i));
    out_table_flush(table);
    out_table_free(table);
}

static int list_once(struct cli *cli, void *args_)
{
    const struct list_args *args = args_;
    struct mr_node_list *list = NULL;
    if (args->servers.given)
        return plan_show_servers(cli);
    enum mr_err err = mr_node_list_get(cli->client, &list);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot list nodes");
    size_t n = mr_node_list_count(list);
    if (cli->json) {
        struct jw jw = {0};
        struct jw_crew crew = node_crew(list);
        jw_array_begin(&jw, NULL);
        for (size_t i = 0; i < n; i++)
            jw_node(&jw, &crew, mr_node_list_at(list, i));
        jw_array_end(&jw);
        jw_finish(&jw);
    } else if (n > 0) {
        print_nodes(list, args->slots.given);
    } else {
        cli_note(cli, "no nodes");
    }
    mr_node_list_free(list);
    return CLI_OK;
}

static int run_list(struct cli *cli, void *args_)
{
    struct list_args *args = args_;
    if (args->servers.given && args->slots.given)
        return cli_usage(cli, "--servers and --slots are two lists; give one");
    int code = args->servers.given ? CLI_OK : cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    return code == CLI_OK ? watch_run(cli, &args->watch, list_once, args) : code;
}

static int leader_once(struct cli *cli, void *args)
{
    (void)args;
    struct mr_node_list *list = NULL;
    enum mr_err err = mr_node_list_get(cli->client, &list);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot ask who leads");
    const struct mr_leader *leader = mr_node_list_leader(list);
    bool somebody = leader->incarnation != 0;
    if (!somebody && leader->leaderless_ms == 0) {
        mr_node_list_free(list);
        return cli_fail_err(MR_DENIED, "cannot see who leads");
    }
    char span[32];
    out_span(somebody ? out_now_ms() - leader->since_ms : leader->leaderless_ms, span);
    if (cli->json) {
        struct jw jw = {0};
        jw_leader(&jw, leader);
        jw_finish(&jw);
    } else if (somebody)
        out_printf("%.*s leads for %s, term %llu\n", (int)leader->node.len,
                   (const char *)leader->node.data, span, (unsigned long long)leader->term);
    else
        cli_note(cli, "nobody has led for %s", span);
    mr_node_list_free(list);
    return somebody ? CLI_OK : CLI_NOT_FOUND;
}

static int run_leader(struct cli *cli, void *args_)
{
    struct watch_args *args = args_;
    return watch_run(cli, &args->watch, leader_once, args);
}

static const struct cli_option leader_options[] = {
    WATCH_OPTION(struct watch_args, watch),
};

static const struct cli_option list_options[] = {
    {.name = "slots",
     .kind = CLI_FLAG,
     .offset = offsetof(struct list_args, slots),
     .help = "a line for each slot: its state, since when, and its task"},
    {.name = "servers",
     .kind = CLI_FLAG,
     .offset = offsetof(struct list_args, servers),
     .help =
         "the servers that share the timers, how apps are cut, whose the parts are, what moved"},
    WATCH_OPTION(struct list_args, watch),
};

static const struct cli_verb verbs[] = {
    {.name = "list",
     .synopsis = "",
     .about = "Lists the workers and masters that are connected, with what they do.",
     .examples = CLI_EXAMPLES("millrace node list", "millrace node list --watch",
                              "millrace node list --slots", "millrace node list --servers"),
     CLI_OPTIONS(list_options, struct list_args),
     .run = run_list},
    {.name = "leader",
     .synopsis = "",
     .about = "Shows who leads, since when and with which term. Exit code 3: nobody does.",
     .examples = CLI_EXAMPLES("millrace node leader", "millrace node leader --json"),
     CLI_OPTIONS(leader_options, struct watch_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_leader},
};

const struct cli_command cli_node = {.name = "node",
                                     .about = "the workers and masters of a broker",
                                     .verbs = verbs,
                                     .verbs_n = CLI_LEN(verbs)};
