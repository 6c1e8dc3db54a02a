/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Working on a Redis that other programs use as well: what our half leaves behind is what Asynq's programs
 * expect, and what they leave is worked on. What every engine does is the conformance suite's.
 */
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/redis_scene.h"

/* ---- what we leave -------------------------------------------------------------------------- */

static void a_plain_task_has_the_fields_of_asynq_and_no_other(void **state)
{
    struct scene *scene = *state;
    PUT_OK(scene, .id = MR_SLICE_LIT("a"), .payload = MR_SLICE_LIT("x"));
    assert_string_equal(RIG(server(), "HKEYS", Q "t:a"), "msg\nstate\npending_since");
    assert_string_equal(RIG(server(), "HGET", Q "t:a", "state"), "pending");
    assert_int_equal(strlen(RIG(server(), "HGET", Q "t:a", "pending_since")), 19);
    assert_string_equal(RIG(server(), "LRANGE", Q "pending", "0", "-1"), "a");
    assert_string_equal(RIG(server(), "SMEMBERS", "asynq:queues"), "default");
    assert_string_equal(RIG(server(), "KEYS", "*mr:*"), "");
}

static void a_run_goes_through_asynqs_places_and_leaves_its_counters(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    struct mr_lease *lease = take_id(scene, "a");
    assert_string_equal(RIG(server(), "HGET", Q "t:a", "state"), "active");
    assert_int_equal(RIG_INT(server(), "HEXISTS", Q "t:a", "pending_since"), 0);
    assert_string_equal(RIG(server(), "LRANGE", Q "active", "0", "-1"), "a");
    const char *ends = RIG(server(), "ZSCORE", Q "lease", "a");
    assert_null(strchr(ends, '.'));
    assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:a", Q "active", Q "lease"), 0);
    assert_string_equal(RIG(server(), "GET", Q "processed"), "1");
    const char *day = RIG(server(), "KEYS", Q "processed:*");
    assert_int_equal(strlen(day), strlen(Q "processed:2026-11-15"));
    assert_in_range(RIG_INT(server(), "TTL", day), 89 * 86400, 90 * 86400);
}

static void times_in_ms_stand_beside_whole_seconds(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"), .delay_ms = 3600500);
    int64_t due_ms = strtoll(RIG(server(), "ZSCORE", Q "mr:due", "a"), NULL, 10);
    int64_t due_s = strtoll(RIG(server(), "ZSCORE", Q "scheduled", "a"), NULL, 10);
    assert_int_equal(due_s, (due_ms + 999) / 1000);
    PUT_OK(scene, .id = MR_SLICE_LIT("b"));
    assert_int_equal(FINISH(scene, take_id(scene, "b"), .outcome = MR_FAIL, .delay_ms = 3600500),
                     MR_OK);
    due_ms = strtoll(RIG(server(), "ZSCORE", Q "mr:due", "b"), NULL, 10);
    due_s = strtoll(RIG(server(), "ZSCORE", Q "retry", "b"), NULL, 10);
    assert_int_equal(due_s, (due_ms + 999) / 1000);
}

static void a_text_that_is_not_utf_8_is_made_so(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    assert_int_equal(FINISH(scene, take_id(scene, "a"), .outcome = MR_FAIL_FOR_GOOD,
                            .error = MR_SLICE_LIT("bad \xff\xc3 byte for J\xc3\xbcrgen")),
                     MR_OK);
    const char *message = RIG(server(), "HGET", Q "t:a", "msg");
    assert_non_null(strstr(message, "bad ?? byte for J\xc3\xbcrgen"));
}

static void the_archive_keeps_as_many_as_it_is_told_and_counts_the_rest(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    static const char *const ids[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        PUT_OK(scene, .id = mr_slice_str(ids[i]));
        assert_int_equal(FINISH(scene, take_id(scene, ids[i]), .outcome = MR_FAIL_FOR_GOOD), MR_OK);
    }
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "archived"), 2);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:a", Q "t:b", Q "t:c"), 2);
    assert_string_equal(RIG(server(), "HGET", Q "mr:counts", "trimmed"), "1");
}

