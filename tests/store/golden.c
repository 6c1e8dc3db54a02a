/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores of earlier schemas say what they said then. tests/golden/store/N-ENGINE.sql is a store of schema N as it was dumped, with
 * something in every table, and N.txt is all that a store with this content shows. With MR_GOLDEN=make the files of the newest schema are
 * written, where they are not there yet (tests/golden/dump_store.sh).
 */
#include <stdio.h>
#include <unistd.h>

#include "store/job_kit.h"

enum { DECADE_MS_SHIFT = 38, PAGE = 100, DUMP_MAX = 256 * 1024, PATH_SIZE = 1024 };

/* ---- what is written -------------------------------------------------------------------------- */

static void write_timers(struct suite *t)
{
    static const enum mr_row_state states[] = {MR_ROW_ACTIVE, MR_ROW_PAUSED, MR_ROW_FINISHED};
    static const char *const names[] = {"active", "paused", "finished"};
    for (unsigned i = 0; i < 3; i++)
        assert_err(PUT(t, .name = mr_slice_str(names[i]), .uid = suite_uid(i + 1), .version = i + 5,
                       .state = states[i], .definition = mr_slice_make("\0def\xff", 5),
                       .next_ms = 1000 * (i + 1), .created_ms = 600 + i)
                       .err,
                   MR_OK);
    assert_err(PUT(t, .name = MR_SLICE_LIT("gone"), .uid = suite_uid(4)).err, MR_OK);
    assert_err(DELETE(t, .name = MR_SLICE_LIT("gone"), .version = 9).err, MR_OK);
    assert_err(DELETE(t, .name = MR_SLICE_LIT("never"), .version = 3).err, MR_NOT_FOUND);
    assert_err(PUT(t, .app = MR_SLICE_LIT("b"), .name = MR_SLICE_LIT("other"), .uid = suite_uid(5),
                   .next_ms = MR_STORE_NEVER_MS)
                   .err,
               MR_OK);
}

/* A row in each state, the first with all that can be said of one. */
static void write_firings(struct suite *t)
{
    for (unsigned state = MR_LEDGER_WAITING; state < MR_LEDGER_STATE_COUNT; state++)
        assert_err(FIRE(t, .planned_ms = 1000 * state, .state = (enum mr_ledger_state)state,
                        .kind = (enum mr_ledger_kind)(state % 3), .fired_ms = 1000 * state + 1)
                       .err,
                   MR_OK);
    assert_err(FIRE(t, .planned_ms = 100000, .until_ms = 100500, .run = 2,
                    .reason = MR_SLICE_LIT("why not"), .target = MR_SLICE_LIT("to: here"),
                    .fired_ms = 100001)
                   .err,
               MR_OK);
    assert_err(SET(t, .planned_ms = 100000, .run = 2, .from = MR_LEDGER_BIT(MR_LEDGER_WAITING),
                   .to = MR_LEDGER_RUNNING, .reason = MR_SLICE_LIT("it runs"),
                   .home = MR_SLICE_LIT("broker 7"), .attempt = 3, .started_ms = 100002)
                   .err,
               MR_OK);
    struct mr_store_move move = {.moves = true,
                                 .version = 5,
                                 .from_ms = 1000,
                                 .to_ms = 200000,
                                 .counts = 1,
                                 .last_ms = 1000};
    assert_err(FIRE(t, .planned_ms = 150000, .fired_ms = 150001, .move = move).err, MR_OK);
}

static void write_subapps(struct suite *t)
{
    assert_err(LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 1000).err, MR_OK);
    const struct mr_store_subapp_lease lease = {.name = MR_SLICE_LIT("sub:b/1"),
                                                .owner = MR_SLICE_LIT("server 1"),
                                                .token = 17,
                                                .ttl_ms = 1000};
    const struct mr_store_subapp_move move = {.app = MR_SLICE_LIT("b"),
                                              .part = 1,
                                              .from = MR_SLICE_LIT("server 2"),
                                              .to = MR_SLICE_LIT("server 1"),
                                              .reason = MR_SLICE_LIT("balance")};
    struct mr_store_subapps_set set = {.req.op = MR_STORE_SUBAPPS_SET,
                                       .app = MR_SLICE_LIT("b"),
                                       .table = MR_SLICE_LIT("table"),
                                       .wish = MR_SLICE_LIT("wish"),
                                       .leases = &lease,
                                       .leases_n = 1,
                                       .moves = &move,
                                       .moves_n = 1};
    assert_err(mr_store_call(t->store, &set.req), MR_OK);
    mr_store_req_done(&set.req);
}

