/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C, and what A says of producers: clients at three servers that share a store, each behind a piece of network that
 * can be cut, made deaf or mute. In the sample a server has a second to answer instead of five.
 */
#include <stdio.h>

#include "broker/embedded/embedded.h"
#include "client/producer.h"
#include "support/forwarder.h"
#include "support/server_rig.h"
#include "timer/service.h"
#include "timers/rig.h"
#include "unit/temp_dir.h"

enum { SERVERS = 3 };

struct server {
    char dir[128];
    struct mr_broker *broker; /* NULL: it is down */
    struct mr_store *store;
    struct mr_timer_service *service;
    struct server_rig rig;
    struct forwarder net;
};

struct farm {
    char dir[TEMP_DIR_MAX];
    struct server servers[SERVERS];
    char url[256];
    struct mr_client *client;
};

static int64_t answer_ms(void)
{
    return rig_full() ? 5000 : 1000;
}

/* How much later it may be. */
static int64_t late_ms(void)
{
    return rig_alone() ? 1000 : 10000;
}

/* ---- servers -------------------------------------------------------------------------------- */

static void server_up(struct farm *farm, size_t i)
{
    struct server *s = &farm->servers[i];
    char store[128];
    struct mr_embedded_options embedded = {.dir = s->dir, .segment_bytes = 4 * 1024 * 1024};
    struct mr_store_options options = {.url = store};
    struct mr_timer_service_options service = {.node = ""};
    struct mr_detail detail = {.text = ""};
    (void)snprintf(store, sizeof store, "sqlite:%s/store.db", farm->dir);
    assert_int_equal(mr_embedded_open(&embedded, &s->broker, &detail), MR_OK);
    if (mr_store_open(&options, &s->store, &detail) != MR_OK)
        fail_msg("%s: %s", store, detail.text);
    service.broker = s->broker;
    service.store = s->store;
    if (mr_timer_service_open(&service, &s->service, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    s->rig.timers = s->service;
    assert_int_equal(server_rig_start(&s->rig, s->broker), MR_OK);
}

static void server_down(struct server *s)
{
    if (s->broker == NULL)
        return;
    server_rig_stop(&s->rig, 0);
    mr_timer_service_close(s->service);
    mr_store_close(s->store);
    mr_broker_close(s->broker);
    s->broker = NULL;
}

static struct farm *farm_new(size_t servers)
{
    struct farm *farm = calloc(1, sizeof *farm);
    assert_non_null(farm);
    temp_dir_make(farm->dir);
    (void)snprintf(farm->url, sizeof farm->url, "millrace://");
    for (size_t i = 0; i < servers; i++) {
        struct server *s = &farm->servers[i];
        (void)snprintf(s->dir, sizeof s->dir, "%s/server%zu", farm->dir, i);
        server_up(farm, i);
        assert_int_equal(forwarder_start(&s->net, s->rig.port), MR_OK);
        size_t len = strlen(farm->url);
        (void)snprintf(farm->url + len, sizeof farm->url - len, "%s127.0.0.1:%u", i ? "," : "",
                       s->net.port);
    }
    return farm;
}

static void farm_free(struct farm *farm)
{
    mr_client_close(farm->client);
    for (size_t i = 0; i < SERVERS; i++) {
        if (farm->servers[i].net.to != 0)
            forwarder_stop(&farm->servers[i].net);
        server_down(&farm->servers[i]);
    }
    temp_dir_remove(farm->dir);
    free(farm);
}

static void connect_with(struct farm *farm, uint32_t timers_max, enum mr_affinity affinity)
{
    struct mr_client_options options = {
        .answer_ms = answer_ms(), .timers_max = timers_max, .affinity = affinity};
    struct mr_detail detail = {.text = ""};
    if (mr_client_open(farm->url, &options, &farm->client, &detail) != MR_OK)
        fail_msg("%s: %s", farm->url, detail.text);
}

static void connect_client(struct farm *farm, uint32_t timers_max)
{
    connect_with(farm, timers_max, MR_AFFINITY_NONE);
}

/* All of them are connected: a flight for each has been answered, twice. */
static void await_all(struct farm *farm, size_t servers);

/* How many operations this server was given, ever. */
static uint64_t received(const struct server *s)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {.req = {.op = MR_OP_QUEUE_LIST},
                                    .only = MR_SLICE_LIT(MR_TIMERS_QUEUE),
                                    .infos = &info,
                                    .max = 1};
    enum mr_err err = mr_broker_call(s->broker, &req.req);
    mr_req_done(&req.req);
    return err == MR_OK ? info.processed_total + info.counts[MR_PENDING] + info.counts[MR_ACTIVE]
                        : 0;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* What came of some flights. */
struct future {
    _Atomic size_t done; /* flights */
    size_t unknown, ok, failed;
    struct mr_timer_result last;
    struct mr_lock lock;
};

static void future_done(enum mr_err err, const struct mr_timer_result *results, size_t n, void *arg)
{
    struct future *future = arg;
    (void)err;
    mr_lock_enter(&future->lock);
    for (size_t i = 0; i < n; i++) {
        future->ok += results[i].err == MR_OK;
        future->failed += results[i].err != MR_OK;
        future->unknown += results[i].unknown;
        future->last = results[i];
    }
    mr_lock_leave(&future->lock);
    atomic_fetch_add(&future->done, 1);
}

static enum mr_err send_timer(struct farm *farm, const char *name, struct future *future,
                              struct mr_timer_result *ret_id)
{
    struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = RIG_TIMER(name)};
    return mr_timer_send_async(farm->client, &op, 1, ret_id, future_done, future);
}

static void await_done(struct future *future, size_t n)
{
    mr_mono since = rig_mono();
    while (atomic_load(&future->done) < n)
        rig_wait_a_moment(since, "for the futures");
}

static void send_ok(struct farm *farm, const char *name)
{
    struct future future = {0};
    mr_lock_init(&future.lock);
    assert_int_equal(send_timer(farm, name, &future, NULL), MR_OK);
    await_done(&future, 1);
    assert_int_equal(future.last.err, MR_OK);
    mr_lock_done(&future.lock);
}

static void await_all(struct farm *farm, size_t servers)
{
    mr_mono since = rig_mono();
    for (size_t i = 0; i < servers; i++) {
        uint64_t before = received(&farm->servers[i]);
        while (received(&farm->servers[i]) == before) {
            send_ok(farm, "warm");
            rig_wait_a_moment(since, "until all servers are connected");
        }
    }
}

/* Sends flights until one went to this server, whose network does not let answers through: it is the one that is
 * left over. Answers how many were sent. */
static size_t send_until_at(struct farm *farm, const struct server *s, struct future *future)
{
    uint64_t before = received(s);
    mr_mono since = rig_mono();
    size_t n = 0;
    while (received(s) == before) {
        size_t done = atomic_load(&future->done);
        char name[32];
        (void)snprintf(name, sizeof name, "f%zu", n);
        assert_int_equal(send_timer(farm, name, future, NULL), MR_OK);
        n++;
        while (atomic_load(&future->done) == done && received(s) == before)
            rig_wait_a_moment(since, "for a flight to get there");
    }
    return n;
}

static uint64_t count_timers(struct farm *farm)
{
    struct mr_timer_list *list;
    struct mr_timer_list_options options = {.limit = MR_BATCH_MAX};
    assert_int_equal(mr_timer_list_get(farm->client, &options, &list), MR_OK);
    uint64_t n = mr_timer_list_count(list);
    mr_timer_list_free(list);
    return n;
}

static void await_timers(struct farm *farm, uint64_t n)
{
    mr_mono since = rig_mono();
    while (count_timers(farm) != n)
        rig_wait_a_moment(since, "for so many timers");
}

/* ---- A -------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void
test_01_a_create_returns_at_once_is_durable_soon_and_visible_within_a_second(void **state)
{
    enum { N = 21 };
    struct farm *farm = farm_new(1);
    int64_t call_us[N], durable_us[N];
    (void)state;
    connect_client(farm, 0);
    send_ok(farm, "warm");
    for (size_t i = 0; i < N; i++) {
        struct future future = {0};
        struct mr_timer_result id;
        struct mr_timer_list *list;
        char name[32];
        (void)snprintf(name, sizeof name, "t%zu", i);
        mr_lock_init(&future.lock);
        mr_mono begin = rig_mono();
        struct mr_timer_op op = {.verb = MR_TIMER_PUT,
                                 .timer = RIG_RULE(name, MR_TIMER_CRON, "0 3 * * *")};
        assert_int_equal(mr_timer_send_async(farm->client, &op, 1, &id, future_done, &future),
                         MR_OK);
        call_us[i] = (rig_mono().ns - begin.ns) / 1000;
        assert_true(id.id[0] && id.operation[0] && id.version > 0);
        await_done(&future, 1);
        durable_us[i] = (rig_mono().ns - begin.ns) / 1000;
        assert_int_equal(future.last.err, MR_OK);
        while (mr_timer_get(farm->client, MR_SLICE_LIT("default"), mr_slice_str(name), &list) !=
               MR_OK) {
            assert_true(rig_elapsed_ms(begin) < 1000);
            rig_wait_a_moment(begin, "for the timer");
        }
        assert_true(mr_slice_equal(mr_timer_list_at(list, 0)->id, mr_slice_str(id.id)));
        mr_timer_list_free(list);
        mr_lock_done(&future.lock);
    }
    qsort(call_us, N, sizeof *call_us, by_size);
    qsort(durable_us, N, sizeof *durable_us, by_size);
    assert_true(call_us[N / 2] < 5000); /* the middle one: others run on this machine */
    assert_true(durable_us[N / 2] < 50000);
    farm_free(farm);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void test_11_two_producers_at_full_speed_make_distinct_ids(void **state)
{
    enum { BATCH = 500, IDS = 2 };
    size_t each = rig_full() ? 100000 : 3000;
    size_t n = 2 * each * IDS;
    struct farm *farm = farm_new(1);
    char(*ids)[MR_TIMER_ID_MAX + 1] = calloc(n, sizeof *ids);
    struct mr_timer_op ops[BATCH];
    static struct mr_timer_result results[BATCH];
    struct mr_client *clients[2];
    size_t at = 0;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        connect_client(farm, 0);
        clients[i] = farm->client;
    }
    const struct mr_timer_options *timer = RIG_TIMER("same");
    for (size_t i = 0; i < BATCH; i++)
        ops[i] = (struct mr_timer_op){.verb = MR_TIMER_PUT, .timer = timer};
    for (size_t i = 0; i < 2 * each / BATCH; i++) {
        assert_int_equal(mr_timer_send(clients[i % 2], ops, BATCH, MR_TIMER_DURABLE, results),
                         MR_OK);
        for (size_t j = 0; j < BATCH; j++) {
            assert_int_equal(results[j].err, MR_OK);
            memcpy(ids[at++], results[j].id, sizeof *ids);
            memcpy(ids[at++], results[j].operation, sizeof *ids);
        }
    }
    assert_int_equal(at, n);
    qsort(ids, n, sizeof *ids, by_text);
    for (size_t i = 1; i < n; i++)
        assert_true(strcmp(ids[i - 1], ids[i]) < 0);
    mr_client_close(clients[0]);
    free(ids);
    farm_free(farm);
}