static void a_node_is_seen_as_a_server_of_asynqs_until_it_closes(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    const char *key = RIG(server(), "ZRANGE", "asynq:servers", "0", "-1");
    assert_in_range(RIG_INT(server(), "TTL", key), 5, 10);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:workers"), 1);
    struct mr_req_node_close req = {.req.op = MR_OP_NODE_CLOSE, .node = scene->node};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_string_equal(RIG(server(), "KEYS", "asynq:servers*"), "");
    assert_string_equal(RIG(server(), "KEYS", "asynq:*node*"), "");
}

/* ---- what is due ---------------------------------------------------------------------------- */

/* As many as there are, at once; their ids, one behind the other. */
static struct mr_lease *take_all(struct scene *scene, const char *ids)
{
    char got[64] = "";
    struct mr_req_take req = {
        .req.op = MR_OP_TAKE, .node = scene->node, .max = 50, .wait_ms = WAIT_MS};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (struct mr_lease *lease = req.leases; lease != NULL; lease = lease->next) {
        assert_int_equal(mr_broker_lease_open(scene->broker, lease), MR_OK);
        strncat(got, lease->task.id.data, lease->task.id.len);
    }
    assert_string_equal(got, ids);
    return req.leases;
}

static void finish_all(struct scene *scene, struct mr_lease *leases)
{
    enum { MOST = 50 };
    struct mr_finish items[MOST];
    enum mr_err errs[MOST];
    size_t n = 0;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next)
        items[n++] = (struct mr_finish){
            .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = items, .n = n, .errs = errs};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    while (n-- > 0)
        assert_int_equal(errs[n], MR_OK);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
}

static void await_past(int64_t due_ms)
{
    while (mr_wall_ms(mr_wall_now(mr_clock_system())) <= due_ms)
        RIG(server(), "PING");
}

static void what_is_due_goes_to_its_worker_without_becoming_pending(void **state)
{
    struct scene *scene = *state;
    int64_t at_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + 200;
    PUT_OK(scene, .id = MR_SLICE_LIT("c"), .at_ms = at_ms + 1);
    PUT_OK(scene, .id = MR_SLICE_LIT("b"), .at_ms = at_ms);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    await_past(at_ms + 1);
    RIG(server(), "CONFIG", "RESETSTAT");
    open_node(scene);
    struct mr_lease *leases = take_all(scene, "abc");
    assert_non_null(strstr(RIG(server(), "INFO", "commandstats"), "cmdstat_lpush:calls=1,"));
    assert_int_equal(leases->next->task.order_time_ms, at_ms);
    assert_int_equal(RIG_INT(server(), "HEXISTS", Q "t:b", "pending_since"), 0);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:due", Q "scheduled", Q "pending"), 0);
    finish_all(scene, leases);
    assert_string_equal(RIG(server(), "KEYS", Q "t:*"), "");
}

static void what_is_due_comes_by_its_time_among_what_is_pending(void **state)
{
    struct scene *scene = *state;
    int64_t at_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + 200;
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    PUT_OK(scene, .id = MR_SLICE_LIT("b"), .at_ms = at_ms);
    PUT_OK(scene, .id = MR_SLICE_LIT("c"), .at_ms = at_ms + 10, .priority_s = 0.005);
    PUT_OK(scene, .id = MR_SLICE_LIT("d"), .at_ms = at_ms + 8);
    await_past(at_ms + 10);
    PUT_OK(scene, .id = MR_SLICE_LIT("e"));
    open_node(scene);
    finish_all(scene, take_all(scene, "abcde"));
}

/* Most ends of a call are of the oldest runs, or of those behind so many of others; those that go on stay where they are. */
static void ends_behind(struct scene *scene, size_t others)
{
    static const char ids[] = "abcdefghijklmnopqrstuvwxyz";
    for (size_t i = 0; i < strlen(ids); i++)
        PUT_OK(scene, .id = mr_slice_make(ids + i, 1));
    struct mr_lease *leases = take_all(scene, ids);
    for (size_t i = 0; i < others; i++)
        RIG(server(), "RPUSH", Q "active", "other");
    struct mr_lease *ended = NULL, **stay = &leases;
    for (struct mr_lease *lease = leases, *next; lease != NULL; lease = next) {
        next = lease->next;
        if (strchr("cmxyz", *(const char *)lease->task.id.data) == NULL) {
            lease->next = ended;
            ended = lease;
        } else {
            *stay = lease;
            stay = &lease->next;
        }
    }
    *stay = NULL;
    finish_all(scene, ended);
    assert_string_equal(RIG(server(), "LRANGE", Q "active", "0", "4"), "z\ny\nx\nm\nc");
    finish_all(scene, leases);
    RIG(server(), "LREM", Q "active", "0", "other");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "active", Q "lease"), 0);
}