static void write_jobs(struct suite *t)
{
    MAKE(t, .uid = 1, .name = "created", .definition = "one", .priority_ms = -5, .parts = 2);
    MAKE(t, .uid = 2, .name = "running", .queue = "other", .stages = 2, .pipeline = true,
         .policy = MR_JOB_FINISH, .parts = 4, .retention_ms = 1LL << DECADE_MS_SHIFT);
    kit_submit(t, 2, 0);
    kit_end_all(t, 2, 0, 1, 1);
    assert_err(END(t, 2, .index = 2, .failed = true, .bytes = MR_SLICE_LIT("no luck")), MR_OK);
    MAKE(t, .uid = 3, .name = "succeeded", .parts = 2);
    kit_submit(t, 3, 0);
    kit_end_all(t, 3, 0, 0, 2);
    assert_err(kit_chunk(t, (struct mr_store_result_add){.uid = suite_uid(3),
                                                         .bytes = MR_SLICE_LIT("result")}),
               MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_END, 3, .state = MR_JOBROW_SUCCEEDED, .chunks = 1, .bytes = 6),
               MR_OK);
    MAKE(t, .uid = 4, .name = "failed", .parts = 1);
    kit_submit(t, 4, 0);
    assert_err(END(t, 4, .failed = true, .bytes = MR_SLICE_LIT("no paper")), MR_OK);
    MAKE(t, .uid = 5, .name = "cancelled", .parts = 1);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 5, .reason = MR_SLICE_LIT("enough")), MR_OK);
}

/* ---- what is shown ---------------------------------------------------------------------------- */

struct text {
    char bytes[DUMP_MAX];
    size_t len;
};

static void put(struct text *text, const char *fmt, ...) MR_PRINTF(2, 3);
static void put(struct text *text, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text->bytes + text->len, sizeof text->bytes - text->len, fmt, args);
    va_end(args);
    text->len += (size_t)len;
    assert_true(text->len < sizeof text->bytes);
}

/* What is zero or empty is not said, so that a field of a later schema changes nothing here. */
static void put_number(struct text *text, const char *name, int64_t value)
{
    const int64_t real = 1LL << 40; /* a time of the clock, which is another one each time */
    if (value == MR_STORE_NEVER_MS)
        put(text, " %s=never", name);
    else if (value > real || value < -real)
        put(text, " %s=T", name);
    else if (value != 0)
        put(text, " %s=%lld", name, (long long)value);
}

static void put_slice(struct text *text, const char *name, struct mr_slice value)
{
    if (value.len == 0)
        return;
    put(text, " %s=", name);
    for (size_t i = 0; i < value.len; i++) {
        uint8_t byte = ((const uint8_t *)value.data)[i];
        put(text, byte >= ' ' && byte < 127 ? "%c" : "\\x%02x", byte);
    }
}

static void put_uid(struct text *text, const struct mr_uuid *uid)
{
    put(text, " uid=");
    for (size_t i = 0; i < sizeof uid->bytes; i++)
        put(text, "%02x", uid->bytes[i]);
}

static void put_timer(struct text *text, const struct mr_store_timer *timer)
{
    put(text, "timer");
    put_slice(text, "app", timer->app);
    put_slice(text, "name", timer->name);
    put_uid(text, &timer->uid);
    put_number(text, "version", (int64_t)timer->version);
    put_number(text, "state", timer->state);
    put_slice(text, "definition", timer->definition);
    put_number(text, "next", timer->next_ms);
    put_number(text, "fired", (int64_t)timer->fired);
    put_number(text, "last", timer->last_ms);
    put_number(text, "created", timer->created_ms);
    put_number(text, "changed", (int64_t)timer->changed);
    put(text, "\n");
}

