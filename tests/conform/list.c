/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: lists. Each set in its own order, page by page, also while it changes. */
#include <stdio.h>

#include "conform/conform.h"

/* Asserts that the list of a state is exactly these ids. */
static void check_list(struct conform *t, enum mr_state state, const char *const *ids, size_t n)
{
    struct conform_page page = PAGE(t, .queue = MR_SLICE_LIT("default"), .state = state);
    assert_err(page.err, MR_OK);
    assert_int_equal(page.n, n);
    assert_string_equal(page.next, "");
    for (size_t i = 0; i < n; i++) {
        assert_slice(page.tasks[i].id, ids[i]);
        assert_int_equal(page.tasks[i].state, state);
    }
}

static void pending_is_listed_by_order_time(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("c"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .priority_s = 20);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("d"), .priority_s = -20);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"), .priority_s = 10);
    static const char *const ids[] = {"a", "b", "c", "d"};
    check_list(t, MR_PENDING, ids, 4);
}

static void scheduled_is_listed_by_due_time(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"), .delay_ms = 7200000);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .delay_ms = 3600000);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("c"), .delay_ms = 9000000, .priority_s = 9000);
    static const char *const ids[] = {"a", "b", "c"};
    check_list(t, MR_SCHEDULED, ids, 3);
}

static void retry_is_listed_by_due_time_and_ends_by_their_time(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    static const struct {
        const char *id;
        struct mr_finish end;
    } runs[] = {
        {"r2", {.outcome = MR_FAIL, .delay_ms = 7200000}},
        {"r1", {.outcome = MR_FAIL, .delay_ms = 3600000}},
        {"a1", {.outcome = MR_FAIL_FOR_GOOD}},
        {"c1", {.outcome = MR_DONE}},
        {"a2", {.outcome = MR_FAIL_FOR_GOOD}},
        {"c2", {.outcome = MR_DONE}},
    };
    for (size_t i = 0; i < 6; i++) {
        (void)PUT_OK(t, .id = mr_slice_str(runs[i].id), .retention_ms = 3600000);
        struct mr_lease *lease = conform_take_id(t, node, runs[i].id);
        int64_t before_ms = conform_wall_ms();
        assert_err(conform_finish_one(t, lease, runs[i].end), MR_OK);
        mr_lease_free(lease);
        WAIT_UNTIL(conform_wall_ms() > before_ms + 1);
    }
    static const char *const retry[] = {"r1", "r2"}, *const archived[] = {"a1", "a2"},
                             *const completed[] = {"c1", "c2"};
    check_list(t, MR_RETRY, retry, 2);
    check_list(t, MR_ARCHIVED, archived, 2);
    check_list(t, MR_COMPLETED, completed, 2);
}

static void active_tasks_are_listed_with_their_node(void **state)
{
    struct conform *t = *state;
    conform_make_state(t, "x", MR_ACTIVE);
    struct conform_page page = PAGE(t, .state = MR_ACTIVE);
    assert_err(page.err, MR_OK);
    assert_int_equal(page.n, 1);
    assert_slice(page.tasks[0].node, "holder");
    assert_true(page.tasks[0].epoch > 0);
}

/* Marks t0, t1, ... of a page as seen; nothing may be seen twice. */
static void mark(const struct conform_page *page, bool *seen, size_t n)
{
    for (size_t i = 0; i < page->n; i++) {
        char id[16] = {0};
        assert_true(page->tasks[i].id.len < sizeof id);
        memcpy(id, page->tasks[i].id.data, page->tasks[i].id.len);
        if (id[0] != 't')
            continue;
        size_t at = strtoul(id + 1, NULL, 10);
        assert_true(at < n);
        assert_false(seen[at]);
        seen[at] = true;
    }
}

static void pages_over_1000_entries_miss_and_repeat_nothing(void **state)
{
    struct conform *t = *state;
    enum { N = 1000 };
    conform_put_many(t, "default", "t", N);
    static const size_t limits[] = {1000, 7, 0, 333};
    for (size_t l = 0; l < 4; l++) {
        bool seen[N] = {false};
        char cursor[MR_CURSOR_MAX] = "";
        size_t total = 0;
        do {
            struct conform_page page =
                PAGE(t, .queue = MR_SLICE_LIT("default"), .state = MR_PENDING, .limit = limits[l],
                     .cursor = cursor[0] != '\0' ? cursor : NULL);
            assert_err(page.err, MR_OK);
            assert_true(page.n <= (limits[l] == 0 ? 50 : limits[l]));
            mark(&page, seen, N);
            total += page.n;
            (void)snprintf(cursor, sizeof cursor, "%s", page.next);
        } while (cursor[0] != '\0');
        assert_int_equal(total, N);
    }
}

