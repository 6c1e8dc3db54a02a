/* SPDX-License-Identifier: Apache-2.0 */
/* The server itself: figures and backups. */
#include "api/internal.h"
#include "millrace/v1/server.pb-c.h"

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
    struct mr_stats *stats = &u->job.req.stats.stats;
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

/* The broker answers a failed backup with a text of its own. */
static void backup_back(struct job *job)
{
    struct unary *u = mr_container(job, struct unary, job);
    const struct mr_req_backup *req = &job->req.backup;
    Millrace__V1__Empty out = MILLRACE__V1__EMPTY__INIT;
    if (req->req.err == MR_OK)
        unary_send(u, &out.base);
    else
        unary_fail(u, req->req.err, "%s",
                   req->detail.text[0] != '\0' ? req->detail.text : mr_err_text(req->req.err));
    unary_idle(u);
}

void server_backup(struct unary *u)
{
    const Millrace__V1__BackupRequest *in = (const void *)u->message;
    if (!unary_may_touch_all(u, "a backup is of"))
        return;
    if (in->dir[0] != '/') { /* below which folder would be the server's affair */
        unary_fail(u, MR_INVALID,
                   "dir: must be the whole path, from /, of a new or empty folder of the server's "
                   "machine");
        return;
    }
    u->job.req.backup.dir = in->dir;
    u->busy = true;
    job_submit(&u->job, u->api, MR_OP_BACKUP, backup_back);
}
