/* SPDX-License-Identifier: Apache-2.0 */
/* Looking and acting: each call is one request to the broker, waited for. */
#include <stdlib.h>

#include "broker/result.h"
#include "client/client.h"
#include "store/store.h"

enum { LIST_LIMIT = 50 };

/* ---- tasks ---------------------------------------------------------------------------------- */

/* The answer is the request itself: its arena holds the tasks. */
struct mr_task_list {
    union {
        struct mr_req req;
        struct mr_req_list list;
        struct mr_req_get get;
        struct mr_req_await await;
    };
    const struct mr_task *tasks;
    size_t n;
    const char *next;
};

size_t mr_task_list_count(const struct mr_task_list *list)
{
    return list->n;
}

const struct mr_task *mr_task_list_at(const struct mr_task_list *list, size_t i)
{
    return i < list->n ? &list->tasks[i] : NULL;
}

const char *mr_task_list_next(const struct mr_task_list *list)
{
    return list->next;
}

void mr_task_list_free(struct mr_task_list *list)
{
    if (!list)
        return;
    mr_req_done(&list->req);
    free(list);
}

enum mr_err mr_task_list_get(struct mr_client *client, const struct mr_list_options *options,
                             struct mr_task_list **ret_list)
{
    static const struct mr_list_options defaults;
    options = options ? options : &defaults;
    if (options->limit > MR_BATCH_MAX)
        return MR_TOO_BIG;
    if (options->state >= MR_STATE_COUNT)
        return MR_INVALID;
    struct mr_task_list *list = calloc(1, sizeof *list);
    if (!list)
        return MR_NOMEM;
    list->req.op = MR_OP_LIST;
    list->list.options = *options;
    if (options->limit == 0)
        list->list.options.limit = LIST_LIMIT;
    enum mr_err err = mr_broker_call(client->broker, &list->req);
    if (err != MR_OK) {
        mr_task_list_free(list);
        return err;
    }
    list->tasks = list->list.tasks;
    list->n = list->list.n;
    list->next = list->list.next;
    *ret_list = list;
    return MR_OK;
}

/* A request that answers one task. */
static enum mr_err call_one(struct mr_client *client, struct mr_task_list *list,
                            const struct mr_task *task, struct mr_task_list **ret_list)
{
    enum mr_err err = mr_broker_call(client->broker, &list->req);
    if (err != MR_OK) {
        mr_task_list_free(list);
        return err;
    }
    list->tasks = task;
    list->n = 1;
    list->next = "";
    *ret_list = list;
    return MR_OK;
}

enum mr_err mr_task_get(struct mr_client *client, struct mr_slice id,
                        struct mr_task_list **ret_list)
{
    struct mr_task_list *list = calloc(1, sizeof *list);
    if (!list)
        return MR_NOMEM;
    list->req.op = MR_OP_GET;
    list->get.id = id;
    return call_one(client, list, &list->get.task, ret_list);
}

enum mr_err mr_task_wait(struct mr_client *client, struct mr_slice id, int64_t timeout_ms,
                         struct mr_task_list **ret_list)
{
    if (timeout_ms < 0)
        return MR_INVALID;
    struct mr_task_list *list = calloc(1, sizeof *list);
    if (!list)
        return MR_NOMEM;
    list->req.op = MR_OP_AWAIT;
    list->await.id = id;
    list->await.wait_ms =
        timeout_ms > 0 && timeout_ms < MR_DELAY_MAX_MS ? timeout_ms : MR_DELAY_MAX_MS;
    return call_one(client, list, &list->await.task, ret_list);
}

enum mr_err mr_control(struct mr_client *client, const struct mr_control *items, size_t n,
                       enum mr_err *ret_errs)
{
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    if (n == 0)
        return MR_OK;
    struct mr_req_control control = {
        .req = {.op = MR_OP_CONTROL},
        .items = items,
        .n = n,
        .errs = ret_errs,
    };
    enum mr_err err = mr_broker_call(client->broker, &control.req);
    mr_req_done(&control.req);
    return err;
}

/* ---- queues --------------------------------------------------------------------------------- */

static enum mr_err queue_list(struct mr_client *client, struct mr_req_queue_list *list,
                              size_t *ret_n)
{
    list->req.op = MR_OP_QUEUE_LIST;
    enum mr_err err = mr_broker_call(client->broker, &list->req);
    mr_req_done(&list->req);
    if (err == MR_OK)
        *ret_n = list->n;
    return err;
}

enum mr_err mr_queue_list(struct mr_client *client, const char *after,
                          struct mr_queue_info *ret_infos, size_t max, size_t *ret_n)
{
    struct mr_req_queue_list list = {
        .after = mr_slice_str(after ? after : ""),
        .infos = ret_infos,
        .max = max,
    };
    return queue_list(client, &list, ret_n);
}

