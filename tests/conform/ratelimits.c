/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of what a queue hands out: by rate and by how many at once, of all, of a type, of a key. */
#include "conform.h"

#include <stdio.h>

static enum mr_err set_limit(struct conform *t, enum mr_queue_setting setting,
                             enum mr_limit_scope scope, const char *name, uint64_t value,
                             int64_t rate_ms)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = setting,
                                   .value = value,
                                   .rate_ms = rate_ms,
                                   .scope = scope,
                                   .name = mr_slice_str(name)};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static enum mr_err set_limit_of(struct conform *t, const char *queue, uint64_t at_once)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(queue),
                                   .setting = MR_QUEUE_CONCURRENCY,
                                   .value = at_once};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static enum mr_err at_once(struct conform *t, enum mr_limit_scope scope, const char *name,
                           uint64_t n)
{
    return set_limit(t, MR_QUEUE_CONCURRENCY, scope, name, n, 0);
}

static enum mr_err rate(struct conform *t, enum mr_limit_scope scope, const char *name, uint64_t n,
                        int64_t ms)
{
    return set_limit(t, MR_QUEUE_RATE, scope, name, n, ms);
}

static enum mr_err limits(struct conform *t, const char *queue, const char *id,
                          struct mr_limit out[MR_LIMITS_MAX], size_t *ret_n)
{
    struct mr_req_queue_limits req = {.req.op = MR_OP_QUEUE_LIMITS,
                                      .queue = mr_slice_str(queue),
                                      .id = mr_slice_str(id),
                                      .limits = out};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    *ret_n = req.n;
    mr_req_done(&req.req);
    return err;
}

static const char *put(struct conform *t, const char *id, const char *type, const char *key)
{
    return PUT_OK(t, .id = mr_slice_str(id), .type = mr_slice_str(type), .key = mr_slice_str(key));
}

static void assert_limit(const struct mr_limit *limit, enum mr_limit_scope scope, const char *name)
{
    assert_int_equal(limit->scope, scope);
    assert_string_equal(limit->name, name);
}

/* ---- setting -------------------------------------------------------------------------------- */

static void a_limit_is_set_shown_and_lifted(void **state)
{
    struct conform *t = *state;
    struct mr_limit all[MR_LIMITS_MAX];
    size_t n;
    assert_err(limits(t, "default", "", all, &n), MR_NOT_FOUND);
    assert_err(rate(t, MR_LIMIT_QUEUE, "", 100, 1000), MR_OK);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 5), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "k", 2), MR_OK);
    assert_err(rate(t, MR_LIMIT_TYPE, "*", 7, 60000), MR_OK);
    struct mr_queue_info info = conform_queue(t, "default");
    assert_int_equal(info.rate, 100);
    assert_int_equal(info.rate_ms, 1000);
    assert_int_equal(info.concurrency, 5);
    assert_int_equal(info.limits, 2);
    assert_err(limits(t, "default", "", all, &n), MR_OK);
    assert_int_equal(n, 3);
    assert_limit(&all[0], MR_LIMIT_QUEUE, "");
    assert_limit(&all[1], MR_LIMIT_TYPE, "*");
    assert_int_equal(all[1].rate, 7);
    assert_int_equal(all[1].rate_ms, 60000);
    assert_int_equal(all[1].concurrency, 0);
    assert_limit(&all[2], MR_LIMIT_KEY, "k");
    assert_int_equal(all[2].concurrency, 2);
    assert_err(rate(t, MR_LIMIT_QUEUE, "", 0, 0), MR_OK);
    info = conform_queue(t, "default");
    assert_int_equal(info.rate, 0);
    assert_int_equal(info.concurrency, 5);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 0), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "k", 0), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "never set", 0), MR_OK);
    assert_err(rate(t, MR_LIMIT_TYPE, "*", 0, 0), MR_OK);
    assert_err(limits(t, "default", "", all, &n), MR_OK);
    assert_int_equal(n, 0);
}

static void limits_that_make_no_sense_are_refused(void **state)
{
    struct conform *t = *state;
    assert_err(rate(t, MR_LIMIT_QUEUE, "", 1, 0), MR_INVALID);
    assert_err(rate(t, MR_LIMIT_QUEUE, "", 1, MR_LIMIT_MS_MAX + 1), MR_INVALID);
    assert_err(rate(t, MR_LIMIT_QUEUE, "", MR_LIMIT_RATE_MAX + 1, 1000), MR_INVALID);
    assert_err(rate(t, MR_LIMIT_QUEUE, "named", 1, 1000), MR_INVALID);
    assert_err(rate(t, MR_LIMIT_TYPE, "", 1, 1000), MR_INVALID);
    assert_err(rate(t, MR_LIMIT_TYPE, "br{ce", 1, 1000), MR_INVALID);
    assert_err(rate(t, MR_LIMIT_SCOPE_COUNT, "x", 1, 1000), MR_INVALID);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", UINT32_MAX + 1ull), MR_INVALID);
    for (int i = 0; i <= MR_LIMITS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        assert_err(at_once(t, MR_LIMIT_TYPE, name, 1), i < MR_LIMITS_MAX ? MR_OK : MR_TOO_BIG);
    }
    assert_err(at_once(t, MR_LIMIT_TYPE, "t1", 2), MR_OK);
}

