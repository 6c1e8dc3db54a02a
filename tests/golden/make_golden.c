/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the golden store: small, with every record type, every state and a snapshot. Not part of
 * the build and never run by the tests: the files in git are what an earlier version wrote, and
 * stay as they are when the code changes. Only a new format version gets a new folder beside v1.
 *
 *   cc -std=gnu17 -Iinclude -Isrc -Itests tests/golden/make_golden.c -o make_golden \
 *       -Wl,--start-group build/libmr_*.a -Wl,--end-group -lm
 *   ./make_golden tests/golden/vN
 *
 * It works on virtual time and a disk in memory, so it writes the same bytes each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "broker/embedded/embedded.h"
#include "log/log.h"
#include "sim/rig.h"
#include "wire/record.h"

static const int64_t day_ms = 24LL * 3600 * 1000;

#define SNAPSHOT_BY_MS 1790000046000

static struct rig rig;

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "make_golden: %s (%s)\n", what, rig.detail.text);
    exit(1);
}

static bool at_once;

/* A second passes before each step, so that no two times are equal; but not before one that a later
 * version added, so that all others keep theirs. */
static void call(struct mr_req *req, const char *what)
{
    rig_run(&rig, rig.clock.mono_ns + (at_once ? 0 : MR_NS_PER_S));
    check(rig_call(&rig, req) == MR_OK, what);
    mr_req_done(req);
}

static void enqueue(struct mr_task_options task)
{
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    call(&req.req, "enqueue");
    check(result.err == MR_OK, mr_err_text(result.err));
}

static void control(enum mr_verb verb, const char *id, double value)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id), .value = value};
    enum mr_err err;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    call(&req.req, "control");
    check(err == MR_OK, mr_err_text(err));
}

static void queue_set(const char *queue, enum mr_queue_setting setting, uint64_t value)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(queue),
                                   .setting = setting,
                                   .value = value};
    call(&req.req, "queue");
}

static void limit(enum mr_queue_setting setting, enum mr_limit_scope scope, const char *name,
                  uint64_t value, int64_t rate_ms)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str("z-parts"),
                                   .setting = setting,
                                   .value = value,
                                   .rate_ms = rate_ms,
                                   .scope = scope,
                                   .name = mr_slice_str(name)};
    call(&req.req, "limit");
}

/* ---- running -------------------------------------------------------------------------------- */

static void no_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static struct mr_req_node_open node_open(void)
{
    static const struct mr_worker_queue queue = {.name = {"default", 7}};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = mr_slice_str("golden"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 1,
                                   .lease_ms = day_ms,
                                   .events.stop = no_stop};
    call(&req.req, "node");
    return req;
}

static struct mr_lease *take(uint64_t node, const char *id)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1};
    call(&req.req, "take");
    check(req.n == 1, "nothing to take");
    check(mr_broker_lease_open(mr_engine_broker(rig.engine), req.leases) == MR_OK, "lease");
    check(mr_slice_equal(req.leases->task.id, mr_slice_str(id)), "took another task");
    return req.leases;
}

/* The task is the only one waiting in "default". */
static void run(uint64_t node, const char *id, struct mr_finish finish)
{
    struct mr_lease *lease = take(node, id);
    enum mr_err err;
    finish.id = mr_slice_str(id);
    finish.epoch = lease->epoch;
    finish.ref = lease->ref;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &finish, .n = 1, .errs = &err};
    call(&req.req, "finish");
    check(err == MR_OK, mr_err_text(err));
    mr_lease_free(lease);
}

static void join(const char *id, const char *group)
{
    enqueue((struct mr_task_options){.queue = mr_slice_str("z-groups"),
                                     .id = mr_slice_str(id),
                                     .payload = mr_slice_str(id),
                                     .group = mr_slice_str(group)});
}

static void put_into(const char *id, uint32_t partition)
{
    enqueue((struct mr_task_options){
        .queue = mr_slice_str("z-parts"), .id = mr_slice_str(id), .partition = partition});
}

