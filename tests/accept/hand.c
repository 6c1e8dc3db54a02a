/* SPDX-License-Identifier: Apache-2.0 */
#include "accept/hand.h"

#include "accept/accept.h"
#include "client/client.h"

enum { LEASE_LONG_MS = 600000, HAND_SLOTS = 16 };

struct hand {
    struct mr_broker *broker;
    uint64_t node;
    mr_mono beaten;
};

static _Atomic size_t lost; /* of all: one that was abandoned may still be told */

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch;
    (void)arg;
    lost += reason == MR_STOP_LOST;
}

size_t hand_lost(void)
{
    return lost;
}

struct hand *hand_open(struct accept *t, const char *name, const char *queues, int64_t lease_ms)
{
    struct mr_worker_queue list[8];
    size_t n = 0;
    for (const char *at = queues ? queues : "default"; *at; n++) {
        size_t len = strcspn(at, " ");
        assert_true(n < sizeof list / sizeof *list);
        list[n] = (struct mr_worker_queue){.name = {at, len}};
        at += len + strspn(at + len, " ");
    }
    struct hand *hand = calloc(1, sizeof *hand);
    assert_non_null(hand);
    hand->broker = t->client->broker;
    struct mr_req_node_open req = {
        .req.op = MR_OP_NODE_OPEN,
        .name = mr_slice_str(name),
        .queues = list,
        .queues_n = n,
        .order = MR_QUEUES_STRICT,
        .slots = HAND_SLOTS,
        .lease_ms = lease_ms ? lease_ms : LEASE_LONG_MS,
        .events = {.stop = on_stop},
    };
    assert_err(mr_broker_call(hand->broker, &req.req), MR_OK);
    hand->node = req.node;
    mr_req_done(&req.req);
    return hand;
}

void hand_abandon(struct hand *hand)
{
    free(hand);
}

void hand_leave(struct hand *hand)
{
    struct mr_req_node_close req = {.req.op = MR_OP_NODE_CLOSE, .node = hand->node};
    assert_err(mr_broker_call(hand->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

void hand_close(struct hand *hand)
{
    if (!hand)
        return;
    hand_leave(hand);
    free(hand);
}

void hand_beat(struct hand *hand)
{
    struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = hand->node};
    if (accept_since_ms(hand->beaten) < ACCEPT_BEAT_MS / 2)
        return;
    assert_err(mr_broker_call(hand->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    hand->beaten = accept_now();
}

struct mr_lease *hand_take(struct hand *hand, int64_t wait_ms, enum mr_err *ret_err)
{
    struct mr_req_take req = {
        .req.op = MR_OP_TAKE, .node = hand->node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(hand->broker, &req.req);
    struct mr_lease *lease = err == MR_OK ? req.leases : NULL;
    if (lease) {
        assert_int_equal(req.n, 1);
        assert_err(mr_broker_lease_open(hand->broker, lease), MR_OK);
    }
    mr_req_done(&req.req);
    if (ret_err)
        *ret_err = err;
    else if (err != MR_EMPTY)
        assert_err(err, MR_OK);
    return lease;
}

enum mr_err hand_finish(struct hand *hand, const struct mr_lease *lease, struct mr_finish item)
{
    enum mr_err err = MR_FAILED;
    if (item.id.len == 0)
        item.id = lease->task.id;
    if (item.epoch == 0) {
        item.epoch = lease->epoch;
        item.ref = lease->ref;
    }
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_err(mr_broker_call(hand->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return err;
}

void hand_done(struct hand *hand, struct mr_lease *lease)
{
    struct mr_finish item = {.outcome = MR_DONE, .result = lease->task.payload};
    assert_err(hand_finish(hand, lease, item), MR_OK);
    mr_lease_free(lease);
}

void hand_expect(struct hand *hand, const char *id)
{
    struct mr_lease *lease = hand_take(hand, ACCEPT_WAIT_MS / 2, NULL);
    assert_non_null(lease);
    if (lease->task.id.len != strlen(id) || memcmp(lease->task.id.data, id, strlen(id)) != 0)
        fail_msg("%.*s comes before %s", (int)lease->task.id.len, (const char *)lease->task.id.data,
                 id);
    hand_done(hand, lease);
}
