/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log on the simulator's disk whose chores run when the test says so. For the test_log
 * programs. Bodies are filled with a pattern that follows from their sequence number, so
 * a record that reads back can be told from any other.
 */
#ifndef MR_TESTS_LOG_RIG_H
#define MR_TESTS_LOG_RIG_H

#include <stdio.h>
#include <stdlib.h>

#include "base/crc.h"
#include "log/log.h"
#include "sim/simfs.h"

#define LOG_DIR "store"

/* Records of one length, for tests that compute places. */
enum { LOG_LEN = 96, LOG_SIZE = MR_RECORD_HEADER + LOG_LEN };

enum {
    LOG_SALT = 0x1234abcd,
    LOG_SEGMENT = MR_SEGMENT_BYTES_MIN,
    LOG_CHORES = 8,
    LOG_FOUND = 2000
};

struct log_exec {
    struct mr_exec exec;
    struct mr_chore *chores[LOG_CHORES];
    size_t n;
    bool eager; /* runs a chore inside submit, as a quick thread may; its end is told later */
};

struct log_found {
    uint64_t seq;
    uint8_t type;
    size_t len;
    struct mr_log_pos pos;
};

struct log_rig {
    struct simfs *sim;
    struct mr_fs *fs;
    struct mr_log *log;
    struct log_exec sync_exec, file_exec;
    unsigned changed;
    /* Of the last recovery. */
    struct mr_log_recovery recovery;
    struct mr_detail detail;
    struct log_found found[LOG_FOUND];
    size_t found_n;
    char said[4096];
};

static inline void log_exec_submit(struct mr_exec *exec, struct mr_chore *chore)
{
    struct log_exec *queue = (struct log_exec *)exec;
    assert_true(queue->n < LOG_CHORES);
    queue->chores[queue->n++] = chore;
    if (queue->eager)
        chore->run(chore);
}

/* Runs the chores that wait, also those that they start. */
static inline void log_exec_run(struct log_exec *queue)
{
    while (queue->n > 0) {
        struct mr_chore *chore = queue->chores[0];
        memmove(queue->chores, queue->chores + 1, --queue->n * sizeof *queue->chores);
        if (!queue->eager)
            chore->run(chore);
        chore->done(chore);
    }
}

static inline void log_run_chores(struct log_rig *rig)
{
    while (rig->sync_exec.n + rig->file_exec.n > 0) {
        log_exec_run(&rig->sync_exec);
        log_exec_run(&rig->file_exec);
    }
}

static inline void log_changed(void *arg)
{
    ((struct log_rig *)arg)->changed++;
}

static inline uint8_t log_pattern(uint64_t seq, size_t i)
{
    return (uint8_t)(1 + (seq * 31 + i * 7) % 255);
}

static inline void log_check_body(const struct mr_record *record)
{
    const uint8_t *bytes = record->body.data;
    for (size_t i = 0; i < record->body.len; i++)
        assert_int_equal(bytes[i], log_pattern(record->seq, i));
}

static inline enum mr_err log_visit(const struct mr_record *record, struct mr_log_pos pos,
                                    void *arg)
{
    struct log_rig *rig = arg;
    assert_true(rig->found_n < LOG_FOUND);
    if (record->type != MR_RECORD_SKIP)
        log_check_body(record);
    rig->found[rig->found_n++] =
        (struct log_found){record->seq, record->type, record->body.len, pos};
    return MR_OK;
}

static inline void log_line(const char *text, void *arg)
{
    struct log_rig *rig = arg;
    size_t used = strlen(rig->said);
    snprintf(rig->said + used, sizeof rig->said - used, "%s\n", text);
}

static inline struct mr_log_options log_options(struct log_rig *rig)
{
    return (struct mr_log_options){
        .fs = rig->fs,
        .dir = LOG_DIR,
        .store = {{'s', 't', 'o', 'r', 'e'}},
        .salt = LOG_SALT,
        .label = mr_slice_make("label", 5),
        .segment_bytes = LOG_SEGMENT,
        .clock = mr_clock_system(),
        .sync_exec = &rig->sync_exec.exec,
        .file_exec = &rig->file_exec.exec,
        .changed = log_changed,
        .arg = rig,
    };
}

