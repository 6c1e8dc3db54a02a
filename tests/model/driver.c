/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the model test, part one: producing, looking, acting, queues, time. See driver.h. */
#include "model/driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void driver_fail(const struct driver *d, const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "model: seed=%llu step=%llu %s: ", (unsigned long long)d->seed,
            (unsigned long long)d->step, d->doing);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nrepeat with: MR_SEED=%llu MR_SEEDS=1 MR_STEPS=%llu MR_TRACE=1 model\n",
            (unsigned long long)d->seed, (unsigned long long)d->step + 1);
    exit(1);
}

void driver_trace(const struct driver *d, const char *fmt, ...)
{
    if (!d->trace)
        return;
    va_list args;
    printf("%llu %lld %s: ", (unsigned long long)d->step,
           (long long)(d->model.now_ms - RIG_EPOCH_US / 1000), d->doing);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

enum mr_err driver_call(struct driver *d, struct mr_req *req)
{
    int64_t before_ms = rig_wall_ms(&d->rig);
    enum mr_err err = rig_call(&d->rig, req);
    if (d->rig.engine == NULL)
        driver_fail(d, "no answer");
    if (rig_wall_ms(&d->rig) != before_ms)
        driver_fail(d, "an answer took %lld ms of virtual time",
                    (long long)(rig_wall_ms(&d->rig) - before_ms));
    return err;
}

int64_t driver_some_ms(struct driver *d, int64_t below_ms)
{
    return MODEL_TICK_MS / 2 +
           MODEL_TICK_MS * (int64_t)mr_rand_below(&d->rand, (uint64_t)(below_ms / MODEL_TICK_MS));
}

struct mr_slice driver_some_id(struct driver *d, char text[MODEL_TEXT_MAX])
{
    if (d->model.tasks_n == 0 || mr_rand_one_in(&d->rand, 20))
        (void)snprintf(text, MODEL_TEXT_MAX, "name-%llu",
                       (unsigned long long)mr_rand_below(&d->rand, 400));
    else
        (void)snprintf(text, MODEL_TEXT_MAX, "%s",
                       d->model.tasks[mr_rand_below(&d->rand, d->model.tasks_n)].id);
    return mr_slice_str(text);
}

/* ---- enqueue -------------------------------------------------------------------------------- */

void driver_wish_some(struct driver *d, struct driver_wish *wish)
{
    struct mr_rand *rand = &d->rand;
    memset(wish, 0, sizeof *wish);
    struct model_task *task = &wish->task;
    if (mr_rand_one_in(rand, 2))
        (void)snprintf(task->id, sizeof task->id, "name-%llu",
                       (unsigned long long)mr_rand_below(rand, 400));
    task->queue = (unsigned)mr_rand_below(rand, MODEL_QUEUES);
    task->type = (unsigned)mr_rand_below(rand, MODEL_TYPES);
    task->payload_seed = (uint32_t)mr_rand_next(rand);
    task->payload_len = mr_rand_below(rand, sizeof wish->payload + 1);
    if (mr_rand_one_in(rand, 3))
        task->priority_ms = 1000 * ((int64_t)mr_rand_below(rand, 7) - 3);
    if (mr_rand_one_in(rand, 3))
        wish->delay_ms = driver_some_ms(d, 2000);
    task->max_retry = (uint32_t)mr_rand_below(rand, 4);
    task->timeout_ms = 1 + (int64_t)mr_rand_below(rand, 100000);
    if (mr_rand_one_in(rand, 2))
        task->retention_ms = driver_some_ms(d, 3000);
    if (mr_rand_one_in(rand, 4)) {
        task->unique = 1 + (unsigned)mr_rand_below(rand, MODEL_UNIQUE_KEYS);
        wish->unique_ms = driver_some_ms(d, 4000);
        wish->on_duplicate = (enum mr_on_duplicate)mr_rand_below(rand, 3);
        (void)snprintf(wish->key, sizeof wish->key, "key-%u", task->unique);
    }
    /* Where a unique key leads only the engine knows: so it is told where to go. */
    if (mr_rand_one_in(rand, 4))
        task->partition = 1 + (unsigned)mr_rand_below(rand, MODEL_PARTS + 1);
    else if (task->unique != 0 || mr_rand_one_in(rand, 4))
        task->part_key = 1 + (unsigned)mr_rand_below(rand, MODEL_KEYS);
    task->topic = mr_rand_one_in(rand, 3);
    if (mr_rand_one_in(rand, 5))
        task->group = 1 + (unsigned)mr_rand_below(rand, MODEL_GROUPS);
}

void driver_wish_fill(struct driver_wish *wish)
{
    const struct model_task *task = &wish->task;
    model_payload(task->payload_seed, wish->payload, task->payload_len);
    if (task->group != 0)
        (void)snprintf(wish->group, sizeof wish->group, "group-%u", task->group);
    if (task->part_key != 0)
        (void)snprintf(wish->part_key, sizeof wish->part_key, "part-%u", task->part_key);
    wish->options = (struct mr_task_options){
        .queue = mr_slice_str(model_queue_names[task->queue]),
        .type = mr_slice_str(model_type_names[task->type]),
        .payload = mr_slice_make(wish->payload, task->payload_len),
        .id = mr_slice_str(task->id),
        .priority_s = (double)task->priority_ms / 1000,
        .delay_ms = wish->delay_ms,
        .max_retry = task->max_retry == 0 ? MR_NO_RETRY : (int32_t)task->max_retry,
        .timeout_ms = task->timeout_ms,
        .retention_ms = task->retention_ms,
        .unique_ms = wish->unique_ms,
        .unique_key = mr_slice_str(wish->key),
        .on_duplicate = wish->on_duplicate,
        .group = mr_slice_str(wish->group),
        .key = mr_slice_str(wish->part_key),
        .partition = task->partition,
        .topic = mr_slice_str(task->topic ? MODEL_TOPIC : ""),
    };
}

void driver_compare_put(struct driver *d, const struct driver_wish *wish,
                        struct mr_enqueue_result want, const struct mr_enqueue_result *got)
{
    bool adopted = want.err == MR_OK && want.id[0] == '\0';
    if (adopted) {
        if (strlen(got->id) != MR_UUID_TEXT_LEN)
            driver_fail(d, "made the id '%s'", got->id);
        struct model_task *task = &d->model.tasks[d->model.tasks_n - 1];
        memcpy(task->id, got->id, MR_UUID_TEXT_LEN + 1);
        memcpy(want.id, got->id, MR_UUID_TEXT_LEN + 1);
    }
    driver_trace(d, "id=%s queue=%s delay=%lld unique=%u -> %s", got->id,
                 model_queue_names[wish->task.queue], (long long)wish->delay_ms, wish->task.unique,
                 mr_err_name(got->err));
    if (got->err != want.err)
        driver_fail(d, "id '%s' in %s: %s, expected %s", wish->task.id,
                    model_queue_names[wish->task.queue], mr_err_name(got->err),
                    mr_err_name(want.err));
    if (want.id[0] != '\0' && strcmp(got->id, want.id) != 0)
        driver_fail(d, "answered id '%s', expected '%s'", got->id, want.id);
    if (want.id[0] != '\0' && got->state != want.state)
        driver_fail(d, "'%s' is %s, expected %s", got->id, mr_state_name(got->state),
                    mr_state_name(want.state));
}

static void put_and_compare(struct driver *d, const struct driver_wish *wish,
                            const struct mr_enqueue_result *got)
{
    driver_compare_put(
        d, wish,
        model_put(&d->model, &wish->task, wish->delay_ms, wish->unique_ms, wish->on_duplicate),
        got);
}

void driver_enqueue(struct driver *d)
{
    enum { BATCH = 5 };
    struct driver_wish wishes[BATCH];
    struct mr_task_options options[BATCH];
    struct mr_enqueue_result results[BATCH];
    size_t n = 1 + mr_rand_below(&d->rand, BATCH);
    if (d->model.tasks_n + n > MODEL_TASKS_MAX)
        return;
    for (size_t i = 0; i < n; i++) {
        driver_wish_some(d, &wishes[i]);
        driver_wish_fill(&wishes[i]);
        options[i] = wishes[i].options;
    }
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = options, .n = n, .results = results};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK)
        driver_fail(d, "%s", mr_err_name(err));
    for (size_t i = 0; i < n; i++)
        put_and_compare(d, &wishes[i], &results[i]);
}

