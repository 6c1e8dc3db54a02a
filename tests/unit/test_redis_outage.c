/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis that is away for longer than a lease, under workers that live all the time: their runs go on, nothing
 * is counted as a crash, and what is said of it is one line at its beginning and one at its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/diag.h"
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "worker/worker.h"

#define Q "asynq:{default}:"

enum { BEAT_MS = 400, LEASE_MS = 3 * BEAT_MS, LINES_MAX = 64, PATIENCE_S = 30 };

static const int64_t patience_ns = PATIENCE_S * MR_NS_PER_S;

/* ---- lines ---------------------------------------------------------------------------------- */

static struct {
    struct mr_lock lock;
    size_t n;
    char lines[LINES_MAX][256];
} said;

static void note_line(enum mr_diag_level level, const char *line, void *arg)
{
    (void)arg;
    if (level < MR_DIAG_WARN)
        return;
    mr_lock_enter(&said.lock);
    (void)snprintf(said.lines[said.n % LINES_MAX], sizeof said.lines[0], "%s", line);
    said.n++;
    mr_lock_leave(&said.lock);
}

/* How many lines have this in them; "": all. */
static size_t lines_with(const char *text)
{
    size_t n = 0;
    mr_lock_enter(&said.lock);
    for (size_t i = 0; i < said.n && i < LINES_MAX; i++)
        n += strstr(said.lines[i], text) != NULL;
    mr_lock_leave(&said.lock);
    return n;
}

/* ---- the scene ------------------------------------------------------------------------------ */

struct scene {
    struct redis_rig *rig;
    struct redis_rig_server *server;
    struct mr_broker *broker;
    struct mr_worker *worker;
    struct mr_event entered, go;
    _Atomic int runs;
    _Atomic bool cancelled;
};

static enum mr_outcome run_until_told(struct mr_run *run, void *arg)
{
    struct scene *scene = arg;
    if (atomic_fetch_add(&scene->runs, 1) == 0) {
        mr_event_set(&scene->entered);
        while (!mr_event_wait(&scene->go, MR_NS_PER_MS))
            if (mr_run_cancelled(run)) {
                atomic_store(&scene->cancelled, true);
                return MR_FAIL;
            }
    }
    return MR_DONE;
}

static struct mr_broker *open_broker(const struct scene *scene)
{
    struct mr_redis_broker_options options = {.url = redis_rig_url(scene->rig)};
    struct mr_broker *broker = NULL;
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    return broker;
}

static void put_task(struct mr_broker *broker, const struct mr_task_options *task)
{
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static void put(struct mr_broker *broker, const char *id)
{
    struct mr_task_options task = {.id = mr_slice_str(id)};
    put_task(broker, &task);
}

static bool is_cluster(void)
{
    const char *deployment = getenv("MR_DEPLOYMENT");
    return deployment != NULL && strcmp(deployment, "cluster") == 0;
}

/* A Redis that keeps what it has. */
static int setup(void **state)
{
    static const struct redis_rig_options options = {
        .config = "appendonly yes\nappendfsync always\nenable-protected-configs yes\n"};
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    mr_event_init(&scene->entered);
    mr_event_init(&scene->go);
    said.n = 0;
    scene->rig = is_cluster() ? redis_rig_cluster(&options) : redis_rig_standalone(&options);
    scene->server = redis_rig_server(scene->rig, 0);
    scene->broker = open_broker(scene);
    *state = scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    mr_event_set(&scene->go);
    mr_worker_free(scene->worker);
    if (scene->broker != NULL)
        mr_broker_close(scene->broker);
    redis_rig_stop(scene->rig);
    free(scene);
    return 0;
}

static void start_worker(struct scene *scene, int64_t drain_ms)
{
    /* A Cluster says for a second or two that it is not in order: it might be so here alone. */
    int64_t beat_ms = is_cluster() ? 3 * BEAT_MS : BEAT_MS;
    struct mr_worker_options options = {.slots = 1, .beat_ms = beat_ms, .drain_ms = drain_ms};
    assert_int_equal(mr_worker_new_on(scene->broker, &options, &scene->worker), MR_OK);
    assert_int_equal(mr_worker_handle(scene->worker, "*", run_until_told, scene), MR_OK);
    assert_int_equal(mr_worker_start(scene->worker), MR_OK);
}

static void pass_ms(int64_t ms)
{
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, ms * MR_NS_PER_MS);
}

