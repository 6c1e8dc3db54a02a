/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of runs, and commits of results. Those that come in one turn of the loop leave together, one script
 * call for each queue; while some calls are not answered the next ends gather, so that a Redis that is busy gets few
 * calls with many. A lease knows its queue; for one that is not ours any more, all queues are asked.
 *
 * While Redis is away they are kept and sent again. One whose answer was lost may have been carried out:
 * the second time the script is told so, and takes a task that has left this very epoch behind as the
 * proof, or one that is gone where its end leaves nothing. That it is gone counts only where no other queue
 * has it.
 */
#include <stdlib.h>

#include "broker/redis/internal.h"

enum {
    HEAD_ARGS = 3,
    ITEM_ARGS = 7,
    COMMIT_HEAD = 1, /* of commit.lua */
    COMMIT_ARGS = 3,
    CALL_ITEMS = 256,             /* of one call */
    CALL_BYTES = 8 * 1024 * 1024, /* of texts in one call */
    CALLS_MAX = 4, /* under way for a queue; with two a Redis waited for us an eighth of the time */
    DONE_ARGS = 2, /* of one item of done.lua */
    KEEP_MS = 60 * 1000, /* so long they are kept while Redis is away */
    FAILED_MS = 5000,    /* after an error of their queue */
    TEXTS = 2,
};

/* One item on its way to one queue. */
struct end {
    struct mr_link link; /* in queue->finishes, or in engine->undelivered */
    struct ticket *ticket;
    struct rqueue *queue;
    uint32_t item;
    bool doubtful; /* it may have been carried out */
    bool awaited;  /* somebody waits for it: not with done.lua */
    bool commit;   /* of a result: in this place, or somewhere among what this queue's tasks left */
    char texts[TEXTS][NUMBER_MAX]; /* epoch, delay */
};

/* An item of a request. */
struct item {
    size_t left; /* queues that have not answered */
    enum mr_err err;
    bool gone; /* a queue has it no more, or never had it; it may have been carried out there */
    struct mr_slice text;
};

struct finish {
    struct item *items;
    size_t left; /* items */
    bool search; /* some have to be looked for */
    mr_mono since;
    struct queues_ask ask;
};

/* Ends that travel together are of one kind. */
enum load_kind {
    LOAD_DONE,  /* done.lua: went well, leaves nothing */
    LOAD_ENDS,  /* finish.lua */
    LOAD_DOUBT, /* finish.lua, which is told that it may have had them before */
    LOAD_COMMIT /* commit.lua: results */
};

struct load {
    struct mr_redis_call call;
    struct rqueue *queue;
    size_t n;
    enum load_kind kind;
    struct end *ends[CALL_ITEMS];
};

static struct mr_req_finish *finish_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_finish, req);
}

/* ---- on the caller's thread ----------------------------------------------------------------- */

/* Asynq's programs cannot read a message with a text that is not UTF-8. */
static enum mr_err clean_text(struct mr_arena *arena, struct mr_slice text,
                              struct mr_slice *ret_text)
{
    *ret_text = text;
    if (mr_utf8_valid(text))
        return MR_OK;
    MR_TRY(mr_arena_copy(arena, text, ret_text));
    mr_utf8_clean((void *)(uintptr_t)ret_text->data, ret_text->len);
    return MR_OK;
}

/* As results.lua makes them: the text of a SHA-1. */
static bool is_result_id(struct mr_slice id)
{
    enum { LEN = 40 };
    const char *text = id.data;
    size_t n = 0;
    while (n < id.len && ((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'f')))
        n++;
    return n == LEN && id.len == LEN;
}

