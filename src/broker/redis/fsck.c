/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks, and mends, what a Redis holds of ours and of Asynq's, while it is in use: every script sees a
 * consistent moment, and none looks at more than some hundred entries.
 *
 * First every key is looked at, as SCAN brings them: tasks that are in no place, locks whose holder is
 * gone or has ended, groups that nobody knows, queues that are not among all queues. Then every place of
 * every queue: entries that are no task or not of that place, runs without a lease, leases without a run,
 * entries of ours that are stale. At last the table of partitions: what they say of themselves is in it.
 *
 * Results are in places with the keys of a queue, "asynq:{Q}:mr:r:[T]:": these are looked at like queues, under the name
 * "Q}:mr:r:[T]". What leads to them is the set of topics of Q, and the set of all such queues.
 *
 * Thread: the caller's asks one question after the other; the loop of src/redis reads the answers.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "broker/hidden.h"
#include "broker/redis/format.h"
#include "broker/redis/fsck_keys.h"
#include "broker/redis/redis.h"
#include "broker/redis/row.h"
#include "broker/redis/scripts.h"

enum {
    UP_MS = 3000,
    STEP = 200,       /* entries in one script */
    TASKS_STEP = 50,  /* and tasks, which are looked for in a list */
    SCAN_COUNT = 500, /* keys in one SCAN */
    SCAN_WIDE = 1000000,
    SERVERS_MAX = 256,
    ARGS_MAX = STEP + 8,
    TEXT_MAX = 32,
};

/* What the scripts find, by number. */
static const struct {
    const char *text, *mended;
} findings[] = {
    [1] = {"an id in %s of a task that is not there", "taken out"},
    [2] = {"in %s, and in the place that its state names as well", "taken out of this one"},
    [3] = {"in %s, but its state is another", "state set"},
    [4] = {"in %s without a lease", "pending again"},
    [5] = {"in %s, but it does not run", "taken out"},
    [6] = {"a stale entry in %s", "taken out"},
    [7] = {"ready in %s, but without an order", "pending again"},
    [8] = {"a task in no place", "put into one"},
    [9] = {"a task without a message", "deleted"},
    [10] = {"a message that makes no sense", NULL},
    [11] = {"a lock whose task is gone or has ended", "free again"},
    [12] = {"a group that is not among the groups", "added"},
    [13] = {"a key of a type that is not ours", NULL},
};
enum { FINDINGS = sizeof findings / sizeof *findings };

struct check {
    const struct mr_redis_check *options;
    struct mr_redis *redis;
    struct mr_fsck_report *report;
    char *prefix; /* "asynq:{", with the namespace before it */
    struct mr_lock lock;
    bool up;
    enum mr_err why_err;
    char why[256];
    struct names {
        struct mr_slice *items;
        size_t n, cap;
    } queues, found, unusable, told, page, sets, leaving;
    struct mr_arena arena, page_arena;
    enum mr_err err; /* of what the loop reads */
};

/* ---- questions ------------------------------------------------------------------------------ */

struct ask;
typedef void ask_read(struct ask *ask, const struct mr_reply *reply);

/* One command, or one script; the answer is read on the loop while the caller waits. */
struct ask {
    struct check *check;
    struct mr_msg msg;
    struct mr_redis_call call;
    struct mr_event done;
    enum mr_err err;
    int script; /* -1: a command */
    struct mr_slice key;
    struct mr_slice args[ARGS_MAX];
    size_t n;
    ask_read *read;
    void *arg;                    /* of read */
    struct mr_slice queue, place; /* what it is about */
    int64_t next;                 /* answer of FSCK_PLACES */
};

/* Why it failed, in the words of Redis if it said some. */
static void note_why(struct check *check, const struct mr_reply *reply)
{
    (void)snprintf(check->why, sizeof check->why, "%.*s", (int)reply->text.len,
                   (const char *)reply->text.data);
}

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct ask *ask = call->arg;
    ask->err = err;
    if (err == MR_OK && ask->read != NULL)
        ask->read(ask, reply);
    else if (err != MR_OK)
        note_why(ask->check, reply);
    mr_event_set(&ask->done);
}

static void send(struct mr_msg *msg, void *receiver)
{
    struct ask *ask = mr_container(msg, struct ask, msg);
    struct mr_redis *redis = receiver;
    ask->call = (struct mr_redis_call){.answered = answered, .arg = ask, .repeatable = true};
    if (ask->script < 0) {
        mr_redis_send(redis, &ask->call, ask->key, ask->args, ask->n);
        return;
    }
    /* Two keys that are never there: see rqueue_eval. */
    const struct mr_slice keys[] = {ask->key, mr_slice_make(ask->key.data, ask->key.len - 1)};
    mr_redis_eval(redis, &ask->call, (size_t)ask->script, keys, 2, ask->args, ask->n);
}

