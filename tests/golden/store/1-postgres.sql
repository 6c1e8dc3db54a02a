-- SPDX-License-Identifier: Apache-2.0
-- A store of schema 1, as PostgreSQL has it.
CREATE SCHEMA millrace;
SET search_path = millrace;
CREATE TABLE meta (schema integer NOT NULL);
CREATE TABLE app (name text COLLATE "C" PRIMARY KEY, changed bigint NOT NULL);
CREATE TABLE lease (name text COLLATE "C" PRIMARY KEY, owner text NOT NULL, token bigint NOT NULL, until_ms bigint NOT NULL, ttl_ms bigint NOT NULL);
CREATE TABLE timer (app text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, uid bytea NOT NULL, version bigint NOT NULL, state smallint NOT NULL, definition bytea NOT NULL, next_ms bigint NOT NULL, fired bigint NOT NULL, last_ms bigint NOT NULL, created_ms bigint NOT NULL, changed bigint NOT NULL, changed_ms bigint NOT NULL, PRIMARY KEY (app, name));
CREATE TABLE firing (uid bytea NOT NULL, planned_ms bigint NOT NULL, app text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, until_ms bigint NOT NULL, run integer NOT NULL, kind smallint NOT NULL, state smallint NOT NULL, reason text NOT NULL, attempt integer NOT NULL, fired_ms bigint NOT NULL, started_ms bigint NOT NULL, finished_ms bigint NOT NULL, PRIMARY KEY (uid, planned_ms));
CREATE UNIQUE INDEX timer_uid ON timer (uid) WHERE state <= 3;
CREATE INDEX timer_due ON timer (app, next_ms, uid) WHERE state = 1;
CREATE INDEX timer_changed ON timer (app, changed) WHERE state = 1;
CREATE INDEX timer_gone ON timer (changed_ms, state) WHERE state >= 4;
CREATE INDEX firing_open ON firing (app, planned_ms, uid) WHERE state <= 3;
CREATE INDEX firing_ended ON firing (finished_ms) WHERE state > 3;
INSERT INTO meta VALUES (1);
INSERT INTO app VALUES ('a', 7);
INSERT INTO lease VALUES ('app:a', 'somebody', 5, 1000, 1000);
INSERT INTO timer VALUES ('a', 'n', '\x01000000000000000000000000000001', 10, 1, '\x646566', 3000, 2, 2000, 500, 6, 600);
INSERT INTO timer VALUES ('a', 'gone', '\x01000000000000000000000000000002', 20, 4, '\x', 9223372036854775807, 0, 0, 500, 7, 700);
INSERT INTO firing VALUES ('\x01000000000000000000000000000001', 1000, 'a', 'n', 0, 0, 0, 5, '', 1, 1001, 1002, 1003);
INSERT INTO firing VALUES ('\x01000000000000000000000000000001', 2000, 'a', 'n', 0, 1, 0, 2, 'why', 2, 2001, 0, 0);
