/* SPDX-License-Identifier: Apache-2.0 */
/* Who works: the nodes of the broker, with what only their streams tell. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/work.h"
#include "millrace/v1/nodes.pb-c.h"
#include "wire/node.h"

enum { LIST_MAX = 1000 };
/* Numbers of NodeListResponse, and of AssignRequest. */
enum { FIELD_NODES = 1, FIELD_NEXT = 2, FIELD_LEADER = 3, FIELD_ASSIGNMENTS = 4 };
enum { ASSIGN_TERM = 1, ASSIGN_QUEUE = 2, ASSIGN_VERSION = 3, ASSIGN_OWNERS = 4 };

/* ---- what a stream tells -------------------------------------------------------------------- */

static void mark_suspect(struct mr_node_info *nodes, size_t n, uint64_t node)
{
    for (size_t i = 0; i < n; i++)
        if (nodes[i].incarnation == node && nodes[i].state == MR_NODE_LIVE)
            nodes[i].state = MR_NODE_SUSPECT;
}

void nodes_mark(const struct mr_api *api, struct mr_node_info *nodes, size_t n)
{
    for (size_t i = 0; i < SESSION_BUCKETS; i++) {
        for (struct mr_link *link = api->sessions[i].next; link != &api->sessions[i];
             link = link->next) {
            const struct session *session = mr_container(link, struct session, link);
            if (session->state == SESSION_LIVE && session->attach == NULL)
                mark_suspect(nodes, n, session->node);
        }
    }
}

bool nodes_has_session(const struct mr_api *api, uint64_t node)
{
    for (size_t i = 0; i < SESSION_BUCKETS; i++) {
        for (struct mr_link *link = api->sessions[i].next; link != &api->sessions[i];
             link = link->next)
            if (mr_container(link, struct session, link)->node == node)
                return true;
    }
    return false;
}

/* ---- what a token may see ------------------------------------------------------------------- */

enum mr_err node_filter(const struct mr_token *token, struct mr_arena *arena,
                        struct mr_node_info *node, bool *ret_seen)
{
    *ret_seen = true;
    if (mr_access_all_queues(token))
        return MR_OK;
    struct mr_worker_queue *queues = mr_arena_calloc(arena, node->queues_n + 1, sizeof *queues);
    size_t n = 0;
    if (queues == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < node->queues_n; i++)
        if (mr_access_queue(token, node->queues[i].name))
            queues[n++] = node->queues[i];
    node->queues = queues;
    node->queues_n = n;
    node->slot_infos_n = 0; /* they may run tasks of other queues */
    *ret_seen = n > 0;
    return MR_OK;
}

