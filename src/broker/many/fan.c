/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to all servers. Each gets a request of its own; when all have answered, or enough have, or the time is over,
 * the answers become one (merge.c). Those that come later are dropped: so what a request borrows beyond its submission
 * is in the memory of the fan.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/many/internal.h"

enum mr_err part_err(const struct part *part)
{
    return part->is_done ? part->req->err : MR_TIMEOUT;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void fan_free(struct fan *fan)
{
    for (size_t i = 0; i < fan->n; i++) {
        if (fan->parts[i].req != NULL)
            mr_req_done(fan->parts[i].req);
        free(fan->parts[i].req);
    }
    mr_list_remove(&fan->link);
    mr_arena_done(&fan->memory);
    free(fan);
}

/* What it was about lives until here. */
static void unawait_done(struct mr_req *req)
{
    struct fan *fan = req->arg;
    mr_req_done(req);
    free(mr_container(req, struct mr_req_unawait, req));
    if (--fan->pending == 0)
        fan_free(fan);
}

/* Nobody waits any more for those that still wait for the end of a task. */
static void give_up_awaits(struct fan *fan)
{
    for (size_t i = 0; fan->outer->op == MR_OP_AWAIT && i < fan->n; i++) {
        struct part *part = &fan->parts[i];
        struct mr_req_unawait *req = part->is_done ? NULL : calloc(1, sizeof *req);
        if (req == NULL)
            continue;
        req->req = (struct mr_req){.op = MR_OP_UNAWAIT, .done = unawait_done, .arg = fan};
        fan->pending++;
        req->await = mr_container(part->req, struct mr_req_await, req);
        mr_broker_submit(part->origin->broker, &req->req);
    }
}

static void fan_answer(struct fan *fan, enum mr_err err)
{
    struct mr_req *outer = fan->outer;
    fan->is_answered = true;
    mr_rpc_timer_stop(fan->many->rpc, &fan->timer);
    give_up_awaits(fan);
    if (fan->pending == 0)
        fan_free(fan);
    mr_req_answer(outer, err);
}

static void fan_settle(struct fan *fan)
{
    enum mr_err err = fan->kind->merge(fan);
    fan_answer(fan, err);
}

static void part_done(struct mr_req *req)
{
    struct part *part = req->arg;
    struct fan *fan = part->fan;
    part->is_done = true;
    fan->pending--;
    if (fan->is_answered) {
        if (fan->pending == 0)
            fan_free(fan);
        return;
    }
    fan->has_gaps |= req->err == MR_UNAVAILABLE || req->err == MR_TIMEOUT;
    if (fan->pending == 0 || (fan->kind->has_all != NULL && fan->kind->has_all(part)))
        fan_settle(fan);
}

static void too_late(struct mr_timer *timer, void *arg)
{
    struct fan *fan = mr_container(timer, struct fan, timer);
    (void)arg;
    fan->has_gaps = true;
    fan_settle(fan);
}

/* ---- the beginning -------------------------------------------------------------------------- */

static enum mr_err part_make(struct fan *fan, struct origin *origin)
{
    struct part *part = &fan->parts[fan->n++];
    part->fan = fan;
    part->origin = origin;
    part->req = calloc(1, fan->kind->size);
    if (part->req == NULL)
        return MR_NOMEM;
    memcpy(part->req, fan->outer, fan->kind->size);
    *part->req = (struct mr_req){.op = fan->outer->op, .done = part_done, .arg = part};
    return fan->kind->fill != NULL ? fan->kind->fill(fan, part->req) : MR_OK;
}

static void fan_begin(struct many *many, struct mr_req *req, const struct fan_kind *kind,
                      uint64_t among)
{
    struct fan *fan = among != 0 ? calloc(1, sizeof *fan) : NULL;
    if (fan == NULL) {
        mr_req_answer(req, among != 0 ? MR_NOMEM : MR_UNAVAILABLE);
        return;
    }
    fan->many = many;
    fan->outer = req;
    fan->kind = kind;
    fan->has_gaps = (listed_origins(many) & ~among) != 0;
    mr_timer_init(&fan->timer, too_late);
    mr_list_init(&fan->link);
    mr_list_push_back(&many->fans, &fan->link);
    enum mr_err err = MR_OK;
    for (uint64_t rest = among; rest != 0 && err == MR_OK; rest &= rest - 1)
        err = part_make(fan, many->origins[__builtin_ctzll(rest)]);
    if (err != MR_OK) {
        fan_free(fan);
        mr_req_answer(req, err);
        return;
    }
    fan->pending = fan->n;
    if (!kind->is_endless)
        mr_rpc_timer_start(many->rpc, &fan->timer,
                           mr_mono_add_ms(mr_rpc_now(many->rpc), many->fan_ms));
    for (size_t i = 0; i < fan->n; i++)
        mr_broker_submit(fan->parts[i].origin->broker, fan->parts[i].req);
}

/* A list of nodes for whoever leads is that of the server where it does. */
static uint64_t asked_of(const struct many *many, const struct mr_req *req)
{
    uint64_t live = live_origins(many);
    bool leads = req->op == MR_OP_NODE_LIST &&
                 mr_container(req, struct mr_req_node_list, req)->for_assignments;
    if (leads && many->led != NULL && (live >> many->led->index & 1) != 0)
        return 1ULL << many->led->index;
    return fan_kinds[req->op].everywhere ? up_origins(many) : live;
}

void begin_fan(struct many *many, struct mr_req *req)
{
    fan_begin(many, req, &fan_kinds[req->op], asked_of(many, req));
}

/* ---- settings of a queue --------------------------------------------------------------------- */

/*
 * All settings make the queue where it is missing, but for the one that it is paused: then a server that gets its first task of it
 * later would hand that out. So it is paused where it is; if it is anywhere, it is made at all others; and paused there.
 */
enum setting_step { PAUSE_WHERE_IT_IS, MAKE_EVERYWHERE, PAUSE_EVERYWHERE };

struct setting {
    struct mr_req_queue_set inner;
    struct many *many;
    struct mr_req_queue_set *outer;
    enum setting_step step;
};

static void setting_send(struct setting *setting);

static void setting_done(struct mr_req *req)
{
    struct setting *setting = req->arg;
    enum mr_err err = req->err;
    bool closes = setting->many->closing;
    mr_req_done(req);
    if (err != MR_OK || closes || setting->step == PAUSE_EVERYWHERE) {
        mr_req_answer(&setting->outer->req, err);
        return;
    }
    setting->step++;
    setting_send(setting);
}

static void setting_send(struct setting *setting)
{
    setting->inner = *setting->outer;
    setting->inner.req =
        (struct mr_req){.op = MR_OP_QUEUE_SET, .done = setting_done, .arg = setting};
    if (setting->step == MAKE_EVERYWHERE) { /* a limit is lifted that nobody has set */
        setting->inner.setting = MR_QUEUE_CONCURRENCY;
        setting->inner.value = 0;
        setting->inner.scope = MR_LIMIT_TYPE;
        setting->inner.name = MR_SLICE_LIT("millrace:paused");
    }
    begin_fan(setting->many, &setting->inner.req);
}

void begin_queue_set(struct many *many, struct mr_req *req)
{
    struct mr_req_queue_set *outer = mr_container(req, struct mr_req_queue_set, req);
    uint64_t live = live_origins(many);
    bool pauses = outer->setting == MR_QUEUE_PAUSED && outer->value != 0;
    if (!pauses || (live & (live - 1)) == 0) {
        begin_fan(many, req);
        return;
    }
    struct setting *setting = mr_arena_calloc(&req->arena, 1, sizeof *setting);
    if (setting == NULL) {
        mr_req_answer(req, MR_NOMEM);
        return;
    }
    setting->many = many;
    setting->outer = outer;
    setting_send(setting);
}

/* ---- awaits that are given up ---------------------------------------------------------------- */

void begin_unawait(struct many *many, struct mr_req *req)
{
    struct mr_req *await = &mr_container(req, struct mr_req_unawait, req)->await->req;
    for (struct mr_link *link = many->fans.next; link != &many->fans; link = link->next) {
        struct fan *fan = mr_container(link, struct fan, link);
        if (fan->outer != await || fan->is_answered)
            continue;
        fan_answer(fan, MR_CANCELLED);
        break;
    }
    mr_req_answer(req, MR_OK);
}

/* ---- pages ---------------------------------------------------------------------------------- */

/*
 * The tasks of one server, then those of the next, until the page is full: the cursor has the number of the server before its
 * own. Before it says that there is more, it has seen that the next server has something: so there is no empty page at the end.
 */
enum { LIST_DEFAULT = 50, ROOM_BYTES = 512 * 1024 }; /* a server's page has up to MR_PAGE_BYTES */

struct listing {
    struct mr_req_list inner;
    struct many *many;
    struct mr_req_list *outer;
    struct origin *origin;
    size_t limit, bytes; /* bytes: of what is there already */
    bool peeks;          /* the page is full: is there more? */
    bool found;          /* one of them has such a queue */
    char cursor[MR_CURSOR_MAX];
};

static void listing_send(struct listing *listing);

static struct origin *next_origin(const struct many *many, size_t from)
{
    for (size_t i = from; i < many->origins_n; i++)
        if (many->origins[i]->up && many->origins[i]->listed)
            return many->origins[i];
    return NULL;
}

/* What the server has shown goes behind what there is. */
static enum mr_err listing_add(struct listing *listing)
{
    struct mr_req_list *inner = &listing->inner, *outer = listing->outer;
    size_t n = outer->n + inner->n;
    struct mr_task *tasks = mr_arena_calloc(&outer->req.arena, n + 1, sizeof *tasks);
    if (tasks == NULL)
        return MR_NOMEM;
    if (outer->n > 0)
        memcpy(tasks, outer->tasks, outer->n * sizeof *tasks);
    for (size_t i = 0; i < inner->n; i++) {
        struct mr_task *task = &tasks[outer->n + i];
        *task = inner->tasks[i];
        task->epoch = shown_epoch(listing->origin, task->epoch);
        listing->bytes += task->payload.len + task->result.len;
    }
    outer->tasks = tasks;
    outer->n = n;
    mr_arena_join(&outer->req.arena, &inner->req.arena);
    return MR_OK;
}

/* It goes on here; cursor NULL: there is no more. */
static void listing_end(struct listing *listing, enum mr_err err, const char *cursor)
{
    struct mr_req_list *outer = listing->outer;
    char next[MR_CURSOR_MAX] = ""; /* the cursor may be the request's own */
    int len = 0;
    if (cursor != NULL)
        len = snprintf(next, sizeof next, "%u:%s", listing->origin->index, cursor);
    memcpy(outer->next, next, sizeof outer->next);
    mr_req_done(&listing->inner.req);
    mr_req_answer(&outer->req, err == MR_OK && len >= (int)sizeof next ? MR_TOO_BIG : err);
}

/* The server has no more, or is not there. */
static void listing_pass_on(struct listing *listing, enum mr_err err)
{
    struct many *many = listing->many;
    struct origin *next = next_origin(many, listing->origin->index + 1);
    const struct mr_req_list *outer = listing->outer;
    bool first = outer->options.cursor == NULL || outer->options.cursor[0] == '\0';
    if (next == NULL || many->closing) {
        bool is_fine =
            outer->n > 0 || err == MR_OK || (err == MR_NOT_FOUND && (!first || listing->found));
        listing_end(listing, is_fine ? MR_OK : err, NULL);
        return;
    }
    mr_req_done(&listing->inner.req);
    listing->origin = next;
    listing->cursor[0] = '\0';
    listing->peeks = outer->n > 0 && (outer->n >= listing->limit || listing->bytes > ROOM_BYTES);
    listing_send(listing);
}

static void listing_done(struct mr_req *req)
{
    struct listing *listing = req->arg;
    const struct mr_req_list *inner = &listing->inner;
    enum mr_err err = req->err;
    listing->found |= err == MR_OK;
    if (err == MR_NOT_FOUND || err == MR_UNAVAILABLE) {
        listing_pass_on(listing, err);
        return;
    }
    if (err == MR_OK && listing->peeks) {
        if (inner->n > 0 || inner->next[0] != '\0')
            listing_end(listing, MR_OK, "");
        else
            listing_pass_on(listing, MR_OK);
        return;
    }
    if (err == MR_OK)
        err = listing_add(listing);
    if (err != MR_OK)
        listing_end(listing, err, NULL);
    else if (inner->next[0] != '\0')
        listing_end(listing, MR_OK, inner->next);
    else
        listing_pass_on(listing, MR_OK);
}

static void listing_send(struct listing *listing)
{
    listing->inner = (struct mr_req_list){
        .req = {.op = MR_OP_LIST, .done = listing_done, .arg = listing},
        .options = listing->outer->options,
    };
    listing->inner.options.cursor = listing->cursor;
    listing->inner.options.limit = listing->peeks ? 1 : listing->limit - listing->outer->n;
    listing->inner.options.with_payload &= !listing->peeks;
    mr_broker_submit(listing->origin->broker, &listing->inner.req);
}

/* Where a page begins; MR_INVALID: no cursor of ours. */
static enum mr_err read_cursor(struct listing *listing, const char *cursor)
{
    char *end;
    if (cursor == NULL || cursor[0] == '\0') {
        listing->origin = next_origin(listing->many, 0);
        return MR_OK;
    }
    if (cursor[0] < '0' || cursor[0] > '9')
        return MR_INVALID;
    unsigned long index = strtoul(cursor, &end, 10);
    if (*end != ':' || index >= listing->many->origins_n || strlen(end + 1) >= MR_CURSOR_MAX)
        return MR_INVALID;
    listing->origin = next_origin(listing->many, index);
    if (listing->origin != NULL && listing->origin->index == index)
        (void)snprintf(listing->cursor, sizeof listing->cursor, "%s", end + 1);
    return MR_OK;
}

void begin_list(struct many *many, struct mr_req *req)
{
    struct mr_req_list *outer = mr_container(req, struct mr_req_list, req);
    struct listing *listing = mr_arena_calloc(&req->arena, 1, sizeof *listing);
    if (listing == NULL) {
        mr_req_answer(req, MR_NOMEM);
        return;
    }
    listing->many = many;
    listing->outer = outer;
    listing->limit = outer->options.limit > 0 ? outer->options.limit : LIST_DEFAULT;
    outer->n = 0;
    outer->next[0] = '\0';
    enum mr_err err = read_cursor(listing, outer->options.cursor);
    if (err == MR_OK && listing->origin == NULL)
        err = MR_UNAVAILABLE;
    if (err != MR_OK)
        mr_req_answer(req, err);
    else
        listing_send(listing);
}
