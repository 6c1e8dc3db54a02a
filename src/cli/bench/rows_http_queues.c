/* SPDX-License-Identifier: Apache-2.0 */
/* The row of GET /queues beside nginx and a file of the same size, both asked by wrk: where they are installed. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net.h"
#include "cli/bench/server.h"

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define QUEUES "http-queues"
#define PATH   "/api/v1/queues"

enum { QUEUES_N = 10, START_S = 10 };

struct nginx {
    pid_t pid; /* 0: none */
    int fd;
    char dir[MR_PATH_MAX];
    char address[64];
};

/* ---- nginx ---------------------------------------------------------------------------------- */

/* A port that was free a moment ago. */
static enum mr_err free_port(char address[64])
{
    struct mr_addr addr, bound;
    size_t n;
    int fd = -1;
    MR_TRY(mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL));
    MR_TRY(mr_net_listen(&addr, &fd, &bound));
    char text[MR_ADDR_TEXT_MAX];
    mr_addr_text(&bound, text);
    mr_net_close(fd);
    snprintf(address, 64, "%.63s", text);
    return MR_OK;
}

static enum mr_err write_file(const char *dir, const char *name, struct mr_slice bytes)
{
    char path[MR_PATH_MAX];
    MR_TRY(mr_path_join(path, dir, name));
    FILE *file = fopen(path, "we");
    if (!file)
        return mr_err_from_errno(errno);
    bool well = fwrite(bytes.data, 1, bytes.len, file) == bytes.len;
    return fclose(file) == 0 && well ? MR_OK : MR_IO;
}

/* As little as it takes, in a folder of ours. */
static enum mr_err configure(const struct nginx *nginx)
{
    struct mr_buf text = {0};
    const char *dir = nginx->dir;
    enum mr_err err = mr_buf_printf(
        &text,
        "daemon off;\nworker_processes 1;\n%spid %s/pid;\nerror_log %s/errors;\n"
        "events { worker_connections 1024; }\n"
        "http {\naccess_log off;\nkeepalive_requests 1000000000;\ndefault_type application/json;\n"
        "client_body_temp_path %s/b;\nproxy_temp_path %s/p;\nfastcgi_temp_path %s/f;\n"
        "uwsgi_temp_path %s/u;\nscgi_temp_path %s/s;\n"
        "server { listen %s; root %s; }\n}\n",
        geteuid() == 0 ? "user root;\n" : "", dir, dir, dir, dir, dir, dir, dir, nginx->address,
        dir);
    if (err == MR_OK)
        err = write_file(dir, "conf", mr_buf_slice(&text));
    mr_buf_done(&text);
    return err;
}

static enum mr_err await_port(const char *address, struct mr_detail *detail)
{
    static const double LOOK_S = 0.02;
    int64_t start = bench_now_ns();
    for (;;) {
        struct bench_http http;
        enum mr_err err = bench_http_open(address, &http, detail);
        bench_http_close(&http);
        if (err == MR_OK || bench_seconds_since(start) > START_S || bench_interrupted())
            return err;
        bench_sleep(LOOK_S);
    }
}

static enum mr_err nginx_start(struct bench *bench, struct mr_slice body, struct nginx *nginx)
{
    char conf[MR_PATH_MAX], errors[MR_PATH_MAX], cwd[MR_PATH_MAX];
    if (!getcwd(cwd, sizeof cwd))
        return mr_err_from_errno(errno);
    MR_TRY(mr_path_join(nginx->dir, cwd, bench->dir));
    MR_TRY(free_port(nginx->address));
    MR_TRY(configure(nginx));
    MR_TRY(write_file(nginx->dir, "queues", body));
    MR_TRY(mr_path_join(conf, nginx->dir, "conf"));
    MR_TRY(mr_path_join(errors, nginx->dir, "errors"));
    const char *const args[] = {"nginx", "-p", nginx->dir, "-c", conf, "-e", errors, NULL};
    nginx->pid = bench_tool_start(args, &nginx->fd);
    if (nginx->pid < 0) {
        nginx->pid = 0;
        return MR_FAILED;
    }
    return await_port(nginx->address, &bench->detail);
}

static void nginx_end(struct nginx *nginx)
{
    if (nginx->pid == 0)
        return;
    close(nginx->fd);
    (void)bench_tool_end(nginx->pid, SIGTERM);
    nginx->pid = 0;
}