enum mr_err mr_queue_get(struct mr_client *client, struct mr_slice queue,
                         struct mr_queue_info *ret_info)
{
    MR_TRY(mr_name_check(queue));
    struct mr_queue_info info;
    struct mr_req_queue_list list = {.only = queue, .infos = &info, .max = 1};
    size_t n = 0;
    MR_TRY(queue_list(client, &list, &n));
    if (n == 0)
        return MR_NOT_FOUND;
    *ret_info = info;
    return MR_OK;
}

enum mr_err mr_topic_get(struct mr_client *client, struct mr_slice topic, uint64_t *ret_waiting,
                         uint64_t *ret_in_hand)
{
    char name[MR_NAME_MAX + 1];
    struct mr_queue_info info = {.paused = false};
    struct mr_req_queue_list list = {
        .only = mr_result_queue(topic, name), .infos = &info, .max = 1};
    size_t n = 0;
    MR_TRY(mr_name_check(topic));
    if (topic.len > MR_TOPIC_MAX)
        return MR_TOO_BIG;
    enum mr_err err = queue_list(client, &list, &n);
    if (err != MR_OK && err != MR_NOT_FOUND)
        return err;
    *ret_waiting = info.counts[MR_PENDING];
    *ret_in_hand = info.counts[MR_ACTIVE];
    return MR_OK;
}

enum mr_err mr_queue_history(struct mr_client *client, struct mr_slice queue,
                             struct mr_queue_day *ret_days, size_t max, size_t *ret_n)
{
    MR_TRY(mr_name_check(queue));
    struct mr_req_queue_history history = {
        .req = {.op = MR_OP_QUEUE_HISTORY},
        .queue = queue,
        .days = ret_days,
        .max = max,
    };
    enum mr_err err = mr_broker_call(client->broker, &history.req);
    mr_req_done(&history.req);
    if (err == MR_OK)
        *ret_n = history.n;
    return err;
}

static enum mr_err queue_set(struct mr_client *client, struct mr_slice queue,
                             enum mr_queue_setting setting, uint64_t value)
{
    MR_TRY(mr_name_check(queue));
    struct mr_req_queue_set set = {
        .req = {.op = MR_OP_QUEUE_SET},
        .queue = queue,
        .setting = setting,
        .value = value,
    };
    enum mr_err err = mr_broker_call(client->broker, &set.req);
    mr_req_done(&set.req);
    return err;
}

enum mr_err mr_queue_pause(struct mr_client *client, struct mr_slice queue)
{
    return queue_set(client, queue, MR_QUEUE_PAUSED, 1);
}

enum mr_err mr_queue_resume(struct mr_client *client, struct mr_slice queue)
{
    return queue_set(client, queue, MR_QUEUE_PAUSED, 0);
}

enum mr_err mr_queue_set_max_length(struct mr_client *client, struct mr_slice queue, uint64_t max)
{
    return queue_set(client, queue, MR_QUEUE_MAX_LENGTH, max);
}

enum mr_err mr_queue_set_partitions(struct mr_client *client, struct mr_slice queue, uint32_t n)
{
    return queue_set(client, queue, MR_QUEUE_PARTITIONS, n);
}

enum mr_err mr_queue_set_assign(struct mr_client *client, struct mr_slice queue,
                                enum mr_assign assign)
{
    return queue_set(client, queue, MR_QUEUE_ASSIGN, assign);
}

enum mr_err mr_queue_set_retry_mode(struct mr_client *client, struct mr_slice queue,
                                    enum mr_retry_mode mode)
{
    return queue_set(client, queue, MR_QUEUE_RETRY_MODE, mode);
}

enum mr_err mr_queue_set_retry_wait(struct mr_client *client, struct mr_slice queue,
                                    int64_t wait_ms)
{
    return wait_ms < 0 ? MR_INVALID
                       : queue_set(client, queue, MR_QUEUE_RETRY_WAIT, (uint64_t)wait_ms);
}

static enum mr_err set_limit(struct mr_client *client, struct mr_slice queue,
                             const struct mr_limit *limit, enum mr_queue_setting setting)
{
    struct mr_req_queue_set set = {
        .req = {.op = MR_OP_QUEUE_SET},
        .queue = queue,
        .setting = setting,
        .value = setting == MR_QUEUE_RATE ? limit->rate : limit->concurrency,
        .rate_ms = limit->rate_ms,
        .scope = limit->scope,
        .name = mr_slice_str(limit->name),
    };
    MR_TRY(mr_queue_set_check(&set));
    enum mr_err err = mr_broker_call(client->broker, &set.req);
    mr_req_done(&set.req);
    return err;
}

