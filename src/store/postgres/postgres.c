/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL from 12 on: one connection, tables in a schema of their own. Nothing here waits for ever:
 * a server that does not answer in time counts as gone, and so does a connection whose transaction it
 * has given up. The server in turn gives up a transaction that stands still, so that a process that
 * was stopped in the middle of one keeps no locks.
 *
 * Statements are sent without waiting for those before them (libpq's pipeline mode), as far as nothing
 * of their answers is needed: a transaction is a few exchanges. Thread: the store's.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/postgres/internal.h"

enum {
    CONNECT_MS = 5000,
    IDLE_MS = 3000, /* a transaction that says nothing for so long is ended by the server */
    LOCK_MS = 3000, /* a lock is waited for so long at most; then the transaction is repeated */
    VERSION_LEAST = 120000,
};

#define SCHEMA "millrace"
/* Two servers that start at the same time make the tables one after the other. */
#define MIGRATION_LOCK "7883953461348426348"

struct postgres_db {
    struct db db;
    struct mr_clock *clock;
    int64_t away_ms;
    PGconn *conn;      /* NULL: gone */
    const char *begin; /* of a transaction, not sent yet */
    size_t sent;       /* statements whose answers have not been read */
    bool prepared[SQL_ALL];
    struct pg_params params;
    char url[];
};

static struct postgres_db *of(struct db *db)
{
    return mr_container(db, struct postgres_db, db);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* By the beginning of an SQLSTATE; the first that fits. */
static const struct {
    const char *state;
    enum mr_err err;
} errors[] = {
    {"40", MR_BUSY},           /* serialization failure, deadlock */
    {"55P03", MR_BUSY},        /* a lock was waited for in vain */
    {"57014", MR_BUSY},        /* cancelled by somebody */
    {"23505", MR_BUSY},        /* another one has just made that row */
    {"53100", MR_DISK_FULL},   //
    {"53", MR_UNAVAILABLE},    /* too little memory, too many connections */
    {"57P", MR_UNAVAILABLE},   /* it goes down, or has just come up */
    {"08", MR_UNAVAILABLE},    /* the connection */
    {"25P03", MR_UNAVAILABLE}, /* our transaction stood still */
    {"25006", MR_UNAVAILABLE}, /* a replica, which may become more */
    {"58030", MR_IO},          {"XX001", MR_DAMAGED}, {"XX002", MR_DAMAGED},
    {"28", MR_DENIED},         {"42501", MR_DENIED},
};

static enum mr_err err_of_state(const char *state)
{
    for (size_t i = 0; state && i < sizeof errors / sizeof *errors; i++) {
        if (strncmp(state, errors[i].state, strlen(errors[i].state)) == 0)
            return errors[i].err;
    }
    return MR_FAILED;
}

/* One line of what it said. */
static void note_text(struct postgres_db *s, const char *text)
{
    size_t len = strcspn(text, "\n");
    snprintf(s->db.text, sizeof s->db.text, "%.*s", (int)len, text);
}

static void disconnect(struct postgres_db *s)
{
    PQfinish(s->conn);
    s->conn = NULL;
    s->begin = NULL;
    s->sent = 0;
    memset(s->prepared, 0, sizeof s->prepared);
}

/* The connection is of no more use. */
static enum mr_err lose(struct postgres_db *s, const char *text)
{
    note_text(s, text);
    disconnect(s);
    return MR_UNAVAILABLE;
}

static enum mr_err check_result(struct postgres_db *s, const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY)
        return MR_OK;
    if (PQstatus(s->conn) != CONNECTION_OK)
        return lose(s, PQerrorMessage(s->conn));
    note_text(s, PQresultErrorMessage(result));
    return err_of_state(PQresultErrorField(result, PG_DIAG_SQLSTATE));
}

/* ---- waiting -------------------------------------------------------------------------------- */

static mr_mono in_ms(struct postgres_db *s, int64_t ms)
{
    return mr_mono_add_ms(mr_mono_now(s->clock), ms);
}

/* False when the time is up. */
static bool wait_for(struct postgres_db *s, short events, mr_mono end)
{
    for (;;) {
        int64_t left = end.ns - mr_mono_now(s->clock).ns;
        if (left <= 0)
            return false;
        int64_t ms = left / MR_NS_PER_MS + 1;
        struct pollfd fd = {.fd = PQsocket(s->conn), .events = events};
        int n = poll(&fd, 1, ms < INT32_MAX ? (int)ms : INT32_MAX);
        if (n > 0)
            return true;
    }
}

static enum mr_err no_answer(struct postgres_db *s)
{
    return lose(s, "the server does not answer");
}

/* All is sent; what comes meanwhile is taken in, so that the server does not wait for us. */
static enum mr_err flush(struct postgres_db *s, mr_mono end)
{
    for (int left; (left = PQflush(s->conn)) != 0;) {
        if (left < 0)
            return lose(s, PQerrorMessage(s->conn));
        if (!wait_for(s, POLLIN | POLLOUT, end))
            return no_answer(s);
        if (!PQconsumeInput(s->conn))
            return lose(s, PQerrorMessage(s->conn));
    }
    return MR_OK;
}

static enum mr_err next_result(struct postgres_db *s, mr_mono end, PGresult **ret_result)
{
    while (PQisBusy(s->conn)) {
        if (!wait_for(s, POLLIN, end))
            return no_answer(s);
        if (!PQconsumeInput(s->conn))
            return lose(s, PQerrorMessage(s->conn));
    }
    *ret_result = PQgetResult(s->conn);
    return MR_OK;
}

/* The results of all that was sent up to the sync; the last one, which the caller frees, or the first
 * error. */
static enum mr_err read_results(struct postgres_db *s, mr_mono end, PGresult **ret_last)
{
    enum mr_err err = MR_OK;
    *ret_last = NULL;
    for (;;) {
        PGresult *result = NULL;
        MR_TRY(next_result(s, end, &result));
        if (!result && PQstatus(s->conn) != CONNECTION_OK)
            return lose(s, PQerrorMessage(s->conn));
        if (!result)
            continue; /* the end of one statement */
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_PIPELINE_SYNC || status == PGRES_PIPELINE_ABORTED) {
            PQclear(result);
            if (status == PGRES_PIPELINE_SYNC)
                return err;
            continue; /* it was behind the one that failed */
        }
        PQclear(*ret_last);
        *ret_last = result;
        if (err == MR_OK)
            err = check_result(s, result);
        if (!s->conn)
            return err;
    }
}

