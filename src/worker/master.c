/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master: a node of its own that takes results and commits them. One thread beats; takes and
 * commits are requests of whoever asks. A node that was declared dead is opened anew, by whoever
 * notices first.
 */
#include <stdlib.h>

#include "base/diag.h"
#include "broker/result.h"
#include "wire/task.h"
#include "worker/internal.h"

/* A result in hand. */
struct in_hand {
    uint64_t epoch, ref;
};

struct mr_master {
    struct mr_broker *broker;
    struct mr_clock *clock;
    struct mr_arena memory;
    struct mr_slice name;
    struct mr_worker_queue *queues;
    size_t queues_n;
    int64_t beat_ms, lease_ms, leader_ms;
    bool lasts;
    bool leads; /* it is a candidate */
    struct mr_leading leading;
    pthread_t beater;
    bool beater_there;
    struct mr_lock lock; /* over what follows */
    uint64_t node;       /* 0: none */
    bool opening, stopped;
    struct in_hand *hand; /* by epoch */
    size_t hand_n, hand_cap;
    bool took; /* something, ever */
};

/* ---- in hand -------------------------------------------------------------------------------- */

/* The first that is not below. */
static size_t hand_seek(const struct mr_master *m, uint64_t epoch)
{
    size_t low = 0, high = m->hand_n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->hand[middle].epoch < epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void hand_remove(struct mr_master *m, uint64_t epoch)
{
    size_t i = hand_seek(m, epoch);
    if (i == m->hand_n || m->hand[i].epoch != epoch)
        return;
    memmove(m->hand + i, m->hand + i + 1, (m->hand_n - i - 1) * sizeof *m->hand);
    m->hand_n--;
}

/* Without memory for it, the result is committed as if it were another's. */
static void hand_add(struct mr_master *m, uint64_t epoch, uint64_t ref)
{
    m->took = true;
    if (m->hand_n == m->hand_cap) {
        size_t cap = m->hand_cap ? 2 * m->hand_cap : 64;
        struct in_hand *grown = realloc(m->hand, cap * sizeof *grown);
        if (grown == NULL)
            return;
        m->hand = grown;
        m->hand_cap = cap;
    }
    size_t i = hand_seek(m, epoch);
    memmove(m->hand + i + 1, m->hand + i, (m->hand_n - i) * sizeof *m->hand);
    m->hand[i] = (struct in_hand){epoch, ref};
    m->hand_n++;
}

/* Of a node that outlives its master. */
static void tell_nobody(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Broker's thread. It is found out by who commits it; until then nobody needs to know. */
static void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct mr_master *m = arg;
    (void)reason;
    mr_lock_enter(&m->lock);
    hand_remove(m, epoch);
    mr_lock_leave(&m->lock);
}

/* ---- the node ------------------------------------------------------------------------------- */

static enum mr_err node_open(struct mr_master *m, uint64_t *ret_node)
{
    struct mr_req_node_open open = {
        .req = {.op = MR_OP_NODE_OPEN},
        .role = MR_NODE_MASTER,
        .name = m->name,
        .queues = m->queues,
        .queues_n = m->queues_n,
        .order = MR_QUEUES_WEIGHTED,
        .lease_ms = m->lease_ms,
        .lasts = m->lasts,
        .leads = m->leads,
        .leader_ms = m->leader_ms,
        .events = {.stop = m->lasts ? tell_nobody : event_stop, .arg = m->lasts ? NULL : m},
    };
    enum mr_err err = mr_broker_call(m->broker, &open.req);
    mr_req_done(&open.req);
    if (err == MR_OK)
        *ret_node = open.node;
    return err;
}

static void node_close(struct mr_master *m, uint64_t node)
{
    struct mr_req_node_close close = {.req = {.op = MR_OP_NODE_CLOSE}, .node = node};
    enum mr_err err = mr_broker_call(m->broker, &close.req);
    mr_req_done(&close.req);
    if (err != MR_OK)
        mr_diag(MR_DIAG_DEBUG, "master.close", "error=%s ignoring", mr_err_name(err));
}

/* The node is lost; unless another one is there already. */
static enum mr_err reopen(struct mr_master *m, uint64_t lost)
{
    mr_lock_enter(&m->lock);
    while (m->opening)
        mr_lock_wait(&m->lock, INT64_MAX);
    bool ours = !m->stopped && m->node == lost;
    enum mr_err err = m->stopped ? MR_CLOSED : MR_OK;
    m->opening = ours;
    if (ours)
        m->hand_n = 0;
    mr_lock_leave(&m->lock);
    if (!ours)
        return err;
    uint64_t node = 0;
    if (lost != 0)
        node_close(m, lost);
    err = node_open(m, &node);
    mr_diag(MR_DIAG_WARN, "master.lost", "reopened=%s", mr_err_name(err));
    mr_lock_enter(&m->lock);
    m->node = node;
    m->opening = false;
    mr_lock_notify_all(&m->lock);
    mr_lock_leave(&m->lock);
    return err;
}

static uint64_t node_of(struct mr_master *m, bool *ret_stopped)
{
    mr_lock_enter(&m->lock);
    uint64_t node = m->node;
    *ret_stopped = m->stopped;
    mr_lock_leave(&m->lock);
    return node;
}

/* When the next one should come. */
static mr_mono beat(struct mr_master *m, uint64_t node)
{
    struct mr_req_beat req = {.req = {.op = MR_OP_BEAT}, .node = node};
    mr_mono now = mr_mono_now(m->clock), next = mr_mono_add_ms(now, m->beat_ms);
    enum mr_err err = node != 0 ? mr_broker_call(m->broker, &req.req) : MR_NOT_FOUND;
    mr_req_done(&req.req);
    if (m->leads) {
        mr_mono until = mr_mono_add_ms(now, m->leader_ms);
        mr_mono ends = err == MR_OK ? mr_leader_ends(&req, mr_mono_now(m->clock)) : MR_MONO_NEVER;
        m->leading.leads(m->leading.arg, err == MR_OK ? req.term : 0, until);
        next = ends.ns < next.ns ? ends : next;
    }
    if (err == MR_NOT_FOUND || err == MR_CLOSED)
        err = reopen(m, node);
    if (err != MR_OK)
        mr_diag(MR_DIAG_DEBUG, "master.beat", "error=%s", mr_err_name(err));
    return next;
}

static void *beat_main(void *arg)
{
    struct mr_master *m = arg;
    mr_mono now = mr_mono_now(m->clock);
    mr_mono next = m->leads ? now : mr_mono_add_ms(now, m->beat_ms);
    mr_lock_enter(&m->lock);
    while (!m->stopped) {
        now = mr_mono_now(m->clock);
        if (now.ns < next.ns) {
            mr_lock_wait(&m->lock, next.ns - now.ns);
            continue;
        }
        uint64_t node = m->node;
        mr_lock_leave(&m->lock);
        next = beat(m, node);
        mr_lock_enter(&m->lock);
    }
    mr_lock_leave(&m->lock);
    return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static enum mr_err check_options(const struct mr_master_options *o)
{
    if (o->topics_n > MR_TAKE_QUEUES_MAX)
        return MR_TOO_BIG;
    if (o->beat_ms < 0 || o->beat_ms > MR_MS_PER_DAY || o->beats_missed == 1 ||
        o->beats_missed > 1000 || o->lease_ms < 0 || o->lease_ms > MR_MS_PER_DAY ||
        (o->topics_n > 0 && o->topics == NULL) || !mr_leader_ms_fits(o->leader_ms, o->beat_ms))
        return MR_INVALID;
    for (size_t i = 0; i < o->topics_n; i++) {
        MR_TRY(mr_name_check(o->topics[i]));
        if (o->topics[i].len > MR_TOPIC_MAX)
            return MR_TOO_BIG;
    }
    return o->node.len > 0 ? mr_name_check(o->node) : MR_OK;
}

static enum mr_err set_options(struct mr_master *m, const struct mr_master_options *o)
{
    static const struct mr_slice only = MR_SLICE_LIT(MR_DEFAULT_TOPIC);
    const struct mr_slice *topics = o->topics_n > 0 ? o->topics : &only;
    char name[MR_NAME_MAX + 1];
    m->beat_ms = o->beat_ms ? o->beat_ms : BEAT_MS;
    m->lasts = o->lease_ms > 0;
    m->lease_ms =
        m->lasts ? o->lease_ms : m->beat_ms * (o->beats_missed ? o->beats_missed : BEATS_MISSED);
    m->leader_ms = o->leader_ms ? o->leader_ms : m->lease_ms;
    m->queues_n = o->topics_n > 0 ? o->topics_n : 1;
    m->queues = mr_arena_calloc(&m->memory, m->queues_n, sizeof *m->queues);
    if (m->queues == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < m->queues_n; i++)
        MR_TRY(mr_arena_copy(&m->memory, mr_result_queue(topics[i], name), &m->queues[i].name));
    return mr_arena_copy(&m->memory, mr_node_name(o->node, name), &m->name);
}

static enum mr_err master_start(struct mr_master *m)
{
    MR_TRY(node_open(m, &m->node));
    if (m->lasts)
        return MR_OK;
    enum mr_err err = mr_thread_start(&m->beater, "mr-master", beat_main, m);
    m->beater_there = err == MR_OK;
    return err;
}

enum mr_err mr_master_open_on(struct mr_broker *broker, const struct mr_master_options *options,
                              const struct mr_leading *leading, struct mr_master **ret_master)
{
    static const struct mr_master_options defaults;
    options = options ? options : &defaults;
    enum mr_err err = check_options(options);
    struct mr_master *m = err == MR_OK ? calloc(1, sizeof *m) : NULL;
    if (m == NULL) {
        if (leading != NULL)
            leading->free(leading->arg);
        return err != MR_OK ? err : MR_NOMEM;
    }
    m->broker = broker;
    m->clock = mr_clock_system();
    mr_lock_init(&m->lock);
    if (leading != NULL)
        m->leading = *leading;
    err = set_options(m, options);
    m->leads = leading != NULL && !m->lasts && !options->never_leads;
    if (err == MR_OK)
        err = master_start(m);
    if (err != MR_OK) {
        mr_master_free(m);
        return err;
    }
    *ret_master = m;
    return MR_OK;
}

void mr_master_stop(struct mr_master *master)
{
    struct mr_master *m = master;
    mr_lock_enter(&m->lock);
    bool first = !m->stopped;
    m->stopped = true;
    mr_lock_notify_all(&m->lock);
    while (m->opening)
        mr_lock_wait(&m->lock, INT64_MAX);
    uint64_t node = m->node;
    bool stays = m->lasts && m->took; /* what it holds is its own until the lease ends */
    mr_lock_leave(&m->lock);
    if (first && node != 0 && !stays)
        node_close(m, node);
}

void mr_master_free(struct mr_master *master)
{
    struct mr_master *m = master;
    if (m == NULL)
        return;
    mr_master_stop(m);
    if (m->beater_there)
        mr_thread_join(m->beater);
    if (m->leading.free != NULL)
        m->leading.free(m->leading.arg);
    mr_lock_done(&m->lock);
    mr_arena_done(&m->memory);
    free(m->hand);
    free(m);
}

/* ---- taking --------------------------------------------------------------------------------- */

struct row {
    struct mr_result result;
    struct mr_lease *lease;
    char receipt[MR_RECEIPT_MAX + 1];
};

struct mr_result_list {
    size_t n;
    struct row rows[];
};

size_t mr_result_list_count(const struct mr_result_list *list)
{
    return list->n;
}

const struct mr_result *mr_result_list_at(const struct mr_result_list *list, size_t i)
{
    return i < list->n ? &list->rows[i].result : NULL;
}

void mr_result_list_free(struct mr_result_list *list)
{
    if (list == NULL)
        return;
    for (size_t i = 0; i < list->n; i++)
        mr_lease_free(list->rows[i].lease);
    free(list);
}

static enum mr_err read_row(struct mr_master *m, struct mr_lease *lease, struct row *row)
{
    MR_TRY(mr_broker_lease_open(m->broker, lease));
    MR_TRY(mr_result_decode(lease->task.payload, &row->result));
    row->lease = lease;
    mr_receipt_format(lease->task.id, lease->epoch, row->receipt);
    row->result.receipt = mr_slice_str(row->receipt);
    mr_lock_enter(&m->lock);
    hand_add(m, lease->epoch, lease->ref);
    mr_lock_leave(&m->lock);
    return MR_OK;
}

/* What cannot be read stays in hand, and comes again when we are gone. */
static enum mr_err list_of(struct mr_master *m, struct mr_req_take *take,
                           struct mr_result_list **ret_list)
{
    struct mr_result_list *list = calloc(1, sizeof *list + take->n * sizeof *list->rows);
    enum mr_err err = list != NULL ? MR_OK : MR_NOMEM;
    while (take->leases != NULL) {
        struct mr_lease *lease = take->leases;
        take->leases = lease->next;
        enum mr_err bad = list != NULL ? read_row(m, lease, &list->rows[list->n]) : err;
        if (bad == MR_OK)
            list->n++;
        else
            mr_lease_free(lease);
        err = err != MR_OK ? err : bad;
    }
    if (list == NULL || list->n == 0) {
        mr_result_list_free(list);
        return err != MR_OK ? err : MR_EMPTY;
    }
    *ret_list = list;
    return MR_OK;
}

enum mr_err mr_master_take(struct mr_master *master, size_t max, int64_t wait_ms,
                           struct mr_result_list **ret_list)
{
    struct mr_master *m = master;
    mr_mono end = mr_mono_add_ms(mr_mono_now(m->clock), wait_ms);
    if (max == 0 || max > MR_BATCH_MAX || wait_ms < 0)
        return max > MR_BATCH_MAX ? MR_TOO_BIG : MR_INVALID;
    for (;;) {
        bool stopped;
        uint64_t node = node_of(m, &stopped);
        int64_t left_ms = (end.ns - mr_mono_now(m->clock).ns) / MR_NS_PER_MS;
        struct mr_req_take take = {.req = {.op = MR_OP_TAKE},
                                   .node = node,
                                   .max = max,
                                   .bytes_max = MR_TAKE_BYTES,
                                   .wait_ms = left_ms > 0 ? left_ms : 0};
        if (stopped)
            return MR_CLOSED;
        enum mr_err err = node != 0 ? mr_broker_call(m->broker, &take.req) : MR_CLOSED;
        if (err == MR_OK)
            err = list_of(m, &take, ret_list);
        mr_req_done(&take.req);
        if (err != MR_CLOSED)
            return err;
        MR_TRY(reopen(m, node));
    }
}

/* ---- committing ----------------------------------------------------------------------------- */

/* Fills in what the receipts say; answers how many of them are receipts. at: where each stands. */
static size_t read_receipts(const struct mr_slice *receipts, size_t n, struct mr_finish *items,
                            size_t *at, enum mr_err *errs)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        struct mr_finish *item = &items[used];
        *item = (struct mr_finish){.outcome = MR_DONE};
        errs[i] = MR_INVALID;
        if (receipts[i].len > 0 && mr_receipt_parse(receipts[i], &item->id, &item->epoch))
            at[used++] = i;
    }
    return used;
}

