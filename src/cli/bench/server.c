/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench/server.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
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
        server->ours = err == MR_OK;
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
    struct bench *bench = server->bench;
    if (bench->own_dir)
        return mr_client_open(server->url, NULL, ret_client, &bench->detail);
    return bench_connect(bench, NULL, ret_client);
}

/* What the groups leave at somebody else's server is one queue. */
static void clear_queue(struct bench_server *server)
{
    struct mr_client *client = NULL;
    int told = server->bench->told; /* of what has ended the group */
    enum mr_err err = bench_server_open(server, &client);
    server->bench->told = told;
    if (err != MR_OK)
        return; /* it has said why */
    err = mr_queue_remove(client, MR_SLICE_LIT(BENCH_QUEUE), MR_QUEUE_REMOVE_FORCE);
    if (err != MR_OK && err != MR_NOT_FOUND)
        cli_fail_err(err, "cannot remove queue %s", BENCH_QUEUE);
    mr_client_close(client);
}

void bench_server_end(struct bench_server *server)
{
    if (!server->bench->own_dir) {
        if (server->ours)
            clear_queue(server);
        return;
    }
    own_server_kill(&server->own);
    if (server->dir[0] && access(server->dir, F_OK) == 0)
        remove_dir(server->dir);
}

/* ---- usage ---------------------------------------------------------------------------------- */

/* The number in a file of /proc that stands behind so many others. */
static enum mr_err read_number(const char *path, unsigned skip, double *ret_number)
{
    unsigned long long number = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return mr_err_from_errno(errno);
    bool found = true;
    for (unsigned i = 0; found && i <= skip; i++)
        found = fscanf(file, "%llu", &number) == 1;
    fclose(file);
    *ret_number = (double)number;
    return found ? MR_OK : MR_FAILED;
}

/* By the scheduler's own clock, thread by thread: /proc/PID/stat counts the ticks that met one. */
static enum mr_err cpu_seconds(pid_t pid, double *ret_seconds)
{
    char path[64];
    double total = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return mr_err_from_errno(errno);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        double ns;
        snprintf(path, sizeof path, "/proc/%d/task/%.16s/schedstat", (int)pid, entry->d_name);
        if (entry->d_name[0] != '.' && read_number(path, 0, &ns) == MR_OK)
            total += ns;
    }
    closedir(tasks);
    *ret_seconds = total / (double)MR_NS_PER_S;
    return MR_OK;
}

enum mr_err bench_server_usage(const struct bench_server *server, struct bench_usage *ret_usage)
{
    enum { STATM_RESIDENT = 1 };
    char path[64];
    MR_TRY(cpu_seconds(server->own.pid, &ret_usage->cpu_s));
    snprintf(path, sizeof path, "/proc/%d/statm", (int)server->own.pid);
    MR_TRY(read_number(path, STATM_RESIDENT, &ret_usage->memory));
    ret_usage->memory *= (double)sysconf(_SC_PAGESIZE);
    return MR_OK;
}