/* Two members become one task. */
static void gather(const char *id)
{
    struct mr_req_gather gather = {.req.op = MR_OP_GATHER,
                                   .queue = mr_slice_str("z-groups"),
                                   .max_size = 2,
                                   .grace_ms = day_ms};
    call(&gather.req, "gather");
    check(gather.n == 2, "another set");
    struct mr_task_options task = {.id = mr_slice_str(id), .payload = mr_slice_str("of two")};
    struct mr_req_gathered gathered = {.req.op = MR_OP_GATHERED,
                                       .queue = gather.queue,
                                       .set = mr_slice_str(gather.set),
                                       .task = &task};
    call(&gathered.req, "gathered");
    check(gathered.result.err == MR_OK, mr_err_text(gathered.result.err));
}

/* As it stood at another broker; held, unless it is released. */
static void carry(struct mr_task task, bool is_released)
{
    task.queue = mr_slice_str("zz-carried");
    task.type = mr_slice_str("moved");
    task.payload = task.id;
    task.created_ms = task.order_time_ms = 1780000000000;
    task.max_retry = 25;
    task.timeout_ms = 1800000;
    struct mr_enqueue_result result;
    struct mr_task_options options = mr_carried_options(&task);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .carried = &task, .n = 1, .results = &result};
    call(&req.req, "carry");
    check(result.err == MR_OK, mr_err_text(result.err));
    char id[MR_ID_MAX + 1];
    snprintf(id, sizeof id, "%.*s", (int)task.id.len, (const char *)task.id.data);
    if (is_released)
        control(MR_VERB_RELEASE, id, 0);
}

static void move_away(const char *id)
{
    struct mr_control item = {
        .verb = MR_VERB_MOVED, .id = mr_slice_str(id), .text = mr_slice_str("redis://elsewhere")};
    enum mr_err err;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    call(&req.req, "moved");
    check(err == MR_OK, mr_err_text(err));
}

/* ---- the steps ------------------------------------------------------------------------------ */

/* What came from another broker, and what went to one. */
static void carried(void)
{
    at_once = true;
    carry((struct mr_task){.id = mr_slice_str("c-pending"),
                           .state = MR_PENDING,
                           .retried = 2,
                           .crashes = 1,
                           .last_failed_ms = 1780000001000,
                           .last_error = mr_slice_str("failed there")},
          true);
    carry((struct mr_task){.id = mr_slice_str("c-completed"),
                           .state = MR_COMPLETED,
                           .finished_ms = 1780000002000,
                           .retention_ms = 3650 * day_ms,
                           .result = mr_slice_str("done there")},
          true);
    carry((struct mr_task){.id = mr_slice_str("c-later"),
                           .state = MR_SCHEDULED,
                           .due_ms = 1893456000000,
                           .unique_key = mr_slice_str("carried"),
                           .unique_until_ms = 1893456000000},
          true);
    carry((struct mr_task){.id = mr_slice_str("c-held"), .state = MR_PENDING}, false);
    carry((struct mr_task){.id = mr_slice_str("c-gone"), .state = MR_PENDING}, true);
    move_away("c-gone");
    at_once = false;
}

/* Likewise, and it ran there: one under an epoch ahead of all here, but behind the ceiling. */
static void carried_with_epochs(void)
{
    at_once = true;
    carry((struct mr_task){.id = mr_slice_str("c-ran"),
                           .state = MR_PENDING,
                           .retried = 1,
                           .epoch = 1790001300000000},
          true);
    carry((struct mr_task){.id = mr_slice_str("c-ended"),
                           .state = MR_COMPLETED,
                           .epoch = 1780000002500000,
                           .started_ms = 1780000002000,
                           .finished_ms = 1780000003000,
                           .retention_ms = 3650 * day_ms,
                           .result = mr_slice_str("it ran there")},
          true);
    at_once = false;
}