static void many_ends_at_once_leave_the_other_runs_in_their_order(void **state)
{
    static const size_t others[] = {
        0, 20, 60, 200}; /* in the first page, the next, and behind all that are read */
    open_node(*state);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ends_behind(*state, others[i]);
}

static void an_end_that_somebody_awaits_is_told_and_those_beside_it_end(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    PUT_OK(scene, .id = MR_SLICE_LIT("b"));
    struct mr_lease *leases = take_all(scene, "ab");
    RIG(server(), "ZADD", Q "mr:await", "4102444800000", "b");
    finish_all(scene, leases);
    assert_string_equal(RIG(server(), "KEYS", Q "mr:end:*"), Q "mr:end:b");
    assert_string_equal(RIG(server(), "KEYS", Q "t:*"), "");
    assert_string_equal(RIG(server(), "GET", Q "processed"), "2");
}

/* ---- what others leave ---------------------------------------------------------------------- */

/* The machine may stall any one try; whoever polls cannot be quick in any of them. */
static void a_push_of_another_program_wakes_who_waits(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    int64_t best_ms = WAIT_MS;
    for (int i = 0; i < 5; i++) {
        struct mr_req_take req = {
            .req.op = MR_OP_TAKE, .node = scene->node, .max = 1, .wait_ms = 30};
        assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_EMPTY);
        mr_req_done(&req.req);
        push_as_others("a");
        mr_mono since = mr_mono_now(mr_clock_system());
        struct mr_lease *lease = take_id(scene, "a");
        int64_t ms = elapsed_ms(since);
        best_ms = ms < best_ms ? ms : best_ms;
        assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
    }
    assert_true(best_ms < 50);
}

/* Producers of other programs say its name once and never again. */
static void a_queue_whose_name_is_gone_is_known_again_when_it_is_worked_on(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    assert_null(take(scene, 0));
    assert_string_equal(RIG(server(), "SMEMBERS", "asynq:queues"), "");
    push_as_others("a");
    RIG(server(), "DEL", "asynq:queues");
    struct mr_lease *lease = take_id(scene, "a");
    assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
    assert_string_equal(RIG(server(), "SMEMBERS", "asynq:queues"), "default");
}

static void what_another_program_scheduled_is_due_by_its_seconds(void **state)
{
    struct scene *scene = *state;
    char at[32];
    open_node(scene);
    put_as_others("a", "scheduled");
    int64_t now_s = strtoll(RIG(server(), "TIME"), NULL, 10);
    (void)snprintf(at, sizeof at, "%lld", (long long)now_s + 1);
    RIG(server(), "ZADD", Q "scheduled", at, "a");
    struct mr_lease *lease = take_id(scene, "a");
    assert_true(strtoll(RIG(server(), "TIME"), NULL, 10) > now_s);
    assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
}

static void what_another_program_moved_follows_it_and_not_our_index(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"), .delay_ms = 50);
    RIG(server(), "ZADD", Q "scheduled", "XX", "4102444800", "a");
    assert_null(take(scene, 200));
    assert_string_equal(RIG(server(), "ZSCORE", Q "scheduled", "a"), "4102444800");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:due"), 0);
}

static void who_took_a_task_over_keeps_it(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    for (int64_t retention_ms = 0; retention_ms <= 60000; retention_ms += 60000) {
        PUT_OK(scene, .id = MR_SLICE_LIT("a"), .retention_ms = retention_ms);
        struct mr_lease *lease = take_id(scene, "a");
        RIG(server(), "ZADD", Q "lease", "XX", "4102444800", "a");
        assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_STALE);
        assert_string_equal(RIG(server(), "HGET", Q "t:a", "state"), "active");
        assert_string_equal(RIG(server(), "LRANGE", Q "active", "0", "-1"), "a");
        RIG(server(), "DEL", Q "t:a", Q "active", Q "lease");
    }
}