static inline struct mr_log *log_make(struct log_rig *rig)
{
    struct mr_log *log = NULL;
    struct mr_log_options options = log_options(rig);
    assert_int_equal(mr_log_new(&options, &log), MR_OK);
    return log;
}

/* A folder with the first segment of a log. */
static inline void log_create(struct log_rig *rig)
{
    struct mr_log_options options = log_options(rig);
    assert_int_equal(rig->fs->ops->dir_make(rig->fs, LOG_DIR), MR_OK);
    assert_int_equal(mr_log_create(&options), MR_OK);
}

static inline void log_rig_begin(struct log_rig *rig)
{
    memset(rig, 0, sizeof *rig);
    rig->sim = simfs_new(1);
    rig->fs = simfs_fs(rig->sim);
    rig->sync_exec.exec.submit = rig->file_exec.exec.submit = log_exec_submit;
    log_create(rig);
}

static inline void log_rig_end(struct log_rig *rig)
{
    mr_log_free(rig->log);
    simfs_free(rig->sim);
}

/* Lets go of the log as the death of the process would. */
static inline void log_drop(struct log_rig *rig)
{
    rig->sync_exec.n = rig->file_exec.n = 0;
    mr_log_free(rig->log);
    rig->log = NULL;
}

/* Opens what is on the disk; recovery.mode, .read_only and .after_… are the caller's. */
static inline enum mr_err log_recover(struct log_rig *rig)
{
    log_drop(rig);
    rig->log = log_make(rig);
    rig->found_n = 0;
    rig->said[0] = rig->detail.text[0] = '\0';
    struct mr_log_recovery *recovery = &rig->recovery;
    *recovery = (struct mr_log_recovery){
        .after_term = recovery->after_term,
        .after_seq = recovery->after_seq,
        .visit = recovery->visit != NULL ? recovery->visit : log_visit,
        .arg = rig,
        .mode = recovery->mode,
        .read_only = recovery->read_only,
        .line = log_line,
        .line_arg = rig,
    };
    enum mr_err err = mr_log_recover(rig->log, recovery, &rig->detail);
    if (err == MR_OK && !recovery->read_only)
        mr_log_set_term(rig->log, mr_log_last_term(rig->log) + 1);
    return err;
}

static inline void log_open(struct log_rig *rig)
{
    enum mr_err err = log_recover(rig);
    if (err != MR_OK)
        print_error("%s: %s\n", mr_err_name(err), rig->detail.text);
    assert_int_equal(err, MR_OK);
}

/* The process dies and the disk keeps what policy says. */
static inline void log_crash(struct log_rig *rig, enum simfs_policy policy)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    simfs_stop(rig->sim);
    log_drop(rig);
    simfs_crash(rig->sim, &rand, policy);
}

/* Appends a record with its pattern; there must be room. */
static inline uint64_t log_put(struct log_rig *rig, size_t len, enum mr_log_wait wait,
                               struct mr_log_pos *ret_pos)
{
    enum mr_err err = mr_log_room(rig->log, len, MR_LOG_ONGOING);
    if (err == MR_BUSY) {
        log_run_chores(rig);
        err = mr_log_room(rig->log, len, MR_LOG_ONGOING);
    }
    assert_int_equal(err, MR_OK);
    uint8_t *body = mr_log_begin(rig->log, len);
    assert_non_null(body);
    uint64_t seq = mr_log_last_seq(rig->log) + 1;
    for (size_t i = 0; i < len; i++)
        body[i] = log_pattern(seq, i);
    assert_int_equal(mr_log_append(rig->log, MR_RECORD_TASK, wait, ret_pos), seq);
    return seq;
}

/* Writes and syncs everything appended. */
static inline void log_flush(struct log_rig *rig)
{
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    mr_log_demand(rig->log);
    mr_log_sync(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_durable(rig->log), mr_log_last_seq(rig->log));
}

/* n records, each durable before the next is written. */
static inline void log_put_durable(struct log_rig *rig, size_t n, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        log_put(rig, len, MR_LOG_DURABLE, NULL);
        log_flush(rig);
    }
}

/* Fills about n segments with durable records; nothing is held. */
static inline void log_fill_segments(struct log_rig *rig, size_t n)
{
    while (mr_log_segments(rig->log) < n)
        log_put_durable(rig, 1, 1000);
    log_run_chores(rig);
}