static void put_firing(struct text *text, const struct mr_store_firing *firing)
{
    put(text, "firing");
    put_slice(text, "app", firing->app);
    put_slice(text, "name", firing->name);
    put_uid(text, &firing->uid);
    put_number(text, "planned", firing->planned_ms);
    put_number(text, "until", firing->until_ms);
    put_number(text, "run", firing->run);
    put_number(text, "kind", firing->kind);
    put_number(text, "state", firing->state);
    put_slice(text, "reason", firing->reason);
    put_slice(text, "target", firing->target);
    put_number(text, "attempt", firing->attempt);
    put_number(text, "fired", firing->fired_ms);
    put_number(text, "started", firing->started_ms);
    put_number(text, "finished", firing->finished_ms);
    put_slice(text, "home", firing->home);
    put(text, "\n");
}

static void put_all_timers(struct suite *t, struct text *text)
{
    const struct mr_store_timer_list *list = suite_list(
        t, (struct mr_store_timer_list){.states = (1u << MR_ROW_STATE_COUNT) - 2, .max = PAGE});
    for (size_t i = 0; i < list->n; i++)
        put_timer(text, &list->timers[i]);
    const struct mr_store_firing_list *firings =
        suite_firing_list(t, (struct mr_store_firing_list){.uid = suite_uid(1), .max = PAGE});
    for (size_t i = 0; i < firings->n; i++)
        put_firing(text, &firings->firings[i]);
}

static void put_leases(struct suite *t, struct text *text)
{
    const struct mr_store_lease_list *list =
        suite_lease_list(t, (struct mr_store_lease_list){.max = PAGE});
    for (size_t i = 0; i < list->n; i++) {
        put(text, "lease");
        put_slice(text, "name", list->leases[i].name);
        put_slice(text, "owner", list->leases[i].owner);
        put_number(text, "token", (int64_t)list->leases[i].token);
        put(text, "\n");
    }
    const struct mr_store_app_list *apps =
        suite_app_list(t, (struct mr_store_app_list){.max = PAGE});
    for (size_t i = 0; i < apps->n; i++)
        put(text, "app %.*s\n", (int)apps->apps[i].name.len, (const char *)apps->apps[i].name.data);
}

static void put_subapps(struct suite *t, struct text *text)
{
    struct mr_store_subapps_list ask = {.req.op = MR_STORE_SUBAPPS_LIST, .max = PAGE};
    const struct mr_store_subapps_list *list =
        mr_container(suite_keep_call(t, &ask.req, sizeof ask), struct mr_store_subapps_list, req);
    for (size_t i = 0; i < list->n; i++) {
        put(text, "subapps");
        put_slice(text, "app", list->rows[i].app);
        put_number(text, "version", (int64_t)list->rows[i].version);
        put_slice(text, "table", list->rows[i].table);
        put_slice(text, "wish", list->rows[i].wish);
        put(text, "\n");
    }
    struct mr_store_moves_list ask_moves = {.req.op = MR_STORE_MOVES_LIST};
    const struct mr_store_moves_list *moves = mr_container(
        suite_keep_call(t, &ask_moves.req, sizeof ask_moves), struct mr_store_moves_list, req);
    for (size_t i = 0; i < moves->n; i++) {
        put(text, "move");
        put_number(text, "number", (int64_t)moves->moves[i].number);
        put_number(text, "at", moves->moves[i].at_ms);
        put_slice(text, "app", moves->moves[i].app);
        put_number(text, "part", moves->moves[i].part);
        put_slice(text, "from", moves->moves[i].from);
        put_slice(text, "to", moves->moves[i].to);
        put_slice(text, "reason", moves->moves[i].reason);
        put(text, "\n");
    }
}

static void put_stage(struct text *text, const struct mr_store_stage *stage)
{
    put(text, " stage:");
    put_number(text, "total", (int64_t)stage->total);
    put_number(text, "done", (int64_t)stage->done);
    put_number(text, "failed", (int64_t)stage->failed);
    put_number(text, "sent", (int64_t)stage->sent);
    put_number(text, "cursor", (int64_t)stage->cursor);
    put_number(text, "sent_at", stage->sent_ms);
}