static void an_id_without_a_hash_is_passed_over(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    RIG(server(), "LPUSH", Q "pending", "nothing", "nothing2");
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    assert_int_equal(FINISH(scene, take_id(scene, "a"), .outcome = MR_DONE), MR_OK);
    assert_string_equal(RIG(server(), "KEYS", Q "t:*"), "");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "active", Q "pending"), 0);
}

static void what_comes_back_beside_an_id_without_a_hash_keeps_its_place(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    PUT_OK(scene, .id = MR_SLICE_LIT("b"));
    PUT_OK(scene, .id = MR_SLICE_LIT("c"));
    struct mr_lease *a = take_id(scene, "a"), *b = take_id(scene, "b");
    RIG(server(), "LPUSH", Q "pending", "nothing");
    assert_int_equal(FINISH(scene, a, .outcome = MR_HAND_BACK), MR_OK);
    assert_int_equal(FINISH(scene, b, .outcome = MR_HAND_BACK), MR_OK);
    for (const char *id = "a\0b\0c\0"; *id != '\0'; id += 2)
        assert_int_equal(FINISH(scene, take_id(scene, id), .outcome = MR_DONE), MR_OK);
}

static void a_message_that_cannot_be_read_goes_to_the_archive(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    RIG(server(), "HSET", Q "t:bad", "msg", "\xff\xff\xff", "state", "pending");
    RIG(server(), "LPUSH", Q "pending", "bad");
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    assert_int_equal(FINISH(scene, take_id(scene, "a"), .outcome = MR_DONE), MR_OK);
    mr_mono since = mr_mono_now(mr_clock_system());
    while (RIG_INT(server(), "ZCARD", Q "archived") == 0)
        assert_true(elapsed_ms(since) < WAIT_MS);
    assert_string_equal(RIG(server(), "HGET", Q "t:bad", "state"), "archived");
}

static void a_message_of_another_task_goes_to_the_archive(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    put_as_others("a", "pending");
    RIG(server(), "RENAME", Q "t:a", Q "t:b");
    RIG(server(), "LPUSH", Q "pending", "b");
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    assert_int_equal(FINISH(scene, take_id(scene, "a"), .outcome = MR_DONE), MR_OK);
    mr_mono since = mr_mono_now(mr_clock_system());
    while (RIG_INT(server(), "ZCARD", Q "archived") == 0)
        assert_true(elapsed_ms(since) < WAIT_MS);
    assert_string_equal(RIG(server(), "HGET", Q "t:b", "state"), "archived");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "active", Q "lease", Q "t:a"), 0);
}

