/* SPDX-License-Identifier: Apache-2.0 */
/* Work.Gather and Work.Gathered as a client of any language sees them. */
#include "unit/api_rig.h"

typedef Millrace__V1__GatherResponse gather_response;
typedef Millrace__V1__GatheredResponse gathered_response;

static int begin(void **state)
{
    *state = rig_start(NULL);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

static void join(struct client *client, const char *queue, const char *id)
{
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task};
    struct talk talk = {0};
    task.queue = (char *)(uintptr_t)queue;
    task.id = (char *)(uintptr_t)id;
    task.group = (char *)(uintptr_t) "g";
    task.payload = mr_pb_of_bytes(mr_slice_str(id));
    request.tasks = tasks;
    request.n_tasks = 1;
    const Millrace__V1__EnqueueResponse *reply =
        (const void *)call_unary(&talk, client, PATH("Tasks/Enqueue"), &request.base,
                                 &millrace__v1__enqueue_response__descriptor);
    assert_non_null(reply);
    assert_int_equal(reply->results[0]->state, MILLRACE__V1__STATE__AGGREGATING);
}

static Millrace__V1__GatherRequest pairs_of(const char *queue)
{
    Millrace__V1__GatherRequest request = MILLRACE__V1__GATHER_REQUEST__INIT;
    request.queue = (char *)(uintptr_t)queue;
    request.max_size = 2;
    request.grace_ms = 3600 * 1000;
    request.wait_ms = 1000;
    return request;
}

static const gather_response *gather(struct talk *talk, struct client *client, const char *queue)
{
    Millrace__V1__GatherRequest request = pairs_of(queue);
    return (const void *)call_unary(talk, client, PATH("Work/Gather"), &request.base,
                                    &millrace__v1__gather_response__descriptor);
}

static const gathered_response *gathered(struct talk *talk, struct client *client,
                                         const char *queue, const char *set,
                                         Millrace__V1__NewTask *task)
{
    Millrace__V1__GatheredRequest request = MILLRACE__V1__GATHERED_REQUEST__INIT;
    request.queue = (char *)(uintptr_t)queue;
    request.set = (char *)(uintptr_t)set;
    request.task = task;
    return (const void *)call_unary(talk, client, PATH("Work/Gathered"), &request.base,
                                    &millrace__v1__gathered_response__descriptor);
}

static void a_set_is_answered_and_becomes_one_task(void **state)
{
    struct rig *rig = *state;
    struct client *client = &rig->client;
    struct talk talk = {0};
    const gather_response *none = gather(&talk, client, "q");
    assert_int_equal(talk.status, MR_RPC_OK); /* that none is ripe is no error */
    assert_string_equal(none->set, "");
    assert_int_equal(none->n_tasks, 0);
    join(client, "q", "m1");
    join(client, "q", "m2");
    const gather_response *set = gather(&talk, client, "q");
    assert_string_equal(set->group, "g");
    assert_int_equal(set->n_tasks, 2);
    assert_string_equal(set->tasks[1]->id, "m2");
    assert_int_equal(set->tasks[1]->payload.len, 2);
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT;
    task.group = (char *)(uintptr_t) "g";
    task.id = (char *)(uintptr_t) "one";
    const gathered_response *reply = gathered(&talk, client, "q", set->set, &task);
    assert_int_equal(reply->result->code, MR_INVALID);
    assert_non_null(strstr(reply->result->message, "group"));
    task.group = (char *)(uintptr_t) "";
    reply = gathered(&talk, client, "q", set->set, &task);
    assert_int_equal(reply->result->code, MR_OK);
    assert_string_equal(reply->result->id, "one");
    assert_int_equal(state_of(client, "one"), MILLRACE__V1__STATE__PENDING);
    assert_int_equal(state_of(client, "m1"), MILLRACE__V1__STATE__STATE_NONE);
    assert_null(gathered(&talk, client, "q", set->set, &task));
    assert_string_equal(talk.code, "STALE");
}

/* Its caller is gone when there is something to tell. */
static void a_set_that_nobody_can_be_told_of_goes_back_at_once(void **state)
{
    struct rig *rig = *state;
    struct talk gone = {0}, talk = {0};
    Millrace__V1__GatherRequest request = pairs_of("q");
    join(&rig->client, "q", "m1");
    talk_begin(&gone, &rig->client, PATH("Work/Gather"));
    assert_int_equal(talk_send(&gone, &request.base), MR_OK);
    talk_half_close(&gone);
    (void)state_of(&rig->client, "m1"); /* by then it waits at the broker */
    talk_done(&gone);
    join(&rig->client, "q", "m2");
    const gather_response *set;
    WAIT_UNTIL((set = gather(&talk, &rig->client, "q")) != NULL && set->n_tasks == 2);
    assert_string_equal(set->tasks[0]->id, "m1");
    assert_non_null(gathered(&talk, &rig->client, "q", set->set, NULL));
}

static void a_token_for_some_queues_gathers_from_those(void **state)
{
    struct rig *rig = *state;
    struct client mail;
    struct talk talk = {0};
    client_open(rig, &mail, make_token(rig, MR_ROLE_WORKER, "mail-*", NULL));
    join(&rig->client, "mail-a", "a1");
    join(&rig->client, "mail-a", "a2");
    join(&rig->client, "other", "o1");
    join(&rig->client, "other", "o2");
    assert_null(gather(&talk, &mail, "other"));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    const gather_response *other = gather(&talk, &rig->client, "other");
    assert_null(gathered(&talk, &mail, "other", other->set, NULL));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    const gather_response *own = gather(&talk, &mail, "mail-a");
    assert_int_equal(own->n_tasks, 2);
    assert_null(gathered(&talk, &mail, "mail-a", other->set, NULL)); /* a set of another queue */
    assert_string_equal(talk.code, "STALE");
    assert_non_null(gathered(&talk, &mail, "mail-a", own->set, NULL));
    client_close(&mail);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_set_is_answered_and_becomes_one_task),
        TEST(a_set_that_nobody_can_be_told_of_goes_back_at_once),
        TEST(a_token_for_some_queues_gathers_from_those),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
