/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of the schema, oldest first. A step is never changed once it has been released: stores in
 * the world have gone it. docs/store.md says what the columns mean.
 */
#include "store/sql_jobs.h"

#include <stdio.h>

#define STEP_1_INDEXES                                                                             \
    "CREATE UNIQUE INDEX timer_uid ON timer (uid) WHERE state <= 3;"                               \
    "CREATE INDEX timer_due ON timer (app, next_ms, uid) WHERE state = 1;"                         \
    "CREATE INDEX timer_changed ON timer (app, changed) WHERE state = 1;"                          \
    "CREATE INDEX timer_gone ON timer (changed_ms, state) WHERE state >= 4;"                       \
    "CREATE INDEX firing_open ON firing (app, planned_ms, uid) WHERE state <= 3;"                  \
    "CREATE INDEX firing_ended ON firing (finished_ms) WHERE state > 3;"

static const char step_1_sqlite[] =
    "CREATE TABLE app (name TEXT PRIMARY KEY, changed INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE lease (name TEXT PRIMARY KEY, owner TEXT NOT NULL, token INTEGER NOT NULL,"
    " until_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE timer (app TEXT NOT NULL, name TEXT NOT NULL, uid BLOB NOT NULL,"
    " version INTEGER NOT NULL, state INTEGER NOT NULL, definition BLOB NOT NULL,"
    " next_ms INTEGER NOT NULL, fired INTEGER NOT NULL, last_ms INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, changed INTEGER NOT NULL, changed_ms INTEGER NOT NULL,"
    " PRIMARY KEY (app, name));"
    "CREATE TABLE firing (uid BLOB NOT NULL, planned_ms INTEGER NOT NULL, app TEXT NOT NULL,"
    " name TEXT NOT NULL, until_ms INTEGER NOT NULL, run INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " state INTEGER NOT NULL, reason TEXT NOT NULL, attempt INTEGER NOT NULL,"
    " fired_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL,"
    " PRIMARY KEY (uid, planned_ms)) WITHOUT ROWID;" STEP_1_INDEXES;

/* Names are ordered by their bytes, whatever the language of the database is. */
static const char step_1_postgres[] =
    "CREATE TABLE app (name text COLLATE \"C\" PRIMARY KEY, changed bigint NOT NULL);"
    "CREATE TABLE lease (name text COLLATE \"C\" PRIMARY KEY, owner text NOT NULL,"
    " token bigint NOT NULL, until_ms bigint NOT NULL, ttl_ms bigint NOT NULL);"
    "CREATE TABLE timer (app text COLLATE \"C\" NOT NULL, name text COLLATE \"C\" NOT NULL,"
    " uid bytea NOT NULL, version bigint NOT NULL, state smallint NOT NULL,"
    " definition bytea NOT NULL, next_ms bigint NOT NULL, fired bigint NOT NULL,"
    " last_ms bigint NOT NULL, created_ms bigint NOT NULL, changed bigint NOT NULL,"
    " changed_ms bigint NOT NULL, PRIMARY KEY (app, name));"
    "CREATE TABLE firing (uid bytea NOT NULL, planned_ms bigint NOT NULL,"
    " app text COLLATE \"C\" NOT NULL, name text COLLATE \"C\" NOT NULL, until_ms bigint NOT NULL,"
    " run integer NOT NULL, kind smallint NOT NULL, state smallint NOT NULL, reason text NOT NULL,"
    " attempt integer NOT NULL, fired_ms bigint NOT NULL, started_ms bigint NOT NULL,"
    " finished_ms bigint NOT NULL, PRIMARY KEY (uid, planned_ms));" STEP_1_INDEXES;

/* What is there is known without counting it. */
static const char step_2[] =
    "ALTER TABLE app ADD COLUMN active bigint NOT NULL DEFAULT 0;"
    "ALTER TABLE app ADD COLUMN paused bigint NOT NULL DEFAULT 0;"
    "ALTER TABLE app ADD COLUMN finished bigint NOT NULL DEFAULT 0;"
    "UPDATE app SET"
    " active = (SELECT count(*) FROM timer t WHERE t.app = app.name AND t.state = 1),"
    " paused = (SELECT count(*) FROM timer t WHERE t.app = app.name AND t.state = 2),"
    " finished = (SELECT count(*) FROM timer t WHERE t.app = app.name AND t.state = 3);";

