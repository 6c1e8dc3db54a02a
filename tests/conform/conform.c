/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the conformance suite: each request of the contract as one call that waits, answers
 * kept until the test ends, and the life of a test's broker.
 */
#include <stdio.h>

#include "broker/result.h"
#include "conform/conform.h"
#include "support/look.h"

enum { LEASE_LONG_MS = 600000, NODE_SLOTS = 16, NODE_QUEUES_MAX = 8 };

/* An answer whose arena is freed with the test. Exactly one of the requests is used. */
struct conform_kept {
    struct conform_kept *next;
    union {
        struct mr_req head;
        struct mr_req_get get;
        struct mr_req_list list;
        struct mr_req_node_list nodes;
    } req;
    char text[MR_ID_MAX + 1];
};

/* ---- running -------------------------------------------------------------------------------- */

int conform_setup(void **state)
{
    const struct conform_engine *engine = *state;
    struct conform *t = calloc(1, sizeof *t);
    if (t == NULL)
        return -1;
    t->engine = engine;
    enum mr_err err = engine->open(engine->arg, &t->broker);
    if (err != MR_OK) {
        print_error("%s: open: %s\n", engine->name, mr_err_name(err));
        free(t);
        return -1;
    }
    *state = t;
    return 0;
}

static void free_kept(struct conform *t)
{
    while (t->kept != NULL) {
        struct conform_kept *kept = t->kept;
        t->kept = kept->next;
        mr_req_done(&kept->req.head);
        free(kept);
    }
}

static void free_nodes(struct conform *t)
{
    while (t->nodes != NULL) {
        struct conform_node *node = t->nodes;
        t->nodes = node->next;
        mr_lock_done(&node->lock);
        free(node);
    }
}

int conform_teardown(void **state)
{
    struct conform *t = *state;
    if (t->broker != NULL)
        mr_broker_close(t->broker);
    free_kept(t);
    free_nodes(t);
    t->engine->clean(t->engine->arg);
    free(t);
    return 0;
}

static size_t left_out_n; /* tests and themes that were met and left out */

static bool is_left_out(const struct conform_engine *engine, const char *name)
{
    for (const struct conform_left_out *out = engine->left_out; out != NULL && out->test != NULL;
         out++) {
        if (strcmp(out->test, name) != 0)
            continue;
        print_message("left out: %s: %s\n", name, out->why);
        left_out_n++;
        return true;
    }
    return false;
}

int conform_run_theme(const struct conform_engine *engine, const char *theme,
                      struct CMUnitTest *tests, size_t n)
{
    char name[64];
    size_t kept = 0;
    if (is_left_out(engine, theme))
        return 0;
    (void)snprintf(name, sizeof name, "%s %s", engine->name, theme);
    for (size_t i = 0; i < n; i++) {
        if (is_left_out(engine, tests[i].name))
            continue;
        tests[kept] = tests[i];
        tests[kept++].initial_state = (void *)(uintptr_t)engine;
    }
    return kept > 0 ? _cmocka_run_group_tests(name, tests, kept, NULL, NULL) : 0;
}

size_t conform_many(size_t n)
{
    const char *text = getenv("MR_CONFORM_PART");
    size_t share = text != NULL ? strtoul(text, NULL, 10) : 1;
    return n / (share > 0 ? share : 1);
}

/* Those about hands and time come first: MR_QUICK runs no others. */
int conform_main(const struct conform_engine *engine, int argc, char **argv)
{
    enum { QUICK = 3 };
    static int (*const themes[])(const struct conform_engine *) = {
        conform_take,       conform_finish, conform_threads,    conform_enqueue, conform_limits,
        conform_unique,     conform_order,  conform_leases,     conform_control, conform_queues,
        conform_list,       conform_await,  conform_nodes,      conform_stats,   conform_scheduled,
        conform_groups,     conform_carry,  conform_results,    conform_backup,  conform_durability,
        conform_partitions, conform_leader, conform_ratelimits, conform_retries, conform_past,
        conform_addresses,  conform_inner,
    };
    size_t n = getenv("MR_QUICK") != NULL ? QUICK : sizeof themes / sizeof themes[0];
    int failed = 0;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < n; i++)
        failed += themes[i](engine);
    size_t named = 0;
    while (engine->left_out != NULL && engine->left_out[named].test != NULL)
        named++;
    if (n > QUICK && left_out_n != named) {
        print_error("%zu are to be left out, and %zu of them are there\n", named, left_out_n);
        failed++;
    }
    return failed == 0 ? 0 : 1;
}

