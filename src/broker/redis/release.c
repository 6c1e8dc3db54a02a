/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes back to Redis: all that a node holds when it leaves, and tasks that were taken for it while the
 * answer was lost with the connection. Those nobody knows of: when Redis is back it is asked what stands
 * there for the node, and what is not in hand here goes back at once, not when its lease ends.
 */
#include <stdlib.h>

#include "broker/redis/internal.h"

/* ---- going back ----------------------------------------------------------------------------- */

/* Some of what it holds of one queue, in one call. */
struct release {
    struct mr_redis_call call;
    struct mr_link link; /* in engine->releases: it could not be said yet */
    struct node *node;
    struct rqueue *queue;
    struct mr_arena memory; /* of the arguments */
    struct mr_slice *args;
    size_t n;
};

enum {
    RELEASE_HEAD = 4, /* arguments before the first task */
    RELEASE_ARGS = 3, /* of one task */
    RELEASE_ARGS_MAX = RELEASE_HEAD + RELEASE_ARGS * MR_BATCH_MAX,
};

static void release_free(struct release *release)
{
    if (release != NULL)
        mr_arena_done(&release->memory);
    free(release);
}

static void release_send(struct release *release)
{
    rqueue_eval(release->queue, &release->call, SCRIPT_RECOVER, release->args, release->n);
}

/* What it held is said when Redis is back, before others may think that it died; nobody waits for that. */
static void release_wait(struct release *release)
{
    struct node *node = release->node;
    struct ticket *closer = node->closer;
    mr_list_push_back(&node->engine->releases, &release->link);
    node->closer = NULL;
    if (closer != NULL)
        ticket_done(closer, MR_UNAVAILABLE);
}

static void release_answered(struct mr_redis_call *call, enum mr_err err,
                             const struct mr_reply *reply)
{
    struct release *release = mr_container(call, struct release, call);
    struct node *node = release->node;
    (void)reply;
    if (err == MR_UNAVAILABLE && !node->engine->closing) {
        release_wait(release);
        return;
    }
    if (err == MR_OK && node->engine->closing)
        engine_close_goes_on(node->engine);
    release_free(release); /* what was not given back: its lease ends by itself */
    node_call_done(node);
}

void releases_send(struct engine *engine)
{
    struct mr_link all, *link;
    mr_list_init(&all);
    mr_list_splice_back(&all, &engine->releases);
    while ((link = mr_list_pop_front(&all)) != NULL)
        release_send(mr_container(link, struct release, link));
}

void releases_drop(struct engine *engine)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&engine->releases)) != NULL) {
        struct release *release = mr_container(link, struct release, link);
        struct node *node = release->node;
        release_free(release);
        node_call_done(node);
    }
}

static struct mr_slice number_text(struct release *release, uint64_t number)
{
    char text[NUMBER_MAX];
    struct mr_slice copy = {0};
    if (mr_arena_copy(&release->memory, number_arg((int64_t)number, text), &copy) != MR_OK)
        return MR_SLICE_LIT("0");
    return copy;
}

static struct release *release_new(struct node *node, struct rqueue *queue)
{
    struct release *release = calloc(1, sizeof *release);
    if (release == NULL)
        return NULL;
    release->node = node;
    release->queue = queue;
    mr_list_init(&release->link);
    release->args = mr_arena_calloc(&release->memory, RELEASE_ARGS_MAX, sizeof *release->args);
    if (release->args == NULL) {
        release_free(release);
        return NULL;
    }
    release->args[0] = number_text(release, node->engine->archive_max);
    release->args[1] = number_text(release, (uint64_t)node->engine->archive_ms);
    release->args[2] = release->args[3] = MR_SLICE_LIT("0");
    release->n = RELEASE_HEAD;
    release->call =
        (struct mr_redis_call){.answered = release_answered, .repeatable = true, .urgent = true};
    return release;
}

static bool release_add(struct release *release, struct mr_slice id, uint64_t epoch, bool begun)
{
    struct mr_slice *args = release->args + release->n;
    if (release->n == RELEASE_ARGS_MAX || mr_arena_copy(&release->memory, id, &args[0]) != MR_OK)
        return false;
    args[1] = number_text(release, epoch);
    args[2] = begun ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
    release->n += RELEASE_ARGS;
    return true;
}