/* ---- looking and acting --------------------------------------------------------------------- */

void driver_get(struct driver *d)
{
    char text[MODEL_TEXT_MAX];
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = driver_some_id(d, text)};
    enum mr_err err = driver_call(d, &req.req);
    const struct model_task *want = model_find(&d->model, req.id);
    driver_trace(d, "%s -> %s", text, mr_err_name(err));
    if (err != (want != NULL ? MR_OK : MR_NOT_FOUND))
        driver_fail(d, "'%s': %s", text, mr_err_name(err));
    const char *what = want != NULL ? model_differs(want, &req.task, true) : NULL;
    if (what != NULL)
        driver_fail(d, "'%s' differs in %s", text, what);
    mr_req_done(&req.req);
}

void driver_control(struct driver *d)
{
    enum { BATCH = 3 };
    char texts[BATCH][MODEL_TEXT_MAX];
    struct mr_control items[BATCH];
    enum mr_err errs[BATCH];
    size_t n = 1 + mr_rand_below(&d->rand, BATCH);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct mr_control){.verb = (enum mr_verb)mr_rand_below(&d->rand, 7),
                                       .id = driver_some_id(d, texts[i]),
                                       .text = MR_SLICE_LIT("there"),
                                       .value = (double)mr_rand_below(&d->rand, 9) - 4};
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = items, .n = n, .errs = errs};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK)
        driver_fail(d, "%s", mr_err_name(err));
    for (size_t i = 0; i < n; i++) {
        const struct model_task *task = model_find(&d->model, items[i].id);
        enum mr_state state = task != NULL ? task->state : MR_STATE_NONE;
        enum mr_err want = model_act(&d->model, &items[i]);
        driver_trace(d, "verb %d on %s (%s) -> %s", items[i].verb, texts[i], mr_state_name(state),
                     mr_err_name(errs[i]));
        if (errs[i] != want)
            driver_fail(d, "verb %d on '%s' (%s): %s, expected %s", items[i].verb, texts[i],
                        mr_state_name(state), mr_err_name(errs[i]), mr_err_name(want));
    }
}

