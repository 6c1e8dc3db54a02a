/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite: one file, written ahead in a second one (WAL), synced before a commit is answered. Other
 * processes of the machine may use the file as well: who writes holds it from the beginning of the
 * transaction on (BEGIN IMMEDIATE), so SQLITE_BUSY comes there, and passes. Thread: the store's.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "store/internal.h"

enum {
    BUSY_MS = 100, /* another one's write is waited for so long, in SQLite; then by the store */
    CACHE_KIB = 32 * 1024, /* of pages in memory */
    WAL_BYTES =
        64 * 1024 * 1024, /* that are left to the second file when it has been copied back */
};

struct prepared {
    sqlite3_stmt *stmt;
    int places[DB_PARAMS_MAX]; /* of $1, $2 ... in the text; 0: not in it */
};

struct sqlite_db {
    struct db db;
    struct mr_clock *clock;
    sqlite3 *handle;
    struct prepared prepared[SQL_ALL];
    char path[];
};

static struct sqlite_db *of(struct db *db)
{
    return mr_container(db, struct sqlite_db, db);
}

/* ---- errors --------------------------------------------------------------------------------- */

static const struct {
    int code; /* the primary one */
    enum mr_err err;
} errors[] = {
    {SQLITE_BUSY, MR_BUSY},          {SQLITE_LOCKED, MR_BUSY},     {SQLITE_FULL, MR_DISK_FULL},
    {SQLITE_NOMEM, MR_NOMEM},        {SQLITE_IOERR, MR_IO},        {SQLITE_CORRUPT, MR_DAMAGED},
    {SQLITE_NOTADB, MR_NOT_A_STORE}, {SQLITE_READONLY, MR_DENIED}, {SQLITE_PERM, MR_DENIED},
    {SQLITE_AUTH, MR_DENIED},        {SQLITE_INTERRUPT, MR_BUSY},  {SQLITE_PROTOCOL, MR_BUSY},
    {SQLITE_SCHEMA, MR_BUSY},
};

static bool no_space(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT;
}

static enum mr_err err_of(struct sqlite_db *s, int code)
{
    if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE)
        return MR_OK;
    snprintf(s->db.text, sizeof s->db.text, "%s: %s", s->path,
             s->handle ? sqlite3_errmsg(s->handle) : sqlite3_errstr(code));
    int primary = code & 0xff;
    if ((primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) && s->handle) {
        int errnum = sqlite3_system_errno(s->handle);
        if (no_space(errnum))
            return MR_DISK_FULL;
        if (code == SQLITE_IOERR_NOMEM)
            return MR_NOMEM;
        if (primary == SQLITE_CANTOPEN)
            return errnum != 0 ? mr_err_from_errno(errnum) : MR_FAILED;
    }
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code == primary)
            return errors[i].err;
    }
    return MR_FAILED;
}

/* ---- the connection ------------------------------------------------------------------------- */

static void disconnect(struct sqlite_db *s)
{
    for (size_t i = 0; i < SQL_ALL; i++) {
        sqlite3_finalize(s->prepared[i].stmt);
        s->prepared[i] = (struct prepared){0};
    }
    sqlite3_close(s->handle);
    s->handle = NULL;
}

static enum mr_err script(struct db *db, const char *text)
{
    struct sqlite_db *s = of(db);
    return err_of(s, sqlite3_exec(s->handle, text, NULL, NULL, NULL));
}

static void rollback(struct db *db)
{
    struct sqlite_db *s = of(db);
    /* Some errors have rolled back already. The text of the error before stays. */
    if (s->handle && !sqlite3_get_autocommit(s->handle))
        sqlite3_exec(s->handle, "ROLLBACK", NULL, NULL, NULL);
}

static int take_number(void *arg, int n, char **texts, char **names)
{
    (void)names;
    if (n > 0 && texts[0])
        *(int64_t *)arg = strtoll(texts[0], NULL, 10);
    return 0;
}

static enum mr_err number(struct sqlite_db *s, const char *text, int64_t *ret_number)
{
    return err_of(s, sqlite3_exec(s->handle, text, take_number, ret_number, NULL));
}