static void the_limits_of_a_task_are_those_that_hold_for_it(void **state)
{
    struct conform *t = *state;
    struct mr_limit held[MR_LIMITS_MAX];
    size_t n;
    put(t, "x", "a", "k");
    put(t, "y", "b", "");
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 9), MR_OK);
    assert_err(at_once(t, MR_LIMIT_TYPE, "*", 4), MR_OK);
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 3), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "*", 1), MR_OK);
    assert_err(rate(t, MR_LIMIT_KEY, "*", 1, 3600000), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "other", 2), MR_OK);
    assert_err(limits(t, "default", "x", held, &n), MR_OK);
    assert_int_equal(n, 3);
    assert_limit(&held[0], MR_LIMIT_QUEUE, "");
    assert_limit(&held[1], MR_LIMIT_TYPE, "a");
    assert_limit(&held[2], MR_LIMIT_KEY, "*");
    assert_int_equal(held[2].active, 0);
    assert_int_equal(held[2].rate_until_ms, 0);
    assert_err(limits(t, "default", "y", held, &n), MR_OK);
    assert_int_equal(n, 2);
    assert_limit(&held[1], MR_LIMIT_TYPE, "*");
    assert_err(limits(t, "default", "nobody", held, &n), MR_NOT_FOUND);
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, "x");
    assert_err(limits(t, "default", put(t, "z", "c", "k"), held, &n), MR_OK);
    assert_int_equal(n, 3);
    assert_int_equal(held[0].active, 1);
    assert_int_equal(held[1].active, 0);
    assert_int_equal(held[2].active, 1);
    int64_t left_ms = held[2].rate_until_ms - conform_wall_ms();
    assert_true(left_ms > 3500000 && left_ms < 3700000);
    assert_err(limits(t, "default", "", held, &n), MR_OK);
    assert_int_equal(held[0].active, 1);
    assert_limit(&held[2], MR_LIMIT_TYPE, "a");
    assert_int_equal(held[2].active, 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void a_task_keeps_its_key(void **state)
{
    struct conform *t = *state;
    put(t, "x", "a", "k");
    assert_slice(conform_get(t, "x")->key, "k");
    struct mr_lease *lease = conform_take_id(t, NODE(t), "x");
    assert_slice(lease->task.key, "k");
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

/* ---- at once -------------------------------------------------------------------------------- */

static void a_queue_has_no_more_in_hand_than_its_limit_whoever_the_nodes_are(void **state)
{
    struct conform *t = *state;
    size_t n, m;
    conform_put_many(t, "default", "t", 10);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 3), MR_OK);
    struct conform_node *a = NODE(t, .name = "a"), *b = NODE(t, .name = "b");
    struct mr_lease *first = conform_take_list(t, a, 2, 0, &n);
    struct mr_lease *second = conform_take_list(t, b, 5, 0, &m);
    assert_int_equal(n, 2);
    assert_int_equal(m, 1);
    conform_take_none(t, a);
    conform_finish_list(t, first, MR_DONE);
    first = conform_take_list(t, b, 5, 0, &n);
    assert_int_equal(n, 2);
    assert_int_equal(conform_queue(t, "default").counts[MR_ACTIVE], 3);
    conform_finish_list(t, second, MR_DONE);
    conform_finish_list(t, first, MR_DONE);
}

static void whatever_ends_a_lease_gives_the_permit_back(void **state)
{
    struct conform *t = *state;
    enum { BY_DONE, BY_FAIL, BY_LATER, BY_HAND_BACK, BY_DROP, BY_CLOSE, BY_DEATH, WAYS };
    static const enum mr_outcome outcomes[] = {MR_DONE, MR_FAIL, MR_LATER, MR_HAND_BACK, MR_DROP};
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 1), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "*", 1), MR_OK);
    struct conform_node *node = NODE(t);
    for (int way = 0; way < WAYS; way++) {
        struct conform_node *other =
            NODE(t, .name = "other", .lease_ms = way == BY_DEATH ? CONFORM_LEASE_MS : 0);
        put(t, "x", "a", "k");
        struct mr_lease *held = conform_take_id(t, other, "x");
        put(t, "y", "a", "k");
        conform_take_none(t, node);
        struct conform_take take;
        conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
        if (way < BY_CLOSE)
            assert_err(FINISH(t, held, .outcome = outcomes[way], .delay_ms = 60000), MR_OK);
        if (way != BY_DEATH)
            assert_err(conform_node_close(t, other), MR_OK);
        assert_err(conform_take_end(t, &take), MR_OK);
        /* What is back is first again, as soon as that is durable. */
        bool back = mr_slice_equal(take.req.leases->task.id, MR_SLICE_LIT("x"));
        assert_true(!back || way == BY_CLOSE || way == BY_DEATH);
        FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
        (void)conform_act(t, MR_VERB_DELETE, back ? "y" : "x", 0);
        mr_lease_free(held);
    }
}

