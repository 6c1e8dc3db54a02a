/* SPDX-License-Identifier: Apache-2.0 */
/* The server itself: figures and backups. */
#include <stdio.h>

#include "api/internal.h"
#include "millrace/v1/server.pb-c.h"
#include "store/store.h"

/* A token for some queues sees nothing that counts the tasks of others. */
static void stats_filter(struct mr_stats *stats)
{
    *stats = (struct mr_stats){
        .sync_p50_us = stats->sync_p50_us,
        .sync_p99_us = stats->sync_p99_us,
        .disk_full = stats->disk_full,
        .failed = stats->failed,
        .upkeep = stats->upkeep,
    };
}

static void stats_reply(struct unary *u)
{
    struct mr_stats *stats = &u->errand.req.stats.stats;
    if (!mr_access_all_queues(&u->token))
        stats_filter(stats);
    uint8_t *room = unary_room(u, mr_flat_size(&mr_flat_stats, stats));
    if (room == NULL)
        return;
    mr_flat_write(&mr_flat_stats, stats, room);
    unary_sent(u);
}

void server_stats(struct unary *u)
{
    unary_submit(u, MR_OP_STATS, stats_reply);
}

static void backup_answer(struct unary *u, enum mr_err err, const char *text)
{
    Millrace__V1__Empty out = MILLRACE__V1__EMPTY__INIT;
    if (err == MR_OK)
        unary_send(u, &out.base);
    else
        unary_fail(u, err, "%s", text[0] != '\0' ? text : mr_err_text(err));
    unary_idle(u);
}

/* The store of the timers, whose copy takes as long as it takes: on a thread of its own. */
struct copying {
    struct unary *u;
    pthread_t thread;
    bool failed; /* there is no thread */
    enum mr_err err;
    struct mr_detail detail;
};

static void copied(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    const struct copying *copying = u->data;
    bool none = copying->err == MR_UNSUPPORTED || copying->err == MR_NOT_FOUND;
    char text[sizeof copying->detail.text + 64];
    if (!copying->failed)
        mr_thread_join(copying->thread);
    (void)snprintf(text, sizeof text, "the tasks are there, the timers are not: %s",
                   copying->detail.text);
    backup_answer(u, none ? MR_OK : copying->err, text);
}

static void *copy_store(void *arg)
{
    struct copying *copying = arg;
    struct unary *u = copying->u;
    const Millrace__V1__BackupRequest *in = (const void *)u->message;
    copying->err = mr_store_copy(u->api->options.store_url, in->dir, &copying->detail);
    errand_return(&u->errand);
    return NULL;
}

/* Behind the tasks: an operation that is in both is applied once more, which does no harm; in neither it would be
 * lost. The broker answers a failed backup with a text of its own. */
static void backup_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    const struct mr_req_backup *req = &errand->req.backup;
    if (req->req.err != MR_OK || u->api->options.store_url == NULL) {
        backup_answer(u, req->req.err, req->detail.text);
        return;
    }
    struct copying *copying = mr_arena_calloc(unary_arena(u), 1, sizeof *copying);
    if (copying == NULL) {
        backup_answer(u, MR_NOMEM, "");
        return;
    }
    copying->u = u;
    u->data = copying;
    errand_leave(&u->errand, u->api, copied);
    enum mr_err err = mr_thread_start(&copying->thread, "mr-backup", copy_store, copying);
    if (err == MR_OK)
        return;
    copying->failed = true;
    copying->err = err;
    errand_return(&u->errand);
}

void server_backup(struct unary *u)
{
    const Millrace__V1__BackupRequest *in = (const void *)u->message;
    if (!unary_may_touch_all(u, ", and a backup is of every queue"))
        return;
    if (in->dir[0] != '/') { /* below which folder would be the server's affair */
        unary_fail(u, MR_INVALID,
                   "dir: must be the whole path, from /, of a new or empty folder of the server's "
                   "machine");
        return;
    }
    u->errand.req.backup.dir = in->dir;
    u->busy = true;
    errand_submit(&u->errand, u->api, MR_OP_BACKUP, backup_back);
}
