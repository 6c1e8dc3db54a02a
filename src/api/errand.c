/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's way to the broker and back, and how much of that a peer may have at a time. Nobody is
 * refused for being quick: a peer with too much under way is not read until some of it is answered.
 */
#include <stdlib.h>

#include "api/internal.h"

/* ---- budgets -------------------------------------------------------------------------------- */

void budget_init(struct budget *budget)
{
    *budget = (struct budget){0};
    mr_list_init(&budget->valves);
}

static void valve_apply(struct valve *valve)
{
    bool hold = valve->waits || (valve->budget != NULL && valve->budget->full);
    if (hold == valve->held)
        return;
    valve->held = hold;
    mr_call_hold(valve->call, hold);
}

static void budget_set_full(struct budget *budget, bool full)
{
    budget->full = full;
    for (struct mr_link *link = budget->valves.next; link != &budget->valves; link = link->next)
        valve_apply(mr_container(link, struct valve, link));
}

void valve_open(struct valve *valve, struct budget *budget, struct mr_call *call)
{
    *valve = (struct valve){.call = call};
    mr_list_init(&valve->link);
    valve_move(valve, budget);
}

void valve_move(struct valve *valve, struct budget *budget)
{
    mr_list_remove(&valve->link);
    valve->budget = budget;
    if (budget != NULL)
        mr_list_push_back(&budget->valves, &valve->link);
    valve_apply(valve);
}

void valve_hold(struct valve *valve)
{
    valve->waits = true;
    valve_apply(valve);
}

void valve_release(struct valve *valve)
{
    valve->waits = false;
    valve_apply(valve);
}

void valve_close(struct valve *valve)
{
    mr_list_remove(&valve->link);
}

static void charge(struct errand *errand)
{
    const struct mr_api_limits *limits = &errand->api->options.limits;
    struct budget *budget = errand->budget;
    errand->api->errands_n++;
    errand->api->bytes += errand->bytes;
    errand->api->expected += errand->expected;
    if (budget == NULL)
        return;
    budget->requests++;
    budget->bytes += errand->bytes + errand->expected;
    if (!budget->full &&
        (budget->requests >= limits->requests_max || budget->bytes >= limits->bytes_max))
        budget_set_full(budget, true);
}

/* Reading goes on at half, not at each answer. */
static void discharge(struct errand *errand)
{
    const struct mr_api_limits *limits = &errand->api->options.limits;
    struct budget *budget = errand->budget;
    errand->api->errands_n--;
    errand->api->bytes -= errand->bytes;
    errand->api->expected -= errand->expected;
    if (budget == NULL)
        return;
    budget->requests--;
    budget->bytes -= errand->bytes + errand->expected;
    if (budget->full && budget->requests <= limits->requests_max / 2 &&
        budget->bytes <= limits->bytes_max / 2)
        budget_set_full(budget, false);
}

/* ---- errands -------------------------------------------------------------------------------- */

static void deliver(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct errand *errand = mr_container(msg, struct errand, req.head.msg);
    struct mr_api *api = errand->api;
    discharge(errand);
    errand->back(errand);
    api_look_quiet(api);
}

void errand_return(struct errand *errand)
{
    errand->req.head.msg.deliver = deliver;
    mr_rpc_post(errand->api->options.rpc, &errand->req.head.msg);
}

void errand_leave(struct errand *errand, struct mr_api *api, void (*back)(struct errand *errand))
{
    errand->api = api;
    errand->back = back;
    errand->bytes = sizeof *errand + errand->req.head.arena.bytes;
    charge(errand);
}

/* Broker's thread. */
static void done(struct mr_req *req)
{
    errand_return(mr_container(req, struct errand, req.head));
}

void errand_submit(struct errand *errand, struct mr_api *api, enum mr_op op,
                   void (*back)(struct errand *errand))
{
    errand->req.head.op = op;
    errand->req.head.done = done;
    errand_leave(errand, api, back);
    mr_broker_submit(api->options.broker, &errand->req.head);
}

void errand_clear(struct errand *errand)
{
    mr_req_done(&errand->req.head);
    errand->req = (union any_req){0};
}

/* ---- connections ---------------------------------------------------------------------------- */

static struct mr_link *conn_bucket(struct mr_api *api, uint64_t id)
{
    return &api->conns[id % CONN_BUCKETS];
}

static struct conn *conn_new(struct mr_api *api, uint64_t id)
{
    struct conn *conn = calloc(1, sizeof *conn);
    mr_mono now = mr_rpc_now(api->options.rpc);
    if (conn == NULL)
        return NULL;
    conn->id = id;
    rate_init(&conn->rate, api->options.limits.rate, now);
    budget_init(&conn->budget);
    mr_list_push_front(conn_bucket(api, id), &conn->link);
    if (conn->rate.a_second > 0 && !mr_timer_running(&api->conns_timer))
        mr_rpc_timer_start(api->options.rpc, &api->conns_timer, mr_mono_add_ms(now, MR_MS_PER_S));
    return conn;
}

struct conn *conn_get(struct mr_api *api, const struct mr_call *call)
{
    uint64_t id = mr_call_connection(call);
    struct mr_link *bucket = conn_bucket(api, id);
    struct conn *conn = NULL;
    for (struct mr_link *link = bucket->next; link != bucket && conn == NULL; link = link->next)
        if (mr_container(link, struct conn, link)->id == id)
            conn = mr_container(link, struct conn, link);
    if (conn == NULL)
        conn = conn_new(api, id);
    if (conn != NULL)
        conn->refs++;
    return conn;
}

static void conn_free(struct conn *conn)
{
    mr_list_remove(&conn->link);
    free(conn);
}

/* With a rate, what was sent must be remembered until it does not matter any more. */
void conn_unref(struct mr_api *api, struct conn *conn)
{
    if (--conn->refs == 0 && api->options.limits.rate == 0)
        conn_free(conn);
}

enum mr_err conn_pay(struct mr_api *api, struct conn *conn, size_t n, struct mr_detail *detail)
{
    return rate_pay(&conn->rate, mr_rpc_now(api->options.rpc), n, detail);
}

enum mr_err conn_pay_more(struct mr_api *api, struct conn *conn, size_t n, struct mr_detail *detail)
{
    return rate_pay_more(&conn->rate, mr_rpc_now(api->options.rpc), n, detail);
}

/* One that may send as much as a new one is the same as none. */
void conns_sweep(struct mr_timer *timer, void *arg)
{
    struct mr_api *api = mr_container(timer, struct mr_api, conns_timer);
    struct mr_rpc *rpc = arg;
    bool left = false;
    for (size_t i = 0; i < CONN_BUCKETS; i++) {
        for (struct mr_link *link = api->conns[i].next, *next; link != &api->conns[i];
             link = next) {
            struct conn *conn = mr_container(link, struct conn, link);
            next = link->next;
            if (conn->refs == 0 && rate_is_whole(&conn->rate, mr_rpc_now(rpc)))
                conn_free(conn);
            else
                left = true;
        }
    }
    if (left)
        mr_rpc_timer_start(rpc, timer, mr_mono_add_ms(mr_rpc_now(rpc), MR_MS_PER_S));
}

void conns_free(struct mr_api *api)
{
    for (size_t i = 0; i < CONN_BUCKETS; i++)
        while (!mr_list_empty(&api->conns[i]))
            conn_free(mr_container(api->conns[i].next, struct conn, link));
}