static void a_task_of_a_full_type_is_passed_over_and_comes_in_its_order_later(void **state)
{
    struct conform *t = *state;
    static const char *const ids[] = {"a0", "a1", "b0", "a2", "b1"};
    for (size_t i = 0; i < 5; i++)
        put(t, ids[i], ids[i][0] == 'a' ? "a" : "b", "");
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 1), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *a0 = conform_take_id(t, node, "a0");
    FINISH_OK(t, conform_take_id(t, node, "b0"), .outcome = MR_DONE);
    FINISH_OK(t, a0, .outcome = MR_DONE);
    struct mr_lease *a1 = conform_take_id(t, node, "a1");
    struct mr_lease *b1 = conform_take_id(t, node, "b1");
    conform_take_none(t, node);
    FINISH_OK(t, a1, .outcome = MR_DONE);
    put(t, "b2", "b", "");
    FINISH_OK(t, conform_take_id(t, node, "a2"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "b2"), .outcome = MR_DONE);
    FINISH_OK(t, b1, .outcome = MR_DONE);
}

static void each_key_has_its_own_and_a_name_goes_before_each(void **state)
{
    struct conform *t = *state;
    static const char *const keys[] = {"k", "k", "l", "l", "big", "big", "big", ""};
    for (size_t i = 0; i < 8; i++) {
        char id[8];
        snprintf(id, sizeof id, "t%zu", i);
        put(t, id, "a", keys[i]);
    }
    put(t, "t8", "a", "");
    assert_err(at_once(t, MR_LIMIT_KEY, "*", 1), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "big", 2), MR_OK);
    struct conform_node *node = NODE(t);
    static const char *const given[] = {"t0", "t2", "t4", "t5", "t7", "t8"};
    struct mr_lease *leases[6];
    for (size_t i = 0; i < 6; i++)
        leases[i] = conform_take_id(t, node, given[i]);
    conform_take_none(t, node);
    FINISH_OK(t, leases[2], .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t6"), .outcome = MR_DONE);
    FINISH_OK(t, leases[1], .outcome = MR_DONE);
    FINISH_OK(t, leases[0], .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t1"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t3"), .outcome = MR_DONE);
    for (size_t i = 3; i < 6; i++)
        FINISH_OK(t, leases[i], .outcome = MR_DONE);
}

static void limits_of_queue_type_and_key_hold_together(void **state)
{
    struct conform *t = *state;
    put(t, "ak", "a", "k");
    put(t, "al", "a", "l");
    put(t, "bk", "b", "k");
    put(t, "bm", "b", "m");
    put(t, "cn", "c", "n");
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 2), MR_OK);
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 1), MR_OK);
    assert_err(at_once(t, MR_LIMIT_KEY, "*", 1), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *ak = conform_take_id(t, node, "ak");
    struct mr_lease *bm = conform_take_id(t, node, "bm");
    conform_take_none(t, node);
    FINISH_OK(t, bm, .outcome = MR_DONE);
    struct mr_lease *cn = conform_take_id(t, node, "cn");
    FINISH_OK(t, ak, .outcome = MR_DONE);
    struct mr_lease *al = conform_take_id(t, node, "al");
    conform_take_none(t, node);
    FINISH_OK(t, cn, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "bk"), .outcome = MR_DONE);
    FINISH_OK(t, al, .outcome = MR_DONE);
}

/* Of one type one may go. The first ones that wait for it are kept back by their keys, or are gone, so the one
 * behind them gets it: at once, though nothing else happens. */
static void a_permit_that_the_first_cannot_use_goes_to_the_next(void **state)
{
    struct conform *t = *state;
    enum { KEYS = 12 };
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 1), MR_OK);
    assert_err(rate(t, MR_LIMIT_KEY, "*", 1, 3600000), MR_OK);
    struct conform_node *node = NODE(t);
    for (int used = 1; used >= 0; used--) {
        char ids[KEYS][8], keys[KEYS][8];
        for (int i = 0; i < KEYS; i++) {
            (void)snprintf(ids[i], sizeof ids[i], "%c%d", used ? 'u' : 'g', i);
            memcpy(keys[i], ids[i], sizeof keys[i]);
            if (!used)
                continue;
            put(t, "before", "b", keys[i]);
            FINISH_OK(t, conform_take_id(t, node, "before"), .outcome = MR_DONE);
        }
        put(t, "x", "a", used ? "x" : "y");
        struct mr_lease *x = conform_take_id(t, node, "x");
        for (int i = 0; i < KEYS; i++)
            put(t, ids[i], "a", keys[i]);
        put(t, "z", "a", used ? "zu" : "zg");
        conform_take_none(t, node);
        for (int i = 0; !used && i < KEYS; i++)
            assert_err(conform_act(t, MR_VERB_DELETE, ids[i], 0), MR_OK);
        FINISH_OK(t, x, .outcome = MR_DONE);
        FINISH_OK(t, conform_take_id(t, node, "z"), .outcome = MR_DONE);
        conform_take_none(t, node);
    }
}