static void release_queue(struct node *node, struct rqueue *queue)
{
    struct release *release = release_new(node, queue);
    if (release == NULL)
        return;
    for (uint32_t i = node->holds_n; i-- > 0;) {
        struct hold *hold = &node->holds[i];
        if (hold->epoch == 0 || hold->queue != queue)
            continue;
        bool begun = mr_board_has(&node->engine->board, node->first_slot, node->slots, hold->epoch);
        if (!release_add(release, mr_slice_make(hold->id, hold->id_len), hold->epoch, begun))
            break;
        hold->queue = NULL; /* it is dealt with */
    }
    node->calls++;
    release_send(release);
}

/* Some of it at a time and the newest first, so that what follows fits behind it in the list. */
void node_give_back(struct node *node)
{
    for (uint32_t i = node->holds_n; i-- > 0;)
        if (node->holds[i].epoch != 0 && node->holds[i].queue != NULL)
            release_queue(node, node->holds[i].queue);
}

/* ---- answers that were lost ----------------------------------------------------------------- */

enum {
    MARGIN_MS = 10 * 1000, /* between the clocks, at most */
    MINE_ARGS = 2,
    MINE_ITEMS = 2, /* of one task */
};

/* Asks one queue for what stands there for one node. */
struct mine {
    struct mr_redis_call call;
    struct node *node;
    struct listen *listen;
};

static bool is_held(const struct engine *engine, uint64_t epoch)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        if (hold_of_epoch(mr_container(link, struct node, link), epoch) != NULL)
            return true;
    return false;
}

/* Whatever was taken before it was answered before it, and is in hand. */
static void give_back_unknown(struct mine *mine, const struct mr_reply *reply)
{
    struct node *node = mine->node;
    struct release *release = release_new(node, mine->listen->queue);
    if (release == NULL)
        return;
    for (size_t i = 0; i + MINE_ITEMS <= reply->n; i += MINE_ITEMS) {
        uint64_t epoch = (uint64_t)mr_reply_int(&reply->items[i + 1], 0);
        if (!is_held(node->engine, epoch) &&
            !release_add(release, reply->items[i].text, epoch, false))
            break;
    }
    if (release->n > RELEASE_HEAD) {
        node->calls++;
        release_send(release);
    } else {
        release_free(release);
    }
}

static void mine_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct mine *mine = mr_container(call, struct mine, call);
    struct node *node = mine->node;
    mine->listen->lost_asked = false;
    if (err != MR_UNAVAILABLE)
        mine->listen->lost_since = 0;
    if (err == MR_OK && reply->kind == MR_REPLY_ARRAY)
        give_back_unknown(mine, reply);
    free(mine); /* what was not given back: its lease ends by itself */
    node_call_done(node);
}

static void mine_ask(struct node *node, struct listen *listen)
{
    char least[NUMBER_MAX];
    struct mine *mine = calloc(1, sizeof *mine);
    if (mine == NULL)
        return;
    struct mr_slice args[MINE_ARGS] = {node->holder, number_arg(listen->lost_since, least)};
    mine->node = node;
    mine->listen = listen;
    mine->call =
        (struct mr_redis_call){.answered = mine_answered, .repeatable = true, .urgent = true};
    listen->lost_asked = true;
    node->calls++;
    rqueue_eval(listen->queue, &mine->call, SCRIPT_MINE, args, MINE_ARGS);
}

void losts_ask(struct engine *engine)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        for (size_t i = 0; i < node->listens_n && !node->leaving; i++)
            if (node->listens[i]->lost_since != 0 && !node->listens[i]->lost_asked)
                mine_ask(node, node->listens[i]);
    }
}

void take_lost(struct node *node, struct listen *listen, mr_mono sent)
{
    const struct engine *engine = node->engine;
    int64_t age_ms = (mr_redis_now(engine->redis).ns - sent.ns) / MR_NS_PER_MS;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + engine->ahead_ms;
    if (listen->lost_since == 0) /* others that were lost with it are as old */
        listen->lost_since = (now_ms - age_ms - MARGIN_MS) * MR_US_PER_MS;
}