/* The index of a file of the disk; SIZE_MAX when it is not there. */
static inline size_t log_file(const struct log_rig *rig, const char *name)
{
    char path[MR_PATH_MAX];
    assert_int_equal(mr_path_join(path, LOG_DIR, name), MR_OK);
    for (size_t i = 0; i < simfs_file_count(rig->sim); i++)
        if (strcmp(simfs_file_path(rig->sim, i), path) == 0)
            return i;
    return SIZE_MAX;
}

static inline bool log_has_file(const struct log_rig *rig, const char *name)
{
    return log_file(rig, name) != SIZE_MAX;
}

/* ---- fixture of a test program ------------------------------------------------------------- */

static inline int log_begin(void **state)
{
    struct log_rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    log_rig_begin(rig);
    log_open(rig);
    *state = rig;
    return 0;
}

static inline int log_end(void **state)
{
    struct log_rig *rig = *state;
    log_rig_end(rig);
    free(rig);
    return 0;
}

/* ---- damage -------------------------------------------------------------------------------- */

/* Where the n-th record of this length stands in a log with nothing else. */
static inline uint64_t log_place(uint64_t seq)
{
    return MR_SEGMENT_HEADER + (seq - 1) * LOG_SIZE;
}

static inline void log_damage(struct log_rig *rig, const char *name, uint64_t offset)
{
    simfs_flip_bit(rig->sim, log_file(rig, name), 8 * offset + 3);
}

/* A mark: everything before it was durable. */
static inline void log_put_mark(struct log_rig *rig)
{
    assert_int_equal(mr_log_room(rig->log, 0, MR_LOG_ONGOING), MR_OK);
    assert_non_null(mr_log_begin(rig->log, 0));
    mr_log_append(rig->log, MR_RECORD_MARK, MR_LOG_DURABLE, NULL);
    log_flush(rig);
}

static inline bool log_found_seq(const struct log_rig *rig, uint64_t seq)
{
    for (size_t i = 0; i < rig->found_n; i++)
        if (rig->found[i].seq == seq && rig->found[i].type != MR_RECORD_SKIP)
            return true;
    return false;
}

static inline void log_assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, text);
    assert_non_null(strstr(text, part));
}

/* All files of the disk as one number. */
static inline uint32_t log_digest(const struct log_rig *rig)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < simfs_file_count(rig->sim); i++) {
        const char *path = simfs_file_path(rig->sim, i);
        crc = mr_crc32c(crc, path, strlen(path));
        crc = mr_crc32c(crc, simfs_file_data(rig->sim, i), simfs_file_size(rig->sim, i));
    }
    return crc;
}

/* Refused with this in the detail, and not a byte changed. */
static inline void log_assert_refused(struct log_rig *rig, enum mr_err err, const char *part)
{
    log_drop(rig);
    uint32_t before = log_digest(rig);
    assert_int_equal(log_recover(rig), err);
    log_assert_says(rig->detail.text, part);
    log_drop(rig);
    assert_int_equal(log_digest(rig), before);
}

/* Repairs and writes on at once; then a plain open finds the same, and the log can be written on. */
static inline void log_repair_holds(struct log_rig *rig)
{
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_true(rig->recovery.damaged > 0);
    size_t found = 0, again = 0;
    for (size_t i = 0; i < rig->found_n; i++)
        found += rig->found[i].type != MR_RECORD_SKIP;
    log_put_durable(rig, 2, LOG_LEN);
    found += 2;
    rig->recovery.mode = MR_FSCK_CHECK;
    for (int round = 0; round < 3; round++) {
        log_open(rig);
        assert_int_equal(rig->recovery.damaged, 0);
        again = 0;
        for (size_t i = 0; i < rig->found_n; i++)
            again += rig->found[i].type != MR_RECORD_SKIP;
        assert_int_equal(again, found);
        log_put_durable(rig, 2, LOG_LEN);
        found += 2;
    }
}

/* Three segments with something in each. */
static inline void log_three_segments(struct log_rig *rig)
{
    while (mr_log_segments(rig->log) < 3)
        log_put_durable(rig, 1, LOG_LEN);
    log_put_durable(rig, 5, LOG_LEN);
    log_run_chores(rig);
}

#endif