static void test_12_a_producer_whose_clock_is_set_back_goes_on_with_rising_versions(void **state)
{
    struct rig *rig = rig_make();
    struct rig_clock clock;
    struct mr_producer_options options = {.door = rig_broker(rig, 0)->door, .clock = &clock.clock};
    struct mr_producer *producer;
    struct future future = {0};
    struct mr_timer_result id;
    uint64_t last = 0;
    char ids[20][MR_TIMER_ID_MAX + 1];
    (void)state;
    mr_lock_init(&future.lock);
    rig_clock_init(&clock);
    assert_int_equal(mr_producer_new(&options, &producer), MR_OK);
    mr_mono begin = rig_mono();
    for (size_t i = 0; i < 20; i++) {
        struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = RIG_TIMER("a")};
        if (i == 10)
            atomic_store(&clock.ahead_us, -10 * 1000 * 1000);
        assert_int_equal(
            mr_producer_send(producer, &op, 1, MR_TIMER_APPLIED, &id, future_done, &future), MR_OK);
        await_done(&future, i + 1);
        assert_int_equal(future.last.err, MR_OK); /* each is applied over the one before */
        assert_true(id.version > last);
        last = id.version;
        memcpy(ids[i], id.operation, sizeof ids[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(ids[j], ids[i]);
    }
    assert_true(rig_elapsed_ms(begin) < 10000); /* it waited for no clock */
    mr_producer_stop(producer);
    mr_producer_free(producer);
    mr_lock_done(&future.lock);
    rig_free(rig);
}

/* ---- in a folder ---------------------------------------------------------------------------- */

static const struct mr_slice app = MR_SLICE_LIT("default");

static struct mr_client *folder_open(char dir[TEMP_DIR_MAX])
{
    char url[TEMP_DIR_MAX + 16];
    struct mr_client *client;
    temp_dir_make(dir);
    (void)snprintf(url, sizeof url, "file:%s/store", dir);
    assert_int_equal(mr_client_open(url, NULL, &client, NULL), MR_OK);
    return client;
}

/* How many tasks there are; the payload of the first. */
static size_t tasks_of(struct mr_client *client, char payload[64])
{
    struct mr_task_list *list;
    struct mr_list_options options = {.with_payload = true};
    assert_int_equal(mr_task_list_get(client, &options, &list), MR_OK);
    size_t n = mr_task_list_count(list);
    if (n > 0)
        (void)snprintf(payload, 64, "%.*s", (int)mr_task_list_at(list, 0)->payload.len,
                       (const char *)mr_task_list_at(list, 0)->payload.data);
    mr_task_list_free(list);
    return n;
}

static void test_03_an_update_changes_the_next_firing_and_causes_none(void **state)
{
    char dir[TEMP_DIR_MAX], payload[64];
    struct mr_client *client = folder_open(dir);
    struct mr_timer_list *list;
    const char *delay = rig_full() ? "30s" : "2s";
    int64_t delay_ms = rig_full() ? 30000 : 2000;
    (void)state;
    assert_int_equal(
        mr_timer_put(client,
                     RIG_RULE("soon", MR_TIMER_DELAY, delay, .payload = MR_SLICE_LIT("old")), NULL),
        MR_OK);
    assert_int_equal(mr_timer_get(client, app, MR_SLICE_LIT("soon"), &list), MR_OK);
    const struct mr_timer_info *info = mr_timer_list_at(list, 0);
    struct mr_timer_options timer = info->timer;
    timer.payload = MR_SLICE_LIT("new");
    struct mr_timer_op op = {.verb = MR_TIMER_PUT,
                             .timer = &timer,
                             .id = info->id,
                             .created_ms = info->created_ms,
                             .if_version = info->version};
    int64_t planned = info->created_ms + delay_ms;
    struct mr_timer_result result;
    assert_int_equal(info->next_ms, planned);
    assert_int_equal(mr_timer_send(client, &op, 1, MR_TIMER_APPLIED, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_timer_list_free(list);
    mr_mono since = rig_mono();
    while (tasks_of(client, payload) == 0) {
        struct mr_event never;
        mr_event_init(&never);
        (void)mr_event_wait(&never, 5 * MR_NS_PER_MS);
        assert_true(rig_elapsed_ms(since) < delay_ms + RIG_WAIT_MS);
    }
    assert_true(rig_now_ms() >= planned); /* the update itself fired nothing */
    assert_string_equal(payload, "new");
    assert_int_equal(tasks_of(client, payload), 1);
    mr_client_close(client);
    temp_dir_remove(dir);
}

static enum mr_timer_state state_of(struct mr_client *client, const char *name)
{
    struct mr_timer_list *list;
    if (mr_timer_get(client, app, mr_slice_str(name), &list) != MR_OK)
        return MR_TIMER_STATE_NONE;
    enum mr_timer_state state = mr_timer_list_at(list, 0)->state;
    mr_timer_list_free(list);
    return state;
}

static void test_14_every_call_answers_with_what_was_applied(void **state)
{
    char dir[TEMP_DIR_MAX], payload[64];
    struct mr_client *client = folder_open(dir);
    const struct mr_slice name = MR_SLICE_LIT("a"), none = MR_SLICE_LIT("none");
    (void)state;
    assert_int_equal(mr_timer_put(client, RIG_TIMER("a", .payload = name), NULL), MR_OK);
    assert_int_equal(state_of(client, "a"), MR_TIMER_ACTIVE);
    assert_int_equal(mr_timer_pause(client, app, name, NULL), MR_OK);
    assert_int_equal(state_of(client, "a"), MR_TIMER_PAUSED);
    assert_int_equal(mr_timer_resume(client, app, name, NULL), MR_OK);
    assert_int_equal(state_of(client, "a"), MR_TIMER_ACTIVE);
    assert_int_equal(mr_timer_pause(client, app, none, NULL), MR_NOT_FOUND);
    assert_int_equal(mr_timer_run(client, app, name, NULL), MR_OK);
    assert_int_equal(mr_timer_run(client, app, none, NULL), MR_NOT_FOUND);
    mr_mono since = rig_mono();
    while (tasks_of(client, payload) == 0)
        rig_wait_a_moment(since, "for the firing");
    assert_string_equal(payload, "a");
    assert_int_equal(mr_timer_delete(client, app, name, NULL), MR_OK);
    assert_int_equal(state_of(client, "a"), MR_TIMER_STATE_NONE);
    assert_int_equal(mr_timer_delete(client, app, none, NULL), MR_NOT_FOUND);
    struct mr_timer_result result;
    assert_int_equal(mr_timer_put(client, RIG_RULE("b", MR_TIMER_EVERY, "soon"), &result),
                     MR_INVALID);
    assert_true(result.why[0] != '\0');
    mr_client_close(client);
    temp_dir_remove(dir);
}

/* ---- C -------------------------------------------------------------------------------------- */

/* A server whose disk is full. */
static void full_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_req_call *call = (struct mr_req_call *)req;
    struct mr_timer_result refused = {.err = MR_DISK_FULL};
    size_t n, size = mr_flat_size(&mr_flat_timer_result, &refused);
    (void)broker;
    assert_int_equal(mr_flat_count(call->message, 1, &n), MR_OK);
    uint8_t *bytes = mr_arena_alloc(&req->arena, n * (size + 8)), *at = bytes;
    for (size_t i = 0; i < n; i++)
        at = mr_flat_write(&mr_flat_timer_result, &refused, mr_flat_put_head(at, 1, size));
    call->sent = true;
    call->answer = mr_slice_make(bytes, (size_t)(at - bytes));
    mr_req_answer(req, MR_OK);
}

static void test_24_an_operation_that_a_full_disk_refuses_goes_to_the_next_server(void **state)
{
    static const struct mr_broker_ops full_ops = {.submit = full_submit};
    struct mr_broker full = {.ops = &full_ops};
    struct farm *farm = farm_new(1);
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    struct mr_broker *servers[] = {&full, farm->client->broker};
    struct mr_producer_options options = {.servers = servers, .servers_n = 2};
    struct mr_producer *producer;
    struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = RIG_TIMER("a")};
    assert_int_equal(mr_producer_new(&options, &producer), MR_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            mr_producer_send(producer, &op, 1, MR_TIMER_DURABLE, NULL, future_done, &future),
            MR_OK);
    await_done(&future, 4);
    assert_int_equal(future.ok, 4);
    mr_producer_stop(producer);
    mr_producer_free(producer);
    /* With no other one, this is what it says, and that is no doubt. */
    options.servers_n = 1;
    assert_int_equal(mr_producer_new(&options, &producer), MR_OK);
    assert_int_equal(
        mr_producer_send(producer, &op, 1, MR_TIMER_DURABLE, NULL, future_done, &future), MR_OK);
    await_done(&future, 5);
    assert_int_equal(future.last.err, MR_DISK_FULL);
    assert_false(future.last.unknown);
    mr_producer_stop(producer);
    mr_producer_free(producer);
    mr_lock_done(&future.lock);
    farm_free(farm);
}

/* A server whose disk is full behind the first operation. */
static void half_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_req_call *call = (struct mr_req_call *)req;
    struct mr_timer_result results[2] = {{.err = MR_OK, .version = 7}, {.err = MR_DISK_FULL}};
    uint8_t *bytes = mr_arena_alloc(&req->arena, 2048), *at = bytes;
    (void)broker;
    for (size_t i = 0; i < 2; i++) {
        size_t size = mr_flat_size(&mr_flat_timer_result, &results[i]);
        at = mr_flat_write(&mr_flat_timer_result, &results[i], mr_flat_put_head(at, 1, size));
    }
    call->sent = true;
    call->answer = mr_slice_make(bytes, (size_t)(at - bytes));
    mr_req_answer(req, MR_OK);
}

