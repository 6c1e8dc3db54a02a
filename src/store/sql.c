/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All statements. They are the same text for both kinds of database where they can be. Those for many
 * items are one statement with arrays on PostgreSQL, and carried out once per item on SQLite.
 *
 * States are numbers (store.h), and the partial indexes go by them: a timer is active in state 1,
 * there up to 3, a tombstone from 4 on; a firing is open up to state 3.
 */
#include "store/sql.h"

#include "store/store.h"

_Static_assert(MR_ROW_ACTIVE == 1 && MR_ROW_FINISHED == 3 && MR_ROW_DELETED == 4,
               "the texts go by these numbers");
_Static_assert(MR_LEDGER_WAITING == 1 && MR_LEDGER_RUNNING == 3 && MR_LEDGER_FAILED == 4,
               "the texts go by these numbers");

#define TIMER                                                                                      \
    "t.app, t.name, t.uid, t.version, t.state, t.definition, t.next_ms, t.fired, t.last_ms,"       \
    " t.created_ms, t.changed"
#define TIMER_TYPES "ttbiibiiiii"

#define FIRING                                                                                     \
    "f.app, f.name, f.uid, f.planned_ms, f.until_ms, f.run, f.kind, f.state, f.reason, f.attempt," \
    " f.fired_ms, f.started_ms, f.finished_ms, f.target, f.home"
#define FIRING_TYPES "ttbiiiiitiiiitt"
#define FIRING_NAMES                                                                               \
    "app, name, uid, planned_ms, until_ms, run, kind, state, reason, attempt, fired_ms,"           \
    " started_ms, finished_ms, target, home"

#define TIMER_NAMES                                                                                \
    "app, name, uid, version, state, definition, next_ms, fired, last_ms, created_ms, changed,"    \
    " changed_ms"
#define TIMER_PUT                                                                                  \
    " ON CONFLICT (app, name) DO UPDATE SET uid = excluded.uid, version = excluded.version,"       \
    " state = excluded.state, definition = excluded.definition, next_ms = excluded.next_ms,"       \
    " fired = excluded.fired, last_ms = excluded.last_ms, created_ms = excluded.created_ms,"       \
    " changed = excluded.changed, changed_ms = excluded.changed_ms"

#define LIST_WHERE     " WHERE (app, name) > ($1, $2) AND name >= $3 AND name <= $4"
#define LIST_APP_WHERE " WHERE app = $1 AND name > $2 AND name >= $3 AND name <= $4"

#define SUM(column) "CAST(coalesce(sum(" column "), 0) AS bigint)"

_Static_assert(sizeof MR_APP_LEASE_PREFIX == 5, "the list of apps goes by app: and its length");

/* Whether the slot of a uid is in a mask: its last six bits (mr_store_slot). slot() is our own function in SQLite. */
#define IN_SLOTS_SQLITE(uid, mask) "(" mask " = -1 OR ((" mask " >> slot(" uid ")) & 1) = 1)"
#define IN_SLOTS_POSTGRES(uid, mask)                                                               \
    "(" mask " = -1 OR ((" mask " >> (get_byte(" uid ", 15) & 63)) & 1) = 1)"

/* Of a mask of states. */
#define IN_STATES(column, mask) "((1 << CAST(" column " AS integer)) & " mask ") <> 0"

#define DUE(in_slots)                                                                              \
    "SELECT " TIMER " FROM timer t WHERE t.app = $1 AND t.state = 1 AND t.next_ms <= $2"           \
    " AND (t.next_ms, t.uid) > ($3, $4) AND " in_slots " ORDER BY t.next_ms, t.uid LIMIT $5"
/* The plus keeps the index of due times out of it: few have changed, and many may be due. */
#define DUE_SINCE(in_slots)                                                                        \
    "SELECT " TIMER " FROM timer t WHERE t.app = $1 AND t.state = 1"                               \
    " AND t.changed > $6 AND +t.next_ms <= $2 AND (+t.next_ms, t.uid) > ($3, $4)"                  \
    " AND " in_slots " ORDER BY +t.next_ms, t.uid LIMIT $5"

