/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nameservers say to each other. See registry.h.
 *
 * An answer is cut into messages as it is made; each is sent when it is full. An entry is sent once in the answer to a
 * message, however often that asks for it: so an answer is at most as big as the registry, whoever asks.
 */
#include <stdlib.h>

#include "names/internal.h"

/* ---- messages that are being filled ----------------------------------------------------------- */

struct outbox {
    struct mr_registry *r;
    mr_mono now;
    mr_names_send send;
    void *arg;
    struct mr_names_entry *entries;
    struct mr_uuid *wants, *newer;
    struct mr_names_mark *marks;
    size_t entries_n, wants_n, newer_n, marks_n, bytes;
    uint64_t buckets[MR_NAMES_BUCKETS / 64];
};

static void outbox_done(struct outbox *box)
{
    free(box->entries);
    free(box->wants);
    free(box->newer);
    free(box->marks);
}

static enum mr_err flush_entries(struct outbox *box)
{
    if (box->entries_n == 0 && box->wants_n == 0)
        return MR_OK;
    struct mr_names_msg msg = {.say = MR_SAY_ENTRIES,
                               .entries = box->entries,
                               .entries_n = box->entries_n,
                               .wants = box->wants,
                               .wants_n = box->wants_n};
    box->entries_n = box->wants_n = box->bytes = 0;
    return box->send(&msg, box->arg);
}

static enum mr_err add_entry(struct outbox *box, const struct entry *e)
{
    if (box->entries == NULL) {
        box->entries = calloc(MR_NAMES_MSG_ENTRIES, sizeof *box->entries);
        if (box->entries == NULL)
            return MR_NOMEM;
    }
    size_t bytes = MR_NAMES_ENTRY_OVERHEAD + e->name_len + e->app_len + e->address_len +
                   e->server_len + e->body_len;
    if (box->entries_n == MR_NAMES_MSG_ENTRIES || box->bytes + bytes > MR_NAMES_MSG_BYTES)
        MR_TRY(flush_entries(box));
    box->entries[box->entries_n++] = registry_view(e, box->now);
    box->bytes += bytes;
    return MR_OK;
}

static enum mr_err add_want(struct outbox *box, const struct mr_uuid *id)
{
    if (box->wants == NULL) {
        box->wants = calloc(MR_NAMES_MSG_MARKS, sizeof *box->wants);
        if (box->wants == NULL)
            return MR_NOMEM;
    }
    if (box->wants_n == MR_NAMES_MSG_MARKS)
        MR_TRY(flush_entries(box));
    box->wants[box->wants_n++] = *id;
    return MR_OK;
}

static enum mr_err flush_marks(struct outbox *box)
{
    struct mr_names_msg msg = {.say = MR_SAY_MARKS, .marks = box->marks, .marks_n = box->marks_n};
    uint64_t any = 0;
    for (size_t i = 0; i < MR_NAMES_BUCKETS / 64; i++) {
        msg.buckets[i] = box->buckets[i];
        any |= box->buckets[i];
        box->buckets[i] = 0;
    }
    box->marks_n = 0;
    return any != 0 ? box->send(&msg, box->arg) : MR_OK;
}

/* All of a bucket in one message: what is not in it is sent to us. One with too many costs that, and no more. */
static enum mr_err add_bucket(struct outbox *box, size_t bucket)
{
    const struct mr_link *list = &box->r->buckets[bucket];
    size_t n = 0;
    for (const struct mr_link *at = list->next; at != list; at = at->next)
        n++;
    if (box->marks_n + n > MR_NAMES_MSG_MARKS)
        MR_TRY(flush_marks(box));
    box->buckets[bucket / 64] |= 1ULL << bucket % 64;
    for (const struct mr_link *at = list->next; at != list && box->marks_n < MR_NAMES_MSG_MARKS;
         at = at->next) {
        const struct entry *e = mr_container(at, struct entry, bucket);
        box->marks[box->marks_n++] =
            (struct mr_names_mark){.id = e->id, .version = e->version, .sum = e->sum};
    }
    return MR_OK;
}

/* ---- answers ---------------------------------------------------------------------------------- */

static enum mr_err answer_digest(struct outbox *box, const struct mr_names_msg *msg)
{
    struct mr_registry *r = box->r;
    if (msg->digest == NULL)
        return MR_INVALID;
    if (memcmp(msg->digest, r->digest, sizeof r->digest) == 0)
        return MR_OK;
    box->marks = calloc(MR_NAMES_MSG_MARKS, sizeof *box->marks);
    if (box->marks == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < MR_NAMES_BUCKETS; i++) {
        if (msg->digest[i] != r->digest[i])
            MR_TRY(add_bucket(box, i));
    }
    return flush_marks(box);
}

