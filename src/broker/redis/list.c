/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of tasks: one queue after the other (of one with partitions, one partition after the other), in each
 * one state after the other. A cursor is the place of
 * the last task that was looked at, so that a page costs the same wherever it begins and tasks that come
 * and go change nothing for the others:
 *
 *     STATE:KIND:KEY:QUEUE-HASH:ID
 *
 * KIND, KEY and ID are list.lua's, or KIND is s: from the start of that queue. QUEUE are the first bytes of the queue's name, in hex; names that agree
 * in those stand in the order of a hash. ID is base64 of its bytes.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/look.h"

enum {
    LIST_DEFAULT = 50,
    SCAN_MAX = 20000, /* tasks looked at for one page: it ends early rather than late */
    SCAN_STEP = 1000, /* ... by one script: Redis does nothing else meanwhile */
    HEAD_BYTES = 16,  /* of a queue's name in a cursor */
    HASH_BYTES = 6,
    KEY_MAX = 32,
    ID_TEXT_MAX = (MR_ID_MAX * 4 + 2) / 3,
    SPOT_MAX = 2 * HEAD_BYTES + 1 + 2 * HASH_BYTES,
    ARGS = 10,
    FIRST_VIEW = 6, /* in the answer */
    START = 's',
};
static_assert(2 + 2 + KEY_MAX + 1 + SPOT_MAX + 1 + ID_TEXT_MAX < MR_CURSOR_MAX,
              "a cursor has room for everything in it");

/* A place behind which the page goes on. */
struct place {
    char spot[SPOT_MAX + 1]; /* of the queue; empty: the first one */
    char state;
    char kind; /* '\0': the start */
    char key[KEY_MAX + 1];
    char id[MR_ID_MAX];
    size_t id_len;
};

struct page {
    struct ticket *ticket;
    struct mr_redis_call call;
    struct place at;
    char states[MR_STATE_COUNT]; /* digits of those that are wanted */
    size_t limit, scanned, bytes;
    struct known known;
    size_t next; /* queue */
};

/* ---- cursors -------------------------------------------------------------------------------- */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void encode64(const char *bytes, size_t len, char *out)
{
    const uint8_t *in = (const uint8_t *)bytes;
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | in[i];
        for (held += 8; held >= 6; held -= 6)
            *out++ = digits64[bits >> (held - 6) & 63];
    }
    if (held > 0)
        *out++ = digits64[bits << (6 - held) & 63];
    *out = '\0';
}

static bool decode64(const char *text, char *out, size_t *ret_len)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t n = 0;
    for (; *text != '\0'; text++) {
        const char *digit = strchr(digits64, *text);
        if (digit == NULL || n == MR_ID_MAX)
            return false;
        bits = bits << 6 | (uint32_t)(digit - digits64);
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[n++] = (char)(bits >> held & 255);
        }
    }
    *ret_len = n;
    return held < 6;
}

static struct mr_slice head_of(struct mr_slice name)
{
    return mr_slice_make(name.data, name.len < HEAD_BYTES ? name.len : HEAD_BYTES);
}

/* Where a queue stands among all; the order of the texts is that of the queues. */
static void spot_of(struct mr_slice name, char spot[SPOT_MAX + 1])
{
    static const struct mr_hash_key key = {0, 0};
    struct mr_uuid hash = mr_hash128(key, name);
    struct mr_slice head = head_of(name);
    for (size_t i = 0; i < head.len; i++)
        spot += snprintf(spot, 3, "%02x", ((const uint8_t *)name.data)[i]);
    *spot++ = '-';
    for (size_t i = 0; i < HASH_BYTES; i++)
        spot += snprintf(spot, 3, "%02x", hash.bytes[i]);
}

static enum mr_err cursor_parse(const char *text, struct place *ret_place)
{
    char id[MR_CURSOR_MAX];
    struct place place = {0};
    int end = -1;
    if (text == NULL || text[0] == '\0') {
        *ret_place = place;
        return MR_OK;
    }
    if (strlen(text) >= MR_CURSOR_MAX)
        return MR_INVALID;
    int n = sscanf(text, "%c:%c:%32[0-9a-f.e+_-]:%45[0-9a-f-]:%255s%n", &place.state, &place.kind,
                   place.key, place.spot, id, &end);
    bool known = place.state >= '0' && place.state < '0' + MR_STATE_COUNT && n == 5 &&
                 strchr("zlas", place.kind) != NULL && text[end] == '\0' &&
                 strchr(place.spot, '-') != NULL;
    if (!known || !decode64(id, place.id, &place.id_len) || place.id_len == 0)
        return MR_INVALID;
    if (place.kind == START)
        place.kind = '\0';
    *ret_place = place;
    return MR_OK;
}