/* Waits for the answers to all that was sent. ret_result may be NULL. */
static enum mr_err exchange(struct postgres_db *s, PGresult **ret_result)
{
    mr_mono end = in_ms(s, s->away_ms);
    PGresult *last = NULL;
    s->sent = 0;
    if (!PQpipelineSync(s->conn))
        return lose(s, PQerrorMessage(s->conn));
    enum mr_err err = flush(s, end);
    if (err == MR_OK)
        err = read_results(s, end, &last);
    if (err == MR_OK && ret_result)
        *ret_result = last;
    else
        PQclear(last);
    return err;
}

static enum mr_err sent(struct postgres_db *s, int ok)
{
    if (!ok)
        return lose(s, PQerrorMessage(s->conn));
    s->sent++;
    return MR_OK;
}

static enum mr_err send_text(struct postgres_db *s, const char *text)
{
    return sent(s, PQsendQueryParams(s->conn, text, 0, NULL, NULL, NULL, NULL, 1));
}

/* Before each statement. The beginning of a transaction goes along with the first of them. */
static enum mr_err ready_to_send(struct postgres_db *s)
{
    if (!s->conn)
        return MR_UNAVAILABLE;
    if (PQpipelineStatus(s->conn) == PQ_PIPELINE_OFF && !PQenterPipelineMode(s->conn))
        return lose(s, PQerrorMessage(s->conn));
    const char *begin = s->begin;
    s->begin = NULL;
    return begin ? send_text(s, begin) : MR_OK;
}

/* Several statements in a text go by themselves. How long steps of a schema take depends on how much there
 * is: nobody hurries them. */