static void what_runs_when_a_limit_is_set_counts_against_it(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 4);
    struct conform_node *node = NODE(t);
    size_t n;
    struct mr_lease *held = conform_take_list(t, node, 2, 0, &n);
    assert_err(at_once(t, MR_LIMIT_TYPE, "task", 2), MR_OK);
    conform_take_none(t, node);
    assert_err(at_once(t, MR_LIMIT_TYPE, "task", 3), MR_OK);
    struct mr_lease *third = conform_take_id(t, node, "t2");
    conform_take_none(t, node);
    conform_finish_list(t, held, MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t3"), .outcome = MR_DONE);
    FINISH_OK(t, third, .outcome = MR_DONE);
}

static void a_limit_that_is_lifted_lets_those_go_that_wait(void **state)
{
    struct conform *t = *state;
    for (int scope = MR_LIMIT_QUEUE; scope < MR_LIMIT_SCOPE_COUNT; scope++) {
        const char *names[] = {"", "a", "*"};
        put(t, "x", "a", "k");
        put(t, "y", "a", "k");
        assert_err(at_once(t, (enum mr_limit_scope)scope, names[scope], 1), MR_OK);
        struct conform_node *node = NODE(t);
        struct mr_lease *x = conform_take_id(t, node, "x");
        conform_take_none(t, node);
        struct conform_take take;
        conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
        assert_err(at_once(t, (enum mr_limit_scope)scope, names[scope], 0), MR_OK);
        assert_err(conform_take_end(t, &take), MR_OK);
        assert_slice(take.req.leases->task.id, "y");
        FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
        FINISH_OK(t, x, .outcome = MR_DONE);
        assert_err(conform_node_close(t, node), MR_OK);
    }
}

static void what_is_passed_over_can_be_moved_and_removed(void **state)
{
    struct conform *t = *state;
    static const char *const ids[] = {"x", "gone", "archived", "late", "early"};
    for (size_t i = 0; i < 5; i++)
        put(t, ids[i], "a", "");
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 1), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *x = conform_take_id(t, node, "x");
    conform_take_none(t, node);
    assert_int_equal(PAGE(t, .queue = MR_SLICE_LIT("default"), .state = MR_PENDING).n, 4);
    assert_err(conform_act(t, MR_VERB_DELETE, "gone", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_ARCHIVE, "archived", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_PRIORITISE, "early", 60), MR_OK);
    conform_take_none(t, node);
    struct conform_page page = PAGE(t, .queue = MR_SLICE_LIT("default"), .state = MR_PENDING);
    assert_int_equal(page.n, 2);
    assert_slice(page.tasks[0].id, "early");
    FINISH_OK(t, x, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "early"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "late"), .outcome = MR_DONE);
    assert_err(conform_act(t, MR_VERB_RUN, "archived", 0), MR_OK);
    FINISH_OK(t, conform_take_id(t, node, "archived"), .outcome = MR_DONE);
}

static void what_is_passed_over_twice_has_its_last_place(void **state)
{
    struct conform *t = *state;
    for (size_t i = 0; i < 3; i++)
        put(t, (const char *const[]){"x", "y", "z"}[i], "a", "");
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 1), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *x = conform_take_id(t, node, "x");
    conform_take_none(t, node);
    assert_err(conform_act(t, MR_VERB_PRIORITISE, "y", -60), MR_OK);
    conform_take_none(t, node);
    FINISH_OK(t, x, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "z"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "y"), .outcome = MR_DONE);
}

static void with_its_queue_all_of_a_limit_is_gone(void **state)
{
    struct conform *t = *state;
    struct mr_limit all[MR_LIMITS_MAX];
    size_t n;
    for (int round = 0; round < 2; round++) {
        conform_put_many(t, "default", round ? "s" : "t", 5);
        assert_err(at_once(t, MR_LIMIT_TYPE, "task", 1), MR_OK);
        assert_err(rate(t, MR_LIMIT_QUEUE, "", 2, 3600000), MR_OK);
        struct conform_node *node = NODE(t);
        struct mr_lease *first = conform_take_id(t, node, round ? "s0" : "t0");
        conform_take_none(t, node);
        FINISH_OK(t, first, .outcome = MR_DONE);
        assert_err(conform_queue_remove(t, "default", MR_QUEUE_REMOVE_FORCE), MR_OK);
        assert_err(limits(t, "default", "", all, &n), MR_NOT_FOUND);
        conform_put_many(t, "default", "u", 5);
        struct mr_lease *rest = conform_take_list(t, node, 5, 0, &n);
        assert_int_equal(n, 5);
        conform_finish_list(t, rest, MR_DONE);
        assert_err(conform_node_close(t, node), MR_OK);
        assert_err(conform_queue_remove(t, "default", MR_QUEUE_REMOVE_FORCE), MR_OK);
    }
}