static void what_a_snapshot_will_cover(uint64_t node)
{
    enqueue((struct mr_task_options){.id = mr_slice_str("kept"),
                                     .payload = mr_slice_str("carried forward"),
                                     .retention_ms = 3650 * day_ms});
    run(node, "kept",
        (struct mr_finish){.outcome = MR_DONE, .result = mr_slice_str("result of kept")});
    enqueue((struct mr_task_options){.id = mr_slice_str("later"),
                                     .type = mr_slice_str("report"),
                                     .payload = mr_slice_str("scheduled, carried forward"),
                                     .delay_ms = 30 * day_ms});
    enqueue((struct mr_task_options){.queue = mr_slice_str("gone"), .payload = mr_slice_str("x")});
    struct mr_req_queue_remove remove = {
        .req.op = MR_OP_QUEUE_REMOVE, .queue = mr_slice_str("gone"), .mode = MR_QUEUE_REMOVE_FORCE};
    call(&remove.req, "remove");
    at_once = true;
    join("g1", "pages");
    join("g2", "pages");
    join("g3", "others");
    queue_set("z-parts", MR_QUEUE_PARTITIONS, 4);
    queue_set("z-parts", MR_QUEUE_ASSIGN, MR_ASSIGN_CONSISTENT_HASH);
    queue_set("z-parts", MR_QUEUE_RETRY_MODE, MR_RETRY_CLASS);
    limit(MR_QUEUE_CONCURRENCY, MR_LIMIT_QUEUE, "", 5, 0);
    limit(MR_QUEUE_RATE, MR_LIMIT_KEY, "*", 7, 60000);
    limit(MR_QUEUE_RATE, MR_LIMIT_TYPE, "lifted later", 1, 1000);
    put_into("p1", 1);
    put_into("p2", 2);
    put_into("p3", 3);
    put_into("p4", 4);
    at_once = false;
}

/* Until the log was compacted and a snapshot written. */
static void come_and_go(void)
{
    static char payload[900];
    for (int i = 0; i < 200; i++) {
        struct mr_req_stats stats = {.req.op = MR_OP_STATS};
        enqueue((struct mr_task_options){.id = mr_slice_str("passing"),
                                         .payload = mr_slice_make(payload, sizeof payload)});
        control(MR_VERB_DELETE, "passing", 0);
        call(&stats.req, "stats");
        if (stats.stats.snapshots > 0)
            break;
    }
    /* It comes earlier with more in the store; what follows is at the same time in all versions. */
    check(rig_wall_ms(&rig) <= SNAPSHOT_BY_MS, "no snapshot came");
    rig_run(&rig, rig.clock.mono_ns + (SNAPSHOT_BY_MS - rig_wall_ms(&rig)) * MR_NS_PER_MS);
}

static void all_outcomes(uint64_t node)
{
    enqueue((struct mr_task_options){
        .id = mr_slice_str("retry"), .payload = mr_slice_str("fails once"), .max_retry = 3});
    run(node, "retry",
        (struct mr_finish){
            .outcome = MR_FAIL, .error = mr_slice_str("no luck"), .delay_ms = 30 * day_ms});
    enqueue((struct mr_task_options){.id = mr_slice_str("archived"),
                                     .payload = mr_slice_make("\xff\x00 bytes", 8),
                                     .max_retry = MR_NO_RETRY});
    run(node, "archived",
        (struct mr_finish){.outcome = MR_FAIL_FOR_GOOD, .error = mr_slice_str("gave up")});
    enqueue((struct mr_task_options){.id = mr_slice_str("completed"),
                                     .retention_ms = 3650 * day_ms,
                                     .topic = mr_slice_str("answers")});
    run(node, "completed", (struct mr_finish){.outcome = MR_DONE, .result = mr_slice_str("42")});
    enqueue((struct mr_task_options){.id = mr_slice_str("dropped")});
    run(node, "dropped", (struct mr_finish){.outcome = MR_DROP});
    enqueue((struct mr_task_options){.id = mr_slice_str("cancelled"), .delay_ms = day_ms});
    control(MR_VERB_CANCEL, "cancelled", 0);
    at_once = true;
    enqueue((struct mr_task_options){.id = mr_slice_str("ended")});
    run(node, "ended", (struct mr_finish){.outcome = MR_DONE});
    at_once = false;
}