enum mr_err mr_queue_set_rate(struct mr_client *client, struct mr_slice queue,
                              const struct mr_limit *limit)
{
    return set_limit(client, queue, limit, MR_QUEUE_RATE);
}

enum mr_err mr_queue_set_concurrency(struct mr_client *client, struct mr_slice queue,
                                     const struct mr_limit *limit)
{
    return set_limit(client, queue, limit, MR_QUEUE_CONCURRENCY);
}

enum mr_err mr_task_limits(struct mr_client *client, struct mr_slice queue, struct mr_slice id,
                           struct mr_limit *ret_limits, size_t *ret_n)
{
    MR_TRY(mr_name_check(queue));
    struct mr_req_queue_limits limits = {
        .req = {.op = MR_OP_QUEUE_LIMITS},
        .queue = queue,
        .id = id,
        .limits = ret_limits,
    };
    enum mr_err err = mr_broker_call(client->broker, &limits.req);
    mr_req_done(&limits.req);
    if (err == MR_OK)
        *ret_n = limits.n;
    return err;
}

enum mr_err mr_queue_limits(struct mr_client *client, struct mr_slice queue,
                            struct mr_limit *ret_limits, size_t *ret_n)
{
    return mr_task_limits(client, queue, (struct mr_slice){0}, ret_limits, ret_n);
}

enum mr_err mr_queue_remove(struct mr_client *client, struct mr_slice queue,
                            enum mr_queue_remove_mode mode)
{
    MR_TRY(mr_name_check(queue));
    struct mr_req_queue_remove remove = {
        .req = {.op = MR_OP_QUEUE_REMOVE},
        .queue = queue,
        .mode = mode,
    };
    enum mr_err err = mr_broker_call(client->broker, &remove.req);
    mr_req_done(&remove.req);
    return err;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

struct mr_node_list {
    struct mr_req_node_list list; /* its arena holds the nodes */
};

size_t mr_node_list_count(const struct mr_node_list *list)
{
    return list->list.n;
}

const struct mr_node_info *mr_node_list_at(const struct mr_node_list *list, size_t i)
{
    return i < list->list.n ? &list->list.nodes[i] : NULL;
}

void mr_node_list_free(struct mr_node_list *list)
{
    if (!list)
        return;
    mr_req_done(&list->list.req);
    free(list);
}

const struct mr_leader *mr_node_list_leader(const struct mr_node_list *list)
{
    return &list->list.leader;
}

const struct mr_assignment *mr_node_list_assignment(const struct mr_node_list *list, size_t i)
{
    return i < list->list.assignments_n ? &list->list.assignments[i] : NULL;
}

enum mr_err mr_node_list_get(struct mr_client *client, struct mr_node_list **ret_list)
{
    struct mr_node_list *list = calloc(1, sizeof *list);
    if (!list)
        return MR_NOMEM;
    list->list.req.op = MR_OP_NODE_LIST;
    enum mr_err err = mr_broker_call(client->broker, &list->list.req);
    if (err != MR_OK) {
        mr_node_list_free(list);
        return err;
    }
    *ret_list = list;
    return MR_OK;
}

/* ---- the broker ----------------------------------------------------------------------------- */

enum mr_err mr_stats_get(struct mr_client *client, struct mr_stats *ret_stats)
{
    struct mr_req_stats stats = {.req = {.op = MR_OP_STATS}};
    enum mr_err err = mr_broker_call(client->broker, &stats.req);
    mr_req_done(&stats.req);
    if (err == MR_OK)
        *ret_stats = stats.stats;
    return err;
}

/* Behind the tasks: an operation that is in both is applied once more, which does no harm; in neither it would be
 * lost. */
static enum mr_err copy_store(struct mr_client *client, const char *dir, struct mr_detail *detail)
{
    struct mr_detail why = {.text = ""};
    enum mr_err err = mr_store_copy(client->store_url, dir, &why);
    if (err == MR_UNSUPPORTED || err == MR_NOT_FOUND)
        return MR_OK;
    if (err != MR_OK && detail)
        mr_detail_set(detail, "the tasks are there, the timers are not: %s", why.text);
    return err;
}

enum mr_err mr_backup(struct mr_client *client, const char *dir, struct mr_detail *detail)
{
    if (!dir || *dir == '\0') {
        mr_detail_set(detail, "backup: the folder is missing");
        return MR_INVALID;
    }
    struct mr_req_backup backup = {.req = {.op = MR_OP_BACKUP}, .dir = dir};
    enum mr_err err = mr_broker_call(client->broker, &backup.req);
    mr_req_done(&backup.req);
    if (err != MR_OK && detail)
        *detail = backup.detail;
    return err == MR_OK && client->store_url != NULL ? copy_store(client, dir, detail) : err;
}