/* Until a condition holds, within patience. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        mr_mono begun_at = mr_mono_now(mr_clock_system());                                         \
        while (!(condition)) {                                                                     \
            assert_true(mr_mono_now(mr_clock_system()).ns - begun_at.ns < patience_ns);            \
            pass_ms(10);                                                                           \
        }                                                                                          \
    } while (0)

static int64_t elapsed_ms(mr_mono since)
{
    return (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
}

/* Whether the lease of a task ends in the future, by the clock of Redis. */
static bool is_leased(struct scene *scene, const char *id)
{
    return RIG_INT(scene->server, "EVAL",
                   "local t = redis.call('TIME')\n"
                   "local h = redis.call('HGET', KEYS[1] .. ARGV[1], 'mr:i')\n"
                   "local e = h and string.match(h, ' (%d+) ')\n"
                   "return e and tonumber(e) > t[1] * 1000 + t[2] / 1000 and 1 or 0",
                   "1", Q "t:", id) == 1;
}

/* Its replica may take over after all while the killed one comes back. */
static bool is_leased_at(struct scene *scene, struct redis_rig_server *owner, const char *id)
{
    if (owner == NULL)
        return false;
    scene->server = owner;
    return is_leased(scene, id);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void a_run_goes_on_while_redis_does_not_run_for_longer_than_its_lease(void **state)
{
    struct scene *scene = *state;
    struct mr_broker *other = open_broker(scene); /* looks for leases that ended as well */
    struct mr_worker *idle = NULL;
    struct mr_worker_options options = {.slots = 1, .beat_ms = BEAT_MS};
    put(scene->broker, "a");
    start_worker(scene, 0);
    assert_true(mr_event_wait(&scene->entered, patience_ns));
    assert_int_equal(mr_worker_new_on(other, &options, &idle), MR_OK);
    assert_int_equal(mr_worker_handle(idle, "*", run_until_told, scene), MR_OK);
    assert_int_equal(mr_worker_start(idle), MR_OK);
    UNTIL(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:b") == 1);
    redis_rig_kill(scene->server);
    pass_ms(3 * LEASE_MS);
    redis_rig_start(scene->server);
    UNTIL(lines_with("redis.back") == 2 && is_leased(scene, "a"));
    pass_ms(4500); /* those who look for leases that ended have looked */
    assert_int_equal(atomic_load(&scene->runs), 1);
    assert_false(atomic_load(&scene->cancelled));
    assert_int_equal(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:c"), 0);
    mr_event_set(&scene->go);
    UNTIL(RIG_INT(scene->server, "EXISTS", Q "t:a") == 0);
    assert_int_equal(lines_with("redis.away"), 2); /* one of each broker */
    assert_int_equal(lines_with(""), 4);
    mr_worker_free(idle);
    mr_broker_close(other);
}

static void
a_worker_that_stops_while_redis_is_away_waits_no_longer_than_its_drain_time(void **state)
{
    struct scene *scene = *state;
    put(scene->broker, "a");
    start_worker(scene, 500);
    assert_true(mr_event_wait(&scene->entered, patience_ns));
    redis_rig_kill(scene->server);
    UNTIL(lines_with("redis.away") == 1);
    mr_event_set(&scene->go); /* the run ends, and nobody can be told */
    mr_mono since = mr_mono_now(mr_clock_system());
    mr_worker_stop(scene->worker);
    assert_in_range(elapsed_ms(since), 400, 5000);
    struct mr_worker_figures figures;
    mr_worker_figures(scene->worker, &figures);
    assert_int_equal(figures.in_doubt, 1);
    assert_int_equal(figures.done, 0);
    assert_int_equal(lines_with("finish.in_doubt id=a error=UNAVAILABLE"), 1);
}

/* The node of a Cluster that has the queue is killed, and its replica takes over or it comes back; the others
 * answer all the time. */
static void a_run_goes_on_while_the_node_of_its_queue_is_away(void **state)
{
    struct scene *scene = *state;
    unsigned slot =
        (unsigned)RIG_INT(redis_rig_server(scene->rig, 0), "CLUSTER", "KEYSLOT", "{default}");
    scene->server = redis_rig_owner(scene->rig, slot);
    put(scene->broker, "a");
    start_worker(scene, 0);
    assert_true(mr_event_wait(&scene->entered, patience_ns));
    UNTIL(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:b") == 1);
    struct redis_rig_server *killed = scene->server;
    redis_rig_wait_healthy(scene->rig); /* its replica has it */
    redis_rig_kill(killed);
    pass_ms(7 * LEASE_MS);
    redis_rig_start(killed);
    redis_rig_wait_healthy(scene->rig);
    UNTIL(is_leased_at(scene, redis_rig_owner(scene->rig, slot), "a"));
    pass_ms(9000); /* those who look for leases that ended have looked */
    assert_int_equal(atomic_load(&scene->runs), 1);
    assert_false(atomic_load(&scene->cancelled));
    assert_int_equal(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:c"), 0);
    mr_event_set(&scene->go);
    UNTIL(RIG_INT(scene->server, "EXISTS", Q "t:a") == 0);
}

/* ---- a Redis that refuses ------------------------------------------------------------------- */

/* Its folder is gone, so it can write no snapshot, and takes no writes then. */
static void make_it_fail_to_save(struct scene *scene)
{
    char dir[] = "/tmp/mr-outage-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_string_equal(RIG(scene->server, "CONFIG", "SET", "dir", dir), "OK");
    assert_string_equal(RIG(scene->server, "CONFIG", "SET", "save", "3600 1"), "OK");
    assert_int_equal(rmdir(dir), 0);
    (void)RIG(scene->server, "BGSAVE");
    UNTIL(strstr(RIG(scene->server, "INFO", "persistence"), "rdb_last_bgsave_status:err") != NULL);
    assert_non_null(strstr(RIG(scene->server, "SET", "key", "1"), "MISCONF"));
}

static void a_worker_goes_on_when_redis_can_write_its_disk_again(void **state)
{
    struct scene *scene = *state;
    put(scene->broker, "a");
    put(scene->broker, "b");
    start_worker(scene, 0);
    assert_true(mr_event_wait(&scene->entered, patience_ns));
    make_it_fail_to_save(scene);
    pass_ms(3 * LEASE_MS);
    assert_false(atomic_load(&scene->cancelled));
    mr_event_set(&scene->go); /* its end is kept */
    pass_ms(LEASE_MS);
    RIG(scene->server, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no");
    UNTIL(RIG_INT(scene->server, "EXISTS", Q "t:a", Q "t:b") == 0);
    assert_int_equal(atomic_load(&scene->runs), 2);
    assert_string_equal(RIG(scene->server, "GET", Q "processed"), "2");
    assert_int_equal(lines_with("node.lost"), 0);
    assert_in_range(lines_with(""), 0, 3);
}

/* Puts the end of a lease there: in the key that has ours, and in Asynq's.
 * In one step: a lease whose two ends differ is that of another program, and a beat between would say so. */
static void lease_until(struct scene *scene, const char *key, const char *id, int64_t ms)
{
    static const char both[] = "local hold = redis.call('HGET', KEYS[2] .. ARGV[3], 'mr:i')\n"
                               "if not hold then return 0 end\n"
                               "hold = string.gsub(hold, ' %d+ ', ' ' .. ARGV[1] .. ' ', 1)\n"
                               "redis.call('HSET', KEYS[2] .. ARGV[3], 'mr:i', hold)\n"
                               "return redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3])";
    char own[32], whole[32];
    (void)snprintf(own, sizeof own, "%lld", (long long)ms);
    (void)snprintf(whole, sizeof whole, "%lld", (long long)((ms + 999) / 1000));
    RIG(scene->server, "EVAL", both, "2", key, Q "t:", own, whole, id);
}

static int64_t now_ms(void)
{
    return mr_wall_ms(mr_wall_now(mr_clock_system()));
}

static void a_beat_that_is_answered_with_an_error_ends_nothing(void **state)
{
    struct scene *scene = *state;
    put(scene->broker, "a");
    start_worker(scene, 0);
    assert_true(mr_event_wait(&scene->entered, patience_ns));
    RIG(scene->server, "COPY", Q "lease",
        "kept"); /* it is never missing: that would be a lost lease */
    RIG(scene->server, "SET", Q "lease", "oops");
    pass_ms(3 * LEASE_MS);
    lease_until(scene, "kept", "a",
                now_ms() + PATIENCE_S * 1000); /* a look must not be faster than its beat */
    RIG(scene->server, "RENAME", "kept", Q "lease");
    UNTIL(is_leased(scene, "a"));
    assert_false(atomic_load(&scene->cancelled));
    mr_event_set(&scene->go);
    UNTIL(RIG_INT(scene->server, "EXISTS", Q "t:a") == 0);
    assert_int_equal(atomic_load(&scene->runs), 1);
    assert_int_equal(lines_with(""), 0);
}

static void an_end_that_is_answered_with_an_error_is_said_again_when_that_is_mended(void **state)
{
    struct scene *scene = *state;
    struct mr_task_options task = {.id = MR_SLICE_LIT("a"), .retention_ms = 60000};
    put_task(scene->broker, &task);
    RIG(scene->server, "SET", Q "completed", "oops");
    mr_event_set(&scene->go);
    start_worker(scene, 0);
    assert_true(mr_event_wait(&scene->entered, patience_ns));
    pass_ms(LEASE_MS);
    RIG(scene->server, "DEL", Q "completed");
    UNTIL(strcmp(RIG(scene->server, "HGET", Q "t:a", "state"), "completed") == 0);
    put(scene->broker, "b");
    UNTIL(RIG_INT(scene->server, "EXISTS", Q "t:b") == 0);
    assert_int_equal(atomic_load(&scene->runs), 2);
}

/* ---- without a worker ----------------------------------------------------------------------- */

static void stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static struct mr_req_node_open open_node_for(struct mr_broker *broker, int64_t lease_ms)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("n"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 1,
                                   .lease_ms = lease_ms,
                                   .events = {.stop = stop}};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req;
}

static struct mr_req_node_open open_node(struct mr_broker *broker)
{
    return open_node_for(broker, LEASE_MS);
}

static enum mr_err take(struct mr_broker *broker, uint64_t node, int64_t wait_ms)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    if (err == MR_OK)
        mr_lease_free(req.leases);
    return err;
}

static void a_take_without_a_redis_says_so_when_its_wait_is_over(void **state)
{
    struct scene *scene = *state;
    struct mr_req_node_open node = open_node(scene->broker);
    assert_int_equal(take(scene->broker, node.node, 0), MR_EMPTY);
    redis_rig_kill(scene->server);
    UNTIL(lines_with("redis.away") == 1);
    for (int64_t wait_ms = 0; wait_ms <= 100; wait_ms += 100) {
        mr_mono since = mr_mono_now(mr_clock_system());
        assert_int_equal(take(scene->broker, node.node, wait_ms), MR_UNAVAILABLE);
        assert_in_range(elapsed_ms(since), wait_ms, wait_ms + 900);
    }
}

/* A worker that gave up its runs by itself says so when it can, and that comes first. */
static void what_a_node_gave_up_while_redis_was_away_is_no_crash(void **state)
{
    struct scene *scene = *state;
    put(scene->broker, "a");
    struct mr_req_node_open node = open_node(scene->broker);
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node.node, .max = 1, .wait_ms = 20000};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    mr_broker_begun(scene->broker, node.first_slot, req.leases->epoch);
    UNTIL(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:b") == 1);
    redis_rig_kill(scene->server);
    UNTIL(lines_with("redis.away") == 1);
    mr_broker_begun(scene->broker, node.first_slot, 0);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = node.node};
    mr_mono since = mr_mono_now(mr_clock_system());
    assert_int_equal(mr_broker_call(scene->broker, &close.req), MR_UNAVAILABLE);
    mr_req_done(&close.req);
    assert_in_range(elapsed_ms(since), 0, 2000);
    redis_rig_start(scene->server);
    UNTIL(strcmp(RIG(scene->server, "LRANGE", Q "pending", "0", "-1"), "a") == 0);
    assert_int_equal(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:c"), 0);
    mr_lease_free(req.leases);
}

static void answered(struct mr_req *req)
{
    mr_event_set(req->arg);
}

/* The server gets the take and does not run; when it does, nobody listens to its answer any more. */
static void
a_task_whose_take_was_lost_with_its_answer_comes_back_before_its_lease_ends(void **state)
{
    struct scene *scene = *state;
    struct mr_event done;
    char epoch[32];
    struct mr_broker *other =
        open_broker(scene); /* with a node of the same name, which keeps its own */
    struct mr_req_take kept = {
        .req.op = MR_OP_TAKE, .node = open_node_for(other, 60000).node, .max = 1};
    put(other, "b");
    assert_int_equal(mr_broker_call(other, &kept.req), MR_OK);
    (void)snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)kept.leases->epoch);
    put(scene->broker, "a");
    struct mr_req_node_open node = open_node_for(scene->broker, 60000);
    mr_event_init(&done);
    struct mr_req_take req = {.req = {.op = MR_OP_TAKE, .done = answered, .arg = &done},
                              .node = node.node,
                              .max = 1,
                              .wait_ms = 20000};
    redis_rig_freeze(scene->server);
    mr_broker_submit(scene->broker, &req.req);
    UNTIL(lines_with("redis.away") == 1); /* it got no answer, and left */
    assert_false(mr_event_is_set(&done));
    redis_rig_thaw(scene->server);
    assert_true(mr_event_wait(&done, patience_ns));
    mr_req_done(&req.req);
    assert_int_equal(req.req.err, MR_OK);
    assert_int_equal(req.n, 1);
    assert_int_equal(RIG_INT(scene->server, "LLEN", Q "active"), 2);
    assert_int_equal(RIG_INT(scene->server, "LLEN", Q "pending"), 0);
    assert_memory_equal(RIG(scene->server, "HGET", Q "t:b", "mr:i"), epoch, strlen(epoch));
    assert_int_equal(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:c"), 0);
    mr_lease_free(req.leases);
    mr_lease_free(kept.leases);
    mr_req_done(&kept.req);
    mr_broker_close(other);
}

/* Whether a task whose lease is over came back. A broker that made its connection anew beats for all it has in hand, which this
 * is among: then the lease is over again. */
static bool came_back(struct scene *scene, const char *id)
{
    if (RIG_INT(scene->server, "LLEN", Q "pending") == 1)
        return true;
    lease_until(scene, Q "lease", id, now_ms() - 2000);
    return false;
}

/* Whose lease ended they have not known for long: so they stand before ours, which ended later. */
static void a_lease_that_ended_is_found_behind_those_of_other_programs(void **state)
{
    static const char theirs[] =
        "local s = redis.call('TIME')[1] - 5\n"
        "for i = 1, 1200 do\n"
        "  local id = 'go-' .. i\n"
        "  redis.call('HSET', KEYS[1] .. 't:' .. id, 'msg', '', 'state', 'active')\n"
        "  redis.call('LPUSH', KEYS[1] .. 'active', id)\n"
        "  redis.call('ZADD', KEYS[1] .. 'lease', s, id)\n"
        "end";
    struct scene *scene = *state;
    struct mr_broker *other = open_broker(scene);
    put(scene->broker, "a");
    struct mr_req_take kept = {
        .req.op = MR_OP_TAKE, .node = open_node_for(scene->broker, 60000).node, .max = 1};
    assert_int_equal(mr_broker_call(scene->broker, &kept.req), MR_OK);
    RIG(scene->server, "EVAL", theirs, "1", Q);
    lease_until(scene, Q "lease", "a", now_ms() - 2000);
    (void)open_node_for(other, 60000);
    UNTIL(came_back(scene, "a"));
    assert_int_equal(RIG_INT(scene->server, "LLEN", Q "active"), 1200);
    assert_int_equal(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:i"), 0);
    mr_lease_free(kept.leases);
    mr_req_done(&kept.req);
    mr_broker_close(other);
}

/* It says the epoch and the holder in fields of their own, and the end in a zset. */
static void what_an_older_millrace_has_in_hand_comes_back_when_its_lease_is_over(void **state)
{
    static const char older[] =
        "local s, id = redis.call('TIME')[1], redis.call('RPOP', KEYS[1] .. 'pending')\n"
        "redis.call('HDEL', KEYS[1] .. 't:' .. id, 'pending_since')\n"
        "redis.call('HSET', KEYS[1] .. 't:' .. id, 'state', 'active', 'mr:e', '1700000000000000',\n"
        "  'mr:n', 'older', 'mr:b', '1700000000000000', 'mr:t', s .. '000000000')\n"
        "redis.call('LPUSH', KEYS[1] .. 'active', id)\n"
        "redis.call('ZADD', KEYS[1] .. 'lease', s + 2, id)\n"
        "redis.call('ZADD', KEYS[1] .. 'mr:lease', (s + 2) * 1000, id)";
    struct scene *scene = *state;
    put(scene->broker, "a");
    RIG(scene->server, "EVAL", older, "1", Q);
    (void)open_node_for(scene->broker, 60000);
    UNTIL(RIG_INT(scene->server, "LLEN", Q "pending") == 1);
    assert_string_equal(RIG(scene->server, "HGET", Q "t:a", "mr:c"), "1"); /* it had begun */
    assert_int_equal(RIG_INT(scene->server, "HEXISTS", Q "t:a", "mr:n"), 0);
    assert_int_equal(RIG_INT(scene->server, "EXISTS", Q "active", Q "lease", Q "mr:lease"), 0);
}

/* Its look for leases that ended waits in the socket of a Redis that stands still, and is carried out before
 * whoever lives can say so. */
static void a_look_that_redis_comes_to_late_takes_nothing_away(void **state)
{
    enum { ENDS_MS = 3000, STILL_MS = 3300 };
    struct scene *scene = *state;
    struct mr_broker *other = open_broker(scene);
    put(scene->broker, "a");
    struct mr_req_take kept = {
        .req.op = MR_OP_TAKE, .node = open_node_for(scene->broker, 60000).node, .max = 1};
    assert_int_equal(mr_broker_call(scene->broker, &kept.req), MR_OK);
    int64_t ends_ms = now_ms() + ENDS_MS;
    lease_until(scene, Q "lease", "a", ends_ms);
    (void)open_node_for(other, 60000);
    usleep(1500 * 1000); /* it looks once a second, and knows then when the lease ends */
    redis_rig_freeze(scene->server);
    usleep(STILL_MS * 1000);
    redis_rig_thaw(scene->server);
    struct mr_req_beat beat = {.req.op = MR_OP_BEAT, .node = kept.node};
    assert_int_equal(mr_broker_call(scene->broker, &beat.req), MR_OK);
    mr_req_done(&beat.req);
    /* A beat while the connection is made anew is said as soon as that is there. */
    UNTIL(atoll(RIG(scene->server, "ZSCORE", Q "lease", "a")) * 1000 > ends_ms + 1000);
    assert_int_equal(RIG_INT(scene->server, "LLEN", Q "pending"), 0);
    assert_int_equal(RIG_INT(scene->server, "LLEN", Q "active"), 1);
    mr_lease_free(kept.leases);
    mr_req_done(&kept.req);
    mr_broker_close(other);
}

static bool said_wrong_type(struct scene *scene)
{
    return strstr(RIG(scene->server, "INFO", "errorstats"), "WRONGTYPE") != NULL;
}

/* Of a run whose task another has ended since: it is in no one's hand here, so all queues are asked. One of them cannot
 * answer at first. That it has no such task then is no proof that this end was carried out. */
static void an_end_that_is_asked_for_twice_where_its_task_never_was_stays_another_s(void **state)
{
    struct scene *scene = *state;
    struct mr_event done;
    struct mr_task_options kept = {.id = mr_slice_str("a"), .retention_ms = MR_MS_PER_DAY};
    struct mr_task_options elsewhere = {.id = mr_slice_str("b"), .queue = mr_slice_str("other")};
    put_task(scene->broker, &kept);
    put_task(scene->broker, &elsewhere);
    struct mr_req_take taken = {
        .req.op = MR_OP_TAKE, .node = open_node_for(scene->broker, 60000).node, .max = 1};
    assert_int_equal(mr_broker_call(scene->broker, &taken.req), MR_OK);
    struct mr_finish item = {
        .id = kept.id, .epoch = taken.leases->epoch, .ref = taken.leases->ref, .outcome = MR_DONE};
    enum mr_err err = MR_BUSY;
    struct mr_req_finish ends = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(scene->broker, &ends.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&ends.req);
    mr_lease_free(taken.leases);
    mr_req_done(&taken.req);
    RIG(scene->server, "SET", "asynq:{other}:lease", "not a set");
    item.epoch--;
    item.ref = 0;
    mr_event_init(&done);
    ends.req = (struct mr_req){.op = MR_OP_FINISH, .done = answered, .arg = &done};
    mr_broker_submit(scene->broker, &ends.req);
    UNTIL(said_wrong_type(scene));
    RIG(scene->server, "DEL", "asynq:{other}:lease");
    assert_true(mr_event_wait(&done, patience_ns));
    assert_int_equal(err, MR_STALE);
    mr_req_done(&ends.req);
}

/* ---- what a user may not do ----------------------------------------------------------------- */

struct refusals {
    _Atomic int n;
    char texts[4][256];
};

static void note_refusal(enum mr_err err, const char *text, void *arg)
{
    struct refusals *refusals = arg;
    int n = atomic_load(&refusals->n);
    assert_int_equal(err, MR_DENIED);
    if (n < 4)
        (void)snprintf(refusals->texts[n], sizeof refusals->texts[n], "%s", text);
    atomic_store(&refusals->n, n + 1);
}

static int64_t commands(struct scene *scene)
{
    const char *at = strstr(RIG(scene->server, "INFO", "stats"), "total_commands_processed:");
    assert_non_null(at);
    return atoll(at + strlen("total_commands_processed:"));
}

static void a_user_who_may_neither_wait_nor_listen_looks_once_a_second_and_says_why(void **state)
{
    struct scene *scene = *state;
    struct refusals refusals = {0};
    char url[128];
    RIG(scene->server, "ACL", "SETUSER", "poor", "on", ">x", "~*", "&*", "+@all", "-blmove",
        "-subscribe");
    (void)snprintf(url, sizeof url, "redis://poor:x@127.0.0.1:%u", (unsigned)scene->server->port);
    struct mr_redis_broker_options options = {
        .url = url, .refused = note_refusal, .refused_arg = &refusals};
    struct mr_broker *poor = NULL;
    assert_int_equal(mr_redis_broker_open(&options, &poor, NULL), MR_OK);
    struct mr_req_node_open node = open_node_for(poor, 60000);
    assert_int_equal(take(poor, node.node, 300), MR_EMPTY);
    assert_int_equal(atomic_load(&refusals.n), 2);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(refusals.texts[i], "NOPERM"));
    int64_t before = commands(scene);
    assert_int_equal(take(poor, node.node, 2000), MR_EMPTY);
    assert_in_range(commands(scene) - before, 1, 40);
    assert_int_equal(atomic_load(&refusals.n), 2);
    struct mr_task_options task = {.priority_s = 1}; /* not in the list: nothing is pushed */
    put_task(scene->broker, &task);
    assert_int_equal(take(poor, node.node, 5000), MR_OK);
    mr_broker_close(poor);
}

/* What is not in the list is pushed to nobody, and Redis 7 gives a new user no channels. */
static void a_worker_that_waits_finds_what_nobody_may_tell_of(void **state)
{
    struct scene *scene = *state;
    struct mr_req_node_open node = open_node_for(scene->broker, 60000);
    char url[128];
    RIG(scene->server, "ACL", "SETUSER", "silent", "on", ">x", "~*", "+@all", "resetchannels");
    (void)snprintf(url, sizeof url, "redis://silent:x@127.0.0.1:%u", (unsigned)scene->server->port);
    struct mr_redis_broker_options options = {.url = url};
    struct mr_broker *silent = NULL;
    assert_int_equal(mr_redis_broker_open(&options, &silent, NULL), MR_OK);
    assert_int_equal(take(scene->broker, node.node, 300), MR_EMPTY);
    struct mr_task_options task = {.priority_s = 1};
    put_task(silent, &task);
    assert_int_equal(take(scene->broker, node.node, 5000), MR_OK);
    mr_broker_close(silent);
}

static struct mr_req_beat beat(struct mr_broker *broker, uint64_t node)
{
    struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = node};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req;
}

static void
a_user_who_may_not_touch_the_cluster_works_without_a_leader_and_says_so_once(void **state)
{
    struct scene *scene = *state;
    struct refusals refusals = {0};
    char url[128];
    RIG(scene->server, "ACL", "SETUSER", "led", "on", ">x", "~asynq:{*", "~asynq:[^m]*",
        "~asynq:mr:[^c]*", "~asynq:mr:counts", "&*", "+@all");
    (void)snprintf(url, sizeof url, "redis://led:x@127.0.0.1:%u", (unsigned)scene->server->port);
    struct mr_redis_broker_options options = {
        .url = url, .refused = note_refusal, .refused_arg = &refusals};
    struct mr_broker *led = NULL;
    assert_int_equal(mr_redis_broker_open(&options, &led, NULL), MR_OK);
    struct mr_req_node_open node = open_node_for(led, 60000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(beat(led, node.node).term, 0);
    assert_int_equal(atomic_load(&refusals.n), 1);
    assert_non_null(strstr(refusals.texts[0], "NOPERM"));
    struct mr_req_node_list list = {.req.op = MR_OP_NODE_LIST};
    assert_int_equal(mr_broker_call(led, &list.req), MR_OK);
    assert_true(list.leader.incarnation == 0 && list.leader.leaderless_ms == 0);
    mr_req_done(&list.req);
    struct mr_req_queue_set set = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("q"),
                                   .setting = MR_QUEUE_PARTITIONS,
                                   .value = 4};
    assert_int_equal(mr_broker_call(led, &set.req), MR_OK);
    mr_req_done(&set.req);
    mr_broker_close(led);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    mr_lock_init(&said.lock);
    mr_diag_set_sink(note_line, NULL);
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_take_without_a_redis_says_so_when_its_wait_is_over),
        TEST(what_a_node_gave_up_while_redis_was_away_is_no_crash),
        TEST(a_task_whose_take_was_lost_with_its_answer_comes_back_before_its_lease_ends),
        TEST(a_lease_that_ended_is_found_behind_those_of_other_programs),
        TEST(what_an_older_millrace_has_in_hand_comes_back_when_its_lease_is_over),
        TEST(a_look_that_redis_comes_to_late_takes_nothing_away),
        TEST(an_end_that_is_asked_for_twice_where_its_task_never_was_stays_another_s),
        TEST(a_user_who_may_neither_wait_nor_listen_looks_once_a_second_and_says_why),
        TEST(a_worker_that_waits_finds_what_nobody_may_tell_of),
        TEST(a_user_who_may_not_touch_the_cluster_works_without_a_leader_and_says_so_once),
        TEST(a_worker_goes_on_when_redis_can_write_its_disk_again),
        TEST(a_beat_that_is_answered_with_an_error_ends_nothing),
        TEST(an_end_that_is_answered_with_an_error_is_said_again_when_that_is_mended),
        TEST(a_worker_that_stops_while_redis_is_away_waits_no_longer_than_its_drain_time),
        TEST(a_run_goes_on_while_redis_does_not_run_for_longer_than_its_lease),
    };
    const struct CMUnitTest of_clusters[] = {
        TEST(a_run_goes_on_while_the_node_of_its_queue_is_away),
    };
    if (is_cluster())
        return cmocka_run_group_tests(of_clusters, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
