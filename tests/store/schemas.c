/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that an older or a newer Millrace has written, and what is none. */
#include <stdio.h>

#include "store/suite.h"

enum { AT_ONCE = 4 };

static enum mr_err try_open(struct suite *t, struct mr_detail *detail)
{
    struct mr_store *store = NULL;
    detail->text[0] = '\0';
    enum mr_err err = mr_store_open(&(struct mr_store_options){.url = t->url}, &store, detail);
    mr_store_close(store);
    return err;
}

/* The place of the test, without the store that was made in it. */
static void make_empty(struct suite *t)
{
    suite_close(t);
    t->engine->remove(t->engine->arg);
    t->engine->make(t->engine->arg, t->url);
}

static void open_golden(struct suite *t)
{
    char path[1024];
    const char *source = getenv("MR_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/tests/golden/store/1-%s.sql",
                   source != NULL ? source : ".", t->engine->name);
    FILE *file = fopen(path, "re");
    static char text[16384];
    if (file == NULL)
        fail_msg("%s is not there", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    make_empty(t);
    t->engine->sql(t->engine->arg, text);
    suite_open(t, NULL);
}

static void test_a_store_of_schema_1_is_brought_up_to_date_with_all_that_is_in_it(void **state)
{
    struct suite *t = *state;
    uint32_t newest = suite_stats(t)->schema;
    assert_true(newest > 1);
    open_golden(t);
    assert_int_equal(suite_stats(t)->schema, newest);
    const struct mr_store_timer *timer = suite_get(t, "a", "n");
    assert_int_equal(timer->version, 10);
    assert_int_equal(timer->next_ms, 3000);
    assert_int_equal(timer->fired, 2);
    assert_slice(timer->definition, "def");
    assert_int_equal(suite_get(t, "a", "gone")->state, MR_ROW_DELETED);
    assert_int_equal(suite_stats(t)->timers[MR_ROW_ACTIVE], 1);
    assert_int_equal(suite_firing(t, 1, 1000)->state, MR_LEDGER_SUCCEEDED);
    assert_slice(suite_firing(t, 1, 2000)->reason, "why");
    assert_int_equal(suite_firing(t, 1, 2000)->run, 1);
    assert_int_equal(LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 1000).token, 6);
    assert_int_equal(suite_due(t, (struct mr_store_due){.until_ms = 9000, .max = 9})->changed, 7);
    assert_int_equal(suite_server_list(t, 1)->n, 0);
    assert_slice(suite_app_list(t, (struct mr_store_app_list){.max = 1})->apps[0].name, "a");
    assert_err(PUT(t, .version = 11).err, MR_OK);
    suite_reopen(t);
    assert_int_equal(suite_get(t, "a", "n")->version, 11);
}

static void test_a_store_of_a_newer_millrace_is_refused_and_left_alone(void **state)
{
    struct suite *t = *state;
    struct mr_detail detail;
    char back[64];
    uint32_t newest = suite_stats(t)->schema;
    assert_err(PUT(t).err, MR_OK);
    suite_close(t);
    t->engine->sql(t->engine->arg, "UPDATE meta SET schema = 99");
    assert_err(try_open(t, &detail), MR_VERSION);
    assert_non_null(strstr(detail.text, "99"));
    (void)snprintf(back, sizeof back, "UPDATE meta SET schema = %u", newest);
    t->engine->sql(t->engine->arg, back);
    suite_open(t, NULL);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_ACTIVE);
}

static void test_what_is_something_else_is_refused_and_left_alone(void **state)
{
    struct suite *t = *state;
    struct mr_detail detail;
    make_empty(t);
    t->engine->make_other(t->engine->arg);
    assert_err(try_open(t, &detail), MR_NOT_A_STORE);
    assert_true(detail.text[0] != '\0');
    t->engine->sql(t->engine->arg, "INSERT INTO other VALUES (1)");
}

static void test_a_url_that_says_nothing_is_refused(void **state)
{
    struct suite *t = *state;
    static const char *const urls[] = {"", "sqlite:", "mysql://x", "store.db"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct mr_detail detail = {.text = ""};
        struct mr_store *store = NULL;
        struct mr_store_options options = {.url = urls[i]};
        assert_err(mr_store_open(&options, &store, &detail), MR_INVALID);
        assert_true(detail.text[0] != '\0');
    }
    assert_err(PUT(t).err, MR_OK);
}

struct opener {
    struct suite *t;
    struct mr_store *store;
    enum mr_err err;
    struct mr_detail detail;
    pthread_t thread;
};

static void *open_it(void *arg)
{
    struct opener *opener = arg;
    opener->err = mr_store_open(&(struct mr_store_options){.url = opener->t->url}, &opener->store,
                                &opener->detail);
    return NULL;
}

static void test_several_that_open_an_empty_store_at_once_make_it_once(void **state)
{
    struct suite *t = *state;
    static struct opener openers[AT_ONCE];
    make_empty(t);
    memset(openers, 0, sizeof openers);
    for (size_t i = 0; i < AT_ONCE; i++) {
        openers[i].t = t;
        assert_err(mr_thread_start(&openers[i].thread, "opener", open_it, &openers[i]), MR_OK);
    }
    for (size_t i = 0; i < AT_ONCE; i++)
        mr_thread_join(openers[i].thread);
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (openers[i].err != MR_OK)
            fail_msg("%s: %s", mr_err_name(openers[i].err), openers[i].detail.text);
        t->store = openers[i].store; /* each of them works, on the same rows */
        assert_err(PUT(t, .version = i + 1).err, MR_OK);
    }
    for (size_t i = 0; i + 1 < AT_ONCE; i++) {
        t->store = openers[i].store;
        assert_int_equal(suite_get(t, "a", "n")->version, AT_ONCE);
        suite_close(t);
    }
    t->store = openers[AT_ONCE - 1].store;
}

int suite_schemas(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_store_of_schema_1_is_brought_up_to_date_with_all_that_is_in_it),
        SUITE_TEST(test_a_store_of_a_newer_millrace_is_refused_and_left_alone),
        SUITE_TEST(test_what_is_something_else_is_refused_and_left_alone),
        SUITE_TEST(test_a_url_that_says_nothing_is_refused),
        SUITE_TEST(test_several_that_open_an_empty_store_at_once_make_it_once),
    };
    return SUITE_RUN(engine, "schemas", tests);
}