static enum mr_err take_err(struct scene *scene, int64_t wait_ms)
{
    struct mr_req_take req = {
        .req.op = MR_OP_TAKE, .node = scene->node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(scene->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* An error of one queue is told, with the words of Redis, and the queue is left alone for a while. */
static void a_key_of_a_wrong_type_stops_its_queue_only(void **state)
{
    struct scene *scene = *state;
    struct mr_worker_queue queues[] = {{.name = MR_SLICE_LIT("default"), .weight = 1},
                                       {.name = MR_SLICE_LIT("other"), .weight = 1}};
    RIG(server(), "SET", Q "pending", "oops");
    PUT_OK(scene, .id = MR_SLICE_LIT("a"), .queue = MR_SLICE_LIT("other"));
    PUT_OK(scene, .id = MR_SLICE_LIT("b"), .queue = MR_SLICE_LIT("other"));
    open_node_of(scene, queues, 2);
    assert_int_equal(FINISH(scene, take_id(scene, "a"), .outcome = MR_DONE), MR_OK);
    struct mr_lease *lease = take(scene, 0);
    assert_true(mr_slice_equal(lease->task.id, MR_SLICE_LIT("b")));
    assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
    assert_int_equal(take_err(scene, 0), MR_FAILED);
    assert_non_null(strstr(scene->refusal, "queue default: "));
    assert_non_null(strstr(scene->refusal, "WRONGTYPE"));
    atomic_store(&scene->refusals, 0);
    assert_int_equal(take_err(scene, 1000), MR_EMPTY);
    assert_true(atomic_load(&scene->refusals) <= 1);
    RIG(server(), "DEL", Q "pending");
    PUT_OK(scene, .id = MR_SLICE_LIT("c"));
    assert_int_equal(FINISH(scene, take_id(scene, "c"), .outcome = MR_DONE), MR_OK);
}

static void a_task_in_active_without_a_lease_comes_back(void **state)
{
    struct scene *scene = *state;
    put_as_others("orphan", "active");
    RIG(server(), "LPUSH", Q "active", "orphan");
    open_node(scene);
    assert_int_equal(FINISH(scene, take_id(scene, "orphan"), .outcome = MR_DONE), MR_OK);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "active"), 0);
}

static void an_old_task_without_a_lease_comes_back_from_behind_a_thousand_runs(void **state)
{
    struct scene *scene = *state;
    char soon[32]; /* the second look */
    put_as_others("orphan", "active");
    (void)snprintf(soon, sizeof soon, "%lld", strtoll(RIG(server(), "TIME"), NULL, 10) - 29);
    RIG(server(), "ZADD", Q "lease", "4102444800", "of no run", soon, "of none either");
    RIG(server(), "EVAL",
        "for i = 1, 2400 do if i == 1200 then redis.call('LPUSH', KEYS[1], 'orphan') end "
        "redis.call('LPUSH', KEYS[1], 'run' .. i) "
        "redis.call('ZADD', KEYS[2], 4102444800, 'run' .. i) end",
        "2", Q "active", Q "lease");
    open_node(scene);
    assert_int_equal(FINISH(scene, take_id(scene, "orphan"), .outcome = MR_DONE), MR_OK);
    assert_int_equal(RIG_INT(server(), "LLEN", Q "active"), 2400);
}

static void a_lease_of_what_does_not_run_moves_nothing(void **state)
{
    struct scene *scene = *state;
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    PUT_OK(scene, .id = MR_SLICE_LIT("later"), .delay_ms = 3600000);
    RIG(server(), "ZADD", Q "lease", "1000", "a", "1000", "later");
    open_node(scene);
    mr_mono since = mr_mono_now(mr_clock_system());
    while (RIG_INT(server(), "EXISTS", Q "lease") != 0)
        assert_true(elapsed_ms(since) < WAIT_MS);
    assert_int_equal(FINISH(scene, take_id(scene, "a"), .outcome = MR_DONE), MR_OK);
    assert_string_equal(RIG(server(), "HGET", Q "t:later", "state"), "scheduled");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "retry", Q "archived", Q "failed"), 0);
}

static void what_a_worker_of_another_program_lost_is_retried_as_asynq_does(void **state)
{
    struct scene *scene = *state;
    char ended[32];
    put_as_others("a", "active");
    RIG(server(), "LPUSH", Q "active", "a");
    (void)snprintf(ended, sizeof ended, "%lld", strtoll(RIG(server(), "TIME"), NULL, 10) - 31);
    RIG(server(), "ZADD", Q "lease", ended, "a");
    open_node(scene);
    mr_mono since = mr_mono_now(mr_clock_system());
    while (RIG_INT(server(), "EXISTS", Q "active") != 0)
        assert_true(elapsed_ms(since) < WAIT_MS);
    const char *task_state = RIG(server(), "HGET", Q "t:a", "state");
    assert_string_equal(task_state, "archived"); /* its message allows no retry */
    assert_non_null(strstr(RIG(server(), "HGET", Q "t:a", "msg"), "asynq: task lease expired"));
    assert_string_equal(RIG(server(), "GET", Q "failed"), "1");
}

/* The id of a task as a string, until the next one. */
static const char *id_of(const struct mr_lease *lease)
{
    static char id[MR_ID_MAX + 1];
    (void)snprintf(id, sizeof id, "%.*s", (int)lease->task.id.len,
                   (const char *)lease->task.id.data);
    return id;
}

