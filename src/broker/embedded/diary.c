/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tasks have behind them (broker/past.h): runs that did not end well, and what people did. In memory, since the start, and
 * no more than DIARY_MAX entries of all tasks together, the newest; nothing is decided by it. A run that ends well, as nearly all
 * do, leaves none and pays nothing.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"
#include "broker/past.h"

struct entry {
    struct mr_link order;  /* of all, the oldest first */
    struct mr_link bucket; /* of those that may be the same task's, the oldest first */
    struct mr_uuid id;
    int64_t ms, started_ms;
    uint32_t attempt;
    const char *what; /* lives as long as the program */
    size_t node_len, text_len;
    char text[]; /* the node's name, then what was said */
};

void diary_init(struct diary *diary)
{
    mr_list_init(&diary->order);
    for (size_t i = 0; i < DIARY_BUCKETS; i++)
        mr_list_init(&diary->buckets[i]);
}

static void forget(struct diary *diary, struct entry *entry)
{
    mr_list_remove(&entry->order);
    mr_list_remove(&entry->bucket);
    diary->n--;
    free(entry);
}

void diary_done(struct diary *diary)
{
    while (diary->n > 0)
        forget(diary, mr_container(diary->order.next, struct entry, order));
}

static struct mr_link *bucket_of(struct diary *diary, const struct mr_uuid *id)
{
    return &diary->buckets[mr_uuid_hash(id) % DIARY_BUCKETS];
}

/* One task has so many at most, and all have; the oldest go. */
static void make_room(struct diary *diary, const struct mr_uuid *id)
{
    struct mr_link *bucket = bucket_of(diary, id);
    struct entry *first = NULL;
    size_t n = 0;
    for (struct mr_link *link = bucket->next; link != bucket; link = link->next) {
        struct entry *entry = mr_container(link, struct entry, bucket);
        if (memcmp(&entry->id, id, sizeof *id) != 0)
            continue;
        first = first == NULL ? entry : first;
        n++;
    }
    if (n >= MR_PAST_MAX)
        forget(diary, first);
    else if (diary->n >= DIARY_MAX)
        forget(diary, mr_container(diary->order.next, struct entry, order));
}

struct diary_run diary_run(const struct mr_engine *engine, uint32_t handle)
{
    const struct task *task = task_at(&engine->state, handle);
    const struct more *more = more_of(&engine->state, task);
    struct diary_run run = {.id = task->id, .attempt = 1u + task->retried + task->crashes};
    if (task->state == MR_ACTIVE && more != NULL) {
        run.started_ms = more->started_ms;
        run.node = more->node != 0 ? engine->nodes_by_number[more->node]->name : NULL;
    }
    return run;
}

void diary_add(struct mr_engine *engine, const struct diary_run *run, const char *what,
               struct mr_slice text)
{
    struct diary *diary = &engine->diary;
    size_t node_len = run->node != NULL ? strlen(run->node) : 0;
    size_t text_len = mr_utf8_cut(text, MR_PAST_TEXT_MAX);
    make_room(diary, &run->id);
    struct entry *entry = malloc(sizeof *entry + node_len + text_len);
    if (entry == NULL)
        return; /* it is told by what the task itself says, or not at all */
    *entry = (struct entry){.id = run->id,
                            .ms = engine->now_ms,
                            .started_ms = run->started_ms,
                            .attempt = run->attempt,
                            .what = what,
                            .node_len = node_len,
                            .text_len = text_len};
    if (node_len > 0)
        memcpy(entry->text, run->node, node_len);
    if (text_len > 0)
        memcpy(entry->text + node_len, text.data, text_len);
    mr_list_push_back(&diary->order, &entry->order);
    mr_list_push_back(bucket_of(diary, &run->id), &entry->bucket);
    diary->n++;
}

enum mr_err diary_show(struct mr_engine *engine, const struct mr_uuid *id, struct mr_arena *arena,
                       struct mr_task *task)
{
    struct mr_link *bucket = bucket_of(&engine->diary, id);
    struct mr_buf text = {0};
    enum mr_err err = MR_OK;
    for (struct mr_link *link = bucket->next; err == MR_OK && link != bucket; link = link->next) {
        const struct entry *entry = mr_container(link, struct entry, bucket);
        if (memcmp(&entry->id, id, sizeof *id) != 0 || entry->ms < task->created_ms)
            continue; /* another one, or one that had this id before */
        struct mr_past past = {
            .ms = entry->ms,
            .started_ms = entry->started_ms,
            .attempt = entry->attempt,
            .what = mr_slice_str(entry->what),
            .node = mr_slice_make(entry->text, entry->node_len),
            .text = mr_slice_make(entry->text + entry->node_len, entry->text_len),
        };
        err = mr_past_add(&text, &past);
    }
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), &task->past);
    mr_buf_done(&text);
    return err;
}
