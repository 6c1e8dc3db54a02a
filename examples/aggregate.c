/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: clicks are enqueued one by one, each for the group of its page. The worker makes one task of
 * what has gathered for a page, and runs that instead of one for each click.
 *
 *   cc aggregate.c $(pkg-config --cflags --libs millrace) && ./a.out file:data
 */
#include <stdatomic.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#include <millrace.h>

enum { PAGES = 2, CLICKS = 5 };

static atomic_uint counted;

/* One line a click; a page is ripe with CLICKS of them. */
static enum mr_err join_clicks(struct mr_set *set, void *arg)
{
    (void)arg;
    char lines[CLICKS * 32] = "";
    size_t used = 0;
    for (size_t i = 0; i < mr_set_count(set) && used < sizeof lines; i++) {
        const struct mr_task *click = mr_set_task(set, i);
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%.*s\n",
                                 (int)click->payload.len, (const char *)click->payload.data);
    }
    const struct mr_task_options task = {
        .type = mr_slice_str("clicks"),
        .payload = {lines, strlen(lines)},
    };
    return mr_set_become(set, &task, NULL); /* and the clicks are gone */
}

static enum mr_outcome count_clicks(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    const char *bytes = task->payload.data;
    unsigned n = 0;
    for (size_t i = 0; i < task->payload.len; i++)
        n += bytes[i] == '\n';
    printf("%u clicks in one task\n", n);
    atomic_fetch_add(&counted, n);
    return MR_DONE;
}

static enum mr_err add_clicks(struct mr_client *client)
{
    for (unsigned i = 0; i < PAGES * CLICKS; i++) {
        char page[16], user[16];
        snprintf(page, sizeof page, "page-%u", i % PAGES);
        snprintf(user, sizeof user, "user-%u", i);
        const struct mr_task_options click = {
            .type = mr_slice_str("click"),
            .group = mr_slice_str(page),
            .payload = mr_slice_str(user),
        };
        struct mr_enqueue_result result;
        enum mr_err err = mr_enqueue(client, &click, 1, &result);
        if (err != MR_OK || result.err != MR_OK)
            return err != MR_OK ? err : result.err;
    }
    return MR_OK;
}

static enum mr_err work(struct mr_client *client)
{
    const struct mr_worker_options options = {
        .aggregate = join_clicks, .group_max_size = CLICKS, .group_grace_ms = 10 * 1000};
    struct mr_worker *worker;
    enum mr_err err = mr_worker_new(client, &options, &worker);
    if (err != MR_OK)
        return err;
    err = mr_worker_handle(worker, "clicks", count_clicks, NULL);
    if (err == MR_OK)
        err = mr_worker_start(worker);
    const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};
    while (err == MR_OK && atomic_load(&counted) < PAGES * CLICKS)
        thrd_sleep(&moment, NULL);
    mr_worker_stop(worker);
    mr_worker_free(worker);
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
    err = add_clicks(client);
    if (err == MR_OK)
        err = work(client);
    mr_client_close(client);
    if (err != MR_OK)
        fprintf(stderr, "failed: %s\n", mr_err_text(err));
    return mr_err_exit_code(err);
}