static enum mr_err script(struct db *db, const char *text)
{
    struct postgres_db *s = of(db);
    MR_TRY(ready_to_send(s));
    if (s->sent > 0)
        MR_TRY(exchange(s, NULL));
    if (!PQexitPipelineMode(s->conn) || !PQsendQuery(s->conn, text))
        return lose(s, PQerrorMessage(s->conn));
    MR_TRY(flush(s, MR_MONO_NEVER));
    enum mr_err err = MR_OK;
    for (PGresult *result;;) {
        MR_TRY(next_result(s, MR_MONO_NEVER, &result));
        if (!result)
            return err;
        if (err == MR_OK)
            err = check_result(s, result);
        PQclear(result);
        if (!s->conn)
            return err;
    }
}

/* A number, or with no row what it was. */
static enum mr_err number(struct postgres_db *s, const char *text, int64_t *ret_number)
{
    PGresult *result = NULL;
    MR_TRY(ready_to_send(s));
    MR_TRY(send_text(s, text));
    MR_TRY(exchange(s, &result));
    if (PQntuples(result) > 0)
        *ret_number = pg_number(result, 0, 0);
    PQclear(result);
    return MR_OK;
}

/* ---- the connection ------------------------------------------------------------------------- */

static enum mr_err await_connection(struct postgres_db *s)
{
    mr_mono end = in_ms(s, CONNECT_MS);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    while (status != PGRES_POLLING_OK) {
        if (status == PGRES_POLLING_FAILED)
            return lose(s, PQerrorMessage(s->conn));
        if (!wait_for(s, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, end))
            return no_answer(s);
        status = PQconnectPoll(s->conn);
    }
    return PQsetnonblocking(s->conn, 1) == 0 ? MR_OK : lose(s, PQerrorMessage(s->conn));
}

static enum mr_err check_server(struct postgres_db *s)
{
    if (PQserverVersion(s->conn) < VERSION_LEAST) {
        snprintf(s->db.text, sizeof s->db.text, "PostgreSQL 12 or newer is needed, this is %s",
                 PQparameterStatus(s->conn, "server_version"));
        return MR_UNSUPPORTED;
    }
    const char *encoding = PQparameterStatus(s->conn, "server_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0 && strcmp(encoding, "SQL_ASCII") != 0) {
        snprintf(s->db.text, sizeof s->db.text, "the database has the encoding %s: UTF8 is needed",
                 encoding);
        return MR_UNSUPPORTED;
    }
    return MR_OK;
}

/* Plans are made anew each time, with the sizes of arrays and tables as they are: one that was made for an
 * empty table reads a full one from end to end. */
static enum mr_err set_up(struct postgres_db *s)
{
    MR_TRY(check_server(s));
    char text[512];
    snprintf(text, sizeof text,
             "SET search_path = " SCHEMA "; SET idle_in_transaction_session_timeout = %d;"
             " SET lock_timeout = %d; SET statement_timeout = 0;"
             " SET plan_cache_mode = force_custom_plan; SET client_min_messages = warning;"
             " SELECT set_config('synchronous_commit', 'on', false)"
             " WHERE current_setting('synchronous_commit') IN ('off', 'local')",
             IDLE_MS, (int)(s->away_ms / 2 < LOCK_MS ? s->away_ms / 2 + 1 : LOCK_MS));
    return script(&s->db, text);
}