/* ---- queues --------------------------------------------------------------------------------- */

static enum mr_err remove_queue(struct driver *d, unsigned queue, enum mr_err *ret_want)
{
    enum mr_queue_remove_mode mode =
        mr_rand_one_in(&d->rand, 3) ? MR_QUEUE_REMOVE_FORCE : MR_QUEUE_REMOVE_EMPTY;
    struct mr_req_queue_remove req = {.req.op = MR_OP_QUEUE_REMOVE,
                                      .queue = mr_slice_str(model_queue_names[queue]),
                                      .mode = mode};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    *ret_want = model_queue_remove(&d->model, queue, mode);
    return err;
}

static enum mr_err set_queue(struct driver *d, unsigned queue, enum mr_err *ret_want)
{
    static const enum mr_queue_setting settings[] = {
        MR_QUEUE_PAUSED, MR_QUEUE_PAUSED,     MR_QUEUE_MAX_LENGTH, MR_QUEUE_PARTITIONS,
        MR_QUEUE_ASSIGN, MR_QUEUE_RETRY_MODE, MR_QUEUE_RETRY_MODE, MR_QUEUE_RETRY_WAIT};
    enum mr_queue_setting setting =
        settings[mr_rand_below(&d->rand, sizeof settings / sizeof *settings)];
    uint64_t value = setting == MR_QUEUE_PARTITIONS   ? 1 + mr_rand_below(&d->rand, MODEL_PARTS)
                     : setting == MR_QUEUE_RETRY_MODE ? mr_rand_below(&d->rand, MR_RETRY_MODE_COUNT)
                     : setting == MR_QUEUE_RETRY_WAIT ? MODEL_TICK_MS * mr_rand_below(&d->rand, 100)
                     : setting != MR_QUEUE_MAX_LENGTH ? mr_rand_below(&d->rand, 2)
                     : mr_rand_one_in(&d->rand, 2)    ? 0
                                                      : 1 + mr_rand_below(&d->rand, 200);
    if (setting == MR_QUEUE_RETRY_MODE && value == MR_RETRY_CLASS &&
        model_is_limited(&d->model, queue))
        value = MR_RETRY_GATE;
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(model_queue_names[queue]),
                                   .setting = setting,
                                   .value = value};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    *ret_want = model_queue_set(&d->model, queue, req.setting, value);
    model_advance(&d->model, d->model.now_ms); /* retries may have no class any more */
    return err;
}