/* app, after_ms, after_uid, max, slots, home; of one timer its uid in the place of slots */
#define FIRING_OPEN(in_slots)                                                                      \
    "SELECT " FIRING " FROM firing f WHERE f.app = $1 AND f.state <= 3"                            \
    " AND (f.planned_ms, f.uid) > ($2, $3) AND " in_slots " AND ($6 = '' OR f.home = $6)"          \
    " ORDER BY f.planned_ms, f.uid LIMIT $4"

const struct statement sql_statements[SQL_COUNT] = {
    /* A row is there for good, and its number only rises. Whoever has raised it holds the row until the
     * end of the transaction, so numbers come in the order of commits. */
    [SQL_APP_TOUCH] =
        {"t", "ii",
         "INSERT INTO app (name, changed) VALUES ($1, 1) ON CONFLICT (name)"
         " DO UPDATE SET changed = app.changed + 1 RETURNING changed, 0",
         "INSERT INTO app (name, changed) VALUES ($1, 1) ON CONFLICT (name)"
         " DO UPDATE SET changed = app.changed + 1"
         " RETURNING changed, (extract(epoch FROM clock_timestamp()) * 1000)::bigint"},
    [SQL_APP_COUNT] = {"tiii", "",
                       "UPDATE app SET active = active + $2, paused = paused + $3,"
                       " finished = finished + $4 WHERE name = $1"},
    [SQL_LEASE_ADD] =
        {"t", "",
         "INSERT INTO lease (name, owner, token, until_ms, ttl_ms)"
         " VALUES ($1, '', 0, 0, 0) ON CONFLICT (name) DO NOTHING",
         "INSERT INTO lease (name, owner, token, until_ms, ttl_ms)"
         " SELECT k.name, '', 0, 0, 0 FROM unnest($1) AS k(name) ORDER BY k.name COLLATE \"C\""
         " ON CONFLICT (name) DO NOTHING",
         true},
    [SQL_LEASE_LOCK] = {"t", "tiii",
                        "SELECT owner, token, until_ms, ttl_ms FROM lease WHERE name = $1",
                        "SELECT k.ord, l.owner, l.token, l.until_ms, l.ttl_ms"
                        " FROM unnest($1) WITH ORDINALITY AS k(name, ord)"
                        " JOIN lease l ON l.name = k.name ORDER BY l.name FOR UPDATE OF l",
                        true},
    [SQL_LEASE_SET] = {"ttiii", "",
                       "UPDATE lease SET owner = $2, token = $3, until_ms = $4, ttl_ms = $5"
                       " WHERE name = $1",
                       "UPDATE lease SET owner = k.owner, token = k.token, until_ms = k.until_ms,"
                       " ttl_ms = k.ttl_ms FROM unnest($1, $2, $3, $4, $5)"
                       " AS k(name, owner, token, until_ms, ttl_ms) WHERE lease.name = k.name",
                       true},
    [SQL_LEASE_LIST] =
        {"tti", "ttii",
         "SELECT name, owner, token, until_ms FROM lease WHERE name > $1 AND name >= $2"
         " AND token > 0 AND substr(name, 1, length($2)) = $2 ORDER BY name LIMIT $3"},
    [SQL_SERVER_PUT] = {"ttiit", "",
                        "INSERT INTO server (name, apps, until_ms, ttl_ms, home)"
                        " VALUES ($1, $2, $3, $4, $5)"
                        " ON CONFLICT (name) DO UPDATE SET apps = excluded.apps,"
                        " until_ms = excluded.until_ms, ttl_ms = excluded.ttl_ms,"
                        " home = excluded.home"},
    /* One of them, and those that were over at a time. */
    [SQL_SERVER_REMOVE] = {"ti", "", "DELETE FROM server WHERE name = $1 OR until_ms < $2"},
    [SQL_SERVER_LIST] = {"ii", "tttii",
                         "SELECT name, apps, home, until_ms, ttl_ms FROM server"
                         " WHERE until_ms > $1 ORDER BY name LIMIT $2"},
    /* An app may have an owner before it has a timer. The semicolon is behind the colon. */
    [SQL_APP_LIST] = {"ti", "ttii",
                      "SELECT a.name, coalesce(l.owner, ''), coalesce(l.until_ms, 0),"
                      " coalesce(l.ttl_ms, 0) FROM (SELECT name FROM app WHERE name > $1"
                      " UNION SELECT substr(name, 5) FROM lease WHERE name > 'app:' || $1"
                      " AND name < 'app;') a LEFT JOIN lease l ON l.name = 'app:' || a.name"
                      " ORDER BY a.name LIMIT $2"},
    [SQL_APP_CHANGED] = {"t", "i", "SELECT changed FROM app WHERE name = $1"},
    [SQL_TIMER_BY_NAME] =
        {"tt", TIMER_TYPES, "SELECT " TIMER " FROM timer t WHERE t.app = $1 AND t.name = $2",
         "SELECT k.ord, " TIMER " FROM unnest($1, $2) WITH ORDINALITY"
         " AS k(app, name, ord) JOIN timer t ON t.app = k.app AND t.name = k.name",
         true},
    [SQL_TIMER_BY_UID] = {"b", TIMER_TYPES,
                          "SELECT " TIMER " FROM timer t WHERE t.uid = $1 AND t.state <= 3",
                          "SELECT k.ord, " TIMER " FROM unnest($1) WITH ORDINALITY AS k(uid, ord)"
                          " JOIN timer t ON t.uid = k.uid AND t.state <= 3",
                          true},
    [SQL_TIMER_HEAD_BY_NAME] = {"tt", "biiiiii",
                                "SELECT uid, version, state, next_ms, fired, last_ms, created_ms"
                                " FROM timer WHERE app = $1 AND name = $2",
                                "SELECT k.ord, t.uid, t.version, t.state, t.next_ms, t.fired,"
                                " t.last_ms, t.created_ms FROM unnest($1, $2) WITH ORDINALITY"
                                " AS k(app, name, ord)"
                                " JOIN timer t ON t.app = k.app AND t.name = k.name",
                                true},
    [SQL_TIMER_HEAD_BY_UID] =
        {"b", "ttiiiii",
         "SELECT app, name, version, state, next_ms, fired, last_ms"
         " FROM timer WHERE uid = $1 AND state <= 3",
         "SELECT k.ord, t.app, t.name, t.version, t.state, t.next_ms, t.fired,"
         " t.last_ms FROM unnest($1) WITH ORDINALITY AS k(uid, ord)"
         " JOIN timer t ON t.uid = k.uid AND t.state <= 3",
         true},
    [SQL_TIMER_PUT] = {"ttbiibiiiiii", "",
                       "INSERT INTO timer (" TIMER_NAMES ")"
                       " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)" TIMER_PUT,
                       "INSERT INTO timer (" TIMER_NAMES ") SELECT * FROM"
                       " unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)" TIMER_PUT,
                       true},
    [SQL_TIMER_MOVE] = {"biiii", "",
                        "UPDATE timer SET state = $2, next_ms = $3, fired = $4, last_ms = $5"
                        " WHERE uid = $1 AND state <= 3",
                        "UPDATE timer SET state = k.state, next_ms = k.next_ms, fired = k.fired,"
                        " last_ms = k.last_ms FROM unnest($1, $2, $3, $4, $5)"
                        " AS k(uid, state, next_ms, fired, last_ms)"
                        " WHERE timer.uid = k.uid AND timer.state <= 3",
                        true},
    [SQL_TIMER_TOUCH] = {"bi", "", "UPDATE timer SET changed = $2 WHERE uid = $1 AND state <= 3",
                         "UPDATE timer SET changed = k.changed FROM unnest($1, $2)"
                         " AS k(uid, changed) WHERE timer.uid = k.uid AND timer.state <= 3",
                         true},
    /* after_app, after_name, first and last of the prefix, states, max, and how many are looked at */
    [SQL_TIMER_LIST] = {"ttttiii", TIMER_TYPES,
                        "SELECT " TIMER " FROM (SELECT * FROM timer" LIST_WHERE
                        " ORDER BY app, name LIMIT $7) t WHERE " IN_STATES("t.state", "$5") //
                        " ORDER BY t.app, t.name LIMIT $6"},
    [SQL_TIMER_LIST_APP] = {"ttttiii", TIMER_TYPES,
                            "SELECT " TIMER " FROM (SELECT * FROM timer" LIST_APP_WHERE
                            " ORDER BY app, name LIMIT $7) t WHERE " IN_STATES("t.state", "$5") //
                            " ORDER BY t.app, t.name LIMIT $6"},
    /* The last of those that are looked at, when there are so many. */
    [SQL_TIMER_PLACE] = {"tttti", "tt",
                         "SELECT app, name FROM timer" LIST_WHERE
                         " ORDER BY app, name LIMIT 1 OFFSET $5"},
    [SQL_TIMER_PLACE_APP] = {"tttti", "tt",
                             "SELECT app, name FROM timer" LIST_APP_WHERE
                             " ORDER BY app, name LIMIT 1 OFFSET $5"},
    /* app, until, after_ms, after_uid, max, since, slots */
    [SQL_DUE] = {"tiibiii", TIMER_TYPES, DUE(IN_SLOTS_SQLITE("t.uid", "$7")),
                 DUE(IN_SLOTS_POSTGRES("t.uid", "$7"))},
    [SQL_DUE_SINCE] = {"tiibiii", TIMER_TYPES, DUE_SINCE(IN_SLOTS_SQLITE("t.uid", "$7")),
                       DUE_SINCE(IN_SLOTS_POSTGRES("t.uid", "$7"))},
    [SQL_FIRING_GET] = {"bi", FIRING_TYPES,
                        "SELECT " FIRING " FROM firing f WHERE f.uid = $1 AND f.planned_ms = $2",
                        "SELECT k.ord, " FIRING " FROM unnest($1, $2) WITH ORDINALITY"
                        " AS k(uid, planned_ms, ord)"
                        " JOIN firing f ON f.uid = k.uid AND f.planned_ms = k.planned_ms",
                        true},
    [SQL_FIRING_ADD] = {FIRING_TYPES, "",
                        "INSERT INTO firing (" FIRING_NAMES ")"
                        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
                        " $15)",
                        "INSERT INTO firing (" FIRING_NAMES ") SELECT * FROM"
                        " unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
                        " $15)",
                        true},
    /* uid, planned, run, state, reason, attempt, started, finished, target, home */
    [SQL_FIRING_SET] = {"biiitiiitt", "",
                        "UPDATE firing SET run = $3, state = $4, reason = $5, attempt = $6,"
                        " started_ms = $7, finished_ms = $8, target = $9, home = $10"
                        " WHERE uid = $1 AND planned_ms = $2",
                        "UPDATE firing SET run = k.run, state = k.state, reason = k.reason,"
                        " attempt = k.attempt, started_ms = k.started_ms,"
                        " finished_ms = k.finished_ms, target = k.target, home = k.home"
                        " FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS k(uid,"
                        " planned_ms, run, state, reason, attempt, started_ms, finished_ms,"
                        " target, home)"
                        " WHERE firing.uid = k.uid AND firing.planned_ms = k.planned_ms",
                        true},
    [SQL_FIRING_LIST] = {"biii", FIRING_TYPES,
                         "SELECT " FIRING " FROM firing f WHERE f.uid = $1 AND f.planned_ms < $2"
                         " AND " IN_STATES("f.state", "$3") //
                         " ORDER BY f.planned_ms DESC LIMIT $4"},
    [SQL_FIRING_OPEN] = {"tibiit", FIRING_TYPES, FIRING_OPEN(IN_SLOTS_SQLITE("f.uid", "$5")),
                         FIRING_OPEN(IN_SLOTS_POSTGRES("f.uid", "$5"))},
    /* Not by the app, which may have many more of them (on SQLite, which does not count, the texts say so), nor by the
     * whole history of the timer. */
    [SQL_FIRING_OPEN_OF] = {"tibib", FIRING_TYPES,
                            "SELECT " FIRING " FROM firing f INDEXED BY firing_open_of"
                            " WHERE f.app = $1 AND f.uid = $5 AND f.state <= 3"
                            " AND (f.planned_ms, f.uid) > ($2, $3)"
                            " ORDER BY f.planned_ms LIMIT $4",
                            "SELECT " FIRING " FROM firing f WHERE f.app = $1 AND f.uid = $5"
                            " AND f.state <= 3 AND (f.planned_ms, f.uid) > ($2, $3)"
                            " ORDER BY f.planned_ms LIMIT $4"},
    /* Those that wait with a reason have not begun. */
    [SQL_FIRING_RUNNING] =
        {"bt", "ii",
         "SELECT count(*) FILTER (WHERE NOT (state = 1 AND reason <> '')), count(*)"
         " FROM firing INDEXED BY firing_open_of WHERE uid = $1 AND state <= 3 AND app = $2",
         "SELECT k.ord, n.running, n.open"
         " FROM unnest($1, $2) WITH ORDINALITY AS k(uid, app, ord),"
         " LATERAL (SELECT count(*) FILTER (WHERE NOT (f.state = 1 AND f.reason <> '')) AS running,"
         " count(*) AS open FROM firing f WHERE f.uid = k.uid AND f.state <= 3 AND f.app = k.app) "
         "n",
         true},
    [SQL_SUBAPPS_GET] = {"t", "ibb", "SELECT version, parts, wish FROM subapps WHERE app = $1"},
    [SQL_SUBAPPS_PUT] = {"tibbi", "",
                         "INSERT INTO subapps (app, version, parts, wish, wish_ms)"
                         " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (app) DO UPDATE"
                         " SET version = excluded.version, parts = excluded.parts,"
                         " wish = excluded.wish, wish_ms = excluded.wish_ms"},
    [SQL_SUBAPPS_LIST] = {"ti", "tibbi",
                          "SELECT app, version, parts, wish, wish_ms FROM subapps WHERE app > $1"
                          " ORDER BY app LIMIT $2"},
    [SQL_MOVE_ADD] = {"itittt", "",
                      "INSERT INTO subapp_move (at_ms, app, part, source, goal, reason)"
                      " VALUES ($1, $2, $3, $4, $5, $6)"},
    [SQL_MOVE_TRIM] = {"i", "",
                       "DELETE FROM subapp_move WHERE number <="
                       " (SELECT max(number) FROM subapp_move) - $1"},
    [SQL_MOVE_LIST] = {"i", "iitittt",
                       "SELECT number, at_ms, app, part, source, goal, reason FROM subapp_move"
                       " ORDER BY number DESC LIMIT $1"},
    /* Once more at the row itself: it may be run again right now. The plus leaves the rows to the list of keys. */
    [SQL_RETAIN_FIRINGS] = {"ii", "i",
                            "DELETE FROM firing WHERE (uid, planned_ms) IN (SELECT uid, planned_ms"
                            " FROM firing WHERE state > 3 AND finished_ms < $1"
                            " ORDER BY finished_ms LIMIT $2)"
                            " AND +state > 3 AND +finished_ms < $1 RETURNING 1"},
    [SQL_RETAIN_TIMERS] = {"ii", "i",
                           "DELETE FROM timer WHERE (app, name) IN (SELECT app, name FROM timer"
                           " WHERE state >= 4 AND changed_ms < $1 ORDER BY changed_ms LIMIT $2)"
                           " AND state >= 4 AND changed_ms < $1 RETURNING 1"},
    /* Of apps the counts of active, paused and finished timers; tombstones and what has not ended have
     * indexes of their own. */
    [SQL_COUNT_TIMERS] = {"", "ii",
                          "SELECT 1, " SUM("active") " FROM app UNION ALL SELECT 2, " SUM(
                              "paused") //
                          " FROM app UNION ALL SELECT 3, " SUM(
                              "finished") " FROM app"
                                          " UNION ALL SELECT state, count(*) FROM timer"
                                          " WHERE state >= 4 GROUP BY state"},
    [SQL_COUNT_FIRINGS] = {"", "ii",
                           "SELECT state, count(*) FROM firing WHERE state <= 3 GROUP BY state"},
    [SQL_COUNT_REST] = {"", "ii",
                        "SELECT (SELECT count(*) FROM app), (SELECT count(*) FROM lease)"},
};
