/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores of the bench. Without --broker each group has a fresh one in the bench's own folder; with
 * it they share the named store, use one queue there and remove it when they are done.
 */
#include <stdio.h>

#include "cli/bench/bench.h"
#include "cli/remove_dir.h"

enum mr_err bench_told(struct bench *bench, int code)
{
    bench->told = code;
    return MR_FAILED;
}

enum mr_err bench_connect(struct bench *bench, const struct mr_client_options *options,
                          struct mr_client **ret_client)
{
    struct cli *cli = bench->cli;
    int code = cli_open(cli, options, CLI_STORE_NONE);
    if (code != CLI_OK)
        return bench_told(bench, code);
    *ret_client = cli->client;
    cli->client = NULL;
    return MR_OK;
}

/* Somebody's tasks are not ours to run or remove. */
enum mr_err bench_check_queue_free(struct bench *bench, struct mr_client *client)
{
    struct mr_queue_info info;
    enum mr_err err = mr_queue_get(client, MR_SLICE_LIT(BENCH_QUEUE), &info);
    if (err == MR_NOT_FOUND)
        return MR_OK;
    MR_TRY(err);
    for (size_t i = 0; i < MR_STATE_COUNT; i++) {
        if (info.counts[i] > 0) {
            mr_detail_set(&bench->detail, "queue %s of %s holds tasks; remove it first",
                          BENCH_QUEUE, bench->cli->shown);
            return MR_CONFLICT;
        }
    }
    return MR_OK;
}

enum mr_err bench_store_open_own(struct bench *bench, const char *name,
                                 const struct mr_client_options *options, struct bench_store *store)
{
    *store = (struct bench_store){0};
    MR_TRY(mr_path_join(store->dir, bench->dir, name));
    snprintf(store->url, sizeof store->url, "file:%s", store->dir);
    return mr_client_open(store->url, options, &store->client, &bench->detail);
}

enum mr_err bench_store_open(struct bench *bench, const char *name,
                             const struct mr_client_options *options, struct bench_store *store)
{
    if (bench->own_dir)
        return bench_store_open_own(bench, name, options, store);
    *store = (struct bench_store){0};
    snprintf(store->url, sizeof store->url, "%s", bench->cli->broker);
    if (cli_file_dir(store->url)) {
        MR_TRY(mr_client_open(store->url, options, &store->client, &bench->detail));
    } else {
        MR_TRY(bench_connect(bench, options, &store->client));
    }
    enum mr_err err = bench_check_queue_free(bench, store->client);
    if (err != MR_OK) {
        mr_client_close(store->client);
        store->client = NULL;
    }
    return err;
}

enum mr_err bench_store_reopen(struct bench *bench, struct bench_store *store, double *ret_seconds)
{
    mr_client_close(store->client);
    store->client = NULL;
    int64_t start = bench_now_ns();
    MR_TRY(mr_client_open(store->url, NULL, &store->client, &bench->detail));
    *ret_seconds = bench_seconds_since(start);
    return MR_OK;
}

void bench_store_close(struct bench_store *store)
{
    if (store->client && !store->dir[0]) {
        enum mr_err err =
            mr_queue_remove(store->client, MR_SLICE_LIT(BENCH_QUEUE), MR_QUEUE_REMOVE_FORCE);
        if (err != MR_OK && err != MR_NOT_FOUND)
            cli_fail_err(err, "cannot remove queue %s", BENCH_QUEUE);
    }
    mr_client_close(store->client);
    if (store->client && store->dir[0])
        remove_dir(store->dir);
    store->client = NULL;
}