/* Where the task of a firing goes is decided once. */
static const char step_3[] = "ALTER TABLE firing ADD COLUMN target TEXT NOT NULL DEFAULT '';";

/* Who is there to share the apps. */
static const char step_4_sqlite[] =
    "CREATE TABLE server (name TEXT PRIMARY KEY, apps TEXT NOT NULL, until_ms INTEGER NOT NULL,"
    " ttl_ms INTEGER NOT NULL) WITHOUT ROWID;";

static const char step_4_postgres[] =
    "CREATE TABLE server (name text COLLATE \"C\" PRIMARY KEY, apps text NOT NULL,"
    " until_ms bigint NOT NULL, ttl_ms bigint NOT NULL);";

/* The open rows of a timer are few, whatever its app has. */
static const char step_5[] =
    "CREATE INDEX firing_open_of ON firing (uid, planned_ms) WHERE state <= 3;";

/* How apps are cut, and which broker the task of a firing is in. Slots need no column (mr_store_slot). */
#define STEP_8_HOMES                                                                               \
    "ALTER TABLE firing ADD COLUMN home TEXT NOT NULL DEFAULT '';"                                 \
    "ALTER TABLE server ADD COLUMN home TEXT NOT NULL DEFAULT '';"

static const char step_8_sqlite[] =
    "CREATE TABLE subapps (app TEXT PRIMARY KEY, version INTEGER NOT NULL, parts BLOB NOT NULL,"
    " wish BLOB NOT NULL, wish_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE subapp_move (number INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,"
    " app TEXT NOT NULL, part INTEGER NOT NULL, source TEXT NOT NULL, goal TEXT NOT NULL,"
    " reason TEXT NOT NULL);" STEP_8_HOMES;

static const char step_8_postgres[] =
    "CREATE TABLE subapps (app text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL,"
    " parts bytea NOT NULL, wish bytea NOT NULL, wish_ms bigint NOT NULL);"
    "CREATE TABLE subapp_move (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " at_ms bigint NOT NULL, app text NOT NULL, part bigint NOT NULL, source text NOT NULL,"
    " goal text NOT NULL, reason text NOT NULL);" STEP_8_HOMES;

const char *const sql_steps[][SQL_DIALECTS] = {
    {step_1_sqlite, step_1_postgres},
    {step_2, step_2},
    {step_3, step_3},
    {step_4_sqlite, step_4_postgres},
    {step_5, step_5},
    {sql_step_jobs_sqlite, sql_step_jobs_postgres},
    {sql_step_retries, sql_step_retries},
    {step_8_sqlite, step_8_postgres},
};

const uint32_t sql_schema = sizeof sql_steps / sizeof sql_steps[0];

static enum mr_err go_steps(struct db *db, uint32_t from)
{
    for (uint32_t i = from; i < sql_schema; i++)
        MR_TRY(db->ops->script(db, sql_steps[i][db->ops->dialect]));
    char text[64];
    snprintf(text, sizeof text,
             from == 0 ? "INSERT INTO meta (schema) VALUES (%u)" : "UPDATE meta SET schema = %u",
             sql_schema);
    return db->ops->script(db, text);
}

/* In one transaction: a step that fails leaves all as it was. */
static enum mr_err migrate(struct db *db, uint32_t *ret_there)
{
    MR_TRY(db->ops->begin(db, DB_WRITE));
    enum mr_err err = db->ops->schema(db, ret_there);
    if (err == MR_OK && *ret_there > sql_schema)
        err = MR_VERSION;
    if (err == MR_OK && *ret_there < sql_schema)
        err = go_steps(db, *ret_there);
    if (err == MR_OK)
        return db->ops->commit(db);
    db->ops->rollback(db);
    return err;
}

enum mr_err sql_migrate(struct db *db, struct mr_detail *detail)
{
    uint32_t there = 0;
    enum mr_err err = migrate(db, &there);
    if (err == MR_VERSION)
        mr_detail_set(
            detail,
            "the store has schema %u, this Millrace knows schemas up to %u: use a newer one", there,
            sql_schema);
    else if (err != MR_OK)
        mr_detail_set(detail, "%s", db->text);
    return err;
}
