/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the suite: each request of the contract as one call that waits, answers kept until the
 * test ends, and the life of a test's store.
 */
#include "store/suite.h"

#include <stdio.h>

#include "support/look.h"

enum { KEPT_MAX = 1024, CUTS_PER_ANSWER = 2 };

/* An answer whose arena is freed with the test. Exactly one of the requests is used. */
struct suite_kept {
    struct suite_kept *next;
    union {
        struct mr_store_req head;
        struct mr_store_timer_get get;
        struct mr_store_firing_get firing_get;
        struct mr_store_due due;
        struct mr_store_timer_list list;
        struct mr_store_firing_list firings;
        struct mr_store_firing_open open;
        struct mr_store_lease_list leases;
        struct mr_store_server_list servers;
        struct mr_store_app_list apps;
        struct mr_store_stats stats;
        char any[KEPT_MAX];
    } req;
};

/* ---- running -------------------------------------------------------------------------------- */

void suite_open(struct suite *t, const struct mr_store_options *options)
{
    struct mr_store_options ours = options ? *options : (struct mr_store_options){0};
    struct mr_detail detail = {.text = ""};
    ours.url = t->url;
    enum mr_err err = mr_store_open(&ours, &t->store, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s: %s", t->url, mr_err_name(err), detail.text);
}

void suite_close(struct suite *t)
{
    mr_store_close(t->store);
    t->store = NULL;
}

void suite_reopen(struct suite *t)
{
    suite_close(t);
    suite_open(t, NULL);
}

int suite_setup(void **state)
{
    const struct suite_engine *engine = *state;
    struct suite *t = calloc(1, sizeof *t);
    if (t == NULL)
        return -1;
    t->engine = engine;
    engine->make(engine->arg, t->url);
    *state = t;
    suite_open(t, NULL);
    return 0;
}

void suite_forget(struct suite *t)
{
    while (t->kept != NULL) {
        struct suite_kept *kept = t->kept;
        t->kept = kept->next;
        mr_store_req_done(&kept->req.head);
        free(kept);
    }
}

int suite_teardown(void **state)
{
    struct suite *t = *state;
    mr_store_close(t->store);
    suite_forget(t);
    t->engine->remove(t->engine->arg);
    free(t);
    return 0;
}

int suite_run_theme(const struct suite_engine *engine, const char *theme, struct CMUnitTest *tests,
                    size_t n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s %s", engine->name, theme);
    for (size_t i = 0; i < n; i++)
        tests[i].initial_state = (void *)(uintptr_t)engine;
    return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}

int suite_main(const struct suite_engine *engine, int argc, char **argv)
{
    static int (*const themes[])(const struct suite_engine *) = {
        suite_apply,      suite_look,       suite_fire,      suite_set,           suite_leases,
        suite_subapps,    suite_commits,    suite_retain,    suite_schemas,       suite_golden,
        suite_faults,     suite_rivals,     suite_deaths,    suite_model,         suite_many,
        suite_jobs_load,  suite_jobs_run,   suite_jobs_look, suite_jobs_segments, suite_jobs_rivals,
        suite_jobs_model, suite_jobs_retry, suite_jobs_many,
    };
    int failed = 0;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof themes / sizeof themes[0]; i++)
        failed += themes[i](engine);
    return failed == 0 ? 0 : 1;
}

