/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the suite of stores on PostgreSQL; with MR_DURABLE on one that syncs. The server is started once and
 * emptied before each test. */
#include <arpa/inet.h>
#include <libpq-fe.h>
#include <stdio.h>

#include "store/suite.h"
#include "support/postgres_rig.h"

struct place {
    struct postgres_rig *rig;
    PGconn *holder;
};

/* A test of kills leaves thousands of segments, each a partition: more than one transaction can lock. */
static void drop_partitions(struct place *place)
{
    static const char one[] = "SELECT 1 FROM pg_class WHERE relispartition AND relkind = 'r'";
    while (postgres_rig_sql(place->rig, one) > 0)
        (void)postgres_rig_sql(
            place->rig, "DO $$ DECLARE name text; BEGIN FOR name IN SELECT oid::regclass"
                        " FROM pg_class WHERE relispartition AND relkind = 'r' LIMIT 500 LOOP"
                        " EXECUTE 'DROP TABLE ' || name; END LOOP; END $$");
}

static void make(void *arg, char url[SUITE_URL_MAX])
{
    struct place *place = arg;
    drop_partitions(place);
    (void)postgres_rig_sql(place->rig, "DROP SCHEMA IF EXISTS millrace CASCADE");
    (void)snprintf(url, SUITE_URL_MAX, "%s", postgres_rig_url(place->rig));
}

static void remove_all(void *arg)
{
    (void)arg; /* the next test empties it */
}

static long ask(void *arg, const char *text)
{
    struct place *place = arg;
    size_t size = strlen(text) + 64;
    char *all = malloc(size);
    assert_non_null(all);
    (void)snprintf(all, size, "SET search_path = millrace; %s", text);
    long answer = postgres_rig_sql(place->rig, all);
    free(all);
    return answer;
}

static void sql(void *arg, const char *text)
{
    (void)ask(arg, text);
}

static void check(void *arg, const char *text, uint64_t expected)
{
    long answer = ask(arg, text);
    if (answer < 0 || (uint64_t)answer != expected)
        fail_msg("%s: %ld, not %llu", text, answer, (unsigned long long)expected);
}

/* An array of bytea in its binary form: its head, and each element behind its length. */
static char *make_array(struct mr_slice input, size_t n, size_t *ret_len)
{
    enum { BYTEA = 17 };
    uint32_t head[] = {htonl(1), 0, htonl(BYTEA), htonl((uint32_t)n), htonl(1)};
    uint32_t len = htonl((uint32_t)input.len);
    *ret_len = sizeof head + n * (sizeof len + input.len);
    char *array = malloc(*ret_len), *p = array;
    assert_non_null(array);
    memcpy(p, head, sizeof head);
    p += sizeof head;
    for (size_t i = 0; i < n; i++, p += sizeof len + input.len) {
        memcpy(p, &len, sizeof len);
        memcpy(p + sizeof len, input.data, input.len);
    }
    return array;
}

static double bare_insert(void *arg, uint64_t rows, struct mr_slice input, size_t batch)
{
    struct place *place = arg;
    PGconn *conn = PQconnectdb(postgres_rig_url(place->rig));
    PQclear(PQexec(conn, "CREATE TABLE bare (segment bigint NOT NULL,"
                         " job bigint NOT NULL, idx bigint NOT NULL, input bytea NOT NULL,"
                         " PRIMARY KEY (segment, job, idx))"));
    PQclear(PQprepare(conn, "insert",
                      "INSERT INTO bare SELECT 1, 1, $1::bigint + ord, input"
                      " FROM unnest($2::bytea[]) WITH ORDINALITY AS k(input, ord)",
                      2, NULL));
    mr_mono since = suite_mono();
    for (uint64_t i = 0; i < rows; i += batch) {
        size_t n = rows - i < batch ? (size_t)(rows - i) : batch, len = 0;
        char *array = make_array(input, n, &len);
        char first[24];
        (void)snprintf(first, sizeof first, "%llu", (unsigned long long)i);
        const char *values[] = {first, array};
        PGresult *result = PQexecPrepared(conn, "insert", 2, values, (const int[]){0, (int)len},
                                          (const int[]){0, 1}, 1);
        assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
        PQclear(result);
        free(array);
    }
    double seconds = (double)(suite_mono().ns - since.ns) / 1e9;
    PQclear(PQexec(conn, "DROP TABLE bare"));
    PQfinish(conn);
    return seconds;
}

static void make_other(void *arg)
{
    sql(arg, "CREATE SCHEMA millrace; CREATE TABLE millrace.other (x integer)");
}

static void hold(void *arg)
{
    struct place *place = arg;
    place->holder = PQconnectdb(postgres_rig_url(place->rig));
    assert_int_equal(PQstatus(place->holder), CONNECTION_OK);
    PQclear(PQexec(place->holder, "BEGIN"));
    PGresult *result =
        PQexec(place->holder, "LOCK TABLE millrace.app, millrace.lease IN EXCLUSIVE MODE");
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
}

static void let_go(void *arg)
{
    struct place *place = arg;
    PQfinish(place->holder);
    place->holder = NULL;
}

static bool cut(void *arg)
{
    struct place *place = arg;
    return postgres_rig_sql(place->rig,
                            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                            " WHERE application_name = 'millrace'") > 0;
}

/* What the tests before have done, thousands of files made and removed, is not to be gone through when it starts. */
static void crash(void *arg)
{
    struct place *place = arg;
    (void)postgres_rig_sql(place->rig, "CHECKPOINT");
    postgres_rig_crash(place->rig);
}

static void start(void *arg)
{
    postgres_rig_start_again(((struct place *)arg)->rig);
}

int main(int argc, char **argv)
{
    static struct place place;
    static const struct suite_engine engine = {
        .name = "postgres",
        .arg = &place,
        .make = make,
        .remove = remove_all,
        .sql = sql,
        .check = check,
        .bare_insert = bare_insert,
        .make_other = make_other,
        .hold = hold,
        .let_go = let_go,
        .cut = cut,
        .crash = crash,
        .start = start,
    };
    struct postgres_rig_options options = {.durable = getenv("MR_DURABLE") != NULL};
    place.rig = postgres_rig_start(&options);
    int code = suite_main(&engine, argc, argv);
    postgres_rig_stop(place.rig);
    return code;
}