/* What is there from the first page to the last is listed exactly once, whatever comes and goes. */
static void pages_stay_true_while_the_set_changes(void **state)
{
    struct conform *t = *state;
    enum { N = 1000, PAGE_N = 50 };
    conform_put_many(t, "default", "t", N);
    bool seen[N] = {false}, gone[N] = {false};
    char cursor[MR_CURSOR_MAX] = "";
    unsigned step = 0;
    do {
        struct conform_page page =
            PAGE(t, .queue = MR_SLICE_LIT("default"), .state = MR_PENDING, .limit = PAGE_N,
                 .cursor = cursor[0] != '\0' ? cursor : NULL);
        assert_err(page.err, MR_OK);
        mark(&page, seen, N);
        (void)snprintf(cursor, sizeof cursor, "%s", page.next);
        for (unsigned i = 0; i < 10; i++) {
            char id[16];
            size_t victim = (step * 97 + i * 131) % N;
            (void)snprintf(id, sizeof id, "t%zu", victim);
            if (!gone[victim])
                assert_err(conform_act(t, MR_VERB_DELETE, id, 0), MR_OK);
            gone[victim] = true;
            (void)snprintf(id, sizeof id, "new%u-%u", step, i);
            (void)PUT_OK(t, .id = mr_slice_str(id), .priority_s = i % 2 == 0 ? 100 : 0);
        }
        /* The entry the cursor stands on may be the one that goes. */
        if (page.n > 0) {
            char last[16] = {0};
            memcpy(last, page.tasks[page.n - 1].id.data, page.tasks[page.n - 1].id.len);
            if (conform_act(t, MR_VERB_DELETE, last, 0) == MR_OK && last[0] == 't')
                gone[strtoul(last + 1, NULL, 10)] = true;
        }
        assert_true(++step < 200);
    } while (cursor[0] != '\0');
    for (size_t i = 0; i < N; i++)
        assert_true(seen[i] || gone[i]);
}

static void filters_by_queue_state_and_type_combine(void **state)
{
    struct conform *t = *state;
    static const char *const queues[] = {"q1", "q2"}, *const types[] = {"mail", "sms"};
    for (size_t i = 0; i < 40; i++)
        (void)PUT_OK(t, .queue = mr_slice_str(queues[i % 2]),
                     .type = mr_slice_str(types[i / 2 % 2]),
                     .delay_ms = i / 4 % 2 == 0 ? 0 : 3600000);
    assert_int_equal(PAGE(t, .limit = 100).n, 40);
    assert_int_equal(PAGE(t, .limit = 100, .queue = MR_SLICE_LIT("q1")).n, 20);
    assert_int_equal(PAGE(t, .limit = 100, .state = MR_PENDING).n, 20);
    assert_int_equal(PAGE(t, .limit = 100, .type = MR_SLICE_LIT("sms")).n, 20);
    struct conform_page page =
        PAGE(t, .queue = MR_SLICE_LIT("q2"), .type = MR_SLICE_LIT("mail"), .state = MR_SCHEDULED);
    assert_int_equal(page.n, 5);
    for (size_t i = 0; i < page.n; i++) {
        assert_slice(page.tasks[i].queue, "q2");
        assert_slice(page.tasks[i].type, "mail");
        assert_int_equal(page.tasks[i].state, MR_SCHEDULED);
    }
    assert_int_equal(PAGE(t, .type = MR_SLICE_LIT("none")).n, 0);
}

static void pages_over_all_queues_and_states_are_complete(void **state)
{
    struct conform *t = *state;
    enum { N = 300 };
    for (size_t i = 0; i < N; i++) {
        char id[16], queue[16];
        (void)snprintf(id, sizeof id, "t%zu", i);
        (void)snprintf(queue, sizeof queue, "q%zu", i % 5);
        (void)PUT_OK(t, .id = mr_slice_str(id), .queue = mr_slice_str(queue),
                     .type = i % 3 == 0 ? MR_SLICE_LIT("rare") : MR_SLICE_LIT("often"),
                     .delay_ms = i % 2 == 0 ? 3600000 : 0);
    }
    static const char *const filters[] = {"", "rare"};
    for (size_t f = 0; f < 2; f++) {
        bool seen[N] = {false};
        char cursor[MR_CURSOR_MAX] = "";
        size_t total = 0;
        do {
            struct conform_page page = PAGE(t, .limit = 7, .type = mr_slice_str(filters[f]),
                                            .cursor = cursor[0] != '\0' ? cursor : NULL);
            assert_err(page.err, MR_OK);
            mark(&page, seen, N);
            total += page.n;
            (void)snprintf(cursor, sizeof cursor, "%s", page.next);
        } while (cursor[0] != '\0');
        assert_int_equal(total, f == 0 ? N : N / 3);
    }
}