/* Whether a take has passed over a task is no matter for its place. */
static void what_was_passed_over_goes_by_its_order_time_among_the_others(void **state)
{
    struct conform *t = *state;
    put(t, "a0", "a", "k");
    assert_err(at_once(t, MR_LIMIT_KEY, "k", 1), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *a0 = conform_take_id(t, node, "a0");
    (void)put(t, "a1", "a", "k");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("last"), .key = MR_SLICE_LIT("k"), .priority_s = -100);
    int64_t order_ms = conform_get(t, "last")->order_time_ms;
    conform_take_none(t, node);
    assert_int_equal(conform_get(t, "last")->order_time_ms, order_ms);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("first"), .priority_s = 3600);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("behind"), .priority_s = -200);
    FINISH_OK(t, a0, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "first"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "a1"), .outcome = MR_DONE);
    struct mr_lease *last = conform_take_id(t, node, "last");
    assert_int_equal(conform_get(t, "last")->order_time_ms, order_ms);
    FINISH_OK(t, last, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "behind"), .outcome = MR_DONE);
}

static void an_order_time_stays_as_it_was_shown(void **state)
{
    struct conform *t = *state;
    enum { WAIT = 64 }; /* each at another part of a millisecond */
    int64_t order_ms[WAIT];
    char ids[WAIT][8];
    assert_err(at_once(t, MR_LIMIT_KEY, "k", 1), MR_OK);
    struct conform_node *node = NODE(t);
    for (int i = 0; i < WAIT; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "w%d", i);
        put(t, ids[i], "a", "k");
        order_ms[i] = conform_get(t, ids[i])->order_time_ms;
    }
    struct mr_lease *first = conform_take_id(t, node, "w0");
    conform_take_none(t, node);
    for (int i = 1; i < WAIT; i++)
        assert_int_equal(conform_get(t, ids[i])->order_time_ms, order_ms[i]);
    FINISH_OK(t, first, .outcome = MR_DONE);
}

static void thousands_that_are_passed_over_keep_their_order(void **state)
{
    struct conform *t = *state;
    enum { BATCH = 500, BATCHES = 5 };
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    char ids[BATCH][16];
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < BATCH; i++) {
            snprintf(ids[i], sizeof ids[i], "a%d", b * BATCH + i);
            tasks[i] =
                (struct mr_task_options){.id = mr_slice_str(ids[i]), .type = MR_SLICE_LIT("a")};
        }
        conform_put_all(t, tasks, BATCH, results);
    }
    put(t, "b", "b", "");
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 2), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *first = conform_take_id(t, node, "a0"),
                    *second = conform_take_id(t, node, "a1");
    FINISH_OK(t, conform_take_id(t, node, "b"), .outcome = MR_DONE);
    conform_take_none(t, node);
    FINISH_OK(t, second, .outcome = MR_DONE);
    for (int i = 2; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof id, "a%d", i);
        FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DONE);
    }
    FINISH_OK(t, first, .outcome = MR_DONE);
}

/* Whoever has nothing to do with the queue is answered meanwhile. */
static void passing_over_thousands_keeps_nobody_waiting(void **state)
{
    struct conform *t = *state;
    enum { BATCH = 1000, BATCHES = 20 };
    static struct mr_task_options tasks[BATCH];
    static struct mr_enqueue_result results[BATCH];
    for (int i = 0; i < BATCH; i++)
        tasks[i] = (struct mr_task_options){.type = MR_SLICE_LIT("a"), .key = MR_SLICE_LIT("k")};
    for (int b = 0; b < BATCHES; b++)
        conform_put_all(t, tasks, BATCH, results);
    assert_err(at_once(t, MR_LIMIT_KEY, "k", 1), MR_OK);
    put(t, "last", "a", "other");
    struct conform_node *node = NODE(t, .slots = 2);
    struct mr_lease *first = conform_take_one(t, node);
    struct conform_take take;
    conform_take_start(t, &take, node, 1, 60000);
    PUT_OK(t, .queue = MR_SLICE_LIT("elsewhere"));
    mr_mono answered = mr_mono_now(mr_clock_system());
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_slice(take.req.leases->task.id, "last");
    assert_true(answered.ns < take.done_at.ns);
    FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
    FINISH_OK(t, first, .outcome = MR_DONE);
}

static void of_a_limited_queue_a_node_holds_nothing_ahead_of_its_slots(void **state)
{
    struct conform *t = *state;
    size_t n;
    conform_put_many(t, "default", "t", 10);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 8), MR_OK);
    struct conform_node *node = NODE(t, .slots = 2);
    struct mr_lease *held = conform_take_list(t, node, 10, 0, &n);
    assert_int_equal(n, 2);
    conform_take_none(t, node);
    struct conform_take take;
    conform_take_start(t, &take, node, 10, CONFORM_WAIT_MS);
    conform_finish_list(t, held, MR_DONE);
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_true(take.req.n >= 1 && take.req.n <= 2);
    conform_finish_list(t, take.req.leases, MR_DONE);
}