static void everything_said(void)
{
    static const struct mr_header headers[] = {{{"trace", 5}, {"00-ab", 5}},
                                               {{"empty", 5}, {"", 0}}};
    queue_set("mail", MR_QUEUE_MAX_LENGTH, 100);
    queue_set("mail", MR_QUEUE_PAUSED, 1);
    enqueue((struct mr_task_options){
        .queue = mr_slice_str("mail"),
        .type = mr_slice_str("mail:send"),
        .id = mr_slice_str("full"),
        .payload = mr_slice_str("{\"to\":\"you\"}"),
        .priority_s = 12.5,
        .max_retry = 7,
        .timeout_ms = 1234,
        .deadline_ms = 1893456000000,
        .retention_ms = 86400000,
        .unique_ms = 3600000,
        .unique_key = mr_slice_str("key"),
        .group = mr_slice_str("group"),
        .topic = mr_slice_str("topic"),
        .headers = headers,
        .headers_n = 2,
    });
}

static void waiting(void)
{
    enqueue((struct mr_task_options){.id = mr_slice_str("pending"),
                                     .payload = mr_slice_str("hello"),
                                     .timeout_ms = MR_NO_TIMEOUT});
    enqueue((struct mr_task_options){.id = mr_slice_str("moved")});
    control(MR_VERB_PRIORITISE, "moved", 99.5);
    enqueue((struct mr_task_options){.payload = mr_slice_str("generated id")});
    enqueue((struct mr_task_options){
        .id = mr_slice_str("scheduled"), .at_ms = 1893456000000, .priority_s = -60});
    at_once = true;
    gather("whole");
    join("g4", "pages");
    put_into("p5", 4);
    queue_set("z-parts", MR_QUEUE_PARTITIONS, 3); /* what was in the fourth is in the first */
    limit(MR_QUEUE_RATE, MR_LIMIT_QUEUE, "", 100, 1000);
    limit(MR_QUEUE_CONCURRENCY, MR_LIMIT_TYPE, "sum", 2, 0);
    limit(MR_QUEUE_RATE, MR_LIMIT_TYPE, "lifted later", 0, 0);
    put_into("p6", 3);
    at_once = false;
}

/* A run that began and was lost; and one that is still in hand when the process dies. */
static void crashes(void)
{
    struct mr_req_node_open node = node_open();
    enqueue((struct mr_task_options){.id = mr_slice_str("crashed"), .priority_s = 5000});
    struct mr_lease *lease = take(node.node, "crashed");
    mr_broker_begun(mr_engine_broker(rig.engine), node.first_slot, lease->epoch);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = node.node};
    call(&close.req, "node close");
    mr_lease_free(lease);
    node = node_open();
    enqueue((struct mr_task_options){.id = mr_slice_str("active"), .priority_s = 9000});
    lease = take(node.node, "active");
    printf("active under %llu\n", (unsigned long long)lease->epoch);
    mr_lease_free(lease);
}

enum leave { LEAVE_DEAD, LEAVE_CLOSED };

static void leave(enum leave how)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    rig_run(&rig, rig.clock.mono_ns + MR_NS_PER_S);
    if (how == LEAVE_CLOSED)
        mr_engine_finish(rig.engine);
    simfs_stop(rig.fs);
    rig_kill(&rig);
    simfs_crash(rig.fs, &rand, SIMFS_KEEP_ALL);
}

/* ---- damage and repair ---------------------------------------------------------------------- */

/* Counts the record types of all segments; where the last one of a type stands. */
static void scan(unsigned counts[MR_RECORD_TYPE_COUNT], size_t ret_file[], uint64_t ret_at[])
{
    uint32_t salt = 0;
    for (size_t i = 0; i < simfs_file_count(rig.fs); i++)
        if (strcmp(simfs_file_path(rig.fs, i), RIG_DIR "/meta") == 0)
            salt = mr_load32(simfs_file_data(rig.fs, i) + 12);
    for (size_t i = 0; i < simfs_file_count(rig.fs); i++) {
        const uint8_t *bytes = simfs_file_data(rig.fs, i);
        uint64_t size = simfs_file_size(rig.fs, i);
        if (strstr(simfs_file_path(rig.fs, i), "/log-") == NULL)
            continue;
        for (uint64_t at = MR_SEGMENT_HEADER; at + MR_RECORD_HEADER <= size; at += 8) {
            struct mr_record record;
            if (mr_record_parse(mr_slice_make(bytes + at, size - at), salt, &record) !=
                    MR_RECORD_GOOD ||
                record.segment != mr_load32(bytes + 12))
                continue;
            counts[record.type]++;
            ret_file[record.type] = i;
            ret_at[record.type] = at;
        }
    }
}