enum mr_err finish_prepare(struct ticket *ticket)
{
    struct mr_req_finish *req = finish_of(ticket);
    if (req->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    struct finish *finish = mr_arena_calloc(&req->req.arena, 1, sizeof *finish);
    struct item *items = mr_arena_calloc(&req->req.arena, req->n, sizeof *items);
    if (finish == NULL || (items == NULL && req->n > 0))
        return MR_NOMEM;
    finish->items = items;
    ticket->own = finish;
    for (size_t i = 0; i < req->n; i++) {
        const struct mr_finish *item = &req->items[i];
        items[i].err = mr_finish_check(item);
        if (items[i].err == MR_OK && req->only_results && !is_result_id(item->id))
            items[i].err = MR_INVALID;
        items[i].text = item->result;
        if (items[i].err == MR_OK && item->outcome != MR_DONE)
            items[i].err = clean_text(&req->req.arena, item->error, &items[i].text);
    }
    return MR_OK;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* What can be done with a result. */
static bool is_commit(const struct mr_finish *item)
{
    return item->outcome == MR_DONE || item->outcome == MR_HAND_BACK;
}

static bool is_over(enum mr_err err)
{
    return err == MR_OK || err == MR_STALE || err == MR_NOT_FOUND;
}

static void note_run(struct engine *engine, struct rqueue *queue, const struct mr_finish *item)
{
    int64_t now_us = mr_wall_now(mr_clock_system()).us;
    if (item->outcome != MR_HAND_BACK && item->epoch < (uint64_t)now_us)
        latency_note(&rqueue_whole(queue)->latency, LATENCY_RUN, mr_redis_now(engine->redis),
                     now_us - (int64_t)item->epoch);
}

static void item_done(struct ticket *ticket, uint32_t number, enum mr_err err)
{
    struct finish *finish = ticket->own;
    finish_of(ticket)->errs[number] = err;
    if (--finish->left == 0)
        ticket_done(ticket, MR_OK);
}

/* The last queue has answered for this item. */
static void item_over(struct ticket *ticket, uint32_t number, enum mr_err err)
{
    struct engine *engine = ticket->engine;
    const struct mr_finish *item = &finish_of(ticket)->items[number];
    struct node *node;
    struct hold *hold = hold_find(engine, item->ref, item->epoch, &node);
    bool same = hold != NULL && mr_slice_equal(item->id, mr_slice_make(hold->id, hold->id_len));
    if (same)
        hold->ending = false;
    struct rqueue *queue = same ? hold->queue : NULL;
    if (same && is_over(err)) {
        hold_remove(node, hold);
        takes_slot_free(node);
    }
    if (queue != NULL && queue->limited)
        watch_woken(queue); /* so is a permit; what is told of that may come later */
    engine->stale_refused += err == MR_STALE;
    item_done(ticket, number, err);
}

static enum mr_err item_err(const struct item *item)
{
    return item->err == MR_NOT_FOUND && item->gone ? MR_OK : item->err;
}

/* Of several queues that were asked, the one that knows the task is right. */
static void end_over(struct end *end, enum mr_err err)
{
    struct ticket *ticket = end->ticket;
    struct finish *finish = ticket->own;
    struct item *item = &finish->items[end->item];
    if (err == MR_OK && !end->commit)
        note_run(ticket->engine, end->queue, &finish_of(ticket)->items[end->item]);
    if (item->err == MR_NOT_FOUND || err == MR_OK)
        item->err = err;
    if (--item->left == 0)
        item_over(ticket, end->item, item_err(item));
}

static void end_gone(struct end *end)
{
    struct finish *finish = end->ticket->own;
    finish->items[end->item].gone = true;
    end_over(end, MR_NOT_FOUND);
}

/* Why it is kept no longer; MR_OK: it is. */
static enum mr_err end_given_up(const struct engine *engine, const struct end *end)
{
    const struct finish *finish = end->ticket->own;
    const struct mr_finish *item = &finish_of(end->ticket)->items[end->item];
    int64_t age_ns = mr_redis_now(engine->redis).ns - finish->since.ns;
    struct node *node = NULL;
    (void)hold_find(end->ticket->engine, item->ref, item->epoch, &node);
    if (engine->closing)
        return MR_CLOSED;
    if ((node == NULL || !node->leaving) && age_ns <= KEEP_MS * MR_NS_PER_MS)
        return MR_OK;
    return end->doubtful ? MR_TIMEOUT : MR_UNAVAILABLE;
}

static void end_send(struct engine *engine, struct end *end);
static void send_some(struct rqueue *queue, uint32_t calls_max);
static void ask_flush(struct engine *engine);

static void try_again(struct engine *engine, struct end *end, bool doubtful)
{
    mr_mono now = mr_redis_now(engine->redis);
    end->doubtful |= doubtful;
    enum mr_err err = end_given_up(engine, end);
    if (err != MR_OK) {
        end_over(end, err);
        return;
    }
    mr_list_push_back(&engine->undelivered, &end->link);
    if (!mr_timer_running(&engine->deliver))
        mr_redis_timer_start(engine->redis, &engine->deliver, mr_mono_add_ms(now, AGAIN_MS));
}

/* A node leaves: what it has to say goes before it gives back what it holds, and what it could not say is kept no
 * longer. */
void finishes_leave(struct engine *engine)
{
    struct mr_link all, *link;
    while ((link = mr_list_pop_front(&engine->finishings)) != NULL)
        send_some(mr_container(link, struct rqueue, finishing), UINT32_MAX);
    mr_list_init(&all);
    mr_list_splice_back(&all, &engine->undelivered);
    while ((link = mr_list_pop_front(&all)) != NULL)
        try_again(engine, mr_container(link, struct end, link), false);
}

enum {
    CODE_NONE = 2,
    CODE_AWAITED /* of done.lua */,
    CODE_GONE = CODE_AWAITED /* of finish.lua */
};
static const enum mr_err code_errs[CODE_AWAITED] = {MR_OK, MR_STALE, MR_NOT_FOUND};

/* done.lua did nothing about it: it goes with finish.lua. */
static void end_awaited(struct end *end)
{
    end->awaited = true;
    end_send(end->queue->engine, end);
}

static void load_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct load *load = call->arg;
    struct rqueue *queue = load->queue;
    struct engine *engine = queue->engine;
    bool away = err == MR_UNAVAILABLE || err == MR_TIMEOUT;
    /* Something is wrong with this queue, or with the rights of the user: somebody may mend it. */
    bool broken = err == MR_FAILED || err == MR_DENIED;
    size_t head = load->kind == LOAD_DONE || load->kind == LOAD_COMMIT ? 0 : 1;
    if (broken)
        queue->finish_after = mr_mono_add_ms(mr_redis_now(engine->redis), FAILED_MS);
    if (err == MR_OK && (reply->kind != MR_REPLY_ARRAY || reply->n != load->n + head))
        err = MR_FAILED;
    if (err != MR_OK && !away)
        err = rqueue_refused(queue, err, reply);
    for (size_t i = 0; i < load->n; i++) {
        struct end *end = load->ends[i];
        int64_t code = err == MR_OK ? mr_reply_int(&reply->items[i + head], -1) : -1;
        if (away || broken) /* a script that fails has done a part of it, or nothing */
            try_again(engine, end, call->doubt || broken);
        else if (code == CODE_AWAITED && load->kind == LOAD_DONE)
            end_awaited(end);
        else if (code == (load->kind == LOAD_COMMIT ? CODE_NONE : CODE_GONE) && end->doubtful)
            end_gone(end); /* the first time, whose answer was lost */
        else if (err != MR_OK || code < 0 || code >= CODE_AWAITED)
            end_over(end, err != MR_OK ? err : MR_FAILED);
        else
            end_over(end, code_errs[code]);
    }
    int64_t keep_ms = err == MR_OK && head > 0 ? mr_reply_int(&reply->items[0], -1) : -1;
    if (keep_ms >= 0)
        recover_in(queue, keep_ms + 1);
    queue->finishing_n--;
    if (!mr_list_empty(&queue->finishes))
        ask_flush(engine);
    free(load);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* The lease that it ends; NULL: it is not in hand here. */
static const struct hold *end_hold(const struct end *end)
{
    const struct mr_finish *item = &finish_of(end->ticket)->items[end->item];
    struct node *node;
    const struct hold *hold = hold_find(end->ticket->engine, item->ref, item->epoch, &node);
    bool same = hold != NULL && hold->queue == end->queue &&
                mr_slice_equal(item->id, mr_slice_make(hold->id, hold->id_len));
    return same ? hold : NULL;
}

static enum load_kind end_kind(const struct end *end)
{
    const struct mr_finish *item = &finish_of(end->ticket)->items[end->item];
    const struct hold *hold = end_hold(end);
    bool ends = item->outcome == MR_DONE || item->outcome == MR_DROP;
    if (end->commit)
        return LOAD_COMMIT;
    if (end->doubtful)
        return LOAD_DOUBT;
    return ends && hold != NULL && hold->plain && !end->awaited ? LOAD_DONE : LOAD_ENDS;
}

static void put_end(struct end *end, struct mr_slice *args)
{
    static const char *const outcomes[] = {"0", "1", "2", "3", "4", "5"};
    static const char *const reasons[] = {"0", "1", "2"};
    const struct finish *finish = end->ticket->own;
    const struct mr_finish *item = &finish_of(end->ticket)->items[end->item];
    const struct hold *hold = end_hold(end);
    args[0] = item->id;
    args[1] = number_arg((int64_t)item->epoch, end->texts[0]);
    args[2] = mr_slice_str(outcomes[item->outcome]);
    args[3] = number_arg(item->delay_ms, end->texts[1]);
    args[4] = mr_slice_str(hold == NULL ? "0" : hold->plain ? "1" : hold->kept ? "2" : "0");
#ifdef MR_PLANT_LOST_END_ACCEPTED
    args[4] = MR_SLICE_LIT("0");
#endif
    args[5] = finish->items[end->item].text;
    args[6] = mr_slice_str(reasons[item->reason]);
}

/* Takes from the queue's ends as many as travel together: those of the first one's kind. */
static struct load *load_next(struct rqueue *queue)
{
    struct load *load = malloc(sizeof *load);
    size_t bytes = 0;
    if (load == NULL)
        return NULL;
    load->queue = queue;
    load->n = 0;
    for (struct mr_link *at = queue->finishes.next, *next;
         at != &queue->finishes && load->n < CALL_ITEMS && bytes < CALL_BYTES; at = next) {
        struct end *end = mr_container(at, struct end, link);
        const struct finish *finish = end->ticket->own;
        enum load_kind kind = end_kind(end);
        next = at->next;
        if (load->n == 0)
            load->kind = kind;
        else if (load->kind != kind)
            continue;
        mr_list_remove(&end->link);
        bytes += finish->items[end->item].text.len;
        load->ends[load->n++] = end;
    }
    return load;
}

static void send_ends(struct load *load)
{
    struct engine *engine = load->queue->engine;
    static const char *const bits[2][2] = {{"0", "1"}, {"2", "3"}};
    struct mr_slice args[HEAD_ARGS + ITEM_ARGS * CALL_ITEMS];
    char most[NUMBER_MAX], keep[NUMBER_MAX];
    args[0] = number_arg(engine->archive_max, most);
    args[1] = number_arg(engine->archive_ms, keep);
    args[2] = mr_slice_str(bits[load->queue->leaves.known][load->kind == LOAD_DOUBT]);
    for (size_t i = 0; i < load->n; i++)
        put_end(load->ends[i], &args[HEAD_ARGS + ITEM_ARGS * i]);
    rqueue_eval(load->queue, &load->call, SCRIPT_FINISH, args, HEAD_ARGS + ITEM_ARGS * load->n);
}

static void send_done(struct load *load)
{
    struct mr_slice args[DONE_ARGS * CALL_ITEMS + 1];
    size_t n = DONE_ARGS * load->n;
    for (size_t i = 0; i < load->n; i++) {
        struct end *end = load->ends[i];
        const struct mr_finish *item = &finish_of(end->ticket)->items[end->item];
        args[i] = item->id;
        args[load->n + i] = number_arg((int64_t)item->epoch, end->texts[0]);
    }
    if (load->queue->leaves.known)
        args[n++] = MR_SLICE_LIT("1");
    rqueue_eval(load->queue, &load->call, SCRIPT_DONE, args, n);
}

static void send_commits(struct load *load)
{
    struct mr_slice args[COMMIT_HEAD + COMMIT_ARGS * CALL_ITEMS];
    struct rqueue *queue = load->queue;
    args[0] = queue->topic;
    for (size_t i = 0; i < load->n; i++) {
        struct end *end = load->ends[i];
        const struct mr_finish *item = &finish_of(end->ticket)->items[end->item];
        struct mr_slice *at = &args[COMMIT_HEAD + COMMIT_ARGS * i];
        at[0] = item->id;
        at[1] = number_arg((int64_t)item->epoch, end->texts[0]);
        at[2] = item->outcome == MR_DONE ? MR_SLICE_LIT("0") : MR_SLICE_LIT("3");
    }
    rqueue_eval(queue->home != NULL ? queue->home : queue, &load->call, SCRIPT_COMMIT, args,
                COMMIT_HEAD + COMMIT_ARGS * load->n);
}

static void load_send(struct load *load)
{
    /* It must not wait for a Redis that is away: how long its ends are kept is known here. */
    load->call = (struct mr_redis_call){
        .answered = load_answered, .arg = load, .durable = true, .urgent = true};
    load->queue->finishing_n++;
    if (load->kind == LOAD_DONE)
        send_done(load);
    else if (load->kind == LOAD_COMMIT)
        send_commits(load);
    else
        send_ends(load);
}

/* Ends of the queue leave while fewer calls than these are under way; the rest stays. */
static void send_some(struct rqueue *queue, uint32_t calls_max)
{
    struct engine *engine = queue->engine;
    while (!mr_list_empty(&queue->finishes) && queue->finishing_n < calls_max) {
        struct load *load = load_next(queue);
        if (load == NULL) { /* no memory: later */
            struct mr_link *end = mr_list_pop_front(&queue->finishes);
            try_again(engine, mr_container(end, struct end, link), false);
            continue;
        }
        load_send(load);
    }
    if (!mr_list_empty(&queue->finishes) && mr_list_empty(&queue->finishing))
        mr_list_push_back(&engine->finishings, &queue->finishing);
}

/* The end of a turn. What stays is looked at when a call is answered. */
static void flush(struct mr_msg *msg, void *receiver)
{
    struct engine *engine = mr_container(msg, struct engine, flush);
    struct mr_link all, *link;
    (void)receiver;
    engine->flush_asked = false;
    mr_list_init(&all);
    mr_list_splice_back(&all, &engine->finishings);
    while ((link = mr_list_pop_front(&all)) != NULL)
        send_some(mr_container(link, struct rqueue, finishing), CALLS_MAX);
}

static void ask_flush(struct engine *engine)
{
    if (engine->flush_asked)
        return;
    engine->flush_asked = true;
    mr_redis_at_end_of_turn(engine->redis, &engine->flush);
}

static void end_send(struct engine *engine, struct end *end)
{
    mr_list_push_back(&end->queue->finishes, &end->link);
    if (mr_list_empty(&end->queue->finishing))
        mr_list_push_back(&engine->finishings, &end->queue->finishing);
    ask_flush(engine);
}

void finishes_deliver(struct engine *engine)
{
    struct mr_link all, *link;
    mr_list_init(&all);
    mr_list_splice_back(&all, &engine->undelivered);
    while ((link = mr_list_pop_front(&all)) != NULL) {
        struct end *end = mr_container(link, struct end, link);
        if (mr_redis_now(engine->redis).ns < end->queue->finish_after.ns && !engine->closing)
            try_again(engine, end, false);
        else
            end_send(engine, end);
    }
}

void finishes_fail(struct engine *engine, enum mr_err err)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&engine->undelivered)) != NULL)
        end_over(mr_container(link, struct end, link), err);
}

