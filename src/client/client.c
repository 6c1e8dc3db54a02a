/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of stores, and the end of a client. Thread: any. */
#include "client/client.h"

#include <stdlib.h>

#include "base/diag.h"
#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
#include "client/job.h"
#include "client/more.h"
#include "client/producer.h"
#include "cluster/cluster.h"
#include "names/client.h"
#include "store/store.h"
#include "timer/service.h"
#include "worker/worker.h"

/* A namespace becomes a folder, so it must not lead elsewhere. */
static enum mr_err namespace_dir(struct mr_slice name, const char *base, char ret_dir[MR_PATH_MAX],
                                 struct mr_detail *detail)
{
    enum mr_err err = mr_name_check(name);
    if (err == MR_OK && memchr(name.data, '/', name.len))
        err = MR_INVALID;
    if (err != MR_OK) {
        mr_detail_set(detail,
                      "namespace: must be 1 to %d bytes of UTF-8 without control characters, "
                      "braces or '/'",
                      MR_NAME_MAX);
        return err;
    }
    char folder[sizeof "ns-" + MR_NAME_MAX];
    snprintf(folder, sizeof folder, "ns-%.*s", (int)name.len, (const char *)name.data);
    return mr_path_join(ret_dir, base, folder);
}

enum mr_err mr_url_dir(const char *url, struct mr_slice namespace_, char ret_dir[MR_PATH_MAX],
                       struct mr_detail *detail)
{
    if (!url || strncmp(url, MR_FILE_SCHEME, strlen(MR_FILE_SCHEME)) != 0) {
        mr_detail_set(detail, "%s: not a folder, write %sDIR", url ? url : "(no URL)",
                      MR_FILE_SCHEME);
        return url && strchr(url, ':') ? MR_UNSUPPORTED : MR_INVALID;
    }
    const char *dir = url + strlen(MR_FILE_SCHEME);
    if (*dir == '\0') {
        mr_detail_set(detail, "%s: the folder is missing, write %sDIR", url, MR_FILE_SCHEME);
        return MR_INVALID;
    }
    if (strlen(dir) >= MR_PATH_MAX) {
        mr_detail_set(detail, "the folder's name is over the limit of %d bytes", MR_PATH_MAX - 1);
        return MR_TOO_BIG;
    }
    if (namespace_.len > 0)
        return namespace_dir(namespace_, dir, ret_dir, detail);
    memcpy(ret_dir, dir, strlen(dir) + 1);
    return MR_OK;
}