/* Limits come and go: most queues have none. */
static enum mr_err set_limit(struct driver *d, unsigned queue, enum mr_err *ret_want)
{
    static const unsigned names[] = {
        [MR_LIMIT_QUEUE] = 1, [MR_LIMIT_TYPE] = 1 + MODEL_TYPES, [MR_LIMIT_KEY] = 1 + MODEL_KEYS};
    enum mr_limit_scope scope = (enum mr_limit_scope)mr_rand_below(&d->rand, MR_LIMIT_SCOPE_COUNT);
    unsigned name = (unsigned)mr_rand_below(&d->rand, names[scope]);
    char key[24];
    (void)snprintf(key, sizeof key, "part-%u", name);
    /* Retries with a class of their own become pending under limits, when somebody asks: no model of that. */
    bool lifted =
        mr_rand_one_in(&d->rand, 2) || d->model.queues[queue].retry_mode == MR_RETRY_CLASS;
    struct mr_req_queue_set req = {
        .req.op = MR_OP_QUEUE_SET,
        .queue = mr_slice_str(model_queue_names[queue]),
        .setting = mr_rand_one_in(&d->rand, 2) ? MR_QUEUE_RATE : MR_QUEUE_CONCURRENCY,
        .value = lifted ? 0 : 1 + mr_rand_below(&d->rand, 5),
        /* Over between two ticks; and always the same, since what is longer ago is forgotten. */
        .rate_ms = 91 + 100 * (int64_t)scope,
        .scope = scope,
        .name = mr_slice_str(scope == MR_LIMIT_QUEUE  ? ""
                             : name == 0              ? MR_LIMIT_EACH
                             : scope == MR_LIMIT_TYPE ? model_type_names[name - 1]
                                                      : key)};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    driver_trace(d, "%s of %s %u: %llu in %lld", req.setting == MR_QUEUE_RATE ? "rate" : "at once",
                 mr_limit_scope_name(scope), name, (unsigned long long)req.value,
                 (long long)req.rate_ms);
    model_limit_set(&d->model, queue, &req, name);
    *ret_want = MR_OK;
    return err;
}