static void cancel_until_told(struct scene *scene, const struct mr_lease *lease)
{
    mr_mono since = mr_mono_now(mr_clock_system());
    while (atomic_load(&scene->cancelled) == 0) {
        RIG(server(), "PUBLISH", "asynq:cancel", id_of(lease));
        assert_true(elapsed_ms(since) < WAIT_MS);
    }
    assert_int_equal(atomic_load(&scene->cancelled), lease->epoch);
}

static void a_wish_to_cancel_reaches_the_run(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    struct mr_lease *lease = take_id(scene, "a");
    cancel_until_told(scene, lease);
    assert_int_equal(FINISH(scene, lease, .outcome = MR_FAIL), MR_OK);
}

/* As two nodes of a Cluster may hand them out. */
static void open_node_of_two_with_one_epoch(struct scene *scene)
{
    static const struct mr_worker_queue queues[] = {{.name = MR_SLICE_LIT("a"), .weight = 1},
                                                    {.name = MR_SLICE_LIT("b"), .weight = 1}};
    RIG(server(), "SET", "asynq:{a}:mr:epoch", "4000000000000000");
    RIG(server(), "SET", "asynq:{b}:mr:epoch", "4000000000000000");
    open_node_of(scene, queues, 2);
}

static void runs_of_two_queues_differ_where_these_hand_out_the_same_epoch(void **state)
{
    struct scene *scene = *state;
    PUT_OK(scene, .queue = MR_SLICE_LIT("a"), .id = MR_SLICE_LIT("first"));
    PUT_OK(scene, .queue = MR_SLICE_LIT("b"), .id = MR_SLICE_LIT("second"));
    open_node_of_two_with_one_epoch(scene);
    struct mr_lease *one = take(scene, WAIT_MS), *other = take(scene, WAIT_MS);
    assert_non_null(one);
    assert_non_null(other);
    assert_int_not_equal(one->epoch, other->epoch);
    cancel_until_told(scene, other);
    assert_int_equal(other->task.crashes, 0);
    assert_int_equal(FINISH(scene, one, .outcome = MR_DONE), MR_OK);
    assert_int_equal(FINISH(scene, other, .outcome = MR_DONE), MR_OK);
    assert_string_equal(RIG(server(), "GET", "asynq:{a}:processed"), "1");
    assert_string_equal(RIG(server(), "GET", "asynq:{b}:processed"), "1");
}

/* What had to go back is asked for again: else an answer of several queues would lack some of one, and their shares with it. */
static void an_answer_is_whole_where_two_queues_hand_out_the_same_epochs(void **state)
{
    struct scene *scene = *state;
    PUT_OK(scene, .queue = MR_SLICE_LIT("a"), .id = MR_SLICE_LIT("1"));
    PUT_OK(scene, .queue = MR_SLICE_LIT("b"), .id = MR_SLICE_LIT("2"));
    PUT_OK(scene, .queue = MR_SLICE_LIT("a"), .id = MR_SLICE_LIT("3"));
    PUT_OK(scene, .queue = MR_SLICE_LIT("b"), .id = MR_SLICE_LIT("4"));
    open_node_of_two_with_one_epoch(scene);
    finish_all(scene, take_all(scene, "1234"));
}

/* ---- a full Redis --------------------------------------------------------------------------- */

enum { MANY = 1000 };

static void put_many(struct scene *scene)
{
    static struct mr_task_options tasks[MANY];
    static struct mr_enqueue_result results[MANY];
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = MANY, .results = results};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(results[i].err, MR_OK);
    mr_req_done(&req.req);
}