static void away_submit(struct mr_broker *broker, struct mr_req *req)
{
    (void)broker;
    mr_req_answer(req, MR_UNAVAILABLE);
}

struct pair {
    struct mr_event answered;
    enum mr_err err;
    struct mr_timer_result results[2];
};

static void pair_done(enum mr_err err, const struct mr_timer_result *results, size_t n, void *arg)
{
    struct pair *pair = arg;
    pair->err = err;
    memcpy(pair->results, results, n * sizeof *results);
    mr_event_set(&pair->answered);
}

/* Both go to the next server for the sake of one; what that says, or does not, of the other counts for nothing. */
static void test_32_what_one_server_has_accepted_is_not_refused_by_the_next(void **state)
{
    static const struct mr_broker_ops half_ops = {.submit = half_submit};
    static const struct mr_broker_ops full_ops = {.submit = full_submit};
    static const struct mr_broker_ops away_ops = {.submit = away_submit};
    struct mr_broker half = {.ops = &half_ops}, full = {.ops = &full_ops},
                     away = {.ops = &away_ops};
    struct mr_broker *const seconds[] = {&full, &away};
    static const enum mr_err errs[] = {MR_DISK_FULL, MR_UNAVAILABLE};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct mr_broker *servers[] = {&half, seconds[i]};
        struct mr_producer_options options = {.servers = servers, .servers_n = 2};
        struct mr_producer *producer;
        struct mr_timer_op ops[] = {{.verb = MR_TIMER_PUT, .timer = RIG_TIMER("a")},
                                    {.verb = MR_TIMER_PUT, .timer = RIG_TIMER("b")}};
        struct pair pair;
        mr_event_init(&pair.answered);
        assert_int_equal(mr_producer_new(&options, &producer), MR_OK);
        assert_int_equal(
            mr_producer_send(producer, ops, 2, MR_TIMER_DURABLE, NULL, pair_done, &pair), MR_OK);
        assert_true(mr_event_wait(&pair.answered, RIG_WAIT_MS * MR_NS_PER_MS));
        assert_int_equal(pair.err, MR_OK);
        assert_int_equal(pair.results[0].err, MR_OK);
        assert_int_equal(pair.results[0].version, 7);
        assert_int_equal(pair.results[1].err, errs[i]);
        assert_false(pair.results[0].unknown || pair.results[1].unknown);
        mr_producer_stop(producer);
        mr_producer_free(producer);
    }
}

