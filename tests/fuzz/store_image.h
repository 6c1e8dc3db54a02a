/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small store in memory to be damaged: made once with tasks in every state, segments and a
 * snapshot, then cloned for each input. Checksums can be made right again after an edit, so that
 * what lies behind them is reached. Shared by fuzz_open.c and fuzz_snapshot.c. Thread: one.
 */
#ifndef MR_TESTS_FUZZ_STORE_IMAGE_H
#define MR_TESTS_FUZZ_STORE_IMAGE_H

#include <stdio.h>
#include <stdlib.h>

#include "base/crc.h"
#include "broker/embedded/snapfile.h"
#include "broker/embedded/store.h"
#include "fuzz/fuzz.h"
#include "sim/rig.h"

enum { IMAGE_TASKS = 40, IMAGE_ROUNDS_MAX = 400 };

static inline void image_ignore_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Enqueues one batch of every kind of task. */
static inline void image_enqueue(struct rig *rig, unsigned round)
{
    struct mr_task_options tasks[IMAGE_TASKS];
    struct mr_enqueue_result results[IMAGE_TASKS];
    struct mr_header header = {MR_SLICE_LIT("trace"), MR_SLICE_LIT("abc")};
    char ids[IMAGE_TASKS][24], keys[IMAGE_TASKS][24];
    for (unsigned i = 0; i < IMAGE_TASKS; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "r%u-%u", round, i);
        (void)snprintf(keys[i], sizeof keys[i], "k%u-%u", round, i);
        bool unique = i % 5 == 0;
        tasks[i] = (struct mr_task_options){
            .queue = i % 3 == 0 ? MR_SLICE_LIT("mail") : MR_SLICE_LIT("default"),
            .id = i % 2 == 0 ? mr_slice_str(ids[i]) : mr_slice_make(NULL, 0),
            .payload = MR_SLICE_LIT("payload"),
            .delay_ms = i % 4 == 0 ? 60000 : 0,
            .priority_s = i % 7,
            .retention_ms = i % 2 == 0 ? 3600000 : 0,
            .unique_ms = unique ? 3600000 : 0,
            .unique_key = unique ? mr_slice_str(keys[i]) : mr_slice_make(NULL, 0),
            .headers = &header,
            .headers_n = i % 6 == 0,
        };
    }
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = IMAGE_TASKS, .results = results};
    mr_assert(rig_call(rig, &req.req) == MR_OK);
    mr_req_done(&req.req);
}

/* Takes some and ends each run in another way; the last is left running. */
static inline void image_work(struct rig *rig, uint64_t node)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = IMAGE_TASKS * 3 / 4};
    enum mr_err err = rig_call(rig, &take.req);
    struct mr_lease *lease = err == MR_OK ? take.leases : NULL;
    mr_req_done(&take.req);
    for (unsigned i = 0; lease != NULL; i++) {
        struct mr_lease *next = lease->next;
        mr_assert(mr_broker_lease_open(mr_engine_broker(rig->engine), lease) == MR_OK);
        struct mr_finish item = {.id = lease->task.id,
                                 .epoch = lease->epoch,
                                 .ref = lease->ref,
                                 .outcome = i % 8 < 6 ? (enum mr_outcome)(i % 6) : MR_DONE};
        item.delay_ms = item.outcome == MR_FAIL || item.outcome == MR_LATER ? 50000 : 0;
        if (item.outcome == MR_FAIL || item.outcome == MR_FAIL_FOR_GOOD)
            item.error = MR_SLICE_LIT("no route");
        if (item.outcome == MR_DONE)
            item.result = MR_SLICE_LIT("result");
        struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
        if (next != NULL)
            mr_assert(rig_call(rig, &req.req) == MR_OK);
        mr_req_done(&req.req);
        mr_lease_free(lease);
        lease = next;
    }
}

static inline uint64_t image_node(struct rig *rig)
{
    struct mr_worker_queue queues[] = {{.name = MR_SLICE_LIT("default")},
                                       {.name = MR_SLICE_LIT("mail")}};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("node"),
                                    .queues = queues,
                                    .queues_n = 2,
                                    .slots = 4,
                                    .lease_ms = 3600000,
                                    .events = {.stop = image_ignore_stop}};
    mr_assert(rig_call(rig, &open.req) == MR_OK);
    mr_req_done(&open.req);
    return open.node;
}

/* The store every input starts from. Kept for the life of the process. */
static inline struct simfs *image_template(void)
{
    static struct simfs *fs;
    if (fs != NULL)
        return fs;
    struct rig rig;
    uint64_t snapshots = 0;
    fs = simfs_new(1);
    rig_init(&rig, fs, 1);
    mr_assert(rig_open(&rig) == MR_OK);
    uint64_t node = image_node(&rig);
    for (unsigned round = 0; round < IMAGE_ROUNDS_MAX && snapshots == 0; round++) {
        image_enqueue(&rig, round);
        image_work(&rig, node);
        struct mr_req_stats stats = {.req.op = MR_OP_STATS};
        mr_assert(rig_call(&rig, &stats.req) == MR_OK);
        mr_req_done(&stats.req);
        snapshots = stats.stats.snapshots;
    }
    mr_assert(snapshots > 0);
    image_enqueue(&rig, IMAGE_ROUNDS_MAX);
    image_work(&rig, node);
    simfs_stop(fs);
    rig_kill(&rig);
    simfs_crash(fs, &rig.rand, SIMFS_KEEP_ALL);
    rig_done(&rig);
    return fs;
}