bool mr_url_is_redis(const char *url)
{
    static const char *const schemes[] = {"redis:", "rediss:", "redis+", "rediss+"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
            return true;
    return false;
}

/* libpq takes passwords in the query, too. */
static void hide_in_query(char text[MR_URL_SHOWN_MAX])
{
    static const char key[] = "password=";
    char rest[MR_URL_SHOWN_MAX];
    char *at = strchr(text, '?');
    while (at && (at = strstr(at, key)) != NULL) {
        at += strlen(key);
        snprintf(rest, sizeof rest, "%s", at + strcspn(at, "&"));
        snprintf(at, MR_URL_SHOWN_MAX - (size_t)(at - text), "***%s", rest);
    }
}

const char *mr_url_shown(const char *url, char text[MR_URL_SHOWN_MAX])
{
    size_t len = strlen(MR_FILE_SCHEME);
    const char *begin = strncmp(url, MR_FILE_SCHEME, len) != 0 ? strstr(url, "//") : NULL;
    const char *end = begin ? strrchr(begin, '@') : NULL;
    if (end)
        snprintf(text, MR_URL_SHOWN_MAX, "%.*s//***%s", (int)(begin - url), url, end);
    else
        snprintf(text, MR_URL_SHOWN_MAX, "%s", url);
    if (begin)
        hide_in_query(text);
    return text;
}

void mr_client_close(struct mr_client *client)
{
    if (!client)
        return;
    mr_producer_stop(client->producer);
    mr_job_service_close(client->jobs);
    mr_timer_service_close(client->timers);
    mr_store_close(client->store);
    mr_names_client_free(client->names); /* it lives on the broker's loop */
    mr_broker_close(client->broker);     /* answers what is in flight */
    mr_assert(atomic_load(&client->tasks) == 0);
    mr_producer_free(client->producer);
    mr_timer_door_free(client->door);
    mr_zones_free(client->zones);
    mr_lock_done(&client->timers_lock);
    free(client->store_url);
    free(client->authorization);
    free(client);
}

/* Thread: the store's. */
static void on_stopped(enum mr_err err, const char *text, void *arg)
{
    (void)arg;
    mr_diag(MR_DIAG_ERROR, "store.stopped", "error=\"%s\" text=\"%s\"", mr_err_text(err), text);
}

enum mr_err mr_store_open_told(const char *url, struct mr_store **ret_store,
                               struct mr_detail *detail)
{
    struct mr_store_options options = {.url = url, .stopped = on_stopped};
    return mr_store_open(&options, ret_store, detail);
}

/* With the lock. */
static enum mr_err open_timers(struct mr_client *client, struct mr_detail *detail)
{
    if (client->store == NULL)
        MR_TRY(mr_store_open_told(client->store_url, &client->store, detail));
    struct mr_timer_service_options options = {.broker = client->broker,
                                               .store = client->store,
                                               .payload_max = client->payload_max,
                                               .node = "",
                                               .looks = true};
    return mr_timer_service_open(&options, &client->timers, detail);
}

enum mr_err mr_client_timers(struct mr_client *client, enum mr_timers_for for_,
                             struct mr_timer_service **ret_service, struct mr_detail *detail)
{
    enum mr_err err = MR_OK;
    mr_lock_enter(&client->timers_lock);
    if (client->timers == NULL && client->store_url != NULL && !client->is_redis)
        err = open_timers(client, detail);
    if (err == MR_OK && client->timers != NULL && for_ == MR_TIMERS_FIRE)
        err = mr_timer_service_fire(client->timers, detail);
    if (err == MR_OK)
        *ret_service = client->timers;
    mr_lock_leave(&client->timers_lock);
    return err;
}

enum mr_err mr_client_risk(struct mr_client *client, struct mr_detail *ret_line)
{
    if (client->broker->ops->risk)
        return client->broker->ops->risk(client->broker, ret_line);
    ret_line->text[0] = '\0';
    return MR_OK;
}

static void leads(void *arg, uint64_t term, mr_mono until)
{
    mr_cluster_leads(arg, term, until);
}

static void leading_free(void *arg)
{
    mr_cluster_free(arg);
}

static enum mr_err leading_new(struct mr_client *client, struct mr_leading *ret_leading)
{
    struct mr_cluster *cluster;
    MR_TRY(mr_cluster_new(client->broker, &cluster));
    *ret_leading = (struct mr_leading){.leads = leads, .free = leading_free, .arg = cluster};
    return MR_OK;
}

/* Whether somebody has made a timer or a job here, so that there may be something to do. */
static bool has_store(const struct mr_client *client)
{
    static const char scheme[] = "sqlite:";
    struct mr_fs *fs = mr_fs_system();
    struct mr_file *file = NULL;
    if (client->store_url == NULL)
        return false;
    if (strncmp(client->store_url, scheme, strlen(scheme)) != 0)
        return true;
    enum mr_err err = mr_fs_open(fs, client->store_url + strlen(scheme), MR_OPEN_READ, &file);
    mr_file_close(file);
    return err != MR_NOT_FOUND;
}

/* Who works in the process of the broker fires its timers and gives out parts of its jobs as well. */
static enum mr_err begin_services(struct mr_client *client)
{
    struct mr_timer_service *timers;
    struct mr_job_service *jobs;
    if (!has_store(client))
        return MR_OK;
    MR_TRY(mr_client_timers(client, MR_TIMERS_FIRE, &timers, NULL));
    return mr_client_jobs(client, MR_JOBS_RUN, &jobs, NULL);
}

enum mr_err mr_worker_new(struct mr_client *client, const struct mr_worker_options *options,
                          struct mr_worker **ret_worker)
{
    struct mr_leading leading;
    struct mr_worker *worker;
    MR_TRY(begin_services(client));
    MR_TRY(mr_worker_new_on(client->broker, options, &worker));
    enum mr_err err = mr_client_more(client, options, worker);
    if (err == MR_OK)
        err = leading_new(client, &leading);
    if (err != MR_OK) {
        mr_worker_free(worker);
        return err;
    }
    mr_worker_leading(worker, &leading);
    *ret_worker = worker;
    return MR_OK;
}

enum mr_err mr_master_open(struct mr_client *client, const struct mr_master_options *options,
                           struct mr_master **ret_master)
{
    struct mr_leading leading;
    MR_TRY(leading_new(client, &leading));
    return mr_master_open_on(client->broker, options, &leading, ret_master);
}

enum mr_err mr_result_commit(struct mr_client *client, const struct mr_slice *receipts, size_t n,
                             enum mr_err *ret_errs)
{
    return mr_result_commit_on(client->broker, receipts, n, ret_errs);
}

enum mr_err mr_fsck(const char *url, enum mr_fsck_mode mode, mr_fsck_line *line, void *arg,
                    struct mr_fsck_report *ret_report, struct mr_detail *detail)
{
    char dir[MR_PATH_MAX];
    if (url && mr_url_is_redis(url)) {
        struct mr_redis_check redis = {.url = url, .mode = mode, .line = line, .arg = arg};
        return mr_redis_fsck(&redis, ret_report, detail);
    }
    MR_TRY(mr_url_dir(url, (struct mr_slice){0}, dir, detail));
    struct mr_store_check check = {.dir = dir, .mode = mode, .line = line, .arg = arg};
    return mr_store_fsck(&check, ret_report, detail);
}