/* ---- waiting -------------------------------------------------------------------------------- */

int64_t conform_wall_ms(void)
{
    return mr_wall_ms(mr_wall_now(mr_clock_system()));
}

mr_mono conform_mono(void)
{
    return mr_mono_now(mr_clock_system());
}

int64_t conform_elapsed_ms(mr_mono since)
{
    return look_waited_ms(since);
}

void conform_pass_ms(int64_t ms)
{
    struct mr_event never;
    mr_event_init(&never);
    mr_mono since = conform_mono();
    while (conform_elapsed_ms(since) < ms)
        (void)mr_event_wait(&never, ms * MR_NS_PER_MS - (conform_mono().ns - since.ns));
}

void conform_look_again(mr_mono since, const char *what, const char *file, int line)
{
    if (!look_again(since, CONFORM_WAIT_MS)) {
        print_error("waited in vain for: %s\n", what);
        _fail(file, line);
    }
}

/* ---- assertions ----------------------------------------------------------------------------- */

void conform_assert_err(enum mr_err actual, enum mr_err expected, const char *what,
                        const char *file, int line)
{
    if (actual == expected)
        return;
    print_error("%s: %s, expected %s\n", what, mr_err_name(actual), mr_err_name(expected));
    _fail(file, line);
}

void conform_assert_slice(struct mr_slice actual, struct mr_slice expected, const char *what,
                          const char *file, int line)
{
    if (mr_slice_equal(actual, expected))
        return;
    print_error("%s: \"%.*s\" (%zu bytes), expected \"%.*s\" (%zu bytes)\n", what,
                (int)(actual.len > 60 ? 60 : actual.len), (const char *)actual.data, actual.len,
                (int)(expected.len > 60 ? 60 : expected.len), (const char *)expected.data,
                expected.len);
    _fail(file, line);
}

/* ---- producing ------------------------------------------------------------------------------ */

void conform_put_all(struct conform *t, const struct mr_task_options *tasks, size_t n,
                     struct mr_enqueue_result *results)
{
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = n, .results = results};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

struct mr_enqueue_result conform_put_one(struct conform *t, const struct mr_task_options *task)
{
    struct mr_enqueue_result result = {.err = MR_FAILED};
    conform_put_all(t, task, 1, &result);
    return result;
}

static struct conform_kept *keep(struct conform *t)
{
    struct conform_kept *kept = calloc(1, sizeof *kept);
    assert_non_null(kept);
    kept->next = t->kept;
    t->kept = kept;
    return kept;
}

const char *conform_put_ok(struct conform *t, const struct mr_task_options *task)
{
    struct mr_enqueue_result result = conform_put_one(t, task);
    assert_err(result.err, MR_OK);
    struct conform_kept *kept = keep(t);
    memcpy(kept->text, result.id, sizeof kept->text);
    return kept->text;
}

static void put_in_turn(struct conform *t, const char *queue, const char *prefix, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char id[MR_ID_MAX + 1];
        (void)snprintf(id, sizeof id, "%s%zu", prefix, i);
        struct mr_task_options task = {.queue = mr_slice_str(queue), .id = mr_slice_str(id)};
        assert_err(conform_put_one(t, &task).err, MR_OK);
    }
}

/* Of more than a batch nobody asks for the order, but for which is the first. */
void conform_put_many(struct conform *t, const char *queue, const char *prefix, size_t n)
{
    if (t->engine->splits_batches && n <= MR_BATCH_MAX) {
        put_in_turn(t, queue, prefix, n);
        return;
    }
    static struct mr_task_options tasks[MR_BATCH_MAX];
    static struct mr_enqueue_result results[MR_BATCH_MAX];
    static char ids[MR_BATCH_MAX][MR_ID_MAX + 1];
    size_t first = t->engine->splits_batches ? 1 : 0;
    put_in_turn(t, queue, prefix, first);
    for (size_t sent = first; sent < n;) {
        size_t batch = n - sent < MR_BATCH_MAX ? n - sent : MR_BATCH_MAX;
        for (size_t i = 0; i < batch; i++) {
            (void)snprintf(ids[i], sizeof ids[i], "%s%zu", prefix, sent + i);
            tasks[i] =
                (struct mr_task_options){.queue = mr_slice_str(queue), .id = mr_slice_str(ids[i])};
        }
        conform_put_all(t, tasks, batch, results);
        for (size_t i = 0; i < batch; i++)
            assert_err(results[i].err, MR_OK);
        sent += batch;
    }
}