/* A take of these queues of the node alone: bits. */
static void start_of(struct conform *t, struct conform_take *take, const struct conform_node *node,
                     uint64_t queues)
{
    *take = (struct conform_take){
        .req = {.node = node->node, .max = 1, .wait_ms = CONFORM_WAIT_MS, .queues = queues}};
    conform_take_submit(t, take);
}

static struct mr_lease *take_of(struct conform *t, const struct conform_node *node, uint64_t queues)
{
    struct conform_take take;
    start_of(t, &take, node, queues);
    assert_err(conform_take_end(t, &take), MR_OK);
    return take.req.leases;
}

/* Its other slot is busy, so that it has none at the moment when the broker hears of the end: of a task of
 * that queue, or of one without limits. Many rounds, since a look now and then would take a second for each. */
static void a_slot_that_becomes_free_is_used_at_once(void **state)
{
    struct conform *t = *state;
    enum { LIMITED = 1, OTHER = 2, ROUNDS = 10 };
    conform_put_many(t, "default", "t", ROUNDS + 1);
    conform_put_many(t, "other", "o", ROUNDS);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 50), MR_OK);
    struct conform_node *node = NODE(t, .slots = 2, .queues = "default other");
    struct mr_lease *busy = take_of(t, node, LIMITED), *held = take_of(t, node, OTHER);
    mr_mono since = conform_mono();
    for (int i = 0; i < ROUNDS; i++) {
        struct conform_take take;
        start_of(t, &take, node, LIMITED);
        FINISH_OK(t, held, .outcome = MR_DONE);
        assert_err(conform_take_end(t, &take), MR_OK);
        held = take.req.leases;
        if (i % 2 == 0)
            continue;
        FINISH_OK(t, held, .outcome = MR_DONE);
        held = take_of(t, node, OTHER);
    }
    assert_true(conform_elapsed_ms(since) < ROUNDS * 1000 / 2);
    FINISH_OK(t, held, .outcome = MR_DONE);
    FINISH_OK(t, busy, .outcome = MR_DONE);
}

static void a_full_queue_does_not_keep_a_node_from_its_others(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 4);
    conform_put_many(t, "other", "o", 2);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 1), MR_OK);
    struct conform_node *node = NODE(t, .queues = "default=9 other", .order = MR_QUEUES_STRICT);
    struct mr_lease *t0 = conform_take_id(t, node, "t0");
    FINISH_OK(t, conform_take_id(t, node, "o0"), .outcome = MR_DONE);
    FINISH_OK(t, t0, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t1"), .outcome = MR_DONE);
}

static void a_limit_holds_over_all_partitions(void **state)
{
    struct conform *t = *state;
    size_t n = 0, m = 0, in_hand = 0;
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PARTITIONS, 2), MR_OK);
    enum mr_err err = at_once(t, MR_LIMIT_QUEUE, "", 6);
    if (err == MR_UNSUPPORTED) { /* a Cluster has them in different places */
        assert_err(set_limit_of(t, "one", 6), MR_OK);
        assert_err(conform_queue_set(t, "one", MR_QUEUE_PARTITIONS, 2), MR_UNSUPPORTED);
        return;
    }
    assert_err(err, MR_OK);
    assert_err(at_once(t, MR_LIMIT_TYPE, "a", 3), MR_OK);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PARTITIONS, 4), MR_OK);
    for (int i = 0; i < 40; i++)
        (void)PUT_OK(t, .type = i % 2 ? MR_SLICE_LIT("a") : MR_SLICE_LIT("b"));
    struct conform_node *a = NODE(t, .name = "a"), *b = NODE(t, .name = "b");
    for (int done = 0; done < 40; done += (int)(n + m)) {
        struct mr_lease *some = conform_take_list(t, a, 4, 0, &n);
        struct mr_lease *rest = conform_take_list(t, b, 16, 0, &m);
        in_hand = conform_queue(t, "default").counts[MR_ACTIVE];
        size_t of_a = 0;
        for (const struct mr_lease *l = some; l != NULL; l = l->next)
            of_a += mr_slice_equal(l->task.type, MR_SLICE_LIT("a"));
        for (const struct mr_lease *l = rest; l != NULL; l = l->next)
            of_a += mr_slice_equal(l->task.type, MR_SLICE_LIT("a"));
        assert_true(n + m > 0 && n + m <= 6 && in_hand == n + m && of_a <= 3);
        conform_finish_list(t, some, MR_DONE);
        conform_finish_list(t, rest, MR_DONE);
    }
}

static bool is_held_back(struct conform *t, const struct conform_node *node)
{
    struct conform_take take;
    conform_take_start(t, &take, node, 1, 0);
    assert_err(conform_take_end(t, &take), MR_EMPTY);
    return take.req.held_back;
}