/* A server whose own broker did not answer: it says so, with its answer. */
static void lost_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_req_call *call = (struct mr_req_call *)req;
    struct mr_timer_result lost = {.err = MR_UNAVAILABLE, .unknown = true};
    size_t size = mr_flat_size(&mr_flat_timer_result, &lost);
    uint8_t *bytes = mr_arena_alloc(&req->arena, size + 8);
    (void)broker;
    uint8_t *end = mr_flat_write(&mr_flat_timer_result, &lost, mr_flat_put_head(bytes, 1, size));
    call->sent = true;
    call->answer = mr_slice_make(bytes, (size_t)(end - bytes));
    mr_req_answer(req, MR_OK);
}

static void test_32_what_a_server_does_not_know_its_client_does_not_know(void **state)
{
    static const struct mr_broker_ops lost_ops = {.submit = lost_submit};
    static const struct mr_broker_ops full_ops = {.submit = full_submit};
    struct mr_broker lost = {.ops = &lost_ops}, full = {.ops = &full_ops};
    struct mr_broker *servers[] = {&lost, &full};
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    for (size_t n = 1; n <= 2; n++) { /* nor when another one has surely not done it */
        struct mr_producer_options options = {.servers = servers, .servers_n = n};
        struct mr_producer *producer;
        struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = RIG_TIMER("a")};
        assert_int_equal(mr_producer_new(&options, &producer), MR_OK);
        assert_int_equal(
            mr_producer_send(producer, &op, 1, MR_TIMER_DURABLE, NULL, future_done, &future),
            MR_OK);
        await_done(&future, n);
        assert_true(future.last.unknown);
        mr_producer_stop(producer);
        mr_producer_free(producer);
    }
    mr_lock_done(&future.lock);
}