static void cursor_write(const struct place *place, char out[MR_CURSOR_MAX])
{
    char id[ID_TEXT_MAX + 1];
    encode64(place->id, place->id_len, id);
    if (place->kind == '\0')
        (void)snprintf(out, MR_CURSOR_MAX, "1:%c:0:%s:AA", START, place->spot);
    else
        (void)snprintf(out, MR_CURSOR_MAX, "%c:%c:%s:%s:%s", place->state, place->kind, place->key,
                       place->spot, id);
}

enum mr_err list_prepare(struct ticket *ticket)
{
    struct mr_req_list *req = mr_container(ticket->req, struct mr_req_list, req);
    struct page *page = mr_arena_calloc(&req->req.arena, 1, sizeof *page);
    if (page == NULL)
        return MR_NOMEM;
    *page = (struct page){.ticket = ticket};
    page->limit = req->options.limit != 0 ? req->options.limit : LIST_DEFAULT;
    if (page->limit > MR_BATCH_MAX || (unsigned)req->options.state >= MR_STATE_COUNT)
        return MR_INVALID;
    MR_TRY(cursor_parse(req->options.cursor, &page->at));
    req->tasks = mr_arena_calloc(&req->req.arena, page->limit, sizeof *req->tasks);
    if (req->options.held)
        page->states[0] = '0';
    for (unsigned state = 1, n = 0; state < MR_STATE_COUNT && !req->options.held; state++)
        if (req->options.state == MR_STATE_NONE || req->options.state == state)
            page->states[n++] = (char)('0' + state);
    req->n = 0;
    req->next[0] = '\0';
    ticket->own = page;
    return req->tasks != NULL ? MR_OK : MR_NOMEM;
}

/* ---- queues --------------------------------------------------------------------------------- */

/* The order of their spots, which are needed for few of them. */
static int by_spot(const void *a, const void *b)
{
    struct mr_slice x = (*(struct rqueue *const *)a)->name, y = (*(struct rqueue *const *)b)->name;
    char x_spot[SPOT_MAX + 1], y_spot[SPOT_MAX + 1];
    int heads = mr_slice_compare(head_of(x), head_of(y));
    if (heads != 0)
        return heads;
    spot_of(x, x_spot);
    spot_of(y, y_spot);
    return strcmp(x_spot, y_spot);
}

static void leave_out_inner(struct known *known)
{
    size_t n = 0;
    for (size_t i = 0; i < known->n; i++)
        if (!known->queues[i]->inner)
            known->queues[n++] = known->queues[i];
    known->n = n;
}

/* Those that the page may still come to; the first one may be that of the cursor. */
static enum mr_err page_queues(struct page *page)
{
    struct mr_req_list *req = mr_container(page->ticket->req, struct mr_req_list, req);
    struct engine *engine = page->ticket->engine;
    const struct rqueue *only = NULL;
    if (req->options.queue.len > 0 && (only = known_queue(engine, req->options.queue)) == NULL)
        return MR_NOT_FOUND;
    MR_TRY(known_parts(engine, only, &req->req.arena, &page->known));
    if (only == NULL)
        leave_out_inner(&page->known);
    qsort(page->known.queues, page->known.n, sizeof *page->known.queues, by_spot);
    char spot[SPOT_MAX + 1];
    for (; page->next < page->known.n; page->next++) {
        spot_of(page->known.queues[page->next]->name, spot);
        if (strcmp(spot, page->at.spot) >= 0)
            break;
    }
    return MR_OK;
}

static void page_go_on(struct page *page);

static void page_end(struct page *page)
{
    struct mr_req_list *req = mr_container(page->ticket->req, struct mr_req_list, req);
    cursor_write(&page->at, req->next);
    ticket_done(page->ticket, MR_OK);
}

static enum mr_err copy_text(const struct mr_reply *reply, char *out, size_t max, size_t *ret_len)
{
    if (reply->kind != MR_REPLY_TEXT || reply->text.len > max)
        return MR_FAILED;
    memcpy(out, reply->text.data, reply->text.len);
    *ret_len = reply->text.len;
    return MR_OK;
}

