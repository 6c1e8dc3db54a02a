-- SPDX-License-Identifier: Apache-2.0
CREATE SCHEMA millrace;
CREATE TABLE millrace.app (
    name text NOT NULL COLLATE pg_catalog."C",
    changed bigint NOT NULL,
    active bigint DEFAULT 0 NOT NULL,
    paused bigint DEFAULT 0 NOT NULL,
    finished bigint DEFAULT 0 NOT NULL
);
CREATE TABLE millrace.firing (
    uid bytea NOT NULL,
    planned_ms bigint NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    until_ms bigint NOT NULL,
    run integer NOT NULL,
    kind smallint NOT NULL,
    state smallint NOT NULL,
    reason text NOT NULL,
    attempt integer NOT NULL,
    fired_ms bigint NOT NULL,
    started_ms bigint NOT NULL,
    finished_ms bigint NOT NULL,
    target text DEFAULT ''::text NOT NULL,
    home text DEFAULT ''::text NOT NULL
);
CREATE TABLE millrace.job (
    no bigint NOT NULL,
    uid bytea NOT NULL,
    name text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    policy smallint NOT NULL,
    pipeline smallint NOT NULL,
    priority_ms bigint NOT NULL,
    retention_ms bigint NOT NULL,
    stages smallint NOT NULL,
    order_ms bigint DEFAULT 0 NOT NULL,
    total bigint DEFAULT 0 NOT NULL,
    first_segment bigint DEFAULT 0 NOT NULL,
    last_segment bigint DEFAULT 0 NOT NULL,
    created_ms bigint DEFAULT 0 NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    state smallint NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    round integer DEFAULT 0 NOT NULL,
    ready_cursor bigint DEFAULT 0 NOT NULL,
    ready_last bigint DEFAULT 0 NOT NULL,
    started_ms bigint DEFAULT 0 NOT NULL,
    finished_ms bigint DEFAULT 0 NOT NULL,
    changed_ms bigint DEFAULT 0 NOT NULL,
    result_bytes bigint DEFAULT 0 NOT NULL,
    result_chunks integer DEFAULT 0 NOT NULL,
    result_token bigint DEFAULT 0 NOT NULL,
    keep_until_ms bigint DEFAULT 0 NOT NULL,
    loaded_ms bigint NOT NULL,
    retry_next bigint DEFAULT '9223372036854775807'::bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE millrace.job_definition (
    job bigint NOT NULL,
    definition bytea NOT NULL
);
CREATE TABLE millrace.job_event (
    job bigint NOT NULL,
    version bigint NOT NULL,
    state smallint NOT NULL,
    reason text NOT NULL,
    round integer NOT NULL,
    counters bytea NOT NULL,
    started_ms bigint NOT NULL,
    finished_ms bigint NOT NULL,
    changed_ms bigint NOT NULL,
    result_bytes bigint NOT NULL,
    result_chunks integer NOT NULL
);
ALTER TABLE millrace.job ALTER COLUMN no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME millrace.job_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE millrace.job_range (
    job bigint NOT NULL,
    segment bigint NOT NULL,
    first_idx bigint NOT NULL,
    n bigint NOT NULL,
    ended bigint NOT NULL,
    closed_ms bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE millrace.job_result (
    job bigint NOT NULL,
    token bigint NOT NULL,
    seq integer NOT NULL,
    bytes bytea NOT NULL
);
CREATE TABLE millrace.job_stage (
    job bigint NOT NULL,
    stage smallint NOT NULL,
    done bigint NOT NULL,
    failed bigint NOT NULL,
    sent bigint NOT NULL,
    cursor_idx bigint NOT NULL,
    sent_ms bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE millrace.lease (
    name text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL,
    token bigint NOT NULL,
    until_ms bigint NOT NULL,
    ttl_ms bigint NOT NULL
);
CREATE TABLE millrace.meta (
    schema integer NOT NULL
);
CREATE TABLE millrace.outcome (
    segment bigint NOT NULL,
    job bigint NOT NULL,
    stage smallint NOT NULL,
    idx bigint NOT NULL,
    failed smallint NOT NULL,
    bytes bytea NOT NULL,
    finished_ms bigint NOT NULL
)
PARTITION BY LIST (segment);
CREATE TABLE millrace.outcome_1 (
    segment bigint NOT NULL,
    job bigint NOT NULL,
    stage smallint NOT NULL,
    idx bigint NOT NULL,
    failed smallint NOT NULL,
    bytes bytea NOT NULL,
    finished_ms bigint NOT NULL
);
CREATE TABLE millrace.part (
    segment bigint NOT NULL,
    job bigint NOT NULL,
    idx bigint NOT NULL,
    input bytea NOT NULL
)
PARTITION BY LIST (segment);
CREATE TABLE millrace.part_1 (
    segment bigint NOT NULL,
    job bigint NOT NULL,
    idx bigint NOT NULL,
    input bytea NOT NULL
);
CREATE TABLE millrace.ready (
    job bigint NOT NULL,
    seq bigint NOT NULL,
    stage smallint NOT NULL,
    idx bigint NOT NULL,
    segment bigint NOT NULL,
    round integer NOT NULL
);
CREATE TABLE millrace.segment (
    n bigint NOT NULL,
    parts bigint NOT NULL,
    created_ms bigint NOT NULL
);
CREATE TABLE millrace.server (
    name text NOT NULL COLLATE pg_catalog."C",
    apps text NOT NULL,
    until_ms bigint NOT NULL,
    ttl_ms bigint NOT NULL,
    home text DEFAULT ''::text NOT NULL
);
CREATE TABLE millrace.subapp_move (
    number bigint NOT NULL,
    at_ms bigint NOT NULL,
    app text NOT NULL,
    part bigint NOT NULL,
    source text NOT NULL,
    goal text NOT NULL,
    reason text NOT NULL
);
ALTER TABLE millrace.subapp_move ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME millrace.subapp_move_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE millrace.subapps (
    app text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    parts bytea NOT NULL,
    wish bytea NOT NULL,
    wish_ms bigint NOT NULL
);
CREATE TABLE millrace.timer (
    app text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    uid bytea NOT NULL,
    version bigint NOT NULL,
    state smallint NOT NULL,
    definition bytea NOT NULL,
    next_ms bigint NOT NULL,
    fired bigint NOT NULL,
    last_ms bigint NOT NULL,
    created_ms bigint NOT NULL,
    changed bigint NOT NULL,
    changed_ms bigint NOT NULL
);
ALTER TABLE ONLY millrace.outcome ATTACH PARTITION millrace.outcome_1 FOR VALUES IN ('1');
ALTER TABLE ONLY millrace.part ATTACH PARTITION millrace.part_1 FOR VALUES IN ('1');
INSERT INTO millrace.app VALUES ('a', 18, 1, 1, 1);
INSERT INTO millrace.app VALUES ('b', 2, 1, 0, 0);
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 1000, 'a', 'active', 0, 0, 1, 1, '', 0, 1001, 0, 0, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 2000, 'a', 'active', 0, 0, 2, 2, '', 0, 2001, 0, 0, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 3000, 'a', 'active', 0, 0, 0, 3, '', 0, 3001, 0, 0, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 4000, 'a', 'active', 0, 0, 1, 4, '', 0, 4001, 0, 4001, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 5000, 'a', 'active', 0, 0, 2, 5, '', 0, 5001, 0, 5001, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 6000, 'a', 'active', 0, 0, 0, 6, '', 0, 6001, 0, 6001, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 7000, 'a', 'active', 0, 0, 1, 7, '', 0, 7001, 0, 7001, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 8000, 'a', 'active', 0, 0, 2, 8, '', 0, 8001, 0, 8001, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 9000, 'a', 'active', 0, 0, 0, 9, '', 0, 9001, 0, 9001, '', '');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 100000, 'a', 'active', 100500, 2, 0, 3, 'it runs', 3, 100001, 100002, 0, 'to: here', 'broker 7');
INSERT INTO millrace.firing VALUES ('\x01000000000000000000000000000001', 150000, 'a', 'active', 0, 0, 0, 1, '', 0, 150001, 0, 0, '', '');
INSERT INTO millrace.job OVERRIDING SYSTEM VALUE VALUES (1, '\x01000000000000000000000000000001', 'created', 'q', 0, 0, -5, 0, 1, 1794860272379, 2, 1, 1, 1794860272374, 1, 2, '', 0, 0, 0, 0, 0, 1794860272374, 0, 0, 0, 9223372036854775807, 1794860272288, 9223372036854775807);
INSERT INTO millrace.job OVERRIDING SYSTEM VALUE VALUES (2, '\x01000000000000000000000000000002', 'running', 'other', 1, 1, 0, 274877906944, 2, 1794860272457, 4, 1, 1, 1794860272457, 4, 3, '', 0, 0, 1, 1794860272498, 0, 1794860272522, 0, 0, 0, 9223372036854775807, 1794860272420, 9223372036854775807);
INSERT INTO millrace.job OVERRIDING SYSTEM VALUE VALUES (3, '\x01000000000000000000000000000003', 'succeeded', 'q', 0, 0, 0, 0, 1, 1794860272546, 2, 1, 1, 1794860272546, 4, 5, '', 0, 0, 0, 1794860272556, 1794860272581, 1794860272581, 6, 1, 0, 9223372036854775807, 1794860272542, 9223372036854775807);
INSERT INTO millrace.job OVERRIDING SYSTEM VALUE VALUES (4, '\x01000000000000000000000000000004', 'failed', 'q', 0, 0, 0, 0, 1, 1794860272601, 1, 1, 1, 1794860272601, 3, 6, 'no paper', 0, 0, 0, 1794860272627, 1794860272632, 1794860272632, 0, 0, 0, 9223372036854775807, 1794860272600, 9223372036854775807);
INSERT INTO millrace.job OVERRIDING SYSTEM VALUE VALUES (5, '\x01000000000000000000000000000005', 'cancelled', 'q', 0, 0, 0, 0, 1, 1794860272677, 1, 1, 1, 1794860272677, 2, 7, 'enough', 0, 0, 0, 0, 1794860272693, 1794860272693, 0, 0, 0, 9223372036854775807, 1794860272675, 9223372036854775807);
INSERT INTO millrace.job_definition VALUES (1, '\x6f6e65');
INSERT INTO millrace.job_definition VALUES (2, '\x646566');
INSERT INTO millrace.job_definition VALUES (3, '\x646566');
INSERT INTO millrace.job_definition VALUES (4, '\x646566');
INSERT INTO millrace.job_definition VALUES (5, '\x646566');
INSERT INTO millrace.job_event VALUES (1, 1, 2, '', 0, '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000', 0, 0, 1794860272374, 0, 0);
INSERT INTO millrace.job_event VALUES (2, 1, 2, '', 0, '\x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000', 0, 0, 1794860272457, 0, 0);
INSERT INTO millrace.job_event VALUES (2, 2, 3, '', 0, '\x0000000000000000000000000000000004000000000000000400000000000000724b02e6a101000000000000000000000000000000000000000000000000000000000000000000000000000000000000', 1794860272498, 0, 1794860272498, 0, 0);
INSERT INTO millrace.job_event VALUES (2, 3, 3, '', 0, '\x0100000000000000000000000000000004000000000000000400000000000000724b02e6a101000000000000000000000000000000000000000000000000000000000000000000000000000000000000', 1794860272498, 0, 1794860272511, 0, 0);
INSERT INTO millrace.job_event VALUES (2, 4, 3, '', 0, '\x0100000000000000010000000000000004000000000000000400000000000000724b02e6a101000000000000000000000000000000000000000000000000000000000000000000000000000000000000', 1794860272498, 0, 1794860272522, 0, 0);
INSERT INTO millrace.job_event VALUES (3, 1, 2, '', 0, '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000', 0, 0, 1794860272546, 0, 0);
INSERT INTO millrace.job_event VALUES (3, 2, 3, '', 0, '\x0000000000000000000000000000000002000000000000000200000000000000ac4b02e6a1010000', 1794860272556, 0, 1794860272556, 0, 0);
INSERT INTO millrace.job_event VALUES (3, 3, 4, '', 0, '\x0200000000000000000000000000000002000000000000000200000000000000ac4b02e6a1010000', 1794860272556, 0, 1794860272567, 0, 0);
INSERT INTO millrace.job_event VALUES (3, 4, 5, '', 0, '\x0200000000000000000000000000000002000000000000000200000000000000ac4b02e6a1010000', 1794860272556, 1794860272581, 1794860272581, 6, 1);
INSERT INTO millrace.job_event VALUES (4, 1, 2, '', 0, '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000', 0, 0, 1794860272601, 0, 0);
INSERT INTO millrace.job_event VALUES (4, 2, 3, '', 0, '\x0000000000000000000000000000000001000000000000000100000000000000f34b02e6a1010000', 1794860272627, 0, 1794860272627, 0, 0);
INSERT INTO millrace.job_event VALUES (4, 3, 6, 'no paper', 0, '\x0000000000000000010000000000000001000000000000000100000000000000f34b02e6a1010000', 1794860272627, 1794860272632, 1794860272632, 0, 0);
INSERT INTO millrace.job_event VALUES (5, 1, 2, '', 0, '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000', 0, 0, 1794860272677, 0, 0);
INSERT INTO millrace.job_event VALUES (5, 2, 7, 'enough', 0, '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000', 0, 1794860272693, 1794860272693, 0, 0);
INSERT INTO millrace.job_range VALUES (1, 1, 0, 2, 0, 0);
INSERT INTO millrace.job_range VALUES (2, 1, 0, 4, 1, 0);
INSERT INTO millrace.job_range VALUES (3, 1, 0, 2, 2, 1794860272567);
INSERT INTO millrace.job_range VALUES (4, 1, 0, 1, 1, 1794860272632);
INSERT INTO millrace.job_range VALUES (5, 1, 0, 1, 0, 1794860272693);
INSERT INTO millrace.job_result VALUES (3, 0, 0, '\x726573756c74');
INSERT INTO millrace.job_stage VALUES (1, 0, 0, 0, 0, 0, 0);
INSERT INTO millrace.job_stage VALUES (2, 0, 1, 1, 4, 4, 1794860272498);
INSERT INTO millrace.job_stage VALUES (2, 1, 0, 0, 0, 0, 0);
INSERT INTO millrace.job_stage VALUES (3, 0, 2, 0, 2, 2, 1794860272556);
INSERT INTO millrace.job_stage VALUES (4, 0, 0, 1, 1, 1, 1794860272627);
INSERT INTO millrace.job_stage VALUES (5, 0, 0, 0, 0, 0, 0);
INSERT INTO millrace.lease VALUES ('app:a', 'me', 1, 1794860273221, 1000);
INSERT INTO millrace.lease VALUES ('sub:b/1', 'server 1', 17, 1794860273222, 1000);
INSERT INTO millrace.meta VALUES (8);
INSERT INTO millrace.outcome_1 VALUES (1, 2, 0, 1, 0, '\x72302e31', 1794860272511);
INSERT INTO millrace.outcome_1 VALUES (1, 2, 0, 2, 1, '\x6e6f206c75636b', 1794860272522);
INSERT INTO millrace.outcome_1 VALUES (1, 3, 0, 0, 0, '\x72302e30', 1794860272567);
INSERT INTO millrace.outcome_1 VALUES (1, 3, 0, 1, 0, '\x72302e31', 1794860272567);
INSERT INTO millrace.outcome_1 VALUES (1, 4, 0, 0, 1, '\x6e6f207061706572', 1794860272632);
INSERT INTO millrace.part_1 VALUES (1, 1, 0, '\x7030');
INSERT INTO millrace.part_1 VALUES (1, 1, 1, '\x7031');
INSERT INTO millrace.part_1 VALUES (1, 2, 0, '\x7030');
INSERT INTO millrace.part_1 VALUES (1, 2, 1, '\x7031');
INSERT INTO millrace.part_1 VALUES (1, 2, 2, '\x7032');
INSERT INTO millrace.part_1 VALUES (1, 2, 3, '\x7033');
INSERT INTO millrace.part_1 VALUES (1, 3, 0, '\x7030');
INSERT INTO millrace.part_1 VALUES (1, 3, 1, '\x7031');
INSERT INTO millrace.part_1 VALUES (1, 4, 0, '\x7030');
INSERT INTO millrace.part_1 VALUES (1, 5, 0, '\x7030');
INSERT INTO millrace.ready VALUES (2, 1, 1, 1, 1, 0);
INSERT INTO millrace.segment VALUES (1, 10, 1794860271817);
INSERT INTO millrace.subapp_move OVERRIDING SYSTEM VALUE VALUES (1, 1794860272222, 'b', 1, 'server 2', 'server 1', 'balance');
INSERT INTO millrace.subapps VALUES ('b', 1, '\x7461626c65', '\x77697368', 1794860272222);
INSERT INTO millrace.timer VALUES ('a', 'paused', '\x01000000000000000000000000000002', 6, 2, '\x00646566ff', 2000, 0, 0, 601, 2, 1794860272107);
INSERT INTO millrace.timer VALUES ('a', 'finished', '\x01000000000000000000000000000003', 7, 3, '\x00646566ff', 3000, 0, 0, 602, 3, 1794860272115);
INSERT INTO millrace.timer VALUES ('a', 'gone', '\x01000000000000000000000000000004', 9, 4, '\x', 9223372036854775807, 0, 0, 500, 5, 1794860272121);
INSERT INTO millrace.timer VALUES ('a', 'never', '\x00000000000000000000000000000000', 3, 5, '\x', 9223372036854775807, 0, 0, 0, 6, 1794860272133);
INSERT INTO millrace.timer VALUES ('b', 'other', '\x01000000000000000000000000000005', 1, 1, '\x646566', 9223372036854775807, 0, 0, 500, 1, 1794860272135);
INSERT INTO millrace.timer VALUES ('a', 'active', '\x01000000000000000000000000000001', 5, 1, '\x00646566ff', 200000, 1, 1000, 600, 18, 1794860272094);
SELECT pg_catalog.setval('millrace.job_no_seq', 5, true);
SELECT pg_catalog.setval('millrace.subapp_move_number_seq', 1, true);
ALTER TABLE ONLY millrace.app
    ADD CONSTRAINT app_pkey PRIMARY KEY (name);
ALTER TABLE ONLY millrace.firing
    ADD CONSTRAINT firing_pkey PRIMARY KEY (uid, planned_ms);
ALTER TABLE ONLY millrace.job_definition
    ADD CONSTRAINT job_definition_pkey PRIMARY KEY (job);
ALTER TABLE ONLY millrace.job_event
    ADD CONSTRAINT job_event_pkey PRIMARY KEY (job, version);
ALTER TABLE ONLY millrace.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (no);
ALTER TABLE ONLY millrace.job_range
    ADD CONSTRAINT job_range_pkey PRIMARY KEY (job, segment);
ALTER TABLE ONLY millrace.job_result
    ADD CONSTRAINT job_result_pkey PRIMARY KEY (job, token, seq);
ALTER TABLE ONLY millrace.job_stage
    ADD CONSTRAINT job_stage_pkey PRIMARY KEY (job, stage);
ALTER TABLE ONLY millrace.job
    ADD CONSTRAINT job_uid_key UNIQUE (uid);
ALTER TABLE ONLY millrace.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (name);
ALTER TABLE ONLY millrace.outcome
    ADD CONSTRAINT outcome_pkey PRIMARY KEY (segment, job, stage, idx);
ALTER TABLE ONLY millrace.outcome_1
    ADD CONSTRAINT outcome_1_pkey PRIMARY KEY (segment, job, stage, idx);
ALTER TABLE ONLY millrace.part
    ADD CONSTRAINT part_pkey PRIMARY KEY (segment, job, idx);
ALTER TABLE ONLY millrace.part_1
    ADD CONSTRAINT part_1_pkey PRIMARY KEY (segment, job, idx);
ALTER TABLE ONLY millrace.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (job, seq);
ALTER TABLE ONLY millrace.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (n);
ALTER TABLE ONLY millrace.server
    ADD CONSTRAINT server_pkey PRIMARY KEY (name);
ALTER TABLE ONLY millrace.subapp_move
    ADD CONSTRAINT subapp_move_pkey PRIMARY KEY (number);
ALTER TABLE ONLY millrace.subapps
    ADD CONSTRAINT subapps_pkey PRIMARY KEY (app);
ALTER TABLE ONLY millrace.timer
    ADD CONSTRAINT timer_pkey PRIMARY KEY (app, name);
CREATE INDEX firing_ended ON millrace.firing USING btree (finished_ms) WHERE (state > 3);
CREATE INDEX firing_open ON millrace.firing USING btree (app, planned_ms, uid) WHERE (state <= 3);
CREATE INDEX firing_open_of ON millrace.firing USING btree (uid, planned_ms) WHERE (state <= 3);
CREATE INDEX job_dropped ON millrace.job USING btree (no) WHERE (state = 8);
CREATE INDEX job_kept ON millrace.job USING btree (keep_until_ms) WHERE ((state >= 5) AND (state <= 7));
CREATE INDEX job_live ON millrace.job USING btree (queue, order_ms, no) WHERE ((state >= 2) AND (state <= 4));
CREATE INDEX job_loading ON millrace.job USING btree (loaded_ms) WHERE (state = 1);
CREATE UNIQUE INDEX job_range_first ON millrace.job_range USING btree (job, first_idx);
CREATE INDEX job_range_open ON millrace.job_range USING btree (segment) WHERE (closed_ms = 0);
CREATE INDEX job_range_segment ON millrace.job_range USING btree (segment, closed_ms);
CREATE INDEX ready_part ON millrace.ready USING btree (job, stage, idx);
CREATE INDEX timer_changed ON millrace.timer USING btree (app, changed) WHERE (state = 1);
CREATE INDEX timer_due ON millrace.timer USING btree (app, next_ms, uid) WHERE (state = 1);
CREATE INDEX timer_gone ON millrace.timer USING btree (changed_ms, state) WHERE (state >= 4);
CREATE UNIQUE INDEX timer_uid ON millrace.timer USING btree (uid) WHERE (state <= 3);
ALTER INDEX millrace.outcome_pkey ATTACH PARTITION millrace.outcome_1_pkey;
ALTER INDEX millrace.part_pkey ATTACH PARTITION millrace.part_1_pkey;