static void a_take_says_whether_limits_are_why_it_is_empty(void **state)
{
    struct conform *t = *state;
    for (int scope = MR_LIMIT_QUEUE; scope < MR_LIMIT_SCOPE_COUNT; scope++) {
        const char *names[] = {"", "a", "*"};
        assert_err(at_once(t, (enum mr_limit_scope)scope, names[scope], 1), MR_OK);
        struct conform_node *node = NODE(t);
        assert_false(is_held_back(t, node));
        put(t, "x", "a", "k");
        put(t, "y", "a", "k");
        struct mr_lease *x = conform_take_id(t, node, "x");
        assert_true(is_held_back(t, node));
        assert_err(conform_act(t, MR_VERB_DELETE, "y", 0), MR_OK);
        assert_false(is_held_back(t, node));
        FINISH_OK(t, x, .outcome = MR_DONE);
        assert_false(is_held_back(t, node));
        assert_err(conform_node_close(t, node), MR_OK);
        assert_err(at_once(t, (enum mr_limit_scope)scope, names[scope], 0), MR_OK);
    }
}

/* ---- rates ---------------------------------------------------------------------------------- */

enum { TAKEN = 60 };

/* Takes TAKEN tasks one after the other, each as soon as it may be had; when each was handed out, by the
 * clock of the broker. */
static void take_all(struct conform *t, uint64_t epochs[TAKEN])
{
    struct conform_node *nodes[] = {NODE(t, .name = "a"), NODE(t, .name = "b")};
    for (int i = 0; i < TAKEN; i++) {
        struct mr_lease *lease = conform_take_one(t, nodes[i % 2]);
        epochs[i] = lease->epoch;
        FINISH_OK(t, lease, .outcome = MR_DONE);
    }
}

static void in_no_span_more_is_handed_out_than_the_rate(void **state)
{
    struct conform *t = *state;
    enum { RATE = 20, SPAN_MS = 100 };
    uint64_t epochs[TAKEN];
    conform_put_many(t, "default", "t", TAKEN);
    for (int scope = MR_LIMIT_QUEUE; scope <= MR_LIMIT_TYPE; scope++) {
        const char *name = scope == MR_LIMIT_TYPE ? "task" : "";
        assert_err(rate(t, (enum mr_limit_scope)scope, name, RATE, SPAN_MS), MR_OK);
        take_all(t, epochs);
        for (int i = RATE; i < TAKEN; i++)
            assert_true(epochs[i] - epochs[i - RATE] >= SPAN_MS * 1000);
        assert_err(rate(t, (enum mr_limit_scope)scope, name, 0, 0), MR_OK);
        conform_put_many(t, "default", "u", scope == MR_LIMIT_QUEUE ? TAKEN : 1);
    }
}

static void what_a_rate_keeps_back_is_passed_over_and_comes_when_its_time_has(void **state)
{
    struct conform *t = *state;
    struct mr_limit held[MR_LIMITS_MAX];
    size_t n;
    put(t, "a0", "a", "k");
    put(t, "a1", "a", "k");
    put(t, "b0", "b", "l");
    assert_err(rate(t, MR_LIMIT_KEY, "*", 1, 300), MR_OK);
    struct conform_node *node = NODE(t);
    struct mr_lease *a0 = conform_take_id(t, node, "a0");
    uint64_t epoch = a0->epoch;
    FINISH_OK(t, a0, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "b0"), .outcome = MR_DONE);
    assert_err(limits(t, "default", "a1", held, &n), MR_OK);
    assert_int_equal(n, 1);
    assert_true(held[0].rate_until_ms > conform_wall_ms() - 300);
    struct mr_lease *a1 = conform_take_id(t, node, "a1");
    assert_true(a1->epoch - epoch >= 300 * 1000);
    assert_true(a1->epoch - epoch < CONFORM_WAIT_MS / 2 * 1000);
    FINISH_OK(t, a1, .outcome = MR_DONE);
}

static void what_was_given_back_counts_against_a_rate(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 2);
    assert_err(rate(t, MR_LIMIT_QUEUE, "", 2, 3600000), MR_OK);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "t0"), .outcome = MR_HAND_BACK);
    FINISH_OK(t, conform_take_id(t, node, "t0"), .outcome = MR_DONE);
    conform_take_none(t, node);
}