/* A file of somebody else is left alone: nothing is set before it is known to be ours, or empty. */
static enum mr_err check_ours(struct sqlite_db *s)
{
    int64_t id = 0, tables = 0;
    MR_TRY(number(s, "PRAGMA application_id", &id));
    MR_TRY(number(s, "SELECT count(*) FROM sqlite_schema", &tables));
    if (id == SQL_APPLICATION_ID || (id == 0 && tables == 0))
        return MR_OK;
    snprintf(s->db.text, sizeof s->db.text, "%s: a database of something else", s->path);
    return MR_NOT_A_STORE;
}

/* In one transaction: another one may be making the store right now. */
static enum mr_err look_before(struct sqlite_db *s)
{
    MR_TRY(script(&s->db, "BEGIN"));
    enum mr_err err = check_ours(s);
    rollback(&s->db);
    return err;
}

/* slot(uid): as mr_store_slot. What is no uid has none, and is in no mask but that of all. */
static void slot_of(sqlite3_context *context, int n, sqlite3_value **values)
{
    const struct mr_uuid *uid = sqlite3_value_blob(values[0]);
    (void)n;
    if (uid != NULL && sqlite3_value_bytes(values[0]) == (int)sizeof *uid)
        sqlite3_result_int(context, (int)mr_store_slot(uid));
}

static enum mr_err set_up(struct sqlite_db *s)
{
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    sqlite3_extended_result_codes(s->handle, 1);
    MR_TRY(err_of(s, sqlite3_create_function_v2(s->handle, "slot", 1, flags, NULL, slot_of, NULL,
                                                NULL, NULL)));
    sqlite3_busy_timeout(s->handle, BUSY_MS);
    MR_TRY(look_before(s));
    char text[256];
    snprintf(text, sizeof text,
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -%d;"
             " PRAGMA journal_size_limit = %d; PRAGMA temp_store = MEMORY",
             CACHE_KIB, WAL_BYTES);
    return script(&s->db, text);
}

/* As the files of the broker are, and not for everybody to read; those beside it follow. */
static void make_file(const struct sqlite_db *s)
{
    struct mr_file *file = NULL;
    if (mr_fs_open(mr_fs_system(), s->path, MR_OPEN_CREATE, &file) == MR_OK)
        mr_file_close(file);
}

static enum mr_err connect_file(struct db *db)
{
    struct sqlite_db *s = of(db);
    disconnect(s);
    make_file(s);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int code = sqlite3_open_v2(s->path, &s->handle, flags, NULL);
    enum mr_err err = err_of(s, code);
    return err == MR_OK ? set_up(s) : err;
}

static void free_db(struct db *db)
{
    disconnect(of(db));
    free(of(db));
}