static enum mr_err ask_wait(struct ask *ask)
{
    mr_event_init(&ask->done);
    ask->msg.deliver = send;
    mr_redis_post(ask->check->redis, &ask->msg);
    mr_event_wait(&ask->done, INT64_MAX);
    return ask->err != MR_OK ? ask->err : ask->check->err;
}

/* ---- names ---------------------------------------------------------------------------------- */

static enum mr_err names_add(struct names *names, struct mr_slice name, struct mr_arena *arena)
{
    if (names->n == names->cap) {
        size_t cap = names->cap != 0 ? 2 * names->cap : 64;
        struct mr_slice *items = realloc(names->items, cap * sizeof *items);
        if (items == NULL)
            return MR_NOMEM;
        names->items = items;
        names->cap = cap;
    }
    MR_TRY(mr_arena_copy(arena, name, &names->items[names->n]));
    names->n++;
    return MR_OK;
}

static bool names_have(const struct names *names, struct mr_slice name)
{
    for (size_t i = 0; i < names->n; i++)
        if (mr_slice_equal(names->items[i], name))
            return true;
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    return mr_slice_compare(*(const struct mr_slice *)a, *(const struct mr_slice *)b);
}

/* ---- findings ------------------------------------------------------------------------------- */

static bool mends(const struct check *check)
{
    return check->options->mode == MR_FSCK_REPAIR;
}

static void count(struct check *check, bool mended)
{
    if (mended)
        check->report->repaired++;
    else
        check->report->damaged++;
}

static const char results_head[] = "mr:r:[";

/* The topic of what is looked at like a queue, and its home; empty: it is one. */
static struct mr_slice place_topic(struct mr_slice queue, struct mr_slice *ret_home)
{
    const char *name = queue.data, *end = memchr(name, '}', queue.len);
    size_t head = strlen("}:") + strlen(results_head);
    if (end == NULL)
        return (struct mr_slice){0};
    *ret_home = mr_slice_make(name, (size_t)(end - name));
    return mr_slice_make(end + head, queue.len - ret_home->len - head - strlen("]"));
}

static bool is_queue(struct mr_slice queue)
{
    struct mr_slice home;
    return place_topic(queue, &home).len == 0;
}

static void tell(struct check *check, struct mr_slice queue, struct mr_slice what, const char *text,
                 const char *mended)
{
    struct mr_buf line = {0};
    bool done = mends(check) && mended != NULL;
    struct mr_slice home = queue, topic = place_topic(queue, &home);
    count(check, done);
    if (check->options->line != NULL &&
        mr_buf_printf(&line, "%s%.*s: %s%.*s%s%.*s: %s%s%s", home.len > 0 ? "queue " : "all queues",
                      (int)home.len, (const char *)home.data, topic.len > 0 ? "results of " : "",
                      (int)topic.len, (const char *)topic.data, topic.len > 0 ? ": " : "",
                      (int)what.len, (const char *)what.data, text, done ? ": " : "",
                      done ? mended : "") == MR_OK &&
        mr_buf_append(&line, "", 1) == MR_OK)
        check->options->line((const char *)line.data, check->options->arg);
    mr_buf_done(&line);
}

/* Numbers and names, one behind the other. */
static void read_findings(struct ask *ask, const struct mr_reply *reply, size_t first)
{
    char text[256], place[MR_NAME_MAX + 64];
    (void)snprintf(place, sizeof place, "%.*s", (int)ask->place.len, (const char *)ask->place.data);
    for (size_t i = first; i + 1 < reply->n; i += 2) {
        int64_t number = mr_reply_int(mr_reply_at(reply, i), 0);
        if (number <= 0 || number >= FINDINGS) {
            ask->check->err = MR_FAILED;
            return;
        }
        const char *form = findings[number].text, *hole = strstr(form, "%s");
        if (hole == NULL)
            (void)snprintf(text, sizeof text, "%s", form);
        else
            (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(hole - form), form, place,
                           hole + 2);
        tell(ask->check, ask->queue, mr_reply_at(reply, i + 1)->text, text,
             findings[number].mended);
    }
}

