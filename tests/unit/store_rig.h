/* SPDX-License-Identifier: Apache-2.0 */
/* A store on the simulator's disk, for the tests of its folder. */
#ifndef MR_TESTS_STORE_RIG_H
#define MR_TESTS_STORE_RIG_H

#include <stdio.h>
#include <stdlib.h>

#include "base/crc.h"
#include "broker/embedded/embedded.h"
#include "sim/rig.h"
#include "sim/simfs.h"

enum { STORE_RIG_TASKS = 60 };

struct store_rig {
    struct simfs *fs;
    struct rig rig;
};

static inline int store_rig_begin(void **state)
{
    struct store_rig *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->fs = simfs_new(1);
    rig_init(&f->rig, f->fs, 1);
    *state = f;
    return 0;
}

static inline int store_rig_end(void **state)
{
    struct store_rig *f = *state;
    rig_done(&f->rig);
    simfs_free(f->fs);
    free(f);
    return 0;
}

static inline void store_rig_open(struct store_rig *f)
{
    enum mr_err err = rig_open(&f->rig);
    if (err != MR_OK)
        print_error("%s: %s\n", mr_err_name(err), f->rig.detail.text);
    assert_int_equal(err, MR_OK);
}

static inline void store_rig_close(struct store_rig *f)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_MS);
    mr_engine_finish(f->rig.engine);
    rig_kill(&f->rig);
}

static inline void store_rig_enqueue(struct store_rig *f, const char *id)
{
    static char payload[600];
    struct mr_task_options task = {.id = mr_slice_str(id),
                                   .payload = mr_slice_make(payload, sizeof payload)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static inline struct mr_stats store_rig_stats(struct store_rig *f)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats;
}

/* A closed store with so many tasks that it has several segments. */
static inline void store_rig_make(struct store_rig *f)
{
    store_rig_open(f);
    for (int i = 0; i < STORE_RIG_TASKS; i++) {
        char id[32];
        snprintf(id, sizeof id, "task-%d", i);
        store_rig_enqueue(f, id);
    }
    store_rig_close(f);
}

static inline size_t store_rig_file(const struct store_rig *f, const char *name)
{
    char path[MR_PATH_MAX];
    snprintf(path, sizeof path, RIG_DIR "/%s", name);
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strcmp(simfs_file_path(f->fs, i), path) == 0)
            return i;
    return SIZE_MAX;
}

static inline void store_rig_put(struct store_rig *f, const char *name, const char *text)
{
    struct mr_fs *fs = simfs_fs(f->fs);
    char path[MR_PATH_MAX];
    struct mr_file *file;
    assert_int_equal(fs->ops->dir_make(fs, RIG_DIR), MR_OK);
    assert_int_equal(mr_path_join(path, RIG_DIR, name), MR_OK);
    assert_int_equal(mr_fs_open(fs, path, MR_OPEN_CREATE, &file), MR_OK);
    assert_int_equal(mr_file_pwrite(file, text, strlen(text), 0), MR_OK);
    mr_file_close(file);
}

static inline void store_rig_refused(struct store_rig *f, enum mr_err err, const char *part)
{
    assert_int_equal(rig_open(&f->rig), err);
    if (strstr(f->rig.detail.text, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, f->rig.detail.text);
    assert_non_null(strstr(f->rig.detail.text, part));
    assert_null(strchr(f->rig.detail.text, '\n'));
}

static inline void store_rig_control(struct store_rig *f, enum mr_verb verb, const char *id)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id)};
    enum mr_err err;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
}

static inline struct mr_req_get store_rig_get(struct store_rig *f, const char *id)
{
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    return req;
}

/* Tasks come and go, some stay, until there were so many snapshots. */
static inline void store_rig_churn(struct store_rig *f, uint64_t snapshots)
{
    for (unsigned i = 0; store_rig_stats(f).snapshots < snapshots; i++) {
        char id[32];
        assert_true(i < 2000);
        snprintf(id, sizeof id, "churn-%llu-%u", (unsigned long long)snapshots, i);
        store_rig_enqueue(f, id);
        if (i % 8 != 0)
            store_rig_control(f, MR_VERB_DELETE, id);
    }
}

static inline void store_rig_ignore_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Takes up to n tasks and keeps them; answers how many. */
static inline size_t store_rig_take(struct store_rig *f, size_t n, bool begin)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 3600000,
                                    .events.stop = store_rig_ignore_stop};
    assert_int_equal(rig_call(&f->rig, &node.req), MR_OK);
    size_t taken = 0;
    while (taken < n) {
        struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node.node, .max = n - taken};
        if (rig_call(&f->rig, &take.req) != MR_OK)
            break;
        if (begin)
            mr_broker_begun(mr_engine_broker(f->rig.engine), node.first_slot, take.leases->epoch);
        struct mr_lease *next;
        for (struct mr_lease *lease = take.leases; lease != NULL; lease = next, taken++) {
            next = lease->next;
            mr_lease_free(lease);
        }
        mr_req_done(&take.req);
    }
    mr_req_done(&node.req);
    return taken;
}

/* Takes the one task that waits, and finishes it. */
static inline void store_rig_finish(struct store_rig *f, const char *id)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 3600000,
                                    .events.stop = store_rig_ignore_stop};
    assert_int_equal(rig_call(&f->rig, &node.req), MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node.node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &take.req), MR_OK);
    enum mr_err err;
    struct mr_finish item = {.id = mr_slice_str(id),
                             .epoch = take.leases->epoch,
                             .ref = take.leases->ref,
                             .outcome = MR_DONE};
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(rig_call(&f->rig, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = node.node};
    assert_int_equal(rig_call(&f->rig, &close.req), MR_OK);
    mr_req_done(&close.req);
    mr_req_done(&node.req);
}

/* The process dies; the disk keeps what policy says. */
static inline void store_rig_die(struct store_rig *f, enum simfs_policy policy)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    simfs_stop(f->fs);
    rig_kill(&f->rig);
    simfs_crash(f->fs, &rand, policy);
}

/* All files but the lock as one number. */
static inline uint32_t store_rig_digest(const struct store_rig *f)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < simfs_file_count(f->fs); i++) {
        const char *path = simfs_file_path(f->fs, i);
        if (strcmp(path, RIG_DIR "/lock") == 0)
            continue;
        crc = mr_crc32c(crc, path, strlen(path));
        crc = mr_crc32c(crc, simfs_file_data(f->fs, i), simfs_file_size(f->fs, i));
    }
    return crc;
}

#endif