/* ---- wrk ------------------------------------------------------------------------------------ */

static enum mr_err wrk(struct bench *bench, const char *address, const char *path, double *ret_rate)
{
    char url[256], seconds[32], text[BENCH_TOOL_TEXT];
    int round = (int)(bench_round_seconds(bench) + 0.999), fd = -1;
    snprintf(url, sizeof url, "http://%s%s", address, path);
    snprintf(seconds, sizeof seconds, "-d%ds", round > 0 ? round : 1);
    const char *const args[] = {"wrk", "-t1", "-c32", seconds, url, NULL};
    pid_t pid = bench_tool_start(args, &fd);
    if (pid < 0)
        return MR_FAILED;
    enum mr_err err = bench_tool_read(fd, text);
    close(fd);
    int status = bench_tool_end(pid, 0);
    const char *line = err == MR_OK ? strstr(text, "Requests/sec:") : NULL;
    bool bad = err == MR_OK && strstr(text, "Non-2xx") != NULL;
    double rate = line ? strtod(line + strlen("Requests/sec:"), NULL) : 0;
    if (status != 0 || bad || rate <= 0) {
        mr_detail_set(&bench->detail, "wrk of %s did not go well", url);
        return MR_FAILED;
    }
    *ret_rate += rate;
    return MR_OK;
}

/* ---- the row -------------------------------------------------------------------------------- */

static enum mr_err fill(struct bench_server *server)
{
    struct mr_client *client = NULL;
    MR_TRY(bench_server_open(server, &client));
    enum mr_err err = MR_OK;
    for (int i = 0; err == MR_OK && i < QUEUES_N; i++) {
        char name[32];
        struct mr_enqueue_result result;
        struct mr_task_options task = bench_task();
        snprintf(name, sizeof name, "%s-%d", BENCH_QUEUE, i);
        task.queue = mr_slice_str(name);
        err = mr_enqueue(client, &task, 1, &result);
    }
    mr_client_close(client);
    return err;
}

static enum mr_err measure(struct bench *bench, struct bench_server *server, struct nginx *nginx,
                           double *ours, double *its)
{
    struct bench_http http;
    struct mr_slice body;
    MR_TRY(fill(server));
    enum mr_err err = bench_http_open(server->own.http, &http, &bench->detail);
    if (err == MR_OK)
        err = bench_http_call(&http, "GET " PATH, (struct mr_slice){0}, &body);
    if (err == MR_OK)
        err = nginx_start(bench, body, nginx);
    bench_http_close(&http);
    for (int i = 0; err == MR_OK && i < BENCH_ROUNDS; i++) {
        err = wrk(bench, nginx->address, "/queues", its);
        if (err == MR_OK)
            err = wrk(bench, server->own.http, PATH, ours);
        if (err == MR_OK && bench_interrupted())
            err = MR_CANCELLED;
    }
    *ours /= BENCH_ROUNDS;
    *its /= BENCH_ROUNDS;
    return err;
}

static enum mr_err run_queues(struct bench *bench)
{
    static const double SHARE = 0.5;
    struct bench_server server;
    struct nginx nginx = {.pid = 0};
    double ours = 0, its = 0;
    if (!bench_tool_there("wrk") || !bench_tool_there("nginx")) {
        mr_detail_set(&bench->detail, "it takes nginx and wrk, which are not both installed");
        return bench->only->items_n > 0 ? MR_UNSUPPORTED : MR_OK;
    }
    bench_doing(bench, QUEUES);
    enum mr_err err = bench_server_begin(bench, QUEUES, &server);
    if (err == MR_OK)
        err = measure(bench, &server, &nginx, &ours, &its);
    nginx_end(&nginx);
    bench_server_end(&server);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, QUEUES, ours, "requests/s");
    bench_yardstick(row, its, "nginx with a file of the same size");
    bench_goal(row, row->ratio >= SHARE, "%.1f of it", SHARE);
    snprintf(row->note, sizeof row->note, "wrk with one thread and 32 connections, %d queues",
             QUEUES_N);
    return MR_OK;
}

const struct bench_group bench_http_queues = {NAMES(QUEUES), .place = BENCH_AT_OWN_SERVER,
                                              .run = run_queues};