static enum mr_err schema(struct db *db, uint32_t *ret_schema)
{
    struct sqlite_db *s = of(db);
    MR_TRY(check_ours(s)); /* again, now that nobody else writes */
    int64_t there = 0, known = 0;
    MR_TRY(number(s, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'", &there));
    if (there == 0) {
        char text[128];
        snprintf(text, sizeof text,
                 "PRAGMA application_id = %d; CREATE TABLE meta (schema INTEGER NOT NULL)",
                 SQL_APPLICATION_ID);
        *ret_schema = 0;
        return script(db, text);
    }
    MR_TRY(number(s, "SELECT schema FROM meta", &known));
    *ret_schema = known >= 0 && known <= UINT32_MAX ? (uint32_t)known : UINT32_MAX;
    return MR_OK;
}

/* ---- transactions --------------------------------------------------------------------------- */

static enum mr_err begin(struct db *db, enum db_access access)
{
    return script(db, access == DB_WRITE ? "BEGIN IMMEDIATE" : "BEGIN");
}

static enum mr_err commit(struct db *db)
{
    return script(db, "COMMIT");
}

/* ---- statements ----------------------------------------------------------------------------- */

static enum mr_err prepare(struct sqlite_db *s, size_t statement)
{
    struct prepared *p = &s->prepared[statement];
    if (p->stmt)
        return MR_OK;
    const struct statement *st = sql_statement(statement);
    MR_TRY(err_of(s, sqlite3_prepare_v3(s->handle, st->sqlite, -1, SQLITE_PREPARE_PERSISTENT,
                                        &p->stmt, NULL)));
    for (int i = 0; st->params[i]; i++) {
        char name[16];
        snprintf(name, sizeof name, "$%d", i + 1);
        p->places[i] = sqlite3_bind_parameter_index(p->stmt, name);
    }
    return MR_OK;
}

/* Empty bytes with no address would be NULL. */
static const void *address(struct mr_slice bytes)
{
    return bytes.len > 0 ? bytes.data : "";
}

static int bind(struct prepared *p, const char *params, const struct db_value *values)
{
    int code = SQLITE_OK;
    for (int i = 0; params[i] && code == SQLITE_OK; i++) {
        struct mr_slice bytes = values[i].bytes;
        if (p->places[i] == 0)
            continue;
        if (params[i] == 'i' || params[i] == 'I')
            code = sqlite3_bind_int64(p->stmt, p->places[i], values[i].number);
        else if (params[i] == 't')
            code = sqlite3_bind_text64(p->stmt, p->places[i], address(bytes), bytes.len,
                                       SQLITE_STATIC, SQLITE_UTF8);
        else
            code = sqlite3_bind_blob64(p->stmt, p->places[i], address(bytes), bytes.len,
                                       SQLITE_STATIC);
    }
    return code;
}

static void read_row(sqlite3_stmt *stmt, const char *columns, struct db_value *row)
{
    for (int i = 0; columns[i]; i++) {
        if (columns[i] == 'i')
            row[i] = db_number(sqlite3_column_int64(stmt, i));
        else {
            const void *bytes = sqlite3_column_blob(stmt, i);
            row[i] = db_bytes(mr_slice_make(bytes, (size_t)sqlite3_column_bytes(stmt, i)));
        }
    }
}

static enum mr_err run_item(struct sqlite_db *s, size_t statement, const struct db_value *values,
                            size_t item, db_row *take, void *arg)
{
    struct prepared *p = &s->prepared[statement];
    const struct statement *st = sql_statement(statement);
    enum mr_err err = err_of(s, bind(p, st->params, values));
    while (err == MR_OK) {
        int code = sqlite3_step(p->stmt);
        if (code == SQLITE_DONE)
            break;
        err = err_of(s, code);
        if (err == MR_OK && take) {
            struct db_value row[DB_COLUMNS_MAX];
            read_row(p->stmt, st->columns, row);
            err = take(item, row, arg);
        }
    }
    sqlite3_reset(p->stmt);
    return err;
}

/* A statement is over with the item whose rows are enough. */
static enum mr_err run(struct db *db, size_t statement, const struct db_value *values, size_t n,
                       db_row *take, void *arg)
{
    struct sqlite_db *s = of(db);
    size_t width = strlen(sql_statement(statement)->params);
    mr_assert(n == 1 || sql_statement(statement)->many);
    MR_TRY(prepare(s, statement));
    enum mr_err err = MR_OK;
    for (size_t i = 0; err == MR_OK && i < n; i++)
        err = run_item(s, statement, values + i * width, i, take, arg);
    sqlite3_clear_bindings(s->prepared[statement].stmt);
    return err == DB_ENOUGH ? MR_OK : err;
}

static enum mr_err now(struct db *db, int64_t *ret_ms)
{
    *ret_ms = mr_wall_ms(mr_wall_now(of(db)->clock));
    return MR_OK;
}

static enum mr_err about(struct db *db, char *engine, size_t cap, uint64_t *ret_bytes)
{
    struct sqlite_db *s = of(db);
    int64_t pages = 0, size = 0;
    MR_TRY(number(s, "PRAGMA page_count", &pages));
    MR_TRY(number(s, "PRAGMA page_size", &size));
    snprintf(engine, cap, "sqlite %s", sqlite3_libversion());
    *ret_bytes = (uint64_t)(pages * size);
    return MR_OK;
}

static const struct db_ops sqlite_ops = {
    .connect = connect_file,
    .free = free_db,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .run = run,
    .script = script,
    .now = now,
    .schema = schema,
    .about = about,
    .dialect = SQL_SQLITE,
};

enum mr_err sqlite_db_new(const struct mr_store_options *options, const char *rest,
                          struct db **ret_db, struct mr_detail *detail)
{
    size_t len = strlen(rest);
    if (len == 0) {
        mr_detail_set(detail, "sqlite: the path of a file is missing");
        return MR_INVALID;
    }
    struct sqlite_db *s = calloc(1, sizeof *s + len + 1);
    if (!s)
        return MR_NOMEM;
    memcpy(s->path, rest, len);
    s->db.ops = &sqlite_ops;
    s->clock = options->clock ? options->clock : mr_clock_system();
    *ret_db = &s->db;
    return MR_OK;
}
