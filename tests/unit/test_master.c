/* SPDX-License-Identifier: Apache-2.0 */
/* Masters: receipts and encodings, a master far from its server, one that dies and one that goes. */
#include "api/api.h"
#include "broker/result.h"
#include "millrace/v1/results.pb-c.h"
#include "support/pb_of.h"
#include "unit/remote_rig.h"
#include "worker/worker.h"

/* ---- receipts and encodings ----------------------------------------------------------------- */

static void a_receipt_reads_back_and_nothing_else_is_one(void **state)
{
    (void)state;
    char text[MR_RECEIPT_MAX + 1], longest[MR_ID_MAX];
    struct mr_slice id;
    uint64_t epoch;
    memset(longest, 'x', sizeof longest);
    mr_receipt_format(mr_slice_str("a.b"), 1790000000000000, text);
    assert_string_equal(text, "a.b.1790000000000000");
    assert_true(mr_receipt_parse(mr_slice_str(text), &id, &epoch));
    assert_true(mr_slice_equal(id, mr_slice_str("a.b")) && epoch == 1790000000000000);
    mr_receipt_format(mr_slice_make(longest, sizeof longest), 7, text);
    assert_true(mr_receipt_parse(mr_slice_str(text), &id, &epoch));
    assert_int_equal(id.len, sizeof longest);
    static const char *const wrong[] = {"",    ".",    "a",    "a.",   ".1",
                                        "a.x", "a.-1", "a.1 ", "a.1x", "a.99999999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(mr_receipt_parse(mr_slice_str(wrong[i]), &id, &epoch));
}

static void a_result_is_encoded_as_protobuf_has_it_and_its_text_stands_last(void **state)
{
    (void)state;
    struct mr_result result = {
        .task_id = mr_slice_str("task"),
        .queue = mr_slice_str("mail"),
        .type = mr_slice_str("send"),
        .topic = mr_slice_str("news"),
        .partition = 3,
        .outcome = MR_RESULT_TIMEOUT,
        .attempt = 4,
        .final = true,
        .cancel_requested = true,
        .finished_ms = 1790000000000,
        .error = mr_slice_str("too late"),
    };
    struct mr_buf ours = {0}, theirs = {0};
    Millrace__V1__Result message = MILLRACE__V1__RESULT__INIT;
    message.task_id = (char *)(uintptr_t) "task";
    message.queue = (char *)(uintptr_t) "mail";
    message.partition = 3;
    message.type = (char *)(uintptr_t) "send";
    message.topic = (char *)(uintptr_t) "news";
    message.outcome = MILLRACE__V1__RESULT_OUTCOME__RESULT_TIMEOUT;
    message.attempt = 4;
    message.final = message.cancel_requested = true;
    message.finished_ms = 1790000000000;
    message.error = mr_pb_of_bytes(result.error);
    assert_int_equal(mr_result_encode(&result, &ours), MR_OK);
    assert_int_equal(pb_encode(&message.base, &theirs), MR_OK);
    assert_true(mr_slice_equal(mr_buf_slice(&ours), mr_buf_slice(&theirs)));
    assert_memory_equal(ours.data + ours.len - result.error.len, "too late", result.error.len);
    struct mr_result back;
    assert_int_equal(mr_result_decode(mr_buf_slice(&ours), &back), MR_OK);
    assert_int_equal(back.outcome, MR_RESULT_TIMEOUT);
    assert_true(mr_slice_equal(back.error, result.error));
    assert_int_equal(mr_result_decode(mr_slice_make(ours.data, ours.len - 1), &back), MR_DAMAGED);
    mr_buf_done(&ours);
    mr_buf_done(&theirs);
}

static void every_run_has_a_result_of_its_own(void **state)
{
    (void)state;
    struct mr_uuid a = mr_result_id(mr_slice_str("a"), 1), b = mr_result_id(mr_slice_str("a"), 2);
    struct mr_uuid c = mr_result_id(mr_slice_str("b"), 1),
                   again = mr_result_id(mr_slice_str("a"), 1);
    assert_memory_equal(&a, &again, sizeof a);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
}

/* ---- a master at a server ------------------------------------------------------------------- */

enum { RESULTS = 300, TAKE = 20 };

static enum mr_outcome do_nothing(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    return MR_DONE;
}

/* n results of tasks 0, 1, ... */
static void leave(struct world *w, uint32_t n)
{
    struct mr_worker *worker;
    for (uint32_t i = 0; i < n; i++) {
        char id[16];
        struct mr_enqueue_result result;
        (void)snprintf(id, sizeof id, "%u", i);
        struct mr_task_options task = {.id = mr_slice_str(id), .topic = mr_slice_str("news")};
        assert_int_equal(put(w->store, &task, &result), MR_OK);
    }
    assert_int_equal(
        mr_worker_new_on(w->store, &(struct mr_worker_options){.slots = 1, .burst = true}, &worker),
        MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", do_nothing, NULL), MR_OK);
    assert_int_equal(mr_worker_run(worker), MR_OK);
    mr_worker_free(worker);
}

static struct mr_master *open_master(struct mr_broker *broker, struct mr_master_options options)
{
    static const struct mr_slice topic = MR_SLICE_LIT("news");
    struct mr_master *master;
    options.topics = &topic;
    options.topics_n = 1;
    assert_int_equal(mr_master_open_on(broker, &options, NULL, &master), MR_OK);
    return master;
}

static uint64_t results_left(struct world *w)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(mr_broker_call(w->store, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats.results;
}

/* Takes some and commits them; how many were accepted here. */
static size_t commit_some(struct mr_master *master)
{
    struct mr_result_list *list = NULL;
    struct mr_slice receipts[TAKE];
    enum mr_err errs[TAKE], err = mr_master_take(master, TAKE, 50, &list);
    size_t accepted = 0;
    if (err != MR_OK) {
        assert_true(err == MR_EMPTY || err == MR_UNAVAILABLE);
        return 0;
    }
    size_t n = mr_result_list_count(list);
    for (size_t i = 0; i < n; i++)
        receipts[i] = mr_result_list_at(list, i)->receipt;
    err = mr_master_commit(master, receipts, n, errs);
    assert_true(err == MR_OK || mr_err_retriable(err) || err == MR_CLOSED);
    for (size_t i = 0; err == MR_OK && i < n; i++)
        accepted += errs[i] == MR_OK;
    mr_result_list_free(list);
    return accepted;
}

static void a_master_commits_each_result_once_through_cut_connections(void **state)
{
    struct world *w = *state;
    size_t accepted = 0;
    leave(w, RESULTS);
    struct mr_master *master = open_master(w->far, (struct mr_master_options){.beat_ms = 1000});
    while (results_left(w) > 0) {
        forwarder_cut(&w->network);
        accepted += commit_some(master);
    }
    mr_master_free(master);
    assert_int_equal(accepted, RESULTS);
}

static void a_master_goes_on_after_a_restart_of_its_server(void **state)
{
    struct world *w = *state;
    struct mr_result_list *list = NULL;
    leave(w, 2);
    struct mr_master *master = open_master(w->far, (struct mr_master_options){.beat_ms = 100});
    assert_int_equal(mr_master_take(master, 1, 0, &list), MR_OK);
    stop_server(w);
    start_server(w);
    /* It was the first one's, and nobody has got it since. */
    struct mr_slice receipt = mr_result_list_at(list, 0)->receipt;
    enum mr_err err = MR_FAILED;
    WAIT_UNTIL(mr_master_commit(master, &receipt, 1, &err) == MR_OK && !mr_err_retriable(err));
    assert_int_equal(err, MR_OK);
    mr_result_list_free(list);
    WAIT_UNTIL(commit_some(master) == 1);
    assert_int_equal(results_left(w), 0);
    mr_master_free(master);
}

static void a_master_that_was_given_up_begins_anew(void **state)
{
    struct world *w = *state;
    struct mr_result_list *list = NULL;
    leave(w, 1);
    struct mr_master *master =
        open_master(w->far, (struct mr_master_options){.beat_ms = 100, .beats_missed = 2});
    assert_int_equal(mr_master_take(master, 1, 0, &list), MR_OK);
    w->network.refuse = true; /* longer than it can be away */
    forwarder_cut(&w->network);
    struct mr_master *other = open_master(w->store, (struct mr_master_options){0});
    struct mr_result_list *again = NULL;
    assert_int_equal(mr_master_take(other, 1, WAIT_MS, &again), MR_OK);
    w->network.refuse = false;
    struct mr_slice receipt = mr_result_list_at(list, 0)->receipt;
    enum mr_err err = MR_FAILED;
    WAIT_UNTIL(mr_master_commit(master, &receipt, 1, &err) == MR_OK && !mr_err_retriable(err));
    assert_int_equal(err, MR_STALE);
    receipt = mr_result_list_at(again, 0)->receipt;
    assert_int_equal(mr_master_commit(other, &receipt, 1, &err), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_result_list_free(list);
    mr_result_list_free(again);
    mr_master_free(other);
    leave(w, 1);
    WAIT_UNTIL(commit_some(master) == 1);
    mr_master_free(master);
}

static void what_a_lasting_master_took_is_held_after_its_end(void **state)
{
    struct world *w = *state;
    enum { LEASE_MS = 1500 };
    struct mr_result_list *list = NULL, *none = NULL;
    leave(w, 1);
    struct mr_master *master =
        open_master(w->far, (struct mr_master_options){.lease_ms = LEASE_MS});
    mr_mono began = mr_mono_now(mr_clock_system());
    assert_int_equal(mr_master_take(master, 1, 0, &list), MR_OK);
    mr_master_free(master);
    mr_broker_close(w->far);
    open_far(w, NULL);
    struct mr_master *other = open_master(w->far, (struct mr_master_options){0});
    enum mr_err at_once = mr_master_take(other, 1, 0, &none);
    int64_t ms = (mr_mono_now(mr_clock_system()).ns - began.ns) / MR_NS_PER_MS;
    assert_true(at_once == MR_EMPTY || ms >= LEASE_MS);
    if (at_once == MR_EMPTY)
        assert_int_equal(mr_master_take(other, 1, WAIT_MS, &none), MR_OK);
    mr_result_list_free(list);
    mr_result_list_free(none);
    mr_master_free(other);
}

static void a_take_that_waits_ends_when_its_master_is_stopped(void **state)
{
    struct world *w = *state;
    struct mr_result_list *list;
    struct mr_master *master = open_master(w->far, (struct mr_master_options){0});
    mr_master_stop(master);
    assert_int_equal(mr_master_take(master, 1, WAIT_MS, &list), MR_CLOSED);
    mr_master_free(master);
}

static void a_server_that_stops_does_not_wait_for_masters(void **state)
{
    struct world *w = *state;
    struct mr_result_list *list;
    leave(w, 1);
    struct mr_master *master = open_master(w->far, (struct mr_master_options){0});
    assert_int_equal(mr_master_take(master, 1, 0, &list), MR_OK);
    mr_mono began = mr_mono_now(mr_clock_system());
    server_rig_stop(&w->server, WAIT_MS);
    assert_true((mr_mono_now(mr_clock_system()).ns - began.ns) / MR_NS_PER_MS < WAIT_MS / 2);
    mr_result_list_free(list);
    assert_int_equal(server_rig_start(&w->server, w->store), MR_OK);
    mr_master_free(master);
}

static void options_that_cannot_be_are_refused(void **state)
{
    struct world *w = *state;
    struct mr_master *master;
    struct mr_slice many[MR_TAKE_QUEUES_MAX + 1], bad = MR_SLICE_LIT("a{b");
    char longest[MR_TOPIC_MAX + 1];
    memset(longest, 't', sizeof longest);
    struct mr_slice big = mr_slice_make(longest, sizeof longest);
    for (size_t i = 0; i <= MR_TAKE_QUEUES_MAX; i++)
        many[i] = mr_slice_str("t");
    const struct {
        struct mr_master_options options;
        enum mr_err err;
    } rows[] = {
        {{.topics = many, .topics_n = MR_TAKE_QUEUES_MAX + 1}, MR_TOO_BIG},
        {{.topics = &bad, .topics_n = 1}, MR_INVALID},
        {{.topics = &big, .topics_n = 1}, MR_TOO_BIG},
        {{.topics_n = 1}, MR_INVALID},
        {{.beats_missed = 1}, MR_INVALID},
        {{.beat_ms = -1}, MR_INVALID},
        {{.lease_ms = -1}, MR_INVALID},
        {{.node = MR_SLICE_LIT("a\nb")}, MR_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(mr_master_open_on(w->far, &rows[i].options, NULL, &master), rows[i].err);
    master = open_master(w->far, (struct mr_master_options){0});
    struct mr_result_list *list;
    assert_int_equal(mr_master_take(master, 0, 0, &list), MR_INVALID);
    assert_int_equal(mr_master_take(master, MR_BATCH_MAX + 1, 0, &list), MR_TOO_BIG);
    struct mr_slice receipts[] = {mr_slice_str("nonsense"), mr_slice_str("nonsense.12"),
                                  mr_slice_str("01a1e2a2-e7aa-767b-a32a-8852669619bb.12")};
    enum mr_err errs[3];
    assert_int_equal(mr_master_commit(master, receipts, 3, errs), MR_OK);
    assert_int_equal(errs[0], MR_INVALID);
    assert_int_equal(errs[1], MR_INVALID);
    assert_int_equal(errs[2], MR_NOT_FOUND);
    assert_int_equal(mr_result_commit_on(w->far, receipts, 3, errs), MR_OK);
    assert_int_equal(errs[2], MR_NOT_FOUND);
    mr_master_free(master);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receipt_reads_back_and_nothing_else_is_one),
        cmocka_unit_test(a_result_is_encoded_as_protobuf_has_it_and_its_text_stands_last),
        cmocka_unit_test(every_run_has_a_result_of_its_own),
        TEST(a_master_commits_each_result_once_through_cut_connections),
        TEST(a_master_goes_on_after_a_restart_of_its_server),
        TEST(a_master_that_was_given_up_begins_anew),
        TEST(what_a_lasting_master_took_is_held_after_its_end),
        TEST(a_take_that_waits_ends_when_its_master_is_stopped),
        TEST(a_server_that_stops_does_not_wait_for_masters),
        TEST(options_that_cannot_be_are_refused),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
