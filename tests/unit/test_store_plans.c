/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How SQLite finds what the statements of jobs ask for. Parts and outcomes that have ended stay until their segment is
 * dropped, and there may be millions of them: no statement may go through them, but those that remove them.
 */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/sql_jobs.h"
#include "store/store.h"
#include "unit/temp_dir.h"

struct fixture {
    char dir[64], path[128];
    sqlite3 *db;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct mr_store *store;
    char url[160];
    assert_non_null(f);
    temp_dir_make(f->dir);
    (void)snprintf(f->path, sizeof f->path, "%s/store.db", f->dir);
    (void)snprintf(url, sizeof url, "sqlite:%s", f->path);
    assert_int_equal(mr_store_open(&(struct mr_store_options){.url = url}, &store, NULL), MR_OK);
    mr_store_close(store);
    assert_int_equal(sqlite3_open(f->path, &f->db), SQLITE_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(sqlite3_close(f->db), SQLITE_OK);
    temp_dir_remove(f->dir);
    free(f);
    return 0;
}

/* Calls step with each line of the plan of each statement. */
static void each_step(struct fixture *f, void (*step)(size_t statement, const char *line))
{
    for (size_t i = SQL_COUNT; i < SQL_ALL; i++) {
        char text[8192];
        sqlite3_stmt *plan;
        int len = snprintf(text, sizeof text, "EXPLAIN QUERY PLAN %s", sql_statement(i)->sqlite);
        assert_true(len < (int)sizeof text);
        assert_int_equal(sqlite3_prepare_v2(f->db, text, -1, &plan, NULL), SQLITE_OK);
        while (sqlite3_step(plan) == SQLITE_ROW)
            step(i, (const char *)sqlite3_column_text(plan, 3));
        assert_int_equal(sqlite3_finalize(plan), SQLITE_OK);
    }
}

static bool has(const char *line, const char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++)
        if (strstr(line, words[i]) != NULL)
            return true;
    return false;
}

/* Of segments there is one for each 100 000 parts that are kept, and an index with a condition has only what is open. */
static void check_scan(size_t statement, const char *line)
{
    static const char *const fine[] = {"SCAN CONSTANT ROW",    "SCAN segment",      "SCAN s",
                                       "INDEX job_range_open", "INDEX job_dropped", NULL};
    if (strncmp(line, "SCAN", strlen("SCAN")) == 0 && !has(line, fine))
        fail_msg("%s: %s", line, sql_statement(statement)->sqlite);
}

/* Only what removes a segment goes by the segment alone. */
static void check_segment(size_t statement, const char *line)
{
    bool removes = statement == SQL_SEGMENT_PARTS_DROP || statement == SQL_SEGMENT_OUTCOMES_DROP;
    if (strstr(line, "PRIMARY KEY (segment=?)") != NULL && !removes)
        fail_msg("%s: %s", line, sql_statement(statement)->sqlite);
}

static void no_statement_goes_through_a_table(void **state)
{
    each_step(*state, check_scan);
}

static void no_statement_goes_through_a_segment_but_to_remove_it(void **state)
{
    each_step(*state, check_segment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_statement_goes_through_a_table, setup, teardown),
        cmocka_unit_test_setup_teardown(no_statement_goes_through_a_segment_but_to_remove_it, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