static void told(struct mr_timer_sending *sending)
{
    mr_event_set(sending->arg);
}

static void test_06_a_timer_of_a_clock_that_is_ahead_can_be_deleted(void **state)
{
    struct farm *farm = farm_new(1);
    struct rig_op op;
    struct mr_event answered;
    struct mr_timer_result result;
    struct mr_timer_sending sending = {
        .ops = &op.op, .n = 1, .results = &result, .done = told, .arg = &answered};
    (void)state;
    connect_client(farm, 0);
    mr_event_init(&answered);
    rig_op_put(&op, RIG_TIMER("ahead"), NULL, rig_version() + 900 * 1000);
    mr_timer_door_send(mr_timer_service_door(farm->servers[0].service), &sending);
    mr_event_wait(&answered, INT64_MAX);
    assert_int_equal(result.err, MR_OK);
    assert_int_equal(mr_timer_delete(farm->client, app, MR_SLICE_LIT("ahead"), &result), MR_OK);
    assert_int_equal(count_timers(farm), 0);
    rig_op_done(&op);
    farm_free(farm);
}

static void test_15_what_a_server_cannot_read_is_reported_for_that_item(void **state)
{
    enum { N = 3 };
    struct farm *farm = farm_new(1);
    struct mr_timer_result results[N];
    const struct mr_timer_op ops[N] = {
        {.verb = MR_TIMER_PUT, .timer = RIG_TIMER("a")},
        {.verb = MR_TIMER_PUT, .timer = RIG_RULE("b", (enum mr_timer_kind)77, "1h")},
        {.verb = MR_TIMER_PUT, .timer = RIG_TIMER("c")},
    };
    (void)state;
    connect_client(farm, 0);
    assert_int_equal(mr_timer_send(farm->client, ops, N, MR_TIMER_APPLIED, results), MR_OK);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(results[i].err, i == 1 ? MR_INVALID : MR_OK);
    assert_string_equal(results[1].why, "definition: cannot be read");
    assert_int_equal(count_timers(farm), 2);
    farm_free(farm);
}