static void put_job(struct text *text, const char *what, const struct mr_store_job *job)
{
    put(text, "%s", what);
    put_uid(text, &job->uid);
    put_number(text, "no", (int64_t)job->no);
    put_slice(text, "name", job->name);
    put_slice(text, "queue", job->queue);
    put_slice(text, "definition", job->definition);
    put_number(text, "policy", job->policy);
    put_number(text, "pipeline", job->pipeline);
    put_number(text, "priority", job->priority_ms);
    put_number(text, "order", job->order_ms);
    put_number(text, "total", (int64_t)job->total);
    put_number(text, "first", (int64_t)job->first_segment);
    put_number(text, "last", (int64_t)job->last_segment);
    put_number(text, "created", job->created_ms);
    put_number(text, "version", (int64_t)job->version);
    put_number(text, "state", job->state);
    put_slice(text, "reason", job->reason);
    put_number(text, "round", job->round);
    put_number(text, "ready_cursor", (int64_t)job->ready_cursor);
    put_number(text, "ready_last", (int64_t)job->ready_last);
    put_number(text, "retry_next", (int64_t)job->retry_next);
    put_number(text, "started", job->started_ms);
    put_number(text, "finished", job->finished_ms);
    put_number(text, "changed", job->changed_ms);
    put_number(text, "bytes", (int64_t)job->result_bytes);
    put_number(text, "chunks", job->result_chunks);
    for (size_t i = 0; i < job->stages_n; i++)
        put_stage(text, &job->stages[i]);
    put(text, "\n");
}

static void put_parts(struct suite *t, struct text *text, unsigned uid)
{
    const struct mr_store_parts_list *list =
        kit_parts(t, (struct mr_store_parts_list){.uid = suite_uid(uid), .max = PAGE});
    const struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(uid), .max = PAGE});
    for (size_t i = 0; i < list->n; i++) {
        const struct mr_store_part *part = &list->parts[i];
        put(text, "part of %u", uid);
        put_number(text, "index", (int64_t)part->index);
        put_number(text, "segment", (int64_t)part->segment);
        put_number(text, "stage", part->stage);
        put_number(text, "round", part->round);
        put_number(text, "again", part->again);
        put_number(text, "state", part->state);
        put_slice(text, "error", part->error);
        put_number(text, "finished", part->finished_ms);
        if (i < read->n)
            put_slice(text, "input", read->parts[i].bytes);
        put(text, "\n");
    }
}

static void put_jobs(struct suite *t, struct text *text)
{
    const struct mr_store_job_list *list = kit_list(t, (struct mr_store_job_list){.max = PAGE});
    for (size_t i = 0; i < list->n; i++)
        put_job(text, "job", &list->jobs[i]);
    for (unsigned uid = 1; uid <= list->n; uid++) {
        put_parts(t, text, uid);
        const struct mr_store_job_events *events = kit_events(t, uid, 0, PAGE);
        for (size_t i = 0; i < events->n; i++)
            put_job(text, "event", &events->jobs[i]);
        const struct mr_store_ready_read *ready =
            kit_ready(t, (struct mr_store_ready_read){.uid = suite_uid(uid), .max = PAGE});
        for (size_t i = 0; i < ready->n; i++)
            put(text, "ready of %u: %llu stage %u %.*s\n", uid,
                (unsigned long long)ready->parts[i].index, ready->parts[i].stage,
                (int)ready->parts[i].bytes.len, (const char *)ready->parts[i].bytes.data);
    }
    put_slice(text, "result of 3", kit_result(t, 3, 0, PAGE)->chunks[0]);
    put(text, "\n");
    const struct mr_store_segments *segments = kit_segments(t);
    for (size_t i = 0; i < segments->n; i++)
        put(text, "segment %llu: %llu parts, %llu open\n",
            (unsigned long long)segments->segments[i].n,
            (unsigned long long)segments->segments[i].parts,
            (unsigned long long)segments->segments[i].open);
}

static void show(struct suite *t, struct text *text)
{
    text->len = 0;
    put_all_timers(t, text);
    put_leases(t, text);
    put_subapps(t, text);
    put_jobs(t, text);
    for (unsigned uid = 1; uid <= 5; uid++)
        kit_check(t, uid);
}

/* ---- the files -------------------------------------------------------------------------------- */

static void path_of(char path[PATH_SIZE], uint32_t schema, const char *ending)
{
    const char *source = getenv("MR_SOURCE_DIR");
    (void)snprintf(path, PATH_SIZE, "%s/tests/golden/store/%u%s", source != NULL ? source : ".",
                   schema, ending);
}