/* ---- nodes ---------------------------------------------------------------------------------- */

void conform_node_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct conform_node *node = arg;
    mr_lock_enter(&node->lock);
    if (node->stops_n < CONFORM_STOPS_MAX) {
        node->stops[node->stops_n].epoch = epoch;
        node->stops[node->stops_n].reason = reason;
        node->stops_n++;
    }
    mr_lock_leave(&node->lock);
}

bool conform_was_stopped(struct conform_node *node, uint64_t epoch, enum mr_stop_reason reason)
{
    bool found = false;
    mr_lock_enter(&node->lock);
    for (size_t i = 0; i < node->stops_n; i++)
        found |= node->stops[i].epoch == epoch && node->stops[i].reason == reason;
    mr_lock_leave(&node->lock);
    return found;
}

/* Reads "a=6 b=3 c" into queues; answers how many. */
static size_t parse_queues(const char *text, struct mr_worker_queue *queues)
{
    size_t n = 0;
    while (*text != '\0') {
        assert_true(n < NODE_QUEUES_MAX);
        size_t len = strcspn(text, "= ");
        queues[n] = (struct mr_worker_queue){.name = mr_slice_make(text, len)};
        text += len;
        if (*text == '=') {
            char *end;
            queues[n].weight = (uint32_t)strtoul(text + 1, &end, 10);
            text = end;
        }
        text += strspn(text, " ");
        n++;
    }
    return n;
}

struct conform_node *conform_node_open(struct conform *t, const struct conform_node_options *o)
{
    struct conform_node *node = calloc(1, sizeof *node);
    assert_non_null(node);
    mr_lock_init(&node->lock);
    node->next = t->nodes;
    t->nodes = node;
    struct mr_worker_queue queues[NODE_QUEUES_MAX], patterns[NODE_QUEUES_MAX];
    struct mr_slice types[NODE_QUEUES_MAX];
    char names[NODE_QUEUES_MAX][MR_NAME_MAX + 1];
    const char *listed = o->topics != NULL ? o->topics : o->queues != NULL ? o->queues : "default";
    size_t queues_n = parse_queues(listed, queues);
    for (size_t i = 0; o->topics != NULL && i < queues_n; i++)
        queues[i].name = mr_result_queue(queues[i].name, names[i]);
    size_t types_n = parse_queues(o->types != NULL ? o->types : "", patterns);
    for (size_t i = 0; i < types_n; i++)
        types[i] = patterns[i].name;
    struct mr_req_node_open req = {
        .req.op = MR_OP_NODE_OPEN,
        .role = o->topics != NULL ? MR_NODE_MASTER : MR_NODE_WORKER,
        .name = mr_slice_str(o->name != NULL ? o->name : "node"),
        .queues = queues,
        .queues_n = queues_n,
        .order = o->order,
        .types = types,
        .types_n = types_n,
        .slots = o->topics != NULL ? 0
                 : o->slots != 0   ? o->slots
                                   : NODE_SLOTS,
        .lease_ms = o->lease_ms != 0 ? o->lease_ms : LEASE_LONG_MS,
        .fall_ms = o->fall_ms,
        .leads = o->leader_ms != 0,
        .inner = o->inner,
        .leader_ms = o->leader_ms,
        .events = {.stop = conform_node_stop, .arg = node},
    };
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    node->node = req.node;
    node->first_slot = req.first_slot;
    mr_req_done(&req.req);
    return node;
}