/* Also while the same limit goes on to say how many at once. */
static void a_rate_that_was_lifted_begins_anew(void **state)
{
    struct conform *t = *state;
    static const char *const names[] = {"", "a", "*"};
    for (int i = 0; i < 2 * MR_LIMIT_SCOPE_COUNT; i++) {
        enum mr_limit_scope scope = (enum mr_limit_scope)(i / 2);
        char ids[3][8];
        for (int k = 0; k < 3; k++) {
            (void)snprintf(ids[k], sizeof ids[k], "t%d%d", i, k);
            put(t, ids[k], "a", "k");
        }
        assert_err(rate(t, scope, names[scope], 1, 3600000), MR_OK);
        assert_err(at_once(t, scope, names[scope], i % 2 ? 9 : 0), MR_OK);
        struct conform_node *node = NODE(t);
        FINISH_OK(t, conform_take_id(t, node, ids[0]), .outcome = MR_DONE);
        conform_take_none(t, node);
        assert_err(rate(t, scope, names[scope], 0, 0), MR_OK);
        assert_err(rate(t, scope, names[scope], 1, 3600000), MR_OK);
        FINISH_OK(t, conform_take_id(t, node, ids[1]), .outcome = MR_DONE);
        conform_take_none(t, node);
        assert_err(rate(t, scope, names[scope], 1, 7200000), MR_OK); /* another one goes on */
        conform_take_none(t, node);
        assert_err(rate(t, scope, names[scope], 0, 0), MR_OK);
        FINISH_OK(t, conform_take_id(t, node, ids[2]), .outcome = MR_DONE);
        assert_err(at_once(t, scope, names[scope], 0), MR_OK);
        assert_err(conform_node_close(t, node), MR_OK);
    }
}

static void limits_survive_and_their_spans_too(void **state)
{
    struct conform *t = *state;
    struct mr_limit all[MR_LIMITS_MAX];
    size_t n;
    if (!t->engine->can_reopen)
        return;
    conform_put_many(t, "default", "t", 4);
    assert_err(rate(t, MR_LIMIT_TYPE, "*", 1, 400), MR_OK);
    assert_err(at_once(t, MR_LIMIT_QUEUE, "", 2), MR_OK);
    struct mr_lease *lease = conform_take_id(t, NODE(t), "t0");
    uint64_t epoch = lease->epoch;
    FINISH_OK(t, lease, .outcome = MR_DONE);
    conform_reopen(t);
    assert_int_equal(conform_queue(t, "default").concurrency, 2);
    assert_err(limits(t, "default", "", all, &n), MR_OK);
    assert_int_equal(n, 2);
    assert_int_equal(all[1].rate_ms, 400);
    lease = conform_take_id(t, NODE(t), "t1");
    assert_true(lease->epoch - epoch >= 400 * 1000);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

int conform_ratelimits(const struct conform_engine *engine)
{
    struct CMUnitTest tests[] = {
        CONFORM_TEST(a_limit_is_set_shown_and_lifted),
        CONFORM_TEST(limits_that_make_no_sense_are_refused),
        CONFORM_TEST(the_limits_of_a_task_are_those_that_hold_for_it),
        CONFORM_TEST(a_task_keeps_its_key),
        CONFORM_TEST(a_queue_has_no_more_in_hand_than_its_limit_whoever_the_nodes_are),
        CONFORM_TEST(whatever_ends_a_lease_gives_the_permit_back),
        CONFORM_TEST(a_task_of_a_full_type_is_passed_over_and_comes_in_its_order_later),
        CONFORM_TEST(each_key_has_its_own_and_a_name_goes_before_each),
        CONFORM_TEST(limits_of_queue_type_and_key_hold_together),
        CONFORM_TEST(a_permit_that_the_first_cannot_use_goes_to_the_next),
        CONFORM_TEST(what_runs_when_a_limit_is_set_counts_against_it),
        CONFORM_TEST(a_limit_that_is_lifted_lets_those_go_that_wait),
        CONFORM_TEST(what_is_passed_over_can_be_moved_and_removed),
        CONFORM_TEST(what_is_passed_over_twice_has_its_last_place),
        CONFORM_TEST(with_its_queue_all_of_a_limit_is_gone),
        CONFORM_TEST(what_was_passed_over_goes_by_its_order_time_among_the_others),
        CONFORM_TEST(an_order_time_stays_as_it_was_shown),
        CONFORM_TEST(thousands_that_are_passed_over_keep_their_order),
        CONFORM_TEST(passing_over_thousands_keeps_nobody_waiting),
        CONFORM_TEST(of_a_limited_queue_a_node_holds_nothing_ahead_of_its_slots),
        CONFORM_TEST(a_slot_that_becomes_free_is_used_at_once),
        CONFORM_TEST(a_full_queue_does_not_keep_a_node_from_its_others),
        CONFORM_TEST(a_limit_holds_over_all_partitions),
        CONFORM_TEST(a_take_says_whether_limits_are_why_it_is_empty),
        CONFORM_TEST(in_no_span_more_is_handed_out_than_the_rate),
        CONFORM_TEST(what_a_rate_keeps_back_is_passed_over_and_comes_when_its_time_has),
        CONFORM_TEST(what_was_given_back_counts_against_a_rate),
        CONFORM_TEST(a_rate_that_was_lifted_begins_anew),
        CONFORM_TEST(limits_survive_and_their_spans_too),
    };
    return CONFORM_RUN(engine, "limits of rate and concurrency", tests);
}