/* The page goes on behind a queue that is no longer there, without losing any of the next one. */
static void a_cursor_outlives_its_queue(void **state)
{
    struct conform *t = *state;
    for (int i = 0; i < 4; i++)
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q1"), .delay_ms = 7200000);
    for (int i = 0; i < 4; i++)
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q2"), .delay_ms = 3600000);
    struct conform_page page = PAGE(t, .limit = 2);
    assert_int_equal(page.n, 2);
    assert_slice(page.tasks[0].queue, "q1");
    assert_err(conform_queue_remove(t, "q1", MR_QUEUE_REMOVE_FORCE), MR_OK);
    page = PAGE(t, .limit = 100, .cursor = page.next);
    assert_err(page.err, MR_OK);
    assert_int_equal(page.n, 4);
    for (size_t i = 0; i < page.n; i++)
        assert_slice(page.tasks[i].queue, "q2");
}

static void payloads_are_listed_only_on_demand(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .payload = MR_SLICE_LIT("bytes"));
    assert_int_equal(PAGE(t, .state = MR_PENDING).tasks[0].payload.len, 0);
    assert_slice(PAGE(t, .state = MR_PENDING, .with_payload = true).tasks[0].payload, "bytes");
}

static void a_page_of_big_payloads_ends_early_and_its_cursor_goes_on(void **state)
{
    struct conform *t = *state;
    enum { N = 10, MOST = 5 * 1024 * 1024 };
    size_t len = t->engine->payload_max;
    uint8_t *bytes = calloc(1, len);
    assert_non_null(bytes);
    for (int i = 0; i < N; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%d", i);
        (void)PUT_OK(t, .id = mr_slice_str(id), .payload = {bytes, len});
    }
    free(bytes);
    bool seen[N] = {false};
    char cursor[MR_CURSOR_MAX] = "";
    size_t total = 0, pages = 0;
    do {
        struct conform_page page = PAGE(t, .limit = 1000, .with_payload = true, .cursor = cursor);
        assert_err(page.err, MR_OK);
        assert_true(page.n > 0 && page.n * len <= MOST);
        mark(&page, seen, N);
        total += page.n;
        pages++;
        (void)snprintf(cursor, sizeof cursor, "%s", page.next);
    } while (cursor[0] != '\0');
    assert_int_equal(total, N);
    assert_true(pages >= N * len / MOST);
    assert_int_equal(PAGE(t, .limit = 1000).n, N); /* without payloads there is room for all */
}

static void a_cursor_that_is_none_is_refused(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 10);
    static const char *const bad[] = {"x",    "-1",       "999999999999999999999999999",
                                      "::::", "\xff\xfe", "p:1:2:3:4:5:6:7:8"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_err(PAGE(t, .state = MR_PENDING, .cursor = bad[i]).err, MR_INVALID);
    char longer[4 * MR_CURSOR_MAX];
    memset(longer, '1', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_err(PAGE(t, .state = MR_PENDING, .cursor = longer).err, MR_INVALID);
}

static void a_page_never_exceeds_the_batch_limit(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", MR_BATCH_MAX + 10);
    struct conform_page page = PAGE(t, .state = MR_PENDING, .limit = MR_BATCH_MAX + 10);
    if (page.err == MR_OK)
        assert_int_equal(page.n, MR_BATCH_MAX);
    else
        assert_true(page.err == MR_TOO_BIG || page.err == MR_INVALID);
}

int conform_list(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(pending_is_listed_by_order_time),
        CONFORM_TEST(scheduled_is_listed_by_due_time),
        CONFORM_TEST(retry_is_listed_by_due_time_and_ends_by_their_time),
        CONFORM_TEST(active_tasks_are_listed_with_their_node),
        CONFORM_TEST(pages_over_1000_entries_miss_and_repeat_nothing),
        CONFORM_TEST(pages_stay_true_while_the_set_changes),
        CONFORM_TEST(filters_by_queue_state_and_type_combine),
        CONFORM_TEST(pages_over_all_queues_and_states_are_complete),
        CONFORM_TEST(a_cursor_outlives_its_queue),
        CONFORM_TEST(payloads_are_listed_only_on_demand),
        CONFORM_TEST(a_page_of_big_payloads_ends_early_and_its_cursor_goes_on),
        CONFORM_TEST(a_cursor_that_is_none_is_refused),
        CONFORM_TEST(a_page_never_exceeds_the_batch_limit),
    };
    return CONFORM_RUN(engine, "list", tests);
}
