/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of many small items on one stream. Their entries are encoded already, so a message is a
 * head and a copy of what waits, whosever it is; answers come in the order of the messages and,
 * within one, of the entries. So nothing needs to be remembered of a message but its length.
 */
#include "broker/remote/internal.h"

void lane_init(struct lane *lane, const struct lane_kind *kind)
{
    mr_list_init(&lane->tickets);
    lane->kind = kind;
}

bool lane_unsent(const struct lane *lane)
{
    return lane->next != NULL;
}

static struct ticket *ticket_at(const struct lane *lane, const struct mr_link *link)
{
    return link == &lane->tickets ? NULL : mr_container(link, struct ticket, link);
}

/* Begins what waited for nothing but those that are gone from before it. */
static void go_on(struct lane *lane)
{
    struct ticket *ticket;
    while ((ticket = ticket_at(lane, lane->tickets.next)) != NULL && ticket->n == 0) {
        if (lane->next == ticket)
            lane->next = ticket_at(lane, ticket->link.next);
        mr_list_remove(&ticket->link);
        lane->kind->begin(ticket);
    }
}

void lane_add(struct lane *lane, struct ticket *ticket)
{
    if (ticket->n == 0) {
        ticket_answer(ticket, MR_OK);
        return;
    }
    mr_list_push_back(&lane->tickets, &ticket->link);
    if (lane->next == NULL)
        lane->next = ticket;
}

void lane_wait(struct lane *lane, struct ticket *ticket)
{
    mr_assert(ticket->n == 0);
    mr_list_push_back(&lane->tickets, &ticket->link);
    go_on(lane);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* A stretch of entries. */
struct cut {
    size_t bytes, n;
};

/* What of a ticket fits into a message that holds so much already. The first entry of a message
 * always does. */
static struct cut cut_of(const struct ticket *ticket, struct cut held)
{
    struct mr_slice rest = mr_slice_make(ticket->entries + ticket->at, ticket->bytes - ticket->at);
    size_t left = rest.len, n = ticket->n - ticket->sent;
    if (held.bytes + left <= MESSAGE_BYTES && held.n + n <= MR_BATCH_MAX)
        return (struct cut){left, n};
    struct cut cut = {0};
    while (rest.len > 0 && held.n + cut.n < MR_BATCH_MAX) {
        struct mr_flat_item item;
        enum mr_err err = mr_flat_next(&rest, &item);
        mr_assert(err == MR_OK); /* we wrote it */
        bool first = held.n + cut.n == 0;
        if (!first && held.bytes + left - rest.len > MESSAGE_BYTES)
            break;
        cut = (struct cut){left - rest.len, cut.n + 1};
    }
    return cut;
}

static struct cut measure(const struct lane *lane)
{
    struct cut all = {0};
    for (struct ticket *ticket = lane->next; ticket != NULL;
         ticket = ticket_at(lane, ticket->link.next)) {
        struct cut cut = cut_of(ticket, all);
        all.bytes += cut.bytes;
        all.n += cut.n;
        if (cut.n < ticket->n - ticket->sent)
            break;
    }
    return all;
}

/* Copies the next message's entries and counts them as sent. */
static void copy_entries(struct lane *lane, struct cut all, uint8_t *at)
{
    for (struct cut held = {0}; held.n < all.n;) {
        struct ticket *ticket = lane->next;
        struct cut cut = cut_of(ticket, held);
        if (cut.bytes > 0) /* one that only waits for others has none */
            memcpy(at + held.bytes, ticket->entries + ticket->at, cut.bytes);
        ticket->at += cut.bytes;
        ticket->sent += cut.n;
        held.bytes += cut.bytes;
        held.n += cut.n;
        if (ticket->sent == ticket->n)
            lane->next = ticket_at(lane, ticket->link.next);
    }
}

void lane_send(struct lane *lane, struct mr_call *call)
{
    while (lane->next != NULL && lane->tag_sent - lane->tag_replied < LANE_MESSAGES &&
           mr_call_queued(call) < MR_CALL_QUEUED_HIGH) {
        struct cut all = measure(lane);
        uint8_t *room;
        if (all.n == 0) { /* nothing but tickets that wait for others */
            lane->next = NULL;
            return;
        }
        if (mr_call_room(call, lane->kind->head_size(all.bytes) + all.bytes, &room) != MR_OK)
            return; /* the call is over and its end is about to be told */
        uint32_t tag = ++lane->tag_sent;
        lane->counts[tag % LANE_MESSAGES] = (uint16_t)all.n;
        copy_entries(lane, all, lane->kind->head(room, all.bytes, tag));
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

enum mr_err lane_replied(struct lane *lane, size_t *ret_n)
{
    if (lane->tag_replied == lane->tag_sent)
        return MR_INVALID;
    *ret_n = lane->counts[++lane->tag_replied % LANE_MESSAGES];
    return MR_OK;
}

struct ticket *lane_head(struct lane *lane, size_t *ret_item)
{
    struct ticket *ticket = ticket_at(lane, lane->tickets.next);
    mr_assert(ticket != NULL && ticket->replied < ticket->sent);
    while (*lane->kind->item_err(ticket, ticket->item) != MR_OK)
        ticket->item++;
    *ret_item = ticket->item;
    return ticket;
}

void lane_next(struct lane *lane)
{
    struct ticket *ticket = ticket_at(lane, lane->tickets.next);
    ticket->item++;
    ticket->replied++;
    if (ticket->replied < ticket->n)
        return;
    ticket_answer(ticket, ticket->err);
    go_on(lane);
}

/* ---- streams that end ----------------------------------------------------------------------- */

bool lane_keep_all(const struct ticket *ticket)
{
    (void)ticket;
    return true;
}

bool lane_keep_none(const struct ticket *ticket)
{
    (void)ticket;
    return false;
}

/* Everything without an answer is unsent again. */
static void rewind_ticket(struct ticket *ticket, enum lane_end end)
{
    if (end == LANE_BROKE && ticket->sent > ticket->doubtful)
        ticket->doubtful = ticket->sent;
    struct mr_slice rest = mr_slice_make(ticket->entries, ticket->bytes);
    for (size_t i = 0; i < ticket->replied; i++) {
        struct mr_flat_item item;
        enum mr_err err = mr_flat_next(&rest, &item);
        mr_assert(err == MR_OK);
    }
    ticket->at = ticket->bytes - rest.len;
    ticket->sent = ticket->replied;
}

void lane_rewind(struct lane *lane, enum lane_end end, bool (*keep)(const struct ticket *ticket),
                 enum mr_err err)
{
    lane->tag_replied = lane->tag_sent;
    lane->next = NULL;
    struct mr_link refused;
    mr_list_init(&refused);
    for (struct mr_link *link = lane->tickets.next; link != &lane->tickets;) {
        struct ticket *ticket = mr_container(link, struct ticket, link);
        link = link->next;
        if (ticket->sent > ticket->replied && !keep(ticket)) {
            mr_list_remove(&ticket->link);
            mr_list_push_back(&refused, &ticket->link);
        } else {
            rewind_ticket(ticket, end);
            lane->next = lane->next != NULL ? lane->next : ticket;
        }
    }
    tickets_answer(&refused, err);
    go_on(lane);
}

void lane_fail(struct lane *lane, enum mr_err err)
{
    lane->tag_replied = lane->tag_sent;
    lane->next = NULL;
    tickets_answer(&lane->tickets, err);
}
