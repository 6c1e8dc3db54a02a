/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An inspector: looks at queues and tasks, page by page, and acts on them.
 *
 *   cc inspect.c $(pkg-config --cflags --libs millrace) && ./a.out file:data
 */
#include <millrace.h>

/* Something to look at: tasks that wait, now or until later. */
static enum mr_err add_tasks(struct mr_client *client)
{
    struct mr_task_options tasks[12];
    struct mr_enqueue_result results[12];
    for (size_t i = 0; i < 12; i++) {
        tasks[i] = (struct mr_task_options){
            .type = mr_slice_str(i % 2 ? "mail" : "report"),
            .delay_ms = i < 9 ? 0 : 3600 * 1000,
        };
    }
    return mr_enqueue(client, tasks, 12, results);
}

static enum mr_err show_queues(struct mr_client *client)
{
    struct mr_queue_info infos[16];
    size_t n;
    char after[MR_NAME_MAX + 1] = "";
    enum mr_err err;
    while ((err = mr_queue_list(client, after, infos, 16, &n)) == MR_OK && n > 0) {
        for (size_t i = 0; i < n; i++)
            printf("queue %s: %llu pending, %llu scheduled%s\n", infos[i].name,
                   (unsigned long long)infos[i].counts[MR_PENDING],
                   (unsigned long long)infos[i].counts[MR_SCHEDULED],
                   infos[i].paused ? ", paused" : "");
        snprintf(after, sizeof after, "%s", infos[n - 1].name);
    }
    return err;
}

/* Cancels the first task of the type, page by page until one is found. */
static enum mr_err cancel_one(struct mr_client *client, const char *type)
{
    char cursor[256] = "";
    do {
        struct mr_list_options options = {
            .state = MR_PENDING, .type = mr_slice_str(type), .cursor = cursor, .limit = 4};
        struct mr_task_list *page;
        enum mr_err err = mr_task_list_get(client, &options, &page);
        if (err != MR_OK)
            return err;
        if (mr_task_list_count(page) > 0) {
            struct mr_slice id = mr_task_list_at(page, 0)->id;
            struct mr_control cancel = {.verb = MR_VERB_CANCEL, .id = id};
            enum mr_err item;
            err = mr_control(client, &cancel, 1, &item);
            printf("cancelled %.*s: %s\n", (int)id.len, (const char *)id.data, mr_err_text(item));
            mr_task_list_free(page);
            return err;
        }
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(page));
        mr_task_list_free(page);
    } while (*cursor);
    return MR_NOT_FOUND;
}

static enum mr_err look_and_act(struct mr_client *client)
{
    enum mr_err err = add_tasks(client);
    if (err == MR_OK)
        err = show_queues(client);
    if (err == MR_OK)
        err = mr_queue_pause(client, mr_slice_str("default"));
    if (err == MR_OK)
        err = cancel_one(client, "report");
    if (err == MR_OK)
        err = show_queues(client);
    if (err == MR_OK)
        err = mr_queue_resume(client, mr_slice_str("default"));
    return err;
}

int main(int argc, char **argv)
{
    struct mr_client *client;
    struct mr_detail detail = {0};
    enum mr_err err = mr_client_open(argc > 1 ? argv[1] : "file:data", NULL, &client, &detail);
    if (err != MR_OK) {
        fprintf(stderr, "open: %s: %s\n", mr_err_text(err), detail.text);
        return mr_err_exit_code(err);
    }
    err = look_and_act(client);
    struct mr_stats stats;
    if (err == MR_OK && (err = mr_stats_get(client, &stats)) == MR_OK)
        printf("%llu tasks, %llu bytes on disk, a sync takes %llu us\n",
               (unsigned long long)stats.tasks, (unsigned long long)stats.disk_bytes,
               (unsigned long long)stats.sync_p50_us);
    mr_client_close(client);
    if (err != MR_OK)
        fprintf(stderr, "failed: %s\n", mr_err_text(err));
    return mr_err_exit_code(err);
}
