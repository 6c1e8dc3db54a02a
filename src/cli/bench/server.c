/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench/server.h"

#include <stdlib.h>
#include <unistd.h>

#include "cli/remove_dir.h"

enum mr_err bench_server_begin(struct bench *bench, const char *name, struct bench_server *server)
{
    *server = (struct bench_server){.bench = bench};
    if (!bench->own_dir) {
        struct mr_client *client = NULL;
        snprintf(server->url, sizeof server->url, "%s", bench->cli->broker);
        MR_TRY(bench_server_open(server, &client));
        enum mr_err err = bench_check_queue_free(bench, client);
        mr_client_close(client);
        return err;
    }
    MR_TRY(mr_path_join(server->dir, bench->dir, name));
    MR_TRY(own_server_start(&server->own, server->dir, "127.0.0.1:0", &bench->detail));
    MR_TRY(own_server_await(&server->own, &bench->detail));
    snprintf(server->url, sizeof server->url, "millrace://%s", server->own.grpc);
    return MR_OK;
}

enum mr_err bench_server_open(struct bench_server *server, struct mr_client **ret_client)
{
    struct cli *cli = server->bench->cli;
    if (server->bench->own_dir)
        return mr_client_open(server->url, NULL, ret_client, &server->bench->detail);
    if (cli_open(cli, NULL, CLI_STORE_NONE) != CLI_OK) {
        mr_detail_set(&server->bench->detail, "no connection to %s", server->url);
        return MR_UNAVAILABLE;
    }
    *ret_client = cli->client;
    cli->client = NULL;
    return MR_OK;
}

/* What the groups leave at somebody else's server is one queue. */
static void clear_queue(struct bench_server *server)
{
    struct mr_client *client = NULL;
    enum mr_err err = bench_server_open(server, &client);
    if (err == MR_OK)
        err = mr_queue_remove(client, MR_SLICE_LIT(BENCH_QUEUE), MR_QUEUE_REMOVE_FORCE);
    if (err != MR_OK && err != MR_NOT_FOUND)
        cli_fail_err(err, "cannot remove queue %s", BENCH_QUEUE);
    mr_client_close(client);
}

void bench_server_end(struct bench_server *server)
{
    if (!server->bench->own_dir) {
        if (server->url[0])
            clear_queue(server);
        return;
    }
    own_server_kill(&server->own);
    if (server->dir[0] && access(server->dir, F_OK) == 0)
        remove_dir(server->dir);
}

/* ---- usage ---------------------------------------------------------------------------------- */

/* The fields of /proc/PID/stat behind the name, which may hold anything but its last ')'. */
enum { STAT_UTIME = 11, STAT_STIME = 12, STAT_RSS = 21 };

enum mr_err bench_server_usage(const struct bench_server *server, struct bench_usage *ret_usage)
{
    char path[64], text[1024];
    double fields[STAT_RSS + 1] = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)server->own.pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return MR_UNAVAILABLE;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    char *at = strrchr(text, ')');
    if (!at || strlen(at) < 4)
        return MR_FAILED;
    at += 3; /* the state, a letter */
    for (size_t i = 0; i <= STAT_RSS; i++)
        fields[i] = i == 0 ? (at++, 0) : strtod(at, &at);
    ret_usage->cpu_s = (fields[STAT_UTIME] + fields[STAT_STIME]) / (double)sysconf(_SC_CLK_TCK);
    ret_usage->memory = fields[STAT_RSS] * (double)sysconf(_SC_PAGESIZE);
    return MR_OK;
}