/* The first file whose name has this in it, or SIZE_MAX. */
static inline size_t image_file(const struct simfs *fs, const char *part)
{
    for (size_t i = 0; i < simfs_file_count(fs); i++)
        if (strstr(simfs_file_path(fs, i), part) != NULL)
            return i;
    return SIZE_MAX;
}

/* Makes the checksums of a snapshot's blocks right, as far as their lengths lead. */
static inline void image_reseal_blocks(struct mr_buf *snap, uint32_t salt)
{
    uint64_t at = SNAP_FILE_HEAD;
    while (at + SNAP_BLOCK_HEAD <= snap->len) {
        uint8_t *block = snap->data + at;
        uint64_t len = mr_load32(block + 4);
        if (len > SNAP_BLOCK_MAX || at + SNAP_BLOCK_HEAD + len > snap->len)
            return;
        mr_store32(block, mr_crc32c(salt, block + 4, SNAP_BLOCK_HEAD - 4 + len));
        at += SNAP_BLOCK_HEAD + len;
    }
}

/* The bytes of a snapshot without its sectors and parity; empty when it cannot be read. */
static inline void image_read_snapshot(struct simfs *fs, size_t file, uint32_t salt,
                                       struct mr_buf *snap)
{
    static struct parity_reader reader;
    struct mr_file *handle;
    size_t len = simfs_file_size(fs, file) / GROUP_BYTES * GROUP_DATA;
    mr_buf_clear(snap);
    mr_assert(mr_buf_reserve(snap, len) == MR_OK);
    if (mr_fs_open(simfs_fs(fs), simfs_file_path(fs, file), MR_OPEN_READ, &handle) != MR_OK)
        return;
    if (parity_open(&reader, handle, salt) == MR_OK &&
        parity_read(&reader, snap->data, len) == MR_OK)
        snap->len = len;
    mr_file_close(handle);
}

static inline void image_write_snapshot(struct simfs *fs, size_t file, uint32_t salt,
                                        const struct mr_buf *snap)
{
    size_t groups = snap->len / GROUP_DATA;
    uint8_t *sectors = malloc(groups * GROUP_BYTES + 1);
    mr_assert(sectors != NULL);
    parity_encode(snap->data, groups, salt, sectors);
    simfs_overwrite(fs, file, 0, sectors, groups * GROUP_BYTES);
    free(sectors);
}

/* The same for the records of a segment. */
static inline void image_reseal_segment(struct simfs *fs, size_t file, uint32_t salt)
{
    uint64_t size = simfs_file_size(fs, file), at = MR_SEGMENT_HEADER;
    while (at + MR_RECORD_HEADER <= size) {
        const uint8_t *record = simfs_file_data(fs, file) + at;
        uint64_t len = mr_load32(record + 4);
        bool empty = mr_load64(record) == 0 && mr_load64(record + 8) == 0;
        if (empty || len > MR_RECORD_BODY_MAX || at + MR_RECORD_HEADER + len > size)
            return;
        uint8_t crc[4];
        mr_store32(crc, mr_crc32c(salt, record + 4, MR_RECORD_HEADER - 4 + len));
        simfs_overwrite(fs, file, at, crc, sizeof crc);
        at += mr_record_size(len);
    }
}

static inline uint32_t image_salt(struct simfs *fs)
{
    struct meta meta;
    return meta_read(simfs_fs(fs), RIG_DIR, &meta, NULL) == MR_OK ? meta.salt : 0;
}

/* Looks at everything and works a little: nothing of it may fail but by its own answer. */
static inline void image_use(struct rig *rig)
{
    char cursor[MR_CURSOR_MAX] = "";
    do {
        struct mr_req_list req = {.req.op = MR_OP_LIST,
                                  .options = {.limit = MR_BATCH_MAX,
                                              .with_payload = true,
                                              .cursor = cursor[0] != '\0' ? cursor : NULL}};
        enum mr_err err = rig_call(rig, &req.req);
        (void)snprintf(cursor, sizeof cursor, "%s", err == MR_OK ? req.next : "");
        mr_req_done(&req.req);
    } while (cursor[0] != '\0');
    if (rig->engine == NULL)
        return;
    image_enqueue(rig, IMAGE_ROUNDS_MAX + 1);
    image_work(rig, image_node(rig));
}

/* Opens what has been made of the store. Any answer is right but a crash; an open store must be
 * whole. */
static inline void image_open(struct simfs *fs, bool repair)
{
    struct rig rig;
    rig_init(&rig, fs, 2);
    rig.repair = repair;
    enum mr_err err = rig_open(&rig);
    if (err == MR_OK)
        image_use(&rig);
    else
        mr_assert(rig.detail.text[0] != '\0');
    rig_done(&rig);
}

#endif
