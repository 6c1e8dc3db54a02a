-- SPDX-License-Identifier: Apache-2.0
-- A store of schema 1, as SQLite has it.
PRAGMA application_id = 1835625580;
CREATE TABLE meta (schema INTEGER NOT NULL);
CREATE TABLE app (name TEXT PRIMARY KEY, changed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE lease (name TEXT PRIMARY KEY, owner TEXT NOT NULL, token INTEGER NOT NULL, until_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE timer (app TEXT NOT NULL, name TEXT NOT NULL, uid BLOB NOT NULL, version INTEGER NOT NULL, state INTEGER NOT NULL, definition BLOB NOT NULL, next_ms INTEGER NOT NULL, fired INTEGER NOT NULL, last_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL, changed INTEGER NOT NULL, changed_ms INTEGER NOT NULL, PRIMARY KEY (app, name));
CREATE TABLE firing (uid BLOB NOT NULL, planned_ms INTEGER NOT NULL, app TEXT NOT NULL, name TEXT NOT NULL, until_ms INTEGER NOT NULL, run INTEGER NOT NULL, kind INTEGER NOT NULL, state INTEGER NOT NULL, reason TEXT NOT NULL, attempt INTEGER NOT NULL, fired_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL, PRIMARY KEY (uid, planned_ms)) WITHOUT ROWID;
CREATE UNIQUE INDEX timer_uid ON timer (uid) WHERE state <= 3;
CREATE INDEX timer_due ON timer (app, next_ms, uid) WHERE state = 1;
CREATE INDEX timer_changed ON timer (app, changed) WHERE state = 1;
CREATE INDEX timer_gone ON timer (changed_ms, state) WHERE state >= 4;
CREATE INDEX firing_open ON firing (app, planned_ms, uid) WHERE state <= 3;
CREATE INDEX firing_ended ON firing (finished_ms) WHERE state > 3;
INSERT INTO meta VALUES (1);
INSERT INTO app VALUES ('a', 7);
INSERT INTO lease VALUES ('app:a', 'somebody', 5, 1000, 1000);
INSERT INTO timer VALUES ('a', 'n', x'01000000000000000000000000000001', 10, 1, x'646566', 3000, 2, 2000, 500, 6, 600);
INSERT INTO timer VALUES ('a', 'gone', x'01000000000000000000000000000002', 20, 4, x'', 9223372036854775807, 0, 0, 500, 7, 700);
INSERT INTO firing VALUES (x'01000000000000000000000000000001', 1000, 'a', 'n', 0, 0, 0, 5, '', 1, 1001, 1002, 1003);
INSERT INTO firing VALUES (x'01000000000000000000000000000001', 2000, 'a', 'n', 0, 1, 0, 2, 'why', 2, 2001, 0, 0);