uint64_t suite_size(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

bool suite_judges_time(void)
{
    return getenv("MR_ALONE") != NULL;
}

/* ---- waiting -------------------------------------------------------------------------------- */

mr_mono suite_mono(void)
{
    return mr_mono_now(mr_clock_system());
}

int64_t suite_elapsed_ms(mr_mono since)
{
    return look_waited_ms(since);
}

void suite_look_again(mr_mono since, const char *what, const char *file, int line)
{
    if (!look_again(since, SUITE_WAIT_MS)) {
        print_error("%s:%d: waited in vain for %s\n", file, line, what);
        _fail(file, line);
    }
}

void suite_assert_err(enum mr_err actual, enum mr_err expected, const char *what, const char *file,
                      int line)
{
    if (actual == expected)
        return;
    print_error("%s:%d: %s is %s, not %s\n", file, line, what, mr_err_name(actual),
                mr_err_name(expected));
    _fail(file, line);
}

void suite_assert_slice(struct mr_slice actual, struct mr_slice expected, const char *what,
                        const char *file, int line)
{
    if (mr_slice_equal(actual, expected))
        return;
    print_error("%s:%d: %s is '%.*s', not '%.*s'\n", file, line, what, (int)actual.len,
                (const char *)actual.data, (int)expected.len, (const char *)expected.data);
    _fail(file, line);
}

static void *cut_on_and_on(void *arg)
{
    struct suite_cutter *cutter = arg;
    const struct suite_engine *engine = cutter->t->engine;
    uint64_t answered = 0;
    unsigned since = 0;
    while (!cutter->stop) {
        struct mr_store_counts counts;
        mr_store_counts(cutter->t->store, &counts);
        since = counts.requests != answered ? 0 : since;
        answered = counts.requests;
        if (since < CUTS_PER_ANSWER && engine->cut(engine->arg)) {
            since++;
            cutter->cuts++;
        }
    }
    return NULL;
}

void suite_cutter_start(struct suite_cutter *cutter, struct suite *t)
{
    memset(cutter, 0, sizeof *cutter);
    cutter->t = t;
    assert_err(mr_thread_start(&cutter->thread, "cutter", cut_on_and_on, cutter), MR_OK);
}

void suite_cutter_stop(struct suite_cutter *cutter)
{
    cutter->stop = true;
    mr_thread_join(cutter->thread);
}

/* ---- requests ------------------------------------------------------------------------------- */

struct mr_uuid suite_uid(unsigned number)
{
    struct mr_uuid uid = {{0}};
    uid.bytes[0] = 0x01;
    for (int i = 0; i < 4; i++)
        uid.bytes[15 - i] = (uint8_t)(number >> (8 * i));
    return uid;
}

static struct suite_kept *keep(struct suite *t, enum mr_store_op op)
{
    struct suite_kept *kept = calloc(1, sizeof *kept);
    assert_non_null(kept);
    kept->next = t->kept;
    t->kept = kept;
    kept->req.head.op = op;
    return kept;
}

/* What the store has to say for itself, when a request failed as a whole. */
static void tell_problem(struct suite *t, enum mr_err err)
{
    struct mr_detail line;
    if (err != MR_OK && mr_store_problem(t->store, &line) != MR_OK)
        print_error("the store says: %s\n", line.text);
}

static void call(struct suite *t, struct mr_store_req *req)
{
    enum mr_err err = mr_store_call(t->store, req);
    tell_problem(t, err);
    assert_err(err, MR_OK);
}

void suite_apply_all(struct suite *t, const struct mr_store_apply *items, size_t n,
                     struct mr_store_applied *results)
{
    struct mr_store_timers_apply apply = {
        .req.op = MR_STORE_TIMERS_APPLY, .items = items, .n = n, .results = results};
    call(t, &apply.req);
    mr_store_req_done(&apply.req);
}

struct mr_store_applied suite_apply_one(struct suite *t, struct mr_store_apply item)
{
    struct mr_store_applied result;
    suite_apply_all(t, &item, 1, &result);
    return result;
}

struct mr_store_applied suite_put(struct suite *t, struct mr_store_apply item)
{
    item.app = item.app.len > 0 ? item.app : MR_SLICE_LIT("a");
    item.name = item.name.len > 0 ? item.name : MR_SLICE_LIT("n");
    item.uid =
        memcmp(&item.uid, &(struct mr_uuid){{0}}, sizeof item.uid) != 0 ? item.uid : suite_uid(1);
    item.version = item.version > 0 ? item.version : 1;
    item.state = item.state != MR_ROW_NONE ? item.state : MR_ROW_ACTIVE;
    item.definition = item.definition.data != NULL ? item.definition : MR_SLICE_LIT("def");
    item.next_ms = item.next_ms != 0 ? item.next_ms : 1000;
    item.created_ms = item.created_ms != 0 ? item.created_ms : 500;
    return suite_apply_one(t, item);
}

static const struct mr_store_timer *get(struct suite *t, struct mr_store_timer_key key)
{
    struct mr_store_timer_get *get = &keep(t, MR_STORE_TIMER_GET)->req.get;
    get->keys = &key;
    get->n = 1;
    call(t, &get->req);
    return get->timers;
}

const struct mr_store_timer *suite_get(struct suite *t, const char *app, const char *name)
{
    return get(t,
               (struct mr_store_timer_key){.app = mr_slice_str(app), .name = mr_slice_str(name)});
}

const struct mr_store_timer *suite_get_uid(struct suite *t, unsigned number)
{
    return get(t, (struct mr_store_timer_key){.uid = suite_uid(number)});
}

enum mr_err suite_fire_all(struct suite *t, struct mr_store_fence fence,
                           const struct mr_store_fire *items, size_t n,
                           struct mr_store_fired *results)
{
    struct mr_store_fire_batch fire = {.req.op = MR_STORE_FIRE,
                                       .fence = fence,
                                       .app = MR_SLICE_LIT("a"),
                                       .items = items,
                                       .n = n,
                                       .results = results};
    enum mr_err err = mr_store_call(t->store, &fire.req);
    mr_store_req_done(&fire.req);
    return err;
}

struct mr_store_fired suite_fire_one(struct suite *t, struct mr_store_fire item)
{
    struct mr_store_fired result;
    enum mr_err err = suite_fire_all(t, (struct mr_store_fence){0}, &item, 1, &result);
    tell_problem(t, err);
    assert_err(err, MR_OK);
    return result;
}

struct mr_store_fired suite_fire_row(struct suite *t, struct mr_store_fire item)
{
    item.uid =
        memcmp(&item.uid, &(struct mr_uuid){{0}}, sizeof item.uid) != 0 ? item.uid : suite_uid(1);
    item.state = item.state != MR_LEDGER_NONE ? item.state : MR_LEDGER_WAITING;
    item.fired_ms = item.fired_ms != 0 ? item.fired_ms : 7;
    return suite_fire_one(t, item);
}

struct mr_store_set_result suite_set_one(struct suite *t, struct mr_store_set item)
{
    struct mr_store_set_result result;
    struct mr_store_firing_set set = {.req.op = MR_STORE_FIRING_SET,
                                      .app = MR_SLICE_LIT("a"),
                                      .items = &item,
                                      .n = 1,
                                      .results = &result};
    call(t, &set.req);
    mr_store_req_done(&set.req);
    return result;
}

const struct mr_store_firing *suite_firing(struct suite *t, unsigned number, int64_t planned_ms)
{
    struct mr_store_firing_get *get = &keep(t, MR_STORE_FIRING_GET)->req.firing_get;
    struct mr_store_firing_key key = {suite_uid(number), planned_ms};
    get->keys = &key;
    get->n = 1;
    call(t, &get->req);
    return get->firings;
}

struct mr_store_lease_result suite_lease_one(struct suite *t, struct mr_store_lease_item item)
{
    struct mr_store_lease_result result;
    struct mr_store_lease lease = {
        .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &result};
    call(t, &lease.req);
    mr_store_req_done(&lease.req);
    return result;
}

struct mr_store_req *suite_keep_call(struct suite *t, const struct mr_store_req *req, size_t size)
{
    struct suite_kept *kept = keep(t, req->op);
    assert_true(size <= KEPT_MAX);
    memcpy(&kept->req, req, size);
    call(t, &kept->req.head);
    return &kept->req.head;
}

#define KEPT_CALL(member, op_code, options)                                                        \
    struct suite_kept *kept = keep(t, op_code);                                                    \
    kept->req.member = (options);                                                                  \
    kept->req.head.op = (op_code);                                                                 \
    call(t, &kept->req.head);                                                                      \
    return &kept->req.member

struct mr_store_due *suite_due(struct suite *t, struct mr_store_due due)
{
    due.app = due.app.len > 0 ? due.app : MR_SLICE_LIT("a");
    KEPT_CALL(due, MR_STORE_DUE, due);
}

struct mr_store_timer_list *suite_list(struct suite *t, struct mr_store_timer_list list)
{
    KEPT_CALL(list, MR_STORE_TIMER_LIST, list);
}

struct mr_store_firing_list *suite_firing_list(struct suite *t, struct mr_store_firing_list list)
{
    KEPT_CALL(firings, MR_STORE_FIRING_LIST, list);
}

struct mr_store_firing_open *suite_firing_open(struct suite *t, struct mr_store_firing_open open)
{
    open.app = open.app.len > 0 ? open.app : MR_SLICE_LIT("a");
    KEPT_CALL(open, MR_STORE_FIRING_OPEN, open);
}

struct mr_store_lease_list *suite_lease_list(struct suite *t, struct mr_store_lease_list list)
{
    KEPT_CALL(leases, MR_STORE_LEASE_LIST, list);
}

struct mr_store_server_list *suite_server_list(struct suite *t, size_t max)
{
    KEPT_CALL(servers, MR_STORE_SERVER_LIST, (struct mr_store_server_list){.max = max});
}

struct mr_store_app_list *suite_app_list(struct suite *t, struct mr_store_app_list list)
{
    KEPT_CALL(apps, MR_STORE_APP_LIST, list);
}

struct mr_store_stats *suite_stats(struct suite *t)
{
    KEPT_CALL(stats, MR_STORE_STATS, (struct mr_store_stats){0});
}