static void beat(struct scene *scene, uint64_t epoch)
{
    struct mr_progress progress = {.epoch = epoch, .percent = 50, .text = MR_SLICE_LIT("half")};
    struct mr_req_beat req = {
        .req.op = MR_OP_BEAT, .node = scene->node, .progress = &progress, .progress_n = 1};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

/* As if the message had come while nobody listened. Who wanted to delete it lets it run. */
static void a_wish_to_cancel_that_was_missed_is_heard_with_the_next_beat(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"));
    struct mr_lease *lease = take_id(scene, "a");
    RIG(server(), "HSET", Q "t:a", "mr:x", "1");
    beat(scene, lease->epoch);
    assert_int_equal(atomic_load(&scene->cancelled), 0);
    RIG(server(), "HSET", Q "t:a", "mr:x", "2");
    beat(scene, lease->epoch);
    assert_int_equal(atomic_load(&scene->cancelled), lease->epoch);
    assert_int_equal(FINISH(scene, lease, .outcome = MR_FAIL), MR_OK);
}

/* Its lease is renewed and its begin is known, also when Redis has no memory for that. The broker may renew it by itself before
 * we say how far it is. */
static void work_on(struct scene *scene, struct mr_lease *lease)
{
    const char *id = id_of(lease);
    char key[sizeof Q + MR_ID_MAX + 2];
    (void)snprintf(key, sizeof key, Q "t:%s", id);
    mr_mono since = mr_mono_now(mr_clock_system());
    char before[64];
    (void)snprintf(before, sizeof before, "%s", RIG(server(), "HGET", key, "mr:i"));
    mr_broker_begun(scene->broker, scene->first_slot, lease->epoch);
    while (RIG_INT(server(), "HEXISTS", key, "mr:b") == 0)
        assert_true(elapsed_ms(since) < WAIT_MS);
    while (strcmp(RIG(server(), "HGET", key, "mr:i"), before) == 0 ||
           RIG_INT(server(), "HEXISTS", key, "mr:g") == 0) {
        beat(scene, lease->epoch);
        assert_true(elapsed_ms(since) < WAIT_MS);
    }
    assert_string_equal(RIG(server(), "HGET", key, "mr:g"), "50 half");
}

/* Else every look at the nodes would ask for all that ever were. */
static void who_died_without_a_word_is_not_named_for_ever(void **state)
{
    static const char *const sets[] = {"asynq:servers", "asynq:workers", "asynq:mr:nodes"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        RIG(server(), "ZADD", sets[i], "1000", "asynq:dead");
    open_node(*state);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        assert_int_equal(RIG_INT(server(), "ZCARD", sets[i]), 1);
}

static void a_full_redis_refuses_new_work_and_is_worked_off(void **state)
{
    struct scene *scene = *state;
    put_many(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("fails"), .retention_ms = 60000);
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "1");
    assert_int_equal(put(scene, (struct mr_task_options){0}), MR_DISK_FULL);
    assert_non_null(strstr(scene->refusal, "the memory of this Redis is full (maxmemory)"));
    assert_null(strstr(scene->refusal, "script"));
    open_node(scene);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:servers"), 1);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:mr:nodes"), 1);
    struct mr_lease *lease = take(scene, WAIT_MS);
    assert_non_null(lease);
    work_on(scene, lease);
    mr_broker_begun(scene->broker, scene->first_slot, 0);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
        lease = take(scene, WAIT_MS);
        assert_non_null(lease);
    }
    assert_int_equal(FINISH(scene, lease, .outcome = MR_FAIL, .delay_ms = 50), MR_OK);
    assert_int_equal(FINISH(scene, take_id(scene, "fails"), .outcome = MR_DONE), MR_OK);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "pending", Q "active", Q "retry"), 0);
    assert_string_equal(RIG(server(), "GET", Q "processed"), "1002");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:counts", Q "archived"), 0);
    assert_int_equal(RIG_INT(server(), "HEXISTS", Q "t:fails", "mr:c"), 0);
    assert_int_equal(put(scene, (struct mr_task_options){0}), MR_DISK_FULL);
}

/* ---- costs ---------------------------------------------------------------------------------- */

/* The question itself too, and what scripts do. */
static int64_t commands(void)
{
    static const char name[] = "total_commands_processed:";
    return strtoll(strstr(RIG(server(), "INFO", "stats"), name) + strlen(name), NULL, 10);
}

enum { MANY_QUEUES = 64 };

static void open_node_of_many(struct scene *scene)
{
    static char names[MANY_QUEUES][16];
    struct mr_worker_queue queues[MANY_QUEUES];
    for (int i = 0; i < MANY_QUEUES; i++) {
        (void)snprintf(names[i], sizeof names[i], i > 0 ? "idle%d" : "default", i);
        queues[i] = (struct mr_worker_queue){.name = mr_slice_str(names[i]), .weight = 1};
    }
    open_node_of(scene, queues, MANY_QUEUES);
}

