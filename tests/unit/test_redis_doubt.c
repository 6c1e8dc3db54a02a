/* SPDX-License-Identifier: Apache-2.0 */
/* An end whose answer is lost together with the data: what may be taken for done, and what not. */
#include <stdio.h>
#include <string.h>

#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"

static const int64_t patience_ns = 30 * MR_NS_PER_S;

/* Whether bytes wait at a server that does not read them. */
static bool has_unread_bytes(const struct redis_rig_server *server)
{
    FILE *file = fopen("/proc/net/tcp", "re");
    char line[512];
    bool found = false;
    assert_non_null(file);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        unsigned port, state, unread;
        if (sscanf(line, " %*d: %*8x:%4x %*8x:%*4x %2x %*8x:%8x", &port, &state, &unread) == 3)
            found = port == server->port && state == 1 && unread > 0;
    }
    (void)fclose(file);
    return found;
}

static void finished(struct mr_req *req)
{
    mr_event_set(req->arg);
}

/* The server gets the end of a run, and is killed before it has looked at it. */
static enum mr_err end_in_doubt(int64_t retention_ms)
{
    struct redis_rig *rig = redis_rig_standalone(NULL);
    struct redis_rig_server *server = redis_rig_server(rig, 0);
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    struct mr_broker *broker = NULL;
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    put(broker,
        (struct mr_task_options){.payload = MR_SLICE_LIT("x"), .retention_ms = retention_ms});
    struct mr_lease *lease = take_one(broker);
    struct mr_event done;
    enum mr_err err = MR_OK;
    mr_event_init(&done);
    struct mr_finish item = {
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    struct mr_req_finish finish = {.req = {.op = MR_OP_FINISH, .done = finished, .arg = &done},
                                   .items = &item,
                                   .n = 1,
                                   .errs = &err};
    redis_rig_freeze(server);
    mr_broker_submit(broker, &finish.req);
    while (!has_unread_bytes(server))
        (void)mr_event_wait(&done, MR_NS_PER_MS);
    redis_rig_kill(server);
    redis_rig_start(server);
    assert_true(mr_event_wait(&done, patience_ns));
    mr_req_done(&finish.req);
    mr_lease_free(lease);
    mr_broker_close(broker);
    redis_rig_stop(rig);
    return err;
}

static void a_task_that_is_kept_cannot_have_ended_without_a_trace(void **state)
{
    (void)state;
    assert_int_equal(end_in_doubt(3600000), MR_NOT_FOUND);
}

static void a_task_that_is_gone_may_have_ended(void **state)
{
    (void)state;
    assert_int_equal(end_in_doubt(0), MR_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_that_is_kept_cannot_have_ended_without_a_trace),
        cmocka_unit_test(a_task_that_is_gone_may_have_ended),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