/* False: there is no such file. */
static bool read_file(const char *path, struct text *text)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    text->len = fread(text->bytes, 1, sizeof text->bytes - 1, file);
    assert_true(text->len > 0 && text->len < sizeof text->bytes - 1);
    text->bytes[text->len] = '\0';
    (void)fclose(file);
    return true;
}

static void assert_same(const struct text *found, const struct text *wanted)
{
    size_t at = 0, line = 0;
    while (at < found->len && found->bytes[at] == wanted->bytes[at]) {
        line = found->bytes[at] == '\n' ? at + 1 : line;
        at++;
    }
    if (found->len != wanted->len || at < found->len)
        fail_msg("found:\n%.*s\nwanted:\n%.*s", (int)strcspn(found->bytes + line, "\n"),
                 found->bytes + line, (int)strcspn(wanted->bytes + line, "\n"),
                 wanted->bytes + line);
}

/* What there is already stays as it is. */
static void make_files(struct suite *t, uint32_t schema, const struct text *shown)
{
    char path[PATH_SIZE], command[3 * PATH_SIZE], ending[32];
    path_of(path, schema, ".txt");
    FILE *file = fopen(path, "wxe");
    if (file != NULL) {
        assert_int_equal(fwrite(shown->bytes, 1, shown->len, file), shown->len);
        assert_int_equal(fclose(file), 0);
    }
    (void)snprintf(ending, sizeof ending, "-%s.sql", t->engine->name);
    path_of(path, schema, ending);
    const char *source = getenv("MR_SOURCE_DIR");
    (void)snprintf(command, sizeof command, "'%s/tests/golden/dump_store.sh' '%s' '%s'",
                   source != NULL ? source : ".", t->url, path);
    assert_int_equal(system(command), 0);
}

static void open_dump(struct suite *t, const struct text *dump)
{
    suite_close(t);
    t->engine->remove(t->engine->arg);
    t->engine->make(t->engine->arg, t->url);
    t->engine->sql(t->engine->arg, dump->bytes);
    suite_open(t, NULL);
}

static struct text shown, wanted, dump;

static void test_a_store_shows_all_that_was_put_into_it(void **state)
{
    struct suite *t = *state;
    char path[PATH_SIZE];
    write_timers(t);
    write_firings(t);
    write_subapps(t);
    write_jobs(t);
    show(t, &shown);
    uint32_t schema = suite_stats(t)->schema;
    const char *make = getenv("MR_GOLDEN");
    if (make != NULL && strcmp(make, "make") == 0) {
        suite_reopen(t);
        make_files(t, schema, &shown);
    }
    path_of(path, schema, ".txt");
    if (!read_file(path, &wanted))
        fail_msg("schema %u has no golden files: run the tests of stores once with MR_GOLDEN=make",
                 schema);
    assert_same(&shown, &wanted);
}

static void test_stores_of_earlier_schemas_show_what_they_showed_then(void **state)
{
    struct suite *t = *state;
    char path[PATH_SIZE], ending[32];
    uint32_t newest = suite_stats(t)->schema, seen = 0;
    (void)snprintf(ending, sizeof ending, "-%s.sql", t->engine->name);
    for (uint32_t schema = 2; schema <= newest; schema++) {
        path_of(path, schema, ending);
        bool is_there = read_file(path, &dump);
        if (!is_there && schema == newest)
            fail_msg("%s is not there: run the tests of stores once with MR_GOLDEN=make", path);
        if (!is_there)
            continue;
        path_of(path, schema, ".txt");
        assert_true(read_file(path, &wanted));
        open_dump(t, &dump);
        show(t, &shown);
        assert_same(&shown, &wanted);
        assert_int_equal(suite_stats(t)->schema, newest);
        /* It is one like any other. */
        assert_err(PUT(t, .name = MR_SLICE_LIT("active"), .version = 99).err, MR_OK);
        MAKE(t, .uid = 9, .parts = 1);
        kit_check(t, 9);
        seen++;
    }
    assert_true(seen > 0);
}

int suite_golden(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_store_shows_all_that_was_put_into_it),
        SUITE_TEST(test_stores_of_earlier_schemas_show_what_they_showed_then),
    };
    return SUITE_RUN(engine, "golden", tests);
}
