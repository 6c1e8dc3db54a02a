/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of stores, and the end of a client. Thread: any. */
#include "client/client.h"

#include <stdlib.h>

#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
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

const char *mr_url_shown(const char *url, char text[MR_URL_SHOWN_MAX])
{
    size_t len = strlen(MR_FILE_SCHEME);
    const char *begin = strncmp(url, MR_FILE_SCHEME, len) != 0 ? strstr(url, "//") : NULL;
    const char *end = begin ? strrchr(begin, '@') : NULL;
    if (end)
        snprintf(text, MR_URL_SHOWN_MAX, "%.*s//***%s", (int)(begin - url), url, end);
    else
        snprintf(text, MR_URL_SHOWN_MAX, "%s", url);
    return text;
}

void mr_client_close(struct mr_client *client)
{
    if (!client)
        return;
    mr_broker_close(client->broker); /* answers what is in flight */
    mr_assert(atomic_load(&client->tasks) == 0);
    free(client);
}

enum mr_err mr_client_risk(struct mr_client *client, struct mr_detail *ret_line)
{
    if (client->broker->ops->risk)
        return client->broker->ops->risk(client->broker, ret_line);
    ret_line->text[0] = '\0';
    return MR_OK;
}

enum mr_err mr_worker_new(struct mr_client *client, const struct mr_worker_options *options,
                          struct mr_worker **ret_worker)
{
    return mr_worker_new_on(client->broker, options, ret_worker);
}

enum mr_err mr_master_open(struct mr_client *client, const struct mr_master_options *options,
                           struct mr_master **ret_master)
{
    return mr_master_open_on(client->broker, options, ret_master);
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