static void
test_29_an_operation_whose_server_dies_before_it_answers_is_at_the_next_and_once(void **state)
{
    struct farm *farm = farm_new(SERVERS);
    struct server *first = &farm->servers[0];
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    first->net.mute = true; /* it receives, and nobody hears of it */
    size_t n = send_until_at(farm, first, &future);
    mr_mono begin = rig_mono();
    first->net.refuse = true;
    forwarder_cut(&first->net);
    await_done(&future, n);
    assert_true(rig_elapsed_ms(begin) < answer_ms() + late_ms());
    assert_int_equal(future.ok, n);
    await_timers(farm, n + 1);
    mr_lock_done(&future.lock);
    farm_free(farm);
}

static void test_30_a_server_that_never_answers_costs_the_timeout(void **state)
{
    struct farm *farm = farm_new(SERVERS);
    struct server *first = &farm->servers[0];
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    first->net.mute = true;
    size_t n = send_until_at(farm, first, &future);
    mr_mono begin = rig_mono();
    await_done(&future, n);
    int64_t took = rig_elapsed_ms(begin);
    assert_true(took > answer_ms() - 300 && took < answer_ms() + late_ms());
    assert_int_equal(future.ok, n);
    first->net.mute = false;
    mr_lock_done(&future.lock);
    farm_free(farm);
}

static void test_31_an_answer_that_comes_after_the_timeout_does_no_harm(void **state)
{
    struct farm *farm = farm_new(SERVERS);
    struct server *first = &farm->servers[0];
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    first->net.mute = true;
    size_t n = send_until_at(farm, first, &future);
    await_done(&future, n);
    first->net.mute = false; /* what it said comes now */
    await_all(farm, SERVERS);
    assert_int_equal(atomic_load(&future.done), n); /* each was answered once */
    assert_int_equal(future.ok, n);
    await_timers(farm, n + 1);
    mr_lock_done(&future.lock);
    farm_free(farm);
}