static void say_nothing(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

static enum mr_err connect_server(struct db *db)
{
    struct postgres_db *s = of(db);
    static const char *const keywords[] = {"dbname", "fallback_application_name", "client_encoding",
                                           "tcp_user_timeout", NULL};
    const char *values[] = {s->url, "millrace", "UTF8", "10000", NULL};
    disconnect(s);
    s->conn = PQconnectStartParams(keywords, values, 1);
    if (!s->conn)
        return MR_NOMEM;
    PQsetNoticeReceiver(s->conn, say_nothing, NULL);
    if (PQstatus(s->conn) == CONNECTION_BAD)
        return lose(s, PQerrorMessage(s->conn));
    MR_TRY(await_connection(s));
    enum mr_err err = set_up(s);
    if (err != MR_OK)
        disconnect(s);
    return err;
}

static void free_db(struct db *db)
{
    struct postgres_db *s = of(db);
    disconnect(s);
    pg_params_done(&s->params);
    free(s);
}

static enum mr_err schema(struct db *db, uint32_t *ret_schema)
{
    struct postgres_db *s = of(db);
    int64_t ours = 0, meta = 0, tables = 0, known = 0;
    MR_TRY(script(db, "SELECT pg_advisory_xact_lock(" MIGRATION_LOCK ")"));
    MR_TRY(number(s, "SELECT count(*) FROM pg_namespace WHERE nspname = '" SCHEMA "'", &ours));
    if (ours == 0)
        MR_TRY(script(db, "CREATE SCHEMA " SCHEMA));
    MR_TRY(number(s, "SELECT count(*) FROM pg_tables WHERE schemaname = '" SCHEMA "'", &tables));
    MR_TRY(number(
        s, "SELECT count(*) FROM pg_tables WHERE schemaname = '" SCHEMA "' AND tablename = 'meta'",
        &meta));
    *ret_schema = 0;
    if (meta == 0 && tables > 0) {
        note_text(s, "the schema " SCHEMA " of the database is of something else");
        return MR_NOT_A_STORE;
    }
    if (meta == 0)
        return script(db, "CREATE TABLE meta (schema integer NOT NULL)");
    MR_TRY(number(s, "SELECT schema FROM meta", &known));
    *ret_schema = known >= 0 && known <= UINT32_MAX ? (uint32_t)known : UINT32_MAX;
    return MR_OK;
}

/* ---- transactions --------------------------------------------------------------------------- */

static enum mr_err begin(struct db *db, enum db_access access)
{
    of(db)->begin = access == DB_WRITE ? "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
                                       : "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
    return of(db)->conn ? MR_OK : MR_UNAVAILABLE;
}

/* What a transaction that failed is "committed" to is a rollback. */
static enum mr_err commit(struct db *db)
{
    struct postgres_db *s = of(db);
    PGresult *result = NULL;
    if (s->begin) /* nothing was said in it */
        s->begin = NULL;
    else {
        MR_TRY(ready_to_send(s));
        MR_TRY(send_text(s, "COMMIT"));
        MR_TRY(exchange(s, &result));
        bool committed = result && strcmp(PQcmdStatus(result), "COMMIT") == 0;
        PQclear(result);
        return committed ? MR_OK : MR_FAILED;
    }
    return MR_OK;
}

static enum mr_err undo(struct postgres_db *s)
{
    if (s->sent > 0 && exchange(s, NULL) == MR_UNAVAILABLE)
        return MR_UNAVAILABLE;
    if (PQtransactionStatus(s->conn) == PQTRANS_IDLE)
        return MR_OK;
    MR_TRY(ready_to_send(s));
    MR_TRY(send_text(s, "ROLLBACK"));
    return exchange(s, NULL);
}

/* The text of the error that led here stays. */
static void rollback(struct db *db)
{
    struct postgres_db *s = of(db);
    s->begin = NULL;
    if (!s->conn)
        return;
    char text[DB_TEXT_MAX];
    memcpy(text, db->text, sizeof text);
    if (undo(s) != MR_OK)
        disconnect(s);
    memcpy(db->text, text, sizeof text);
}

/* ---- statements ----------------------------------------------------------------------------- */

static enum mr_err prepare(struct postgres_db *s, size_t statement, const char *name)
{
    if (s->prepared[statement])
        return MR_OK;
    const struct statement *st = sql_statement(statement);
    Oid types[DB_PARAMS_MAX];
    int n = pg_types(st, types);
    const char *text = st->postgres ? st->postgres : st->sqlite;
    MR_TRY(sent(s, PQsendPrepare(s->conn, name, text, n, types)));
    MR_TRY(exchange(s, NULL));
    s->prepared[statement] = true;
    return MR_OK;
}

/* A statement that answers nothing is sent with the next one: whether it went well shows at the commit at
 * last. */
static enum mr_err run(struct db *db, size_t statement, const struct db_value *values, size_t n,
                       db_row *take, void *arg)
{
    struct postgres_db *s = of(db);
    const struct statement *st = sql_statement(statement);
    struct pg_params *params = &s->params;
    mr_assert(n == 1 || st->many);
    char name[16];
    snprintf(name, sizeof name, "s%zu", statement);
    MR_TRY(ready_to_send(s));
    MR_TRY(prepare(s, statement, name));
    MR_TRY(pg_params_set(params, st, values, n));
    MR_TRY(sent(s, PQsendQueryPrepared(s->conn, name, params->n, params->values, params->lengths,
                                       params->formats, 1)));
    if (st->columns[0] == '\0')
        return MR_OK;
    PGresult *result = NULL;
    MR_TRY(exchange(s, &result));
    enum mr_err err = pg_rows(result, st, n, take, arg);
    PQclear(result);
    return err == DB_ENOUGH ? MR_OK : err;
}

static enum mr_err now(struct db *db, int64_t *ret_ms)
{
    return number(of(db), "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", ret_ms);
}

static enum mr_err about(struct db *db, char *engine, size_t cap, uint64_t *ret_bytes)
{
    struct postgres_db *s = of(db);
    int64_t bytes = 0;
    MR_TRY(number(s,
                  "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
                  " WHERE c.relnamespace = '" SCHEMA "'::regnamespace AND c.relkind = 'r'",
                  &bytes));
    const char *version = PQparameterStatus(s->conn, "server_version");
    snprintf(engine, cap, "postgresql %.*s", (int)strcspn(version ? version : "", " "),
             version ? version : "");
    *ret_bytes = (uint64_t)bytes;
    return MR_OK;
}

/* ---- segments ------------------------------------------------------------------------------- */

static const char *const segmented[] = {"part", "outcome"};
enum { SEGMENTED = sizeof segmented / sizeof *segmented };

/* Attached, not made as a part of the whole: that would keep everybody out of the whole table. */
static enum mr_err segment_make(struct db *db, uint64_t n)
{
    for (size_t i = 0; i < SEGMENTED; i++) {
        char text[256];
        const char *table = segmented[i];
        unsigned long long number = n;
        snprintf(text, sizeof text,
                 "CREATE TABLE %s_%llu (LIKE %s INCLUDING ALL);"
                 " ALTER TABLE %s ATTACH PARTITION %s_%llu FOR VALUES IN (%llu)",
                 table, number, table, table, table, number, number);
        MR_TRY(script(db, text));
    }
    return MR_OK;
}

static enum mr_err segment_drop(struct db *db, uint64_t n)
{
    for (size_t i = 0; i < SEGMENTED; i++) {
        char text[128];
        const char *table = segmented[i];
        unsigned long long number = n;
        snprintf(text, sizeof text, "ALTER TABLE %s DETACH PARTITION %s_%llu; DROP TABLE %s_%llu",
                 table, table, number, table, number);
        MR_TRY(script(db, text));
    }
    return MR_OK;
}

static const struct db_ops postgres_ops = {
    .connect = connect_server,
    .free = free_db,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .run = run,
    .script = script,
    .now = now,
    .schema = schema,
    .about = about,
    .segment_make = segment_make,
    .segment_drop = segment_drop,
    .dialect = SQL_POSTGRES,
};

static enum mr_err check_url(const char *url, struct mr_detail *detail)
{
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &message);
    if (!options)
        mr_detail_set(detail, "%.*s", message ? (int)strcspn(message, "\n") : 0,
                      message ? message : "");
    PQconninfoFree(options);
    PQfreemem(message);
    return options ? MR_OK : MR_INVALID;
}

enum mr_err postgres_db_new(const struct mr_store_options *options, const char *rest,
                            struct db **ret_db, struct mr_detail *detail)
{
    (void)rest; /* libpq reads the whole of it */
    MR_TRY(check_url(options->url, detail));
    size_t len = strlen(options->url);
    struct postgres_db *s = calloc(1, sizeof *s + len + 1);
    if (!s)
        return MR_NOMEM;
    memcpy(s->url, options->url, len);
    s->db.ops = &postgres_ops;
    s->clock = options->clock ? options->clock : mr_clock_system();
    s->away_ms = options->away_ms > 0 ? options->away_ms : MR_STORE_AWAY_MS;
    *ret_db = &s->db;
    return MR_OK;
}