static void look_up(struct mr_master *m, struct mr_finish *items, size_t n)
{
    mr_lock_enter(&m->lock);
    for (size_t i = 0; i < n; i++) {
        size_t at = hand_seek(m, items[i].epoch);
        if (at < m->hand_n && m->hand[at].epoch == items[i].epoch)
            items[i].ref = m->hand[at].ref;
    }
    mr_lock_leave(&m->lock);
}

static void let_go(struct mr_master *m, const struct mr_finish *items, size_t n,
                   const enum mr_err *errs)
{
    mr_lock_enter(&m->lock);
    for (size_t i = 0; i < n; i++)
        if (errs[i] == MR_OK || errs[i] == MR_STALE || errs[i] == MR_NOT_FOUND)
            hand_remove(m, items[i].epoch);
    mr_lock_leave(&m->lock);
}

struct commit {
    struct mr_finish items[MR_BATCH_MAX];
    enum mr_err errs[MR_BATCH_MAX];
    size_t at[MR_BATCH_MAX];
};

/* m: whose they may be; NULL: nobody's. */
static enum mr_err commit(struct mr_broker *broker, struct mr_master *m,
                          const struct mr_slice *receipts, size_t n, enum mr_err *ret_errs)
{
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    struct commit *c = malloc(sizeof *c);
    if (c == NULL)
        return MR_NOMEM;
    size_t used = read_receipts(receipts, n, c->items, c->at, ret_errs);
    struct mr_req_finish req = {.req = {.op = MR_OP_FINISH},
                                .items = c->items,
                                .n = used,
                                .errs = c->errs,
                                .only_results = true};
    if (m != NULL)
        look_up(m, c->items, used);
    enum mr_err err = used > 0 ? mr_broker_call(broker, &req.req) : MR_OK;
    mr_req_done(&req.req);
    for (size_t i = 0; i < used; i++)
        ret_errs[c->at[i]] = c->errs[i];
    if (m != NULL && err == MR_OK)
        let_go(m, c->items, used, c->errs);
    free(c);
    return err;
}

enum mr_err mr_master_commit(struct mr_master *master, const struct mr_slice *receipts, size_t n,
                             enum mr_err *ret_errs)
{
    return commit(master->broker, master, receipts, n, ret_errs);
}

enum mr_err mr_result_commit_on(struct mr_broker *broker, const struct mr_slice *receipts, size_t n,
                                enum mr_err *ret_errs)
{
    return commit(broker, NULL, receipts, n, ret_errs);
}