static void deliver(struct mr_timer *timer, void *arg)
{
    (void)arg;
    finishes_deliver(mr_container(timer, struct engine, deliver));
}

void finish_init(struct engine *engine)
{
    engine->flush.deliver = flush;
    mr_timer_init(&engine->deliver, deliver);
    mr_list_init(&engine->finishings);
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err add_end(struct ticket *ticket, uint32_t number, struct rqueue *queue,
                           bool commit)
{
    struct finish *finish = ticket->own;
    struct end *end = mr_arena_calloc(&ticket->req->arena, 1, sizeof *end);
    if (end == NULL)
        return MR_NOMEM;
    *end = (struct end){.ticket = ticket, .queue = queue, .item = number, .commit = commit};
    mr_list_init(&end->link);
    finish->items[number].left++;
    finish->items[number].err = MR_NOT_FOUND;
    end_send(ticket->engine, end);
    return MR_OK;
}

/* One that is not in hand here may be a task in any queue, or a result of any queue's tasks. */
static enum mr_err ask_queue(struct ticket *ticket, uint32_t number, struct rqueue *queue)
{
    const struct mr_req_finish *req = finish_of(ticket);
    if (queue->known && !req->only_results)
        MR_TRY(add_end(ticket, number, queue, false));
    if (queue->leaves.known && is_commit(&req->items[number]))
        MR_TRY(add_end(ticket, number, queue, true));
    return MR_OK;
}

/* All queues are asked for an item of which it is not known where it is. */
static void search(struct queues_ask *ask, enum mr_err err)
{
    struct ticket *ticket = ask->arg;
    struct engine *engine = ticket->engine;
    struct finish *finish = ticket->own;
    const struct mr_req_finish *req = finish_of(ticket);
    for (uint32_t i = 0; i < req->n; i++) {
        struct item *item = &finish->items[i];
        if (item->left != SIZE_MAX)
            continue;
        item->left = 1; /* until all are asked */
        item->err = err == MR_OK ? MR_NOT_FOUND : err;
        for (uint32_t k = 0; err == MR_OK && k < engine->queues_n; k++)
            if (ask_queue(ticket, i, engine->queues[k]) != MR_OK)
                item->err = MR_NOMEM;
        if (--item->left == 0)
            item_over(ticket, i, item_err(item));
    }
    finish->left--;
    if (finish->left == 0)
        ticket_done(ticket, MR_OK);
}

static void begin_item(struct ticket *ticket, uint32_t number)
{
    struct finish *finish = ticket->own;
    const struct mr_finish *item = &finish_of(ticket)->items[number];
    struct node *node;
    struct hold *hold = hold_find(ticket->engine, item->ref, item->epoch, &node);
    if (hold != NULL && hold->queue != NULL &&
        mr_slice_equal(item->id, mr_slice_make(hold->id, hold->id_len))) {
        bool result = hold->queue->topic.len > 0;
        if ((result && !is_commit(item)) || (!result && finish_of(ticket)->only_results)) {
            item_done(ticket, number, result ? MR_INVALID : MR_NOT_FOUND);
            return;
        }
        hold->ending = true;
        if (add_end(ticket, number, hold->queue, result) != MR_OK)
            item_over(ticket, number, MR_NOMEM);
        return;
    }
    finish->items[number].left = SIZE_MAX;
    finish->search = true;
}

void finish_begin(struct ticket *ticket)
{
    struct engine *engine = ticket->engine;
    struct finish *finish = ticket->own;
    struct mr_req_finish *req = finish_of(ticket);
    finish->since = mr_redis_now(engine->redis);
    finish->left = req->n + 1;
    for (uint32_t i = 0; i < req->n; i++) {
        if (finish->items[i].err != MR_OK)
            item_over(ticket, i, finish->items[i].err);
        else
            begin_item(ticket, i);
    }
    if (finish->search) {
        finish->ask = (struct queues_ask){.then = search, .arg = ticket};
        queues_ask(engine, &finish->ask);
    } else if (--finish->left == 0) {
        ticket_done(ticket, MR_OK);
    }
}