enum mr_err conform_node_close(struct conform *t, const struct conform_node *node)
{
    struct mr_req_node_close req = {.req.op = MR_OP_NODE_CLOSE, .node = node->node};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

enum mr_err conform_beat(struct conform *t, const struct conform_node *node)
{
    struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = node->node};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* ---- taking --------------------------------------------------------------------------------- */

static void take_done(struct mr_req *req)
{
    struct conform_take *take = req->arg;
    take->done_at = conform_mono();
    mr_event_set(&take->done);
}

void conform_take_submit(struct conform *t, struct conform_take *take)
{
    take->req.req = (struct mr_req){.op = MR_OP_TAKE, .done = take_done, .arg = take};
    mr_event_init(&take->done);
    mr_broker_submit(t->broker, &take->req.req);
}

void conform_take_start(struct conform *t, struct conform_take *take,
                        const struct conform_node *node, size_t max, int64_t wait_ms)
{
    *take = (struct conform_take){.req = {.node = node->node, .max = max, .wait_ms = wait_ms}};
    conform_take_submit(t, take);
}

enum mr_err conform_take_end(struct conform *t, struct conform_take *take)
{
    bool answered = mr_event_wait(&take->done, CONFORM_WAIT_MS * MR_NS_PER_MS);
    assert_true(answered);
    enum mr_err err = take->req.req.err;
    size_t n = 0;
    for (struct mr_lease *lease = err == MR_OK ? take->req.leases : NULL; lease != NULL;
         lease = lease->next, n++)
        assert_err(mr_broker_lease_open(t->broker, lease), MR_OK);
    if (err == MR_OK) {
        assert_int_equal(n, take->req.n);
        assert_in_range(n, 1, take->req.max);
    }
    mr_req_done(&take->req.req);
    return err;
}

struct mr_lease *conform_take_list(struct conform *t, const struct conform_node *node, size_t max,
                                   int64_t wait_ms, size_t *ret_n)
{
    struct conform_take take;
    conform_take_start(t, &take, node, max, wait_ms);
    enum mr_err err = conform_take_end(t, &take);
    *ret_n = err == MR_OK ? take.req.n : 0;
    if (err == MR_EMPTY)
        return NULL;
    assert_err(err, MR_OK);
    return take.req.leases;
}

struct mr_lease *conform_take_one(struct conform *t, const struct conform_node *node)
{
    size_t n;
    struct mr_lease *lease = conform_take_list(t, node, 1, CONFORM_WAIT_MS / 2, &n);
    assert_non_null(lease);
    return lease;
}

void conform_take_none(struct conform *t, const struct conform_node *node)
{
    size_t n;
    assert_null(conform_take_list(t, node, 1, 0, &n));
}

struct mr_lease *conform_take_id(struct conform *t, const struct conform_node *node, const char *id)
{
    struct mr_lease *lease = conform_take_one(t, node);
    assert_slice(lease->task.id, id);
    return lease;
}

/* ---- finishing ------------------------------------------------------------------------------ */

static void finish_all(struct conform *t, const struct mr_finish *items, size_t n,
                       enum mr_err *errs)
{
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = items, .n = n, .errs = errs};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

enum mr_err conform_finish_one(struct conform *t, const struct mr_lease *lease,
                               struct mr_finish item)
{
    enum mr_err err = MR_FAILED;
    item.id = lease->task.id;
    item.epoch = lease->epoch;
    item.ref = lease->ref;
    finish_all(t, &item, 1, &err);
    return err;
}

void conform_finish_ok(struct conform *t, struct mr_lease *lease, struct mr_finish item,
                       const char *file, int line)
{
    conform_assert_err(conform_finish_one(t, lease, item), MR_OK, "finish", file, line);
    mr_lease_free(lease);
}

void conform_finish_list(struct conform *t, struct mr_lease *leases, enum mr_outcome outcome)
{
    static struct mr_finish items[MR_BATCH_MAX];
    static enum mr_err errs[MR_BATCH_MAX];
    size_t n = 0;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next, n++) {
        assert_true(n < MR_BATCH_MAX);
        items[n] = (struct mr_finish){
            .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = outcome};
    }
    finish_all(t, items, n, errs);
    for (size_t i = 0; i < n; i++)
        assert_err(errs[i], MR_OK);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
}

/* ---- looking and acting --------------------------------------------------------------------- */

const struct mr_task *conform_get(struct conform *t, const char *id)
{
    struct conform_kept *kept = keep(t);
    struct mr_req_get *req = &kept->req.get;
    req->req.op = MR_OP_GET;
    req->id = mr_slice_str(id);
    enum mr_err err = mr_broker_call(t->broker, &req->req);
    if (err == MR_NOT_FOUND)
        return NULL;
    assert_err(err, MR_OK);
    return &req->task;
}

