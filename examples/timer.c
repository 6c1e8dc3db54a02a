/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer: made, fired by itself, run by a worker, looked at, and removed.
 *
 *   cc timer.c $(pkg-config --cflags --libs millrace) && ./a.out file:data
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

#include <millrace.h>

enum { TICKS = 3 };

static void must(enum mr_err err, const char *what, const char *why)
{
    if (err == MR_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, *why != '\0' ? why : mr_err_text(err));
    exit(1);
}

/* Each firing is a task like any other. */
static enum mr_outcome tick(struct mr_run *run, void *arg)
{
    const struct mr_task *task = mr_run_task(run);
    printf("tick: %.*s\n", (int)task->payload.len, (const char *)task->payload.data);
    atomic_fetch_add((atomic_int *)arg, 1);
    return MR_DONE;
}

/* A timer of three firings, a tenth of a second apart; then it is finished. */
static void make_timer(struct mr_client *client, struct mr_slice name)
{
    struct mr_timer_result result = {0};
    struct mr_timer_options timer = {.name = name,
                                     .kind = MR_TIMER_EVERY,
                                     .expression = mr_slice_str("100ms"),
                                     .times = TICKS,
                                     .type = mr_slice_str("tick"),
                                     .payload = mr_slice_str("hello")};
    must(mr_timer_put(client, &timer, &result), "put", result.why);
    printf("timer %s, version %llu\n", result.id, (unsigned long long)result.version);
}

static void work(struct mr_client *client)
{
    const struct mr_worker_options options = {.slots = 1};
    const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};
    struct mr_worker *worker;
    atomic_int ticks = 0;
    must(mr_worker_new(client, &options, &worker), "worker", "");
    must(mr_worker_handle(worker, "tick", tick, &ticks), "handler", "");
    must(mr_worker_start(worker), "start", "");
    while (atomic_load(&ticks) < TICKS)
        thrd_sleep(&moment, NULL);
    mr_worker_stop(worker);
    mr_worker_free(worker);
}

static void show_history(struct mr_client *client, struct mr_slice name)
{
    struct mr_timer_history_options options = {.name = name};
    struct mr_firing_list *list;
    must(mr_timer_history(client, &options, &list), "history", "");
    for (size_t i = 0; i < mr_firing_list_count(list); i++) {
        const struct mr_firing_info *firing = mr_firing_list_at(list, i);
        printf("planned %lld: %s\n", (long long)firing->planned_ms,
               mr_firing_state_name(firing->state));
    }
    mr_firing_list_free(list);
}

int main(int argc, char **argv)
{
    struct mr_client *client;
    struct mr_detail detail = {.text = ""};
    struct mr_timer_result result = {0};
    struct mr_slice name = mr_slice_str("clock");
    if (argc != 2) {
        fprintf(stderr, "usage: %s URL\n", argv[0]);
        return 2;
    }
    must(mr_client_open(argv[1], NULL, &client, &detail), argv[1], detail.text);
    make_timer(client, name);
    work(client);
    show_history(client, name);
    must(mr_timer_delete(client, mr_slice_str(""), name, &result), "delete", result.why);
    mr_client_close(client);
    return 0;
}