static enum mr_err read_place(struct page *page, const struct mr_reply *reply)
{
    struct place at = {0};
    char letter[2][1] = {{0}};
    size_t len;
    MR_TRY(copy_text(mr_reply_at(reply, 1), letter[0], 1, &len));
    MR_TRY(copy_text(mr_reply_at(reply, 2), letter[1], 1, &len));
    MR_TRY(copy_text(mr_reply_at(reply, 3), at.key, KEY_MAX, &len));
    MR_TRY(copy_text(mr_reply_at(reply, 4), at.id, MR_ID_MAX, &at.id_len));
    at.state = letter[0][0];
    at.kind = letter[1][0];
    memcpy(at.spot, page->at.spot, sizeof at.spot);
    if (at.kind != '\0') /* else nothing was looked at: the place before holds */
        page->at = at;
    return MR_OK;
}

static enum mr_err read_tasks(struct page *page, const struct mr_reply *reply)
{
    struct mr_req_list *req = mr_container(page->ticket->req, struct mr_req_list, req);
    const struct rqueue *queue = page->known.queues[page->next];
    for (size_t i = FIRST_VIEW; i < reply->n && req->n < page->limit; i++) {
        const struct mr_reply *fields = mr_reply_at(mr_reply_at(reply, i), VIEW_FIELDS);
        for (size_t k = 0; k < fields->n; k++)
            page->bytes += fields->items[k].text.len;
        MR_TRY(view_read(queue, mr_reply_at(reply, i), &req->req.arena, &req->tasks[req->n]));
        req->tasks[req->n].past = (struct mr_slice){0}; /* of one task alone */
        req->n++;
    }
    return MR_OK;
}

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    enum { ALL, FULL };
    struct page *page = call->arg;
    err = look_array(page->ticket->engine, err, reply);
    if (err == MR_OK)
        err = read_tasks(page, reply);
    if (err == MR_OK)
        err = read_place(page, reply);
    if (err != MR_OK) {
        ticket_done(page->ticket, err);
        return;
    }
    page->scanned += (size_t)mr_reply_int(mr_reply_at(reply, 5), 0);
    int64_t more = mr_reply_int(mr_reply_at(reply, 0), ALL);
    if (more == ALL)
        page->next++;
    if (more == FULL || page->scanned >= SCAN_MAX)
        page_end(page);
    else
        page_go_on(page);
}

static void ask(struct page *page, const struct rqueue *queue)
{
    struct mr_req_list *req = mr_container(page->ticket->req, struct mr_req_list, req);
    const struct place *at = &page->at;
    char numbers[4][NUMBER_MAX];
    const char *states = page->states;
    while (at->kind != '\0' && *states != '\0' && *states < at->state)
        states++;
    bool inside = at->kind != '\0' && *states == at->state;
    struct mr_slice none = MR_SLICE_LIT("");
    int64_t room = page->bytes < MR_PAGE_BYTES ? (int64_t)(MR_PAGE_BYTES - page->bytes) : 0;
    const struct mr_slice args[ARGS] = {
        mr_slice_str(states),
        inside ? mr_slice_make(&at->kind, 1) : none,
        inside ? mr_slice_str(at->key) : none,
        inside ? mr_slice_make(at->id, at->id_len) : none,
        number_arg((int64_t)(page->limit - req->n), numbers[0]),
        number_arg(room, numbers[1]),
        number_arg((int64_t)req->n, numbers[2]),
        req->options.with_payload ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0"),
        req->options.type,
        number_arg(SCAN_STEP, numbers[3]),
    };
    page->call = (struct mr_redis_call){
        .answered = answered, .arg = page, .repeatable = true, .urgent = true};
    rqueue_eval((struct rqueue *)(uintptr_t)queue, &page->call, SCRIPT_LIST, args, ARGS);
}

static void page_go_on(struct page *page)
{
    if (page->next == page->known.n) {
        ticket_done(page->ticket, MR_OK);
        return;
    }
    struct rqueue *queue = page->known.queues[page->next];
    char spot[SPOT_MAX + 1];
    spot_of(queue->name, spot);
    if (strcmp(spot, page->at.spot) != 0) { /* another queue begins */
        page->at = (struct place){.kind = '\0'};
        memcpy(page->at.spot, spot, sizeof spot);
    }
    ask(page, queue);
}

static void names_known(struct ticket *ticket)
{
    struct page *page = ticket->own;
    enum mr_err err = page_queues(page);
    if (err != MR_OK)
        ticket_done(ticket, err);
    else
        page_go_on(page);
}

void list_begin(struct ticket *ticket)
{
    look_names(ticket, names_known);
}