static void damage_and_repair(void)
{
    unsigned counts[MR_RECORD_TYPE_COUNT] = {0};
    size_t file[MR_RECORD_TYPE_COUNT];
    uint64_t at[MR_RECORD_TYPE_COUNT];
    scan(counts, file, at);
    check(counts[MR_RECORD_CEILING] > 0, "no ceiling");
    simfs_flip_bit(rig.fs, file[MR_RECORD_CEILING], 8 * at[MR_RECORD_CEILING] + 1);
    check(rig_open(&rig) == MR_DAMAGED, "the damage was not noticed");
    rig.repair = true;
    check(rig_open(&rig) == MR_OK, "repair");
    rig.repair = false;
}

/* ---- writing it out ------------------------------------------------------------------------- */

static void write_out(const char *dir)
{
    for (size_t i = 0; i < simfs_file_count(rig.fs); i++) {
        const char *name = simfs_file_path(rig.fs, i) + sizeof RIG_DIR;
        char path[MR_PATH_MAX];
        /* The lock and the board say who is at work; the rest of a repair is no part of it. */
        if (strcmp(name, "lock") == 0 || strcmp(name, "board") == 0 || strchr(name, '/') != NULL)
            continue;
        check(mr_path_join(path, dir, name) == MR_OK, "path");
        FILE *file = fopen(path, "wb");
        check(file != NULL, "cannot create a file");
        size_t size = simfs_file_size(rig.fs, i);
        check(fwrite(simfs_file_data(rig.fs, i), 1, size, file) == size, "cannot write");
        check(fclose(file) == 0, "cannot write");
    }
}

int main(int argc, char **argv)
{
    struct simfs *fs = simfs_new(1);
    check(argc == 2 && mkdir(argv[1], 0755) == 0,
          "usage: make_golden FOLDER, which is not there yet");
    rig_init(&rig, fs, 1);
    check(rig_open(&rig) == MR_OK, "open");
    struct mr_req_node_open node = node_open();
    what_a_snapshot_will_cover(node.node);
    come_and_go();
    all_outcomes(node.node);
    rig_run(&rig, rig.clock.mono_ns + 6 * 60 * MR_NS_PER_S); /* the ceiling is renewed */
    everything_said();
    waiting();
    leave(LEAVE_DEAD);
    damage_and_repair();
    enqueue((struct mr_task_options){.queue = mr_slice_str("gone"), .payload = mr_slice_str("x")});
    struct mr_req_queue_remove remove = {
        .req.op = MR_OP_QUEUE_REMOVE, .queue = mr_slice_str("gone"), .mode = MR_QUEUE_REMOVE_FORCE};
    call(&remove.req, "remove");
    rig_run(&rig, rig.clock.mono_ns + 6 * 60 * MR_NS_PER_S);
    carried();
    crashes();
    carried_with_epochs();
    leave(LEAVE_CLOSED);
    unsigned counts[MR_RECORD_TYPE_COUNT] = {0};
    size_t file[MR_RECORD_TYPE_COUNT];
    uint64_t at[MR_RECORD_TYPE_COUNT];
    scan(counts, file, at);
    for (unsigned type = 1; type < MR_RECORD_TYPE_COUNT; type++) {
        printf("%-8s %u\n", mr_record_type_name(type), counts[type]);
        check(counts[type] > 0, "a record type is missing");
    }
    printf("ends at %lld\n", (long long)rig_wall_ms(&rig));
    write_out(argv[1]);
    rig_done(&rig);
    simfs_free(fs);
    return 0;
}