static void asks_little(struct scene *scene)
{
    enum { SECONDS = 5 };
    assert_null(take(scene, 1500)); /* what beginning has cost is not waiting */
    int64_t before = commands();
    assert_null(take(scene, SECONDS * 1000));
    assert_true(commands() - before - 1 < SECONDS * 5);
}

/* With something that is only kept, as nearly always. */
static void who_waits_asks_less_than_five_times_a_second(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("kept"), .retention_ms = 3600000);
    assert_int_equal(FINISH(scene, take_id(scene, "kept"), .outcome = MR_DONE), MR_OK);
    asks_little(scene);
}

static void who_waits_on_many_queues_asks_no_more_and_is_not_later(void **state)
{
    struct scene *scene = *state;
    char at[32];
    open_node_of_many(scene);
    asks_little(scene);
    put_as_others("a", "scheduled");
    int64_t now_s = strtoll(RIG(server(), "TIME"), NULL, 10);
    (void)snprintf(at, sizeof at, "%lld", (long long)now_s + 1);
    RIG(server(), "ZADD", Q "scheduled", at, "a");
    mr_mono since = mr_mono_now(mr_clock_system());
    struct mr_lease *lease = take_id(scene, "a");
    assert_true(elapsed_ms(since) < 4000);
    assert_int_equal(FINISH(scene, lease, .outcome = MR_DONE), MR_OK);
}
int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_plain_task_has_the_fields_of_asynq_and_no_other),
        TEST(a_run_goes_through_asynqs_places_and_leaves_its_counters),
        TEST(times_in_ms_stand_beside_whole_seconds),
        TEST(a_text_that_is_not_utf_8_is_made_so),
        TEST(the_archive_keeps_as_many_as_it_is_told_and_counts_the_rest),
        TEST(a_node_is_seen_as_a_server_of_asynqs_until_it_closes),
        TEST(what_is_due_goes_to_its_worker_without_becoming_pending),
        TEST(what_is_due_comes_by_its_time_among_what_is_pending),
        TEST(many_ends_at_once_leave_the_other_runs_in_their_order),
        TEST(an_end_that_somebody_awaits_is_told_and_those_beside_it_end),
        TEST(a_push_of_another_program_wakes_who_waits),
        TEST(a_queue_whose_name_is_gone_is_known_again_when_it_is_worked_on),
        TEST(what_another_program_scheduled_is_due_by_its_seconds),
        TEST(what_another_program_moved_follows_it_and_not_our_index),
        TEST(who_took_a_task_over_keeps_it),
        TEST(an_id_without_a_hash_is_passed_over),
        TEST(what_comes_back_beside_an_id_without_a_hash_keeps_its_place),
        TEST(a_message_that_cannot_be_read_goes_to_the_archive),
        TEST(a_message_of_another_task_goes_to_the_archive),
        TEST(a_key_of_a_wrong_type_stops_its_queue_only),
        TEST(a_task_in_active_without_a_lease_comes_back),
        TEST(an_old_task_without_a_lease_comes_back_from_behind_a_thousand_runs),
        TEST(a_lease_of_what_does_not_run_moves_nothing),
        TEST(what_a_worker_of_another_program_lost_is_retried_as_asynq_does),
        TEST(a_wish_to_cancel_reaches_the_run),
        TEST(a_wish_to_cancel_that_was_missed_is_heard_with_the_next_beat),
        TEST(runs_of_two_queues_differ_where_these_hand_out_the_same_epoch),
        TEST(an_answer_is_whole_where_two_queues_hand_out_the_same_epochs),
        TEST(who_died_without_a_word_is_not_named_for_ever),
        TEST(a_full_redis_refuses_new_work_and_is_worked_off),
        TEST(who_waits_asks_less_than_five_times_a_second),
        TEST(who_waits_on_many_queues_asks_no_more_and_is_not_later),
    };
    return run_scenes("redis: work", tests, sizeof tests / sizeof *tests);
}