void driver_queue(struct driver *d)
{
    unsigned queue = (unsigned)mr_rand_below(&d->rand, MODEL_QUEUES);
    enum mr_err want;
    enum mr_err err = mr_rand_one_in(&d->rand, 8)   ? remove_queue(d, queue, &want)
                      : mr_rand_one_in(&d->rand, 3) ? set_limit(d, queue, &want)
                                                    : set_queue(d, queue, &want);
    driver_trace(d, "%s -> %s", model_queue_names[queue], mr_err_name(err));
    if (err != want)
        driver_fail(d, "%s: %s, expected %s", model_queue_names[queue], mr_err_name(err),
                    mr_err_name(want));
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Leases of nodes the model has just seen die are old now. */
static void drop_dead(struct driver *d)
{
    for (int i = 0; i < MODEL_NODES; i++)
        if (!d->model.nodes[i].open)
            driver_drop_held(d, i);
}

void driver_pass_time(struct driver *d)
{
    int64_t ticks = mr_rand_one_in(&d->rand, 200) ? 3600 * 100 * 5
                    : mr_rand_one_in(&d->rand, 4) ? (int64_t)mr_rand_below(&d->rand, 100)
                                                  : (int64_t)mr_rand_below(&d->rand, 10);
    int64_t ms = ticks * MODEL_TICK_MS;
    rig_run(&d->rig, d->rig.clock.mono_ns + ms * MR_NS_PER_MS);
    model_advance(&d->model, d->model.now_ms + ms);
    driver_trace(d, "%lld ms", (long long)ms);
    drop_dead(d);
}

/* The memory that says which runs had begun shows anything it ever held after a power cut: whether
 * a crash was counted is asked of the engine, for runs that had begun only. */
static void ask_for_crashes(struct driver *d, const bool *begun, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model_task *task = &d->model.tasks[i];
        if (!begun[i])
            continue;
        struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(task->id)};
        enum mr_err err = driver_call(d, &req.req);
        uint32_t crashes = req.task.crashes;
        mr_req_done(&req.req);
        if (err == MR_OK && crashes == task->crashes + 1)
            model_crashed(&d->model, task);
    }
}

/* A take is not synced. After a power cut that forgot it, a retry of a class of its own is one again. */
static void ask_for_retries(struct driver *d, const bool *taken, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model_task *task = &d->model.tasks[i];
        if (!taken[i] || task->state != MR_PENDING)
            continue;
        struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(task->id)};
        if (driver_call(d, &req.req) == MR_OK && req.task.state == MR_RETRY)
            task->state = MR_RETRY;
        mr_req_done(&req.req);
    }
}

/* The process dies; everything has been answered, so everything stays whatever the disk does. */
void driver_restart(struct driver *d)
{
    bool begun[MODEL_TASKS_MAX], retries[MODEL_TASKS_MAX];
    bool cut = mr_rand_one_in(&d->rand, 3);
    enum simfs_policy policy =
        cut ? (enum simfs_policy)(1 + mr_rand_below(&d->rand, SIMFS_POLICY_COUNT - 1))
            : SIMFS_KEEP_ALL;
    simfs_stop(d->fs);
    rig_kill(&d->rig);
    simfs_crash(d->fs, &d->rand, policy);
    int64_t ms = MODEL_TICK_MS * (int64_t)mr_rand_below(&d->rand, 100);
    d->rig.clock.mono_ns += ms * MR_NS_PER_MS;
    d->rig.clock.wall_us += ms * MR_US_PER_MS;
    /* Nobody notices the death of the nodes before the store is open again. */
    d->model.now_ms += ms;
    size_t n = d->model.tasks_n;
    for (size_t i = 0; i < n; i++) {
        const struct model_task *task = &d->model.tasks[i];
        begun[i] = task->state == MR_ACTIVE && task->begun == task->epoch;
        retries[i] = task->state == MR_ACTIVE && task->was_retry;
    }
    model_restarted(&d->model, cut ? MODEL_POWER_CUT : MODEL_KILLED);
    driver_trace(d, "%s, down for %lld ms", simfs_policy_name(policy), (long long)ms);
    driver_drop_held(d, -1);
    enum mr_err err = rig_open(&d->rig);
    if (err != MR_OK)
        driver_fail(d, "%s: %s", mr_err_name(err), d->rig.detail.text);
    if (cut) {
        ask_for_crashes(d, begun, n);
        ask_for_retries(d, retries, n);
    }
    model_advance(&d->model, d->model.now_ms);
    driver_compare(d);
}