enum mr_state conform_state(struct conform *t, const char *id)
{
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    enum mr_state state = err == MR_OK ? req.task.state : MR_STATE_NONE;
    mr_req_done(&req.req);
    if (err != MR_NOT_FOUND)
        assert_err(err, MR_OK);
    return state;
}

const struct mr_req_node_list *conform_node_list(struct conform *t)
{
    struct mr_req_node_list *req = &keep(t)->req.nodes;
    req->req.op = MR_OP_NODE_LIST;
    assert_err(mr_broker_call(t->broker, &req->req), MR_OK);
    return req;
}

const struct mr_node_info *conform_list_nodes(struct conform *t, size_t *ret_n)
{
    const struct mr_req_node_list *req = conform_node_list(t);
    *ret_n = req->n;
    return req->nodes;
}

enum mr_err conform_act(struct conform *t, enum mr_verb verb, const char *id, double value)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id), .value = value};
    enum mr_err err = MR_FAILED;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return err;
}

struct conform_page conform_list_page(struct conform *t, const struct mr_list_options *options)
{
    struct conform_kept *kept = keep(t);
    struct mr_req_list *req = &kept->req.list;
    req->req.op = MR_OP_LIST;
    req->options = *options;
    enum mr_err err = mr_broker_call(t->broker, &req->req);
    return (struct conform_page){
        .err = err, .tasks = req->tasks, .n = err == MR_OK ? req->n : 0, .next = req->next};
}

enum mr_err conform_queue_get(struct conform *t, const char *queue, struct mr_queue_info *info)
{
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = mr_slice_str(queue), .infos = info, .max = 1};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    if (err == MR_OK)
        assert_int_equal(req.n, 1);
    mr_req_done(&req.req);
    return err;
}

struct mr_queue_info conform_queue(struct conform *t, const char *queue)
{
    struct mr_queue_info info;
    memset(&info, 0, sizeof info);
    assert_err(conform_queue_get(t, queue, &info), MR_OK);
    assert_string_equal(info.name, queue);
    return info;
}

enum mr_err conform_queue_set(struct conform *t, const char *queue, enum mr_queue_setting setting,
                              uint64_t value)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(queue),
                                   .setting = setting,
                                   .value = value};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

enum mr_err conform_queue_remove(struct conform *t, const char *queue,
                                 enum mr_queue_remove_mode mode)
{
    struct mr_req_queue_remove req = {
        .req.op = MR_OP_QUEUE_REMOVE, .queue = mr_slice_str(queue), .mode = mode};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

struct mr_stats conform_stats_now(struct conform *t)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats;
}

void conform_reopen(struct conform *t)
{
    mr_broker_close(t->broker);
    t->broker = NULL;
    assert_err(t->engine->reopen(t->engine->arg, &t->broker), MR_OK);
}

/* Takes the task, which must be the only one waiting in "default", and ends its run so. */
static void take_and_finish(struct conform *t, const char *id, struct mr_finish item)
{
    struct conform_node *node = NODE(t, .name = "maker");
    struct mr_lease *lease = conform_take_id(t, node, id);
    assert_err(conform_finish_one(t, lease, item), MR_OK);
    mr_lease_free(lease);
    assert_err(conform_node_close(t, node), MR_OK);
}

void conform_make_state(struct conform *t, const char *id, enum mr_state state)
{
    (void)PUT_OK(t, .id = mr_slice_str(id), .retention_ms = 3600000,
                 .delay_ms = state == MR_SCHEDULED ? 3600000 : 0,
                 .group = mr_slice_str(state == MR_AGGREGATING ? "group" : ""));
    switch (state) {
    case MR_ACTIVE:
        mr_lease_free(conform_take_id(t, NODE(t, .name = "holder"), id));
        break;
    case MR_RETRY:
        take_and_finish(t, id,
                        (struct mr_finish){.outcome = MR_FAIL,
                                           .delay_ms = 3600000,
                                           .error = MR_SLICE_LIT("not yet")});
        break;
    case MR_ARCHIVED:
        take_and_finish(
            t, id,
            (struct mr_finish){.outcome = MR_FAIL_FOR_GOOD, .error = MR_SLICE_LIT("for good")});
        break;
    case MR_COMPLETED:
        take_and_finish(t, id,
                        (struct mr_finish){.outcome = MR_DONE, .result = MR_SLICE_LIT("result")});
        break;
    default:
        break;
    }
    assert_int_equal(conform_state(t, id), state);
}
