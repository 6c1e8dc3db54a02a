/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To which worker a firing goes, by the strategy of its timer. It is decided when the row is written, and stands in
 * it: whoever dispatches it, and however often, does as the row says. The list of workers is asked for as long as
 * timers need it, and may be a few seconds old.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "timer/def.h"
#include "timer/sched/internal.h"
#include "timer/strategy.h"

enum { NODES_OLD_MS = 2000, NODES_TOO_OLD_MS = 5000 };

struct roster {
    struct roster *next;
    struct mr_slice queue;
    struct mr_roster *roster;
};

struct nodes {
    struct mr_errand errand;
    struct mr_req_node_list req;
    mr_mono at;
    struct mr_arena arena;
    struct roster *rosters;
};

void sched_nodes_free(struct nodes *nodes)
{
    if (nodes == NULL)
        return;
    mr_req_done(&nodes->req.req);
    mr_arena_done(&nodes->arena);
    free(nodes);
}

static void nodes_listed(struct mr_errand *errand)
{
    struct nodes *nodes = mr_container(errand, struct nodes, errand);
    struct mr_scheduler *s = sched_of(errand);
    s->nodes_asking = false;
    nodes->at = mr_mono_now(s->desk.clock);
    if (nodes->req.req.err != MR_OK) {
        s->nodes_again = mr_mono_add_ms(nodes->at, AGAIN_MS);
        sched_nodes_free(nodes);
        return;
    }
    sched_nodes_free(s->nodes);
    s->nodes = nodes;
}

static void ask_nodes(struct mr_scheduler *s)
{
    bool not_now = s->nodes_asking || mr_mono_now(s->desk.clock).ns < s->nodes_again.ns;
    struct nodes *nodes = not_now ? NULL : calloc(1, sizeof *nodes);
    if (nodes == NULL)
        return;
    s->nodes_asking = true;
    nodes->errand = (struct mr_errand){.desk = &s->desk, .done = nodes_listed};
    nodes->req.req.op = MR_OP_NODE_LIST;
    sched_errand_broker(&nodes->errand, &nodes->req.req);
}

bool sched_nodes_ready(struct mr_scheduler *s)
{
    int64_t age_ms = s->nodes != NULL
                         ? (mr_mono_now(s->desk.clock).ns - s->nodes->at.ns) / MR_NS_PER_MS
                         : INT64_MAX;
    if (age_ms > NODES_OLD_MS)
        ask_nodes(s);
    return age_ms <= NODES_TOO_OLD_MS;
}

static struct mr_roster *roster_of(struct nodes *nodes, struct mr_slice queue)
{
    for (struct roster *at = nodes->rosters; at != NULL; at = at->next) {
        if (mr_slice_equal(at->queue, queue))
            return at->roster;
    }
    struct roster *made = mr_arena_calloc(&nodes->arena, 1, sizeof *made);
    if (made == NULL || mr_arena_copy(&nodes->arena, queue, &made->queue) != MR_OK ||
        mr_roster_make(&nodes->arena, made->queue, nodes->req.nodes, nodes->req.n, &made->roster) !=
            MR_OK)
        return NULL;
    made->next = nodes->rosters;
    nodes->rosters = made;
    return made->roster;
}

bool sched_needs_nodes(const struct mr_timer_options *options)
{
    return options->strategy != MR_STRATEGY_ANY && options->strategy != MR_STRATEGY_TAG;
}

static enum mr_err decide(struct mr_scheduler *s, const struct mr_timer_options *o,
                          struct mr_slice queue, uint64_t number, struct mr_buf *text)
{
    struct mr_arena arena = {0};
    struct mr_roster *roster = NULL;
    struct mr_target *targets;
    size_t n;
    enum mr_err err = MR_OK;
    if (sched_needs_nodes(o))
        roster = roster_of(s->nodes, queue);
    else
        err = mr_roster_make(&arena, queue, NULL, 0, &roster);
    if (err == MR_OK)
        err = roster != NULL
                  ? mr_roster_targets(roster, (struct mr_strategy_to){o->strategy, o->target},
                                      o->type, number, &arena, &targets, &n)
                  : MR_NOMEM;
    if (err == MR_OK && n > MR_BATCH_MAX) /* they are made by one request */
        err = MR_TOO_BIG;
    if (err == MR_OK)
        err = n > 0 ? mr_targets_write(targets, n, text) : MR_NOT_FOUND;
    if (err == MR_OK && text->len > MR_STORE_TARGET_MAX)
        err = MR_TOO_BIG;
    mr_arena_done(&arena);
    return err;
}

struct mr_slice sched_why_nowhere(enum mr_err err)
{
    return err == MR_TOO_BIG ? MR_SLICE_LIT("too many workers for one broadcast")
                             : MR_SLICE_LIT("no worker");
}

struct mr_slice sched_queue_of(const struct app *app, const struct def *def)
{
    return def->options.queue.len > 0 ? def->options.queue : mr_slice_str(app->name);
}

enum mr_err sched_target(struct app *app, const struct def *def, uint64_t number,
                         struct mr_arena *arena, struct mr_slice *ret_target)
{
    struct mr_slice queue = sched_queue_of(app, def);
    struct mr_buf text = {0};
    *ret_target = (struct mr_slice){0};
    if (def->options.strategy == MR_STRATEGY_ANY) {
        bool is_own = mr_slice_equal(queue, mr_slice_str(app->name));
        return is_own ? MR_OK : mr_arena_copy(arena, queue, ret_target);
    }
    if (sched_needs_nodes(&def->options) && !sched_nodes_ready(app->s))
        return MR_EMPTY;
    enum mr_err err = decide(app->s, &def->options, queue, number, &text);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), ret_target);
    mr_buf_done(&text);
    return err;
}