static enum mr_err filter_all(const struct unary *u, struct mr_req_node_list *req)
{
    size_t kept = 0;
    for (size_t i = 0; i < req->n; i++) {
        bool seen;
        MR_TRY(node_filter(&u->token, &req->req.arena, &req->nodes[i], &seen));
        if (seen)
            req->nodes[kept++] = req->nodes[i];
    }
    req->n = kept;
    kept = 0;
    for (size_t i = 0; i < req->assignments_n; i++)
        if (mr_access_queue(&u->token, req->assignments[i].queue))
            req->assignments[kept++] = req->assignments[i];
    req->assignments_n = kept;
    return MR_OK;
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* A page begins behind a node that may be gone by then: so the order is one of values. */
struct place {
    int64_t started_ms;
    uint64_t incarnation;
};

static struct place place_of(const struct mr_node_info *node)
{
    return (struct place){node->started_ms, node->incarnation};
}

static int compare_places(struct place a, struct place b)
{
    if (a.started_ms != b.started_ms)
        return a.started_ms < b.started_ms ? -1 : 1;
    return (a.incarnation > b.incarnation) - (a.incarnation < b.incarnation);
}

static int compare_nodes(const void *a, const void *b)
{
    return compare_places(place_of(a), place_of(b));
}

static bool parse_cursor(const char *cursor, struct place *ret_place)
{
    int end = 0;
    *ret_place = (struct place){INT64_MIN, 0};
    return cursor[0] == '\0' || (sscanf(cursor, "%" SCNd64 ".%" SCNx64 "%n", &ret_place->started_ms,
                                        &ret_place->incarnation, &end) == 2 &&
                                 cursor[end] == '\0');
}

struct page {
    const struct mr_node_info *nodes;
    size_t n, size;
    char next[64];
    const struct mr_req_node_list *head; /* what the first page has before them; NULL: nothing */
};

static size_t head_size(const struct mr_req_node_list *req)
{
    size_t size = mr_flat_size(&mr_flat_leader, &req->leader);
    size += mr_flat_head_size(size);
    for (size_t i = 0; i < req->assignments_n; i++) {
        size_t len = mr_assignment_size(&req->assignments[i]);
        size += mr_flat_head_size(len) + len;
    }
    return size;
}

static uint8_t *head_write(const struct mr_req_node_list *req, uint8_t *at)
{
    at = mr_flat_put_head(at, FIELD_LEADER, mr_flat_size(&mr_flat_leader, &req->leader));
    at = mr_flat_write(&mr_flat_leader, &req->leader, at);
    for (size_t i = 0; i < req->assignments_n; i++) {
        const struct mr_assignment *assignment = &req->assignments[i];
        at = mr_flat_put_head(at, FIELD_ASSIGNMENTS, mr_assignment_size(assignment));
        at = mr_assignment_write(assignment, at);
    }
    return at;
}

static void page_measure(const struct mr_req_node_list *req, struct place after, size_t limit,
                         struct page *page)
{
    size_t first = 0;
    while (first < req->n && compare_places(place_of(&req->nodes[first]), after) <= 0)
        first++;
    *page = (struct page){.nodes = first < req->n ? &req->nodes[first] : NULL,
                          .head = after.started_ms == INT64_MIN ? req : NULL};
    while (first + page->n < req->n && page->n < limit && page->size < ANSWER_BYTES) {
        size_t size = mr_node_size(&page->nodes[page->n++]);
        page->size += mr_flat_head_size(size) + size;
    }
    page->size += page->head != NULL ? head_size(page->head) : 0;
    if (page->n == 0 || first + page->n == req->n)
        return;
    struct place last = place_of(&page->nodes[page->n - 1]);
    int len = snprintf(page->next, sizeof page->next, "%" PRId64 ".%" PRIx64, last.started_ms,
                       last.incarnation);
    page->size += mr_flat_head_size((size_t)len) + (size_t)len;
}

static void page_write(const struct page *page, uint8_t *at)
{
    size_t next = strlen(page->next);
    at = page->head != NULL ? head_write(page->head, at) : at;
    for (size_t i = 0; i < page->n; i++) {
        at = mr_flat_put_head(at, FIELD_NODES, mr_node_size(&page->nodes[i]));
        at = mr_node_write(&page->nodes[i], at);
    }
    if (next > 0)
        memcpy(mr_flat_put_head(at, FIELD_NEXT, next), page->next, next);
}

static void list_reply(struct unary *u)
{
    const Millrace__V1__NodeListRequest *in = (const void *)u->message;
    struct mr_req_node_list *req = &u->errand.req.node_list;
    struct place after;
    struct page page;
    nodes_mark(u->api, req->nodes, req->n);
    if (filter_all(u, req) != MR_OK) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    if (req->n > 0)
        qsort(req->nodes, req->n, sizeof *req->nodes, compare_nodes);
    (void)parse_cursor(in->cursor, &after); /* checked before */
    page_measure(req, after, in->limit == 0 ? LIST_MAX : in->limit, &page);
    uint8_t *room = unary_room(u, page.size);
    if (room == NULL)
        return;
    page_write(&page, room);
    unary_sent(u);
}

void nodes_list(struct unary *u)
{
    const Millrace__V1__NodeListRequest *in = (const void *)u->message;
    struct place after;
    if (in->limit > LIST_MAX)
        unary_fail(u, MR_INVALID, "limit: %u, the most is %d", in->limit, LIST_MAX);
    else if (!parse_cursor(in->cursor, &after))
        unary_fail(u, MR_INVALID, "cursor: not one of ours");
    else
        unary_submit(u, MR_OP_NODE_LIST, list_reply);
}

/* ---- what the leader writes ----------------------------------------------------------------- */

static void assign_reply(struct unary *u)
{
    Millrace__V1__AssignResponse out = MILLRACE__V1__ASSIGN_RESPONSE__INIT;
    out.version = u->errand.req.assign.version;
    unary_send(u, &out.base);
}

static enum mr_err read_assign(struct unary *u, struct mr_req_assign *req)
{
    struct mr_slice rest = u->bytes;
    while (rest.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&rest, &item));
        if (item.number == ASSIGN_TERM)
            req->term = item.value;
        else if (item.number == ASSIGN_VERSION)
            req->version = item.value;
        else if (item.number == ASSIGN_QUEUE)
            req->queue = item.bytes;
    }
    MR_TRY(mr_owners_read(u->bytes, ASSIGN_OWNERS, MR_OWNERS_MAX, &req->req.arena, &req->owners,
                          &req->owners_n));
    return mr_assign_check(req);
}

void nodes_assign(struct unary *u)
{
    if (!unary_may_touch_all(u, ": it does not lead"))
        return;
    enum mr_err err = read_assign(u, &u->errand.req.assign);
    if (err != MR_OK)
        unary_fail(u, err, "term, queue or owners: not as they must be");
    else
        unary_submit(u, MR_OP_ASSIGN, assign_reply);
}