static bool has_bucket(const struct mr_names_msg *msg, size_t bucket)
{
    return (msg->buckets[bucket / 64] >> bucket % 64 & 1) != 0;
}

static enum mr_err answer_mark(struct outbox *box, const struct mr_names_mark *mark)
{
    struct entry *e = registry_find(box->r, &mark->id);
    if (e == NULL)
        return add_want(box, &mark->id);
    if (e->round == box->r->round)
        return MR_OK;
    e->round = box->r->round;
    int rank = registry_rank(e->fate, e->version, e->sum, MR_NAMES_LIVES, mark->version, mark->sum);
    return rank > 0 ? add_entry(box, e) : rank < 0 ? add_want(box, &mark->id) : MR_OK;
}

static enum mr_err answer_marks(struct outbox *box, const struct mr_names_msg *msg)
{
    if (msg->marks_n > MR_NAMES_MSG_MARKS)
        return MR_TOO_BIG;
    for (size_t i = 0; i < msg->marks_n; i++) {
        if (has_bucket(msg, registry_bucket(&msg->marks[i].id)))
            MR_TRY(answer_mark(box, &msg->marks[i]));
    }
    for (size_t i = 0; i < MR_NAMES_BUCKETS; i++) {
        const struct mr_link *list = &box->r->buckets[i];
        for (struct mr_link *at = list->next; has_bucket(msg, i) && at != list; at = at->next) {
            struct entry *e = mr_container(at, struct entry, bucket);
            if (e->round != box->r->round)
                MR_TRY(add_entry(box, e));
        }
    }
    return flush_entries(box);
}

static enum mr_err add_once(struct outbox *box, const struct mr_uuid *id)
{
    struct entry *e = registry_find(box->r, id);
    if (e == NULL || e->round == box->r->round)
        return MR_OK;
    e->round = box->r->round;
    return add_entry(box, e);
}

/* Which of the copies are older than ours. The answer is made when all are in: until then entries may still go. */
static enum mr_err merge_all(struct outbox *box, const struct mr_names_msg *msg)
{
    enum mr_err first = MR_OK;
    for (size_t i = 0; i < msg->entries_n; i++) {
        enum mr_names_put put;
        struct entry *e;
        enum mr_err err = registry_merge(box->r, box->now, &msg->entries[i], &put, &e);
        first = err == MR_NOMEM ? err : first;
        if (err == MR_OK && put == MR_PUT_OLD && e != NULL)
            box->newer[box->newer_n++] = e->id;
    }
    return first;
}

static enum mr_err answer_entries(struct outbox *box, const struct mr_names_msg *msg)
{
    if (msg->entries_n > MR_NAMES_MSG_ENTRIES || msg->wants_n > MR_NAMES_MSG_MARKS)
        return MR_TOO_BIG;
    box->newer = calloc(msg->entries_n + 1, sizeof *box->newer);
    if (box->newer == NULL)
        return MR_NOMEM;
    enum mr_err merged = merge_all(box, msg);
    for (size_t i = 0; i < box->newer_n; i++)
        MR_TRY(add_once(box, &box->newer[i]));
    for (size_t i = 0; i < msg->wants_n; i++)
        MR_TRY(add_once(box, &msg->wants[i]));
    MR_TRY(flush_entries(box));
    return merged;
}

enum mr_err mr_registry_hear(struct mr_registry *registry, mr_mono now,
                             const struct mr_names_msg *msg, mr_names_send send, void *arg)
{
    struct outbox box = {.r = registry, .now = now, .send = send, .arg = arg};
    enum mr_err err = MR_INVALID;
    registry->round++;
    switch (msg->say) {
    case MR_SAY_DIGEST:
        err = answer_digest(&box, msg);
        break;
    case MR_SAY_MARKS:
        err = answer_marks(&box, msg);
        break;
    case MR_SAY_ENTRIES:
        err = answer_entries(&box, msg);
        break;
    }
    outbox_done(&box);
    return err;
}

/* ---- what is said by itself ------------------------------------------------------------------- */

enum mr_err mr_registry_digest(struct mr_registry *registry, mr_names_send send, void *arg)
{
    struct mr_names_msg msg = {.say = MR_SAY_DIGEST, .digest = registry->digest};
    return send(&msg, arg);
}

enum mr_err mr_registry_push(struct mr_registry *registry, mr_mono now, mr_names_send send,
                             void *arg)
{
    struct outbox box = {.r = registry, .now = now, .send = send, .arg = arg};
    enum mr_err err = MR_OK;
    struct mr_link *at;
    while (err == MR_OK && (at = mr_list_pop_front(&registry->fresh)) != NULL)
        err = add_entry(&box, mr_container(at, struct entry, fresh));
    if (err == MR_OK)
        err = flush_entries(&box);
    outbox_done(&box);
    return err;
}