static void
test_32_without_a_server_a_future_fails_after_one_pass_and_says_what_is_known(void **state)
{
    struct farm *farm = farm_new(SERVERS);
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        farm->servers[i].net.mute = true;
    assert_int_equal(send_timer(farm, "perhaps", &future, NULL), MR_OK);
    await_done(&future, 1);
    assert_int_equal(future.last.err, MR_TIMEOUT);
    assert_true(future.last.unknown);
    for (size_t i = 0; i < SERVERS; i++) {
        farm->servers[i].net.refuse = true;
        forwarder_cut(&farm->servers[i].net);
    }
    mr_mono begin = rig_mono();
    do { /* until it has noticed */
        rig_wait_a_moment(begin, "for a failure that is certain");
        size_t done = atomic_load(&future.done);
        assert_int_equal(send_timer(farm, "surely not", &future, NULL), MR_OK);
        await_done(&future, done + 1);
    } while (future.last.unknown);
    assert_int_equal(future.last.err, MR_UNAVAILABLE);
    /* A refusal is another thing. */
    struct mr_timer_op op = {.verb = MR_TIMER_PUT,
                             .timer = RIG_RULE("x", MR_TIMER_CRON, "61 * * * *")};
    struct mr_timer_result result;
    for (size_t i = 0; i < SERVERS; i++)
        farm->servers[i].net.refuse = farm->servers[i].net.mute = false;
    do {
        rig_wait_a_moment(begin, "for the servers");
        (void)(mr_timer_send(farm->client, &op, 1, MR_TIMER_DURABLE, &result) == MR_OK);
    } while (result.err == MR_UNAVAILABLE || result.err == MR_TIMEOUT);
    assert_int_equal(result.err, MR_INVALID);
    assert_false(result.unknown);
    assert_memory_equal(result.why, "cron, column 1", 14);
    mr_lock_done(&future.lock);
    farm_free(farm);
}

static void test_33_what_is_acknowledged_was_sent_once(void **state)
{
    enum { N = 100 };
    struct farm *farm = farm_new(SERVERS);
    struct future future = {0};
    uint64_t before = 0, after = 0;
    char name[32];
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        before += received(&farm->servers[i]);
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "t%zu", i);
        assert_int_equal(send_timer(farm, name, &future, NULL), MR_OK);
    }
    await_done(&future, N);
    assert_int_equal(future.ok, N);
    for (size_t i = 0; i < SERVERS; i++)
        after += received(&farm->servers[i]);
    assert_int_equal(after - before, N);
    mr_lock_done(&future.lock);
    farm_free(farm);
}

static void test_34_a_server_that_leaves_is_avoided_and_one_that_comes_is_used(void **state)
{
    struct farm *farm = farm_new(SERVERS);
    struct server *first = &farm->servers[0];
    (void)state;
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    server_down(first);
    mr_mono begin = rig_mono();
    for (size_t i = 0; i < 3 * SERVERS; i++)
        send_ok(farm, "without it");
    assert_true(rig_elapsed_ms(begin) < answer_ms() + late_ms()); /* one attempt failed, at most */
    server_up(farm, 0);
    assert_int_equal(first->rig.port, first->net.to);
    begin = rig_mono();
    while (received(first) == 0) {
        send_ok(farm, "with it");
        assert_true(rig_elapsed_ms(begin) < 10000);
    }
    farm_free(farm);
}

static void test_35_a_client_opens_where_the_first_server_of_its_list_is_dead(void **state)
{
    struct farm *farm = farm_new(SERVERS);
    (void)state;
    farm->servers[0].net.refuse = true;
    server_down(&farm->servers[0]);
    connect_client(farm, 0);
    send_ok(farm, "a");
    await_timers(farm, 1);
    farm_free(farm);
}

static void test_36_operations_are_shared_out_evenly(void **state)
{
    enum { EACH = 1000, N = SERVERS * EACH };
    struct farm *farm = farm_new(SERVERS);
    struct future future = {0};
    uint64_t before[SERVERS];
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, 0);
    await_all(farm, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        before[i] = received(&farm->servers[i]);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(send_timer(farm, "same", &future, NULL), MR_OK);
    await_done(&future, N);
    assert_int_equal(future.ok, N);
    for (size_t i = 0; i < SERVERS; i++) {
        uint64_t n = received(&farm->servers[i]) - before[i];
        assert_true(n >= EACH * 95 / 100 && n <= EACH * 105 / 100);
    }
    mr_lock_done(&future.lock);
    farm_free(farm);
}

/* Which server has got something since; SERVERS: not exactly one. */
static size_t who_received(struct farm *farm, const uint64_t *before)
{
    size_t found = SERVERS, n = 0;
    for (size_t i = 0; i < SERVERS; i++) {
        if (farm->servers[i].broker == NULL || received(&farm->servers[i]) == before[i])
            continue;
        found = i;
        n++;
    }
    return n == 1 ? found : SERVERS;
}

static void note_received(struct farm *farm, uint64_t *ret_before)
{
    for (size_t i = 0; i < SERVERS; i++)
        if (farm->servers[i].broker != NULL)
            ret_before[i] = received(&farm->servers[i]);
}

