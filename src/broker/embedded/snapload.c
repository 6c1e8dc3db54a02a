/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the newest snapshot; see snapshot.c for the format. Nothing in the file is trusted. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "broker/embedded/snapfile.h"
#include "broker/embedded/store.h"
#include "wire/pack.h"

struct newest {
    uint64_t below; /* only snapshots before this one */
    uint64_t seq;
    bool found;
};

static void look_at(const char *name, void *arg)
{
    struct newest *newest = arg;
    uint64_t seq;
    if (!mr_parse_hex_name(name, "snap-", 16, &seq))
        return;
    if (seq < newest->below && (!newest->found || seq > newest->seq)) {
        newest->seq = seq;
        newest->found = true;
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */

static enum mr_err load_head(struct loader *loader, struct mr_slice body)
{
    struct mr_engine *engine = loader->engine;
    const uint8_t *at = body.data;
    bool whole = body.len == SNAP_HEAD_BODY || body.len == SNAP_HEAD_BODY_2;
    if (!whole || memcmp(at, engine->store_id.bytes, 16) != 0 ||
        mr_load64(at + 16) != loader->seq || loader->headed)
        return MR_DAMAGED;
    loader->headed = true;
    engine->snap_seq = loader->seq;
    engine->snap_term = mr_load32(at + 24);
    engine->state.epoch_ceiling = mr_load64(at + 32);
    engine->state.deleted = mr_load64(at + 40);
    engine->state.expired = mr_load64(at + 48);
    engine->state.gathered = body.len == SNAP_HEAD_BODY ? mr_load64(at + 56) : 0;
    return MR_OK;
}

static enum mr_err load_queue(struct loader *loader, struct mr_slice body)
{
    const uint8_t *at = body.data;
    if (!loader->headed || body.len < MR_EVENT_QUEUE_SIZE)
        return MR_DAMAGED;
    size_t event_len = MR_EVENT_QUEUE_SIZE + (size_t)at[5];
    if (body.len < event_len + 20)
        return MR_DAMAGED;
    struct mr_event_queue event;
    struct queue *queue;
    MR_TRY(mr_event_queue_decode(mr_slice_make(at, event_len), &event));
    at += event_len;
    size_t days = mr_load32(at + 16), len = event_len + 20 + days * 20;
    if (days > DAYS_KEPT || body.len < len)
        return MR_DAMAGED;
    event.settings = mr_slice_make((const uint8_t *)body.data + len, body.len - len);
    MR_TRY(queue_put(&loader->engine->state, &event, &queue));
    queue->processed = mr_load64(at);
    queue->failed = mr_load64(at + 8);
    for (size_t i = 0; i < days; i++) {
        const uint8_t *d = at + 20 + i * 20;
        struct day day = {(int32_t)mr_load32(d), mr_load64(d + 4), mr_load64(d + 12)};
        MR_TRY(queue_add_day(queue, &day));
    }
    return MR_OK;
}

/* Numbers of the file are those of the life that wrote it. */
struct loaded_group {
    uint32_t number, ours;
};

static enum mr_err load_group(struct loader *loader, struct mr_slice body)
{
    struct state *state = &loader->engine->state;
    const struct loaded_group *all = (const void *)loader->groups.data;
    size_t n = loader->groups.len / sizeof *all;
    if (!loader->headed || body.len < SNAP_GROUP)
        return MR_DAMAGED;
    const uint8_t *at = body.data;
    struct loaded_group group = {.number = mr_load32(at)};
    uint32_t queue = mr_load32(at + 4);
    struct mr_slice name = mr_slice_make(at + SNAP_GROUP, body.len - SNAP_GROUP);
    if (queue >= state->queues_n || state->queues[queue] == NULL ||
        (n > 0 && all[n - 1].number >= group.number))
        return MR_DAMAGED;
    MR_TRY(group_put(state, queue, name, &group.ours));
    return mr_buf_append(&loader->groups, &group, sizeof group);
}

/* From the number in the file to ours. */
static enum mr_err find_group(const struct loader *loader, struct mr_entry *entry)
{
    const struct loaded_group *all = (const void *)loader->groups.data;
    size_t low = 0, high = loader->groups.len / sizeof *all;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (all[middle].number < entry->epoch)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == loader->groups.len / sizeof *all || all[low].number != entry->epoch)
        return MR_DAMAGED;
    entry->epoch = all[low].ours;
    return group_at(&loader->engine->state, all[low].ours)->queue == entry->queue ? MR_OK
                                                                                  : MR_DAMAGED;
}

static enum mr_err load_entry(struct loader *loader, struct mr_entry entry)
{
    if (entry.state == MR_AGGREGATING)
        MR_TRY(find_group(loader, &entry));
    MR_TRY(apply_entry(&loader->engine->state, &entry));
    loader->tasks++;
    return MR_OK;
}

static enum mr_err load_tasks(struct loader *loader, struct mr_slice body)
{
    if (!loader->headed)
        return MR_DAMAGED;
    while (body.len > 0) {
        struct mr_entry entry;
        MR_TRY(mr_entry_decode(&body, &entry));
        MR_TRY(load_entry(loader, entry));
    }
    return MR_OK;
}

static enum mr_err load_packed(struct loader *loader, struct mr_slice body)
{
    struct mr_entry entry = {0};
    if (!loader->headed)
        return MR_DAMAGED;
    while (body.len > 0) {
        MR_TRY(mr_entry_unpack(&body, &entry));
        MR_TRY(load_entry(loader, entry));
    }
    return MR_OK;
}

static enum mr_err load_end(struct loader *loader, struct mr_slice body)
{
    if (body.len != 8 || mr_load64(body.data) != loader->tasks)
        return MR_DAMAGED;
    loader->ended = true;
    return MR_OK;
}

static enum mr_err (*const blocks[])(struct loader *loader, struct mr_slice body) = {
    [SNAP_HEAD] = load_head, [SNAP_QUEUE] = load_queue,   [SNAP_TASKS] = load_tasks,
    [SNAP_END] = load_end,   [SNAP_PACKED] = load_packed, [SNAP_GROUP_BLOCK] = load_group,
};

/* ---- the file ------------------------------------------------------------------------------- */

static enum mr_err load_block(struct loader *loader)
{
    uint8_t head[SNAP_BLOCK_HEAD];
    MR_TRY(parity_read(&loader->reader, head, sizeof head));
    size_t len = mr_load32(head + 4);
    uint32_t type = mr_load32(head + 8);
    if (type == 0 || type >= sizeof blocks / sizeof *blocks || len > SNAP_BLOCK_MAX ||
        len > loader->reader.size)
        return MR_DAMAGED;
    mr_buf_clear(&loader->block);
    MR_TRY(mr_buf_append(&loader->block, head, sizeof head));
    MR_TRY(mr_buf_reserve(&loader->block, len));
    MR_TRY(parity_read(&loader->reader, loader->block.data + sizeof head, len));
    if (!snap_block_ok(loader->block.data, len, loader->engine->salt))
        return MR_DAMAGED;
    return blocks[type](loader, mr_slice_make(loader->block.data + sizeof head, len));
}

/* What was rebuilt is written back, so that the next damage finds the parity whole. */
static enum mr_err load_file(struct loader *loader, struct mr_file *file)
{
    uint8_t head[SNAP_FILE_HEAD];
    MR_TRY(parity_open(&loader->reader, file, loader->engine->salt));
    MR_TRY(parity_read(&loader->reader, head, sizeof head));
    MR_TRY(snap_head_check(head));
    while (!loader->ended)
        MR_TRY(load_block(loader));
    loader->engine->snap_bytes = loader->reader.size;
    loader->engine->records_damaged += loader->reader.rebuilt;
    return MR_OK;
}

/* One line for all of them: they were rebuilt, and but for their number there is nothing to tell. */
static void tell_rebuilt(struct recovery *recovery, const struct parity_reader *reader,
                         const char *name)
{
    char text[128];
    if (reader->rebuilt == 0)
        return;
    snprintf(text, sizeof text,
             "%s at offset %llu: %llu damaged sectors, rebuilt from their parity", name,
             (unsigned long long)reader->damage_at, (unsigned long long)reader->rebuilt);
    recovery->log.damaged++; /* the engine counts each of them */
    if (recovery->log.line != NULL)
        recovery->log.line(text, recovery->log.line_arg);
}

static enum mr_err load_newest(struct recovery *recovery, uint64_t seq)
{
    struct mr_engine *engine = recovery->engine;
    bool read_only = recovery->log.read_only;
    char path[MR_PATH_MAX];
    struct mr_file *file;
    struct loader *loader = calloc(1, sizeof *loader);
    if (loader == NULL)
        return MR_NOMEM;
    loader->engine = engine;
    loader->seq = seq;
    loader->reader.mend = read_only ? PARITY_LOOK : PARITY_WRITE_BACK;
    enum mr_err err = snap_path(engine->dir, seq, path);
    if (err == MR_OK)
        err = mr_fs_open(engine->fs, path, read_only ? MR_OPEN_READ : MR_OPEN_WRITE, &file);
    if (err == MR_OK) {
        err = load_file(loader, file);
        mr_file_close(file);
    }
    if (err == MR_OK)
        tell_rebuilt(recovery, &loader->reader, path + strlen(engine->dir) + 1);
    if (err == MR_DAMAGED)
        mr_detail_set(
            recovery->detail,
            "%s at offset %llu: damaged beyond its parity; nothing was changed; `millrace fsck "
            "--repair file:%s` sets it aside and goes by the log alone",
            path, (unsigned long long)loader->reader.damage_at, engine->dir);
    if (err == MR_VERSION)
        mr_detail_set(recovery->detail, "%s: written by a newer version; use a newer one", path);
    mr_buf_done(&loader->block);
    mr_buf_done(&loader->groups);
    free(loader);
    return err;
}

/* Into the folder's quarantine, under a name that nothing has there. */
static enum mr_err set_aside(struct mr_engine *engine, uint64_t seq)
{
    enum { TRIES = 1000 };
    struct mr_fs *fs = engine->fs;
    char from[MR_PATH_MAX], dir[MR_PATH_MAX], to[MR_PATH_MAX], name[48];
    struct mr_file *file;
    MR_TRY(snap_path(engine->dir, seq, from));
    MR_TRY(mr_path_join(dir, engine->dir, "quarantine"));
    MR_TRY(fs->ops->dir_make(fs, dir));
    for (unsigned n = 0; n < TRIES; n++) {
        snprintf(name, sizeof name, "snap-%016llx.%u", (unsigned long long)seq, n);
        MR_TRY(mr_path_join(to, dir, name));
        enum mr_err err = mr_fs_open(fs, to, MR_OPEN_READ, &file);
        if (err == MR_OK) {
            mr_file_close(file);
            continue;
        }
        if (err != MR_NOT_FOUND)
            return err;
        MR_TRY(fs->ops->rename(fs, from, to));
        MR_TRY(fs->ops->dir_sync(fs, dir));
        return fs->ops->dir_sync(fs, engine->dir);
    }
    return MR_TOO_BIG;
}

/* What the log still says is served without it. Its ceiling of epochs is lost too; it was not
 * further than this ahead of the clock. */
static enum mr_err give_up(struct recovery *recovery, uint64_t seq)
{
    struct mr_engine *engine = recovery->engine;
    char text[160];
    snprintf(
        text, sizeof text,
        "snap-%016llx: damaged beyond its parity; tasks come from the log alone, and some that "
        "had ended may come back",
        (unsigned long long)seq);
    recovery_note(recovery, text);
    if (recovery->detail != NULL)
        recovery->detail->text[0] = '\0'; /* it goes on */
    if (!recovery->log.read_only)
        MR_TRY(set_aside(engine, seq));
    state_done(&engine->state);
    engine->state.damage_seen = true;
    engine->snap_seq = 0;
    engine->snap_term = 0;
    MR_TRY(recovery_begin_state(recovery));
    engine->state.epoch_ceiling = (uint64_t)engine->now_us + CEILING_AHEAD_US;
    return MR_OK;
}

enum mr_err snapshot_read(struct recovery *recovery)
{
    struct mr_engine *engine = recovery->engine;
    bool goes_on = recovery->log.read_only || recovery->log.mode == MR_FSCK_REPAIR;
    struct newest newest = {.below = UINT64_MAX};
    for (;;) {
        newest.found = false;
        MR_TRY(engine->fs->ops->dir_list(engine->fs, engine->dir, look_at, &newest));
        enum mr_err err = newest.found ? load_newest(recovery, newest.seq) : MR_OK;
        if (err != MR_DAMAGED || !goes_on)
            return err;
        MR_TRY(give_up(recovery, newest.seq));
        newest.below = newest.seq;
    }
}

static void remove_older(const char *name, void *arg)
{
    struct mr_engine *engine = arg;
    char path[MR_PATH_MAX];
    struct newest found = {.below = UINT64_MAX};
    look_at(name, &found);
    if (found.found && found.seq < engine->snap_seq &&
        snap_path(engine->dir, found.seq, path) == MR_OK)
        (void)engine->fs->ops->remove(engine->fs, path); /* harmless if it stays */
}

void snapshot_remove_older(struct mr_engine *engine)
{
    (void)engine->fs->ops->dir_list(engine->fs, engine->dir, remove_older, engine);
}