/* A script that Redis ended, at a key that nobody thought of: a finding, and not the end of the check. */
static enum mr_err ask_or_tell(struct ask *ask)
{
    enum mr_err err = ask_wait(ask);
    if (ask->err != MR_FAILED)
        return err;
    tell(ask->check, ask->queue, ask->place, ask->check->why, NULL);
    return ask->check->err;
}

static void found_some(struct ask *ask, const struct mr_reply *reply)
{
    read_findings(ask, reply, 0);
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* The key of one of our queues: its name, and what stands behind "}:". */
static bool key_parts(const struct check *check, struct mr_slice key, struct mr_slice *ret_queue,
                      struct mr_slice *ret_rest)
{
    size_t head = strlen(check->prefix);
    if (key.len <= head || memcmp(key.data, check->prefix, head) != 0)
        return false;
    const char *name = (const char *)key.data + head;
    const char *end = memchr(name, '}', key.len - head);
    const char *all = (const char *)key.data + key.len;
    if (end == NULL || all - end < 2 || end[1] != ':')
        return false;
    *ret_queue = mr_slice_make(name, (size_t)(end - name));
    *ret_rest = mr_slice_make(end + 2, (size_t)(all - end - 2));
    const char *close = memrchr(end, ']', (size_t)(all - end));
    if (mr_slice_starts_with(*ret_rest, mr_slice_str(results_head)) && close != NULL &&
        all - close > 1 && close[1] == ':') {
        *ret_queue = mr_slice_make(name, (size_t)(close + 1 - name));
        *ret_rest = mr_slice_make(close + 2, (size_t)(all - close - 2));
    }
    return true;
}

/* Which script looks at a key, and with how much of it. */
static const struct {
    const char *head;
    enum fsck_script script;
    bool whole; /* the key, else what stands behind the head */
} kinds[] = {
    {"t:", FSCK_TASKS, false},
    {"unique:", FSCK_LOCKS, true},
    {"mr:u:", FSCK_LOCKS, true},
    {"g:", FSCK_GROUPS, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static size_t kind_of(struct mr_slice rest)
{
    size_t kind = 0;
    while (kind < KINDS && !mr_slice_starts_with(rest, mr_slice_str(kinds[kind].head)))
        kind++;
    return kind;
}

static struct mr_slice queue_prefix(const struct check *check, struct mr_slice queue,
                                    struct mr_arena *arena)
{
    size_t len = strlen(check->prefix) + queue.len + 2;
    char *text = mr_arena_alloc(arena, len + 1);
    if (text == NULL)
        return (struct mr_slice){0};
    int n = snprintf(text, len + 1, "%s%.*s%s:", check->prefix, (int)queue.len,
                     (const char *)queue.data, is_queue(queue) ? "}" : "");
    return mr_slice_make(text, (size_t)n);
}

static struct mr_slice key_of(struct check *check, struct mr_slice prefix, const char *rest)
{
    size_t len = prefix.len + strlen(rest);
    char *text = mr_arena_alloc(&check->arena, len + 1);
    if (text == NULL)
        return (struct mr_slice){0};
    (void)snprintf(text, len + 1, "%.*s%s", (int)prefix.len, (const char *)prefix.data, rest);
    return mr_slice_make(text, len);
}

/* ---- types ---------------------------------------------------------------------------------- */

static void type_said(struct ask *ask, const struct mr_reply *reply)
{
    const char *wanted = ask->arg;
    if (!mr_slice_equal(reply->text, mr_slice_str(wanted)) &&
        !mr_slice_equal(reply->text, MR_SLICE_LIT("none")))
        tell(ask->check, ask->queue, ask->place, findings[13].text, findings[13].mended);
}

static enum mr_err check_type(struct check *check, struct mr_slice queue, struct mr_slice prefix,
                              const struct fsck_key *key)
{
    struct ask ask = {.check = check, .script = -1, .queue = queue, .read = type_said};
    ask.place = mr_slice_str(key->name);
    ask.arg = (void *)(uintptr_t)key->type;
    ask.key = key_of(check, prefix, key->name);
    ask.args[ask.n++] = MR_SLICE_LIT("TYPE");
    ask.args[ask.n++] = ask.key;
    return ask.key.len > 0 ? ask_wait(&ask) : MR_NOMEM;
}

/* A script that meets such a key ends there: nothing else is looked at in this queue. */
static enum mr_err check_types(struct check *check, struct mr_slice queue)
{
    uint64_t before = check->report->damaged;
    for (const struct fsck_key *key = fsck_queue_keys; key->name != NULL; key++)
        MR_TRY(check_type(check, queue, queue_prefix(check, queue, &check->arena), key));
    if (check->report->damaged > before)
        return names_add(&check->unusable, queue, &check->arena);
    return MR_OK;
}

/* Keys from `first` on that are of the same queue and kind: one script. Answers where the next begin. */
static enum mr_err check_some(struct check *check, size_t first, size_t *ret_next)
{
    struct mr_slice queue, rest, other;
    size_t i = first, kind = KINDS;
    *ret_next = first + 1;
    if (!key_parts(check, check->page.items[first], &queue, &rest))
        return MR_OK;
    if (mr_slice_equal(rest, MR_SLICE_LIT("mr:topics")) ||
        mr_slice_equal(rest, MR_SLICE_LIT("mr:epoch"))) /* they stay when their queue is removed */
        return MR_OK;
    if (!names_have(&check->found, queue)) {
        MR_TRY(names_add(&check->found, queue, &check->arena));
        MR_TRY(check_types(check, queue));
    }
    kind = kind_of(rest);
    if (kind == KINDS || names_have(&check->unusable, queue))
        return MR_OK;
    struct ask ask = {.check = check, .script = (int)kinds[kind].script, .read = found_some};
    ask.key = queue_prefix(check, queue, &check->page_arena);
    ask.queue = queue;
    ask.place = mr_slice_str(kinds[kind].head);
    ask.args[ask.n++] = mends(check) ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
    for (; i < check->page.n && ask.n <= TASKS_STEP; i++) {
        struct mr_slice key = check->page.items[i];
        if (!key_parts(check, key, &other, &rest) || !mr_slice_equal(queue, other) ||
            kind_of(rest) != kind)
            break;
        size_t head = strlen(kinds[kind].head);
        ask.args[ask.n++] = kinds[kind].whole
                                ? key
                                : mr_slice_make((const char *)rest.data + head, rest.len - head);
    }
    *ret_next = i;
    if (kinds[kind].script == FSCK_TASKS)
        check->report->tasks += ask.n - 1;
    return ask.key.len > 0 ? ask_or_tell(&ask) : MR_NOMEM;
}

static enum mr_err check_page(struct check *check)
{
    if (check->page.n > 0)
        qsort(check->page.items, check->page.n, sizeof *check->page.items, by_bytes);
    check->report->records += check->page.n;
    for (size_t i = 0; i < check->page.n;)
        MR_TRY(check_some(check, i, &i));
    return MR_OK;
}

/* ---- scanning ------------------------------------------------------------------------------- */

/* Where the scan of one server stands. A key of it leads to it again. */
struct scan {
    char cursor[TEXT_MAX]; /* "0" at the end */
    struct mr_slice anchor;
};

static void read_page(struct check *check, struct scan *scan, const struct mr_reply *reply)
{
    struct mr_slice cursor = mr_reply_at(reply, 0)->text;
    const struct mr_reply *keys = mr_reply_at(reply, 1);
    if (cursor.len == 0 || cursor.len >= TEXT_MAX) {
        check->err = MR_FAILED;
        return;
    }
    memcpy(scan->cursor, cursor.data, cursor.len);
    scan->cursor[cursor.len] = '\0';
    for (size_t i = 0; i < keys->n && check->err == MR_OK; i++)
        check->err = names_add(&check->page, keys->items[i].text, &check->page_arena);
    if (scan->anchor.len == 0 && keys->n > 0 && check->err == MR_OK)
        check->err = mr_arena_copy(&check->arena, keys->items[0].text, &scan->anchor);
}

/* The first page of all servers. */
struct sweep {
    struct check *check;
    struct mr_msg msg;
    struct mr_redis_call calls[SERVERS_MAX];
    struct scan scans[SERVERS_MAX];
    size_t n, left;
    int64_t wide;
    struct mr_event done;
};

static void swept(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct sweep *sweep = call->arg;
    struct check *check = sweep->check;
    if (err != MR_OK && check->err == MR_OK) {
        check->err = err;
        note_why(check, reply);
    } else if (err == MR_OK) {
        read_page(check, &sweep->scans[call - sweep->calls], reply);
    }
    if (--sweep->left == 0)
        mr_event_set(&sweep->done);
}

static void sweep_send(struct mr_msg *msg, void *receiver)
{
    struct sweep *sweep = mr_container(msg, struct sweep, msg);
    char number[TEXT_MAX];
    (void)snprintf(number, sizeof number, "%lld", (long long)sweep->wide);
    const struct mr_slice args[] = {MR_SLICE_LIT("SCAN"), MR_SLICE_LIT("0"), MR_SLICE_LIT("COUNT"),
                                    mr_slice_str(number)};
    for (size_t i = 0; i < SERVERS_MAX; i++)
        sweep->calls[i] =
            (struct mr_redis_call){.answered = swept, .arg = sweep, .repeatable = true};
    sweep->n = sweep->left = mr_redis_send_to_all(receiver, sweep->calls, SERVERS_MAX, args, 4);
    if (sweep->n == 0) {
        sweep->check->err = MR_UNAVAILABLE;
        mr_event_set(&sweep->done);
    }
}

/* A server whose first page is empty has few keys for its size: then all of them fit one page. */
static bool all_anchored(const struct sweep *sweep)
{
    for (size_t i = 0; i < sweep->n; i++)
        if (sweep->scans[i].anchor.len == 0 && strcmp(sweep->scans[i].cursor, "0") != 0)
            return false;
    return true;
}

static enum mr_err sweep_wait(struct sweep *sweep, int64_t wide)
{
    struct check *check = sweep->check;
    check->page.n = 0;
    sweep->wide = wide;
    sweep->msg.deliver = sweep_send;
    mr_event_init(&sweep->done);
    mr_redis_post(check->redis, &sweep->msg);
    mr_event_wait(&sweep->done, INT64_MAX);
    return check->err;
}

static void next_page(struct ask *ask, const struct mr_reply *reply)
{
    read_page(ask->check, ask->arg, reply);
}

static enum mr_err scan_on(struct check *check, struct scan *scan)
{
    while (strcmp(scan->cursor, "0") != 0) {
        char number[TEXT_MAX], cursor[TEXT_MAX];
        mr_arena_reset(&check->page_arena);
        check->page.n = 0;
        (void)snprintf(number, sizeof number, "%d", SCAN_COUNT);
        memcpy(cursor, scan->cursor, sizeof cursor);
        struct ask ask = {
            .check = check, .script = -1, .key = scan->anchor, .read = next_page, .arg = scan};
        ask.args[ask.n++] = MR_SLICE_LIT("SCAN");
        ask.args[ask.n++] = mr_slice_str(cursor);
        ask.args[ask.n++] = MR_SLICE_LIT("COUNT");
        ask.args[ask.n++] = mr_slice_str(number);
        MR_TRY(ask_wait(&ask));
        MR_TRY(check_page(check));
    }
    return MR_OK;
}

static enum mr_err check_keys(struct check *check)
{
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (sweep == NULL)
        return MR_NOMEM;
    sweep->check = check;
    enum mr_err err = sweep_wait(sweep, SCAN_COUNT);
    if (err == MR_OK && !all_anchored(sweep))
        err = sweep_wait(sweep, SCAN_WIDE);
    if (err == MR_OK)
        err = check_page(check);
    for (size_t i = 0; err == MR_OK && i < sweep->n; i++)
        err = scan_on(check, &sweep->scans[i]);
    free(sweep);
    return err;
}

/* ---- places --------------------------------------------------------------------------------- */

static void place_said(struct ask *ask, const struct mr_reply *reply)
{
    ask->next = mr_reply_int(mr_reply_at(reply, 0), -1);
    int64_t looked = mr_reply_int(mr_reply_at(reply, 1), 0);
    ask->check->report->records += looked > 0 ? (uint64_t)looked : 0;
    read_findings(ask, reply, 2);
}

static enum mr_err check_place(struct check *check, struct mr_slice queue, struct mr_slice prefix,
                               struct mr_slice place)
{
    char from[TEXT_MAX], most[TEXT_MAX];
    int64_t next = 0;
    while (next >= 0) {
        struct ask ask = {.check = check, .script = FSCK_PLACES, .key = prefix, .read = place_said};
        ask.queue = queue;
        ask.place = place;
        ask.next = -1;
        (void)snprintf(from, sizeof from, "%lld", (long long)next);
        (void)snprintf(most, sizeof most, "%d", STEP);
        ask.args[ask.n++] = mends(check) ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
        ask.args[ask.n++] = place;
        ask.args[ask.n++] = mr_slice_str(from);
        ask.args[ask.n++] = mr_slice_str(most);
        MR_TRY(ask_or_tell(&ask));
        next = ask.next;
    }
    return MR_OK;
}

static void read_names(struct ask *ask, const struct mr_reply *reply)
{
    for (size_t i = 0; i < reply->n && ask->check->err == MR_OK; i++)
        ask->check->err = names_add(ask->arg, reply->items[i].text, &ask->check->arena);
}

/* SMEMBERS, ZRANGE. */
static enum mr_err ask_names(struct check *check, struct mr_slice key, const char *command,
                             struct names *names)
{
    struct ask ask = {.check = check, .script = -1, .key = key, .read = read_names, .arg = names};
    ask.args[ask.n++] = mr_slice_str(command);
    ask.args[ask.n++] = key;
    if (strcmp(command, "ZRANGE") == 0) {
        ask.args[ask.n++] = MR_SLICE_LIT("0");
        ask.args[ask.n++] = MR_SLICE_LIT("-1");
    }
    names->n = 0;
    return ask_wait(&ask);
}

static enum mr_err check_groups(struct check *check, struct mr_slice queue, struct mr_slice prefix)
{
    struct mr_slice groups = key_of(check, prefix, "groups");
    struct mr_slice sets = key_of(check, prefix, "aggregation_sets");
    if (groups.len == 0 || sets.len == 0)
        return MR_NOMEM;
    MR_TRY(ask_names(check, groups, "SMEMBERS", &check->sets));
    for (size_t i = 0; i < check->sets.n; i++) {
        struct mr_slice head = key_of(check, MR_SLICE_LIT("g:"), check->sets.items[i].data);
        if (head.len == 0)
            return MR_NOMEM;
        MR_TRY(check_place(check, queue, prefix, head));
    }
    MR_TRY(ask_names(check, sets, "ZRANGE", &check->sets));
    for (size_t i = 0; i < check->sets.n; i++)
        MR_TRY(check_place(check, queue, prefix, check->sets.items[i]));
    return MR_OK;
}

static enum mr_err check_queue(struct check *check, struct mr_slice queue)
{
    struct mr_slice prefix = queue_prefix(check, queue, &check->arena);
    if (prefix.len == 0)
        return MR_NOMEM;
    for (const struct fsck_key *key = fsck_queue_keys; key->name != NULL; key++)
        if (key->of_ids)
            MR_TRY(check_place(check, queue, prefix, mr_slice_str(key->name)));
    return check_groups(check, queue, prefix);
}

/* Tools and we find a queue by its name among all; but nobody shall find an inner one. */
static enum mr_err check_name(struct check *check, struct mr_slice queues, struct mr_slice queue)
{
    if (names_have(&check->queues, queue) || mr_queue_is_inner(queue))
        return MR_OK;
    tell(check, queue, MR_SLICE_LIT("its name"), "not among all queues", "added");
    if (!mends(check))
        return MR_OK;
    struct ask ask = {.check = check, .script = -1, .key = queues};
    ask.args[ask.n++] = MR_SLICE_LIT("SADD");
    ask.args[ask.n++] = queues;
    ask.args[ask.n++] = queue;
    return ask_wait(&ask);
}

/* ---- results -------------------------------------------------------------------------------- */

static enum mr_err add_member(struct check *check, struct mr_slice set, struct mr_slice member)
{
    struct ask ask = {.check = check, .script = -1, .key = set};
    ask.args[ask.n++] = MR_SLICE_LIT("SADD");
    ask.args[ask.n++] = set;
    ask.args[ask.n++] = member;
    return mends(check) ? ask_wait(&ask) : MR_OK;
}

static void number_said(struct ask *ask, const struct mr_reply *reply)
{
    ask->next = mr_reply_int(reply, 0);
}

/* Whether it still has results: the last of them may be gone since its keys were seen. */
static enum mr_err has_results(struct check *check, struct mr_slice place, bool *ret_has)
{
    struct mr_slice prefix = queue_prefix(check, place, &check->arena);
    struct ask ask = {.check = check, .script = -1, .read = number_said};
    ask.args[ask.n++] = MR_SLICE_LIT("EXISTS");
    ask.args[ask.n++] = ask.key = key_of(check, prefix, "pending");
    ask.args[ask.n++] = key_of(check, prefix, "active");
    ask.args[ask.n++] = key_of(check, prefix, "scheduled");
    enum mr_err err = ask_wait(&ask);
    *ret_has = ask.next > 0;
    return err;
}

/* Masters come to results by the name of the queue among all that leave some, and by the topic there. */
static enum mr_err check_leads(struct check *check, struct mr_slice leaving, struct mr_slice place)
{
    struct mr_slice home, topic = place_topic(place, &home);
    struct mr_slice topics = key_of(check, queue_prefix(check, home, &check->arena), "mr:topics");
    if (topics.len == 0)
        return MR_NOMEM;
    if (!names_have(&check->leaving, home)) {
        tell(check, home, MR_SLICE_LIT("its name"), "not among the queues with results", "added");
        MR_TRY(add_member(check, leaving, home));
        MR_TRY(names_add(&check->leaving, home, &check->arena));
    }
    MR_TRY(ask_names(check, topics, "SMEMBERS", &check->sets));
    bool has = true;
    if (!names_have(&check->sets, topic))
        MR_TRY(has_results(check, place, &has));
    if (names_have(&check->sets, topic) || !has)
        return MR_OK;
    tell(check, place, MR_SLICE_LIT("its topic"), "not among those with results", "added");
    return add_member(check, topics, topic);
}

/* ---- partitions ----------------------------------------------------------------------------- */

/* A queue with partitions, as one of them says it. */
struct marked {
    struct mr_slice partition, queue; /* queue: empty: none */
    struct parts_row row;
    bool is_row; /* it was asked for in the table, and is there */
};

static void mark_said(struct ask *ask, const struct mr_reply *reply)
{
    struct marked *marked = ask->arg;
    struct mr_slice queue;
    if (reply->kind == MR_REPLY_TEXT &&
        parts_mark_read(reply->text, marked->partition, &marked->row, &queue))
        ask->check->err = mr_arena_copy(&ask->check->arena, queue, &marked->queue);
}

static void row_said(struct ask *ask, const struct mr_reply *reply)
{
    struct marked *in_table = ask->arg;
    in_table->is_row =
        reply->kind == MR_REPLY_TEXT && parts_row_read(reply->text, &in_table->row, NULL);
}

static enum mr_err write_row(struct check *check, struct mr_slice table, struct mr_slice queue,
                             const struct parts_row *row)
{
    char text[PARTS_ROW_MAX];
    (void)snprintf(text, sizeof text, "%u %u %u", row->partitions % 100, row->widest % 100,
                   (unsigned)row->assign % 10);
    struct ask ask = {.check = check, .script = -1, .key = table};
    ask.args[ask.n++] = MR_SLICE_LIT("HSET");
    ask.args[ask.n++] = table;
    ask.args[ask.n++] = queue;
    ask.args[ask.n++] = mr_slice_str(text);
    return ask_wait(&ask);
}

/* The mark is read first: who sets a number writes the table first. So a mark that is not in it has lost its
 * row, or that is an old one. */
static enum mr_err check_mark(struct check *check, struct mr_slice table, struct mr_slice partition)
{
    struct marked marked = {.partition = partition}, in_table = {0};
    struct ask ask = {.check = check, .script = -1, .read = mark_said, .arg = &marked};
    ask.key = key_of(check, queue_prefix(check, partition, &check->arena), "mr:part");
    if (ask.key.len == 0)
        return MR_NOMEM;
    ask.args[ask.n++] = MR_SLICE_LIT("GET");
    ask.args[ask.n++] = ask.key;
    MR_TRY(ask_wait(&ask));
    if (marked.queue.len == 0 || names_have(&check->told, marked.queue))
        return MR_OK;
    struct ask row = {.check = check, .script = -1, .key = table, .read = row_said};
    row.arg = &in_table;
    row.args[row.n++] = MR_SLICE_LIT("HGET");
    row.args[row.n++] = table;
    row.args[row.n++] = marked.queue;
    MR_TRY(ask_wait(&row));
    if (in_table.is_row && in_table.row.widest >= marked.row.widest)
        return MR_OK;
    if (in_table.is_row) {
        marked.row.partitions = in_table.row.partitions;
        marked.row.assign = in_table.row.assign;
    }
    tell(check, marked.queue, MR_SLICE_LIT("its partitions"),
         "not in the table of all that have some", "written again");
    if (mends(check))
        return write_row(check, table, marked.queue, &marked.row);
    return names_add(&check->told, marked.queue, &check->arena); /* once is enough */
}

/* ---- everything ----------------------------------------------------------------------------- */

static enum mr_err check_all(struct check *check)
{
    struct mr_slice all = mr_slice_make(check->prefix, strlen(check->prefix) - 1);
    struct mr_slice queues = key_of(check, all, "queues"), table = key_of(check, all, "mr:parts");
    struct mr_slice leaving = key_of(check, all, "mr:results");
    if (queues.len == 0 || table.len == 0 || leaving.len == 0)
        return MR_NOMEM;
    for (const struct fsck_key *key = fsck_global_keys; key->name != NULL; key++)
        MR_TRY(check_type(check, MR_SLICE_LIT(""), all, key));
    if (check->report->damaged > 0) /* what leads to the queues, or to who works, is not there */
        return MR_OK;
    MR_TRY(ask_names(check, queues, "SMEMBERS", &check->queues));
    MR_TRY(ask_names(check, leaving, "SMEMBERS", &check->leaving));
    MR_TRY(check_keys(check));
    for (size_t i = 0; i < check->found.n; i++) {
        struct mr_slice queue = check->found.items[i];
        bool usable = !names_have(&check->unusable, queue);
        MR_TRY(is_queue(queue) ? check_name(check, queues, queue)
                               : check_leads(check, leaving, queue));
        if (usable)
            MR_TRY(check_queue(check, queue));
        if (usable && is_queue(queue))
            MR_TRY(check_mark(check, table, queue));
    }
    return MR_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void changed(struct mr_redis *redis, bool up, const char *why, void *arg)
{
    struct check *check = arg;
    mr_lock_enter(&check->lock);
    check->up |= up;
    check->why_err = mr_redis_err(redis);
    if (!up)
        (void)snprintf(check->why, sizeof check->why, "%s", why != NULL ? why : "");
    mr_lock_notify_all(&check->lock);
    mr_lock_leave(&check->lock);
}

/* What does not pass by itself, a wrong password or a Redis that is too old, is not waited for. */
static enum mr_err wait_up(struct check *check)
{
    struct mr_clock *clock = mr_clock_system();
    mr_mono now = mr_mono_now(clock), end = mr_mono_add_ms(now, UP_MS);
    mr_lock_enter(&check->lock);
    while (!check->up && now.ns < end.ns &&
           (check->why_err == MR_OK || mr_err_retriable(check->why_err))) {
        (void)mr_lock_wait(&check->lock, end.ns - now.ns);
        now = mr_mono_now(clock);
    }
    enum mr_err err = check->why_err != MR_OK ? check->why_err : MR_UNAVAILABLE;
    bool up = check->up;
    mr_lock_leave(&check->lock);
    return up ? MR_OK : err;
}

static enum mr_err run(struct check *check, struct mr_detail *detail)
{
    const struct mr_redis_check *options = check->options;
    struct mr_redis_options redis = {
        .url = options->url,
        .tls_ca = options->tls_ca,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .tls_name = options->tls_name,
        .scripts = fsck_scripts,
        .scripts_n = FSCK_SCRIPT_COUNT,
        .changed = changed,
        .arg = check,
    };
    MR_TRY(mr_redis_new("mr-fsck", &redis, &check->redis, detail));
    enum mr_err err = wait_up(check);
    struct mr_slice all = mr_slice_make(check->prefix, strlen(check->prefix) - 1);
    struct mr_detail newer = {.text = ""};
    if (err == MR_OK)
        err = redis_format_check(check->redis, all, &newer);
    if (err == MR_VERSION)
        (void)snprintf(check->why, sizeof check->why, "%.*s", (int)sizeof check->why - 1,
                       newer.text);
    if (err == MR_OK)
        err = check_all(check);
    mr_redis_free(check->redis);
    if (err != MR_OK)
        mr_detail_set(detail, "%s", check->why[0] != '\0' ? check->why : mr_err_text(err));
    return err;
}

enum mr_err mr_redis_fsck(const struct mr_redis_check *options, struct mr_fsck_report *ret_report,
                          struct mr_detail *detail)
{
    struct mr_fsck_report report = {0};
    struct check check = {.options = options, .report = &report};
    struct mr_buf prefix = {0};
    struct mr_slice space = options->namespace_;
    enum mr_err err = mr_buf_printf(&prefix, "%.*s%sasynq:{", (int)space.len,
                                    (const char *)space.data, space.len > 0 ? ":" : "");
    if (err == MR_OK)
        err = mr_buf_append(&prefix, "", 1);
    check.prefix = (char *)prefix.data;
    mr_lock_init(&check.lock);
    if (err == MR_OK)
        err = run(&check, detail);
    mr_lock_done(&check.lock);
    mr_arena_done(&check.arena);
    mr_arena_done(&check.page_arena);
    free(check.queues.items);
    free(check.found.items);
    free(check.unusable.items);
    free(check.told.items);
    free(check.page.items);
    free(check.sets.items);
    free(check.leaving.items);
    mr_buf_done(&prefix);
    if (err == MR_OK)
        *ret_report = report;
    return err;
}