static void test_36_with_affinity_a_timer_has_its_server_while_that_lives(void **state)
{
    enum { TIMERS = 12, TIMES = 5 };
    struct farm *farm = farm_new(SERVERS);
    uint64_t before[SERVERS];
    size_t homes[TIMERS], used = 0;
    char name[32];
    (void)state;
    connect_with(farm, 0, MR_AFFINITY_TIMER);
    mr_mono since = rig_mono();
    for (size_t all = 0;
         all < SERVERS;) { /* until all are connected: some timer is at home at each */
        all = 0;
        for (size_t i = 0; i < 4 * TIMERS; i++) {
            (void)snprintf(name, sizeof name, "warm%zu", i);
            send_ok(farm, name);
        }
        for (size_t i = 0; i < SERVERS; i++)
            all += received(&farm->servers[i]) > 0;
        rig_wait_a_moment(since, "until all servers are connected");
    }
    for (size_t i = 0; i < TIMERS; i++) {
        (void)snprintf(name, sizeof name, "t%zu", i);
        note_received(farm, before);
        for (size_t n = 0; n < TIMES; n++)
            send_ok(farm, name);
        homes[i] = who_received(farm, before);
        assert_true(homes[i] < SERVERS);
        used |= (size_t)1 << homes[i];
    }
    assert_true(used != 1 && used != 2 && used != 4); /* they are shared out */
    server_down(&farm->servers[homes[0]]);
    for (size_t i = 0; i < TIMERS; i++) {
        (void)snprintf(name, sizeof name, "t%zu", i);
        note_received(farm, before);
        send_ok(farm, name);
        size_t at = who_received(farm, before);
        assert_true(at < SERVERS && (at == homes[i] || homes[i] == homes[0]));
    }
    farm_free(farm);
}

static void test_37_beyond_the_limit_a_caller_is_told_so_and_nothing_grows(void **state)
{
    enum { LIMIT = 100 };
    struct farm *farm = farm_new(1);
    struct future future = {0};
    (void)state;
    mr_lock_init(&future.lock);
    connect_client(farm, LIMIT);
    send_ok(farm, "warm");
    farm->servers[0].net.mute = true;
    for (size_t i = 0; i < LIMIT; i++)
        assert_int_equal(send_timer(farm, "a", &future, NULL), MR_OK);
    for (size_t i = 0; i < 10 * LIMIT; i++)
        assert_int_equal(send_timer(farm, "a", &future, NULL), MR_BUSY);
    assert_int_equal(atomic_load(&future.done), 0);
    farm->servers[0].net.mute = false;
    await_done(&future, LIMIT);
    assert_int_equal(future.ok, LIMIT);
    send_ok(farm, "a"); /* there is room again */
    mr_lock_done(&future.lock);
    farm_free(farm);
}

int timers_producers(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_01_a_create_returns_at_once_is_durable_soon_and_visible_within_a_second),
        cmocka_unit_test(test_03_an_update_changes_the_next_firing_and_causes_none),
        cmocka_unit_test(test_11_two_producers_at_full_speed_make_distinct_ids),
        cmocka_unit_test(test_12_a_producer_whose_clock_is_set_back_goes_on_with_rising_versions),
        cmocka_unit_test(test_14_every_call_answers_with_what_was_applied),
        cmocka_unit_test(test_24_an_operation_that_a_full_disk_refuses_goes_to_the_next_server),
        cmocka_unit_test(test_32_what_one_server_has_accepted_is_not_refused_by_the_next),
        cmocka_unit_test(test_32_what_a_server_does_not_know_its_client_does_not_know),
        cmocka_unit_test(test_06_a_timer_of_a_clock_that_is_ahead_can_be_deleted),
        cmocka_unit_test(test_15_what_a_server_cannot_read_is_reported_for_that_item),
        cmocka_unit_test(
            test_29_an_operation_whose_server_dies_before_it_answers_is_at_the_next_and_once),
        cmocka_unit_test(test_30_a_server_that_never_answers_costs_the_timeout),
        cmocka_unit_test(test_31_an_answer_that_comes_after_the_timeout_does_no_harm),
        cmocka_unit_test(
            test_32_without_a_server_a_future_fails_after_one_pass_and_says_what_is_known),
        cmocka_unit_test(test_33_what_is_acknowledged_was_sent_once),
        cmocka_unit_test(test_34_a_server_that_leaves_is_avoided_and_one_that_comes_is_used),
        cmocka_unit_test(test_35_a_client_opens_where_the_first_server_of_its_list_is_dead),
        cmocka_unit_test(test_36_operations_are_shared_out_evenly),
        cmocka_unit_test(test_36_with_affinity_a_timer_has_its_server_while_that_lives),
        cmocka_unit_test(test_37_beyond_the_limit_a_caller_is_told_so_and_nothing_grows),
    };
    return TIMERS_RUN("producers", tests);
}
