/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The brokers of the tests: a folder, a `millrace serve` on one, a Redis. Each place of a test has its own,
 * but for the Redis of the first place, which is emptied for each test and ends with the program.
 */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accept/accept.h"
#include "support/redis_rig.h"

static void make_folder(struct accept_place *place)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(place->dir, sizeof place->dir, "%s/millrace-accept-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(place->dir));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_folder(struct accept_place *place)
{
    (void)nftw(place->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a folder ------------------------------------------------------------------------------- */

static void embedded_start(struct accept_place *place)
{
    make_folder(place);
    (void)snprintf(place->url, sizeof place->url, "file:%s", place->dir);
}

const struct accept_engine accept_embedded = {
    .name = "embedded",
    .start = embedded_start,
    .stop = remove_folder,
    .namespaces = true,
};

/* ---- a server ------------------------------------------------------------------------------- */

/* The port of its line "ready http=... grpc=HOST:PORT"; 0: it has not said it yet. */
static uint16_t ready_port(const char *path)
{
    char line[256];
    uint16_t port = 0;
    FILE *said = fopen(path, "r");
    assert_non_null(said);
    while (fgets(line, sizeof line, said)) {
        const char *grpc = strchr(line, '\n') ? strstr(line, " grpc=") : NULL;
        const char *colon = grpc ? strchr(grpc, ':') : NULL;
        if (strncmp(line, "ready ", 6) == 0 && colon)
            port = (uint16_t)strtoul(colon + 1, NULL, 10);
    }
    (void)fclose(said);
    return port;
}

static void remote_restart(struct accept_place *place)
{
    const char *program = getenv("MILLRACE");
    char address[32], size[32], data[MR_PATH_MAX], said[MR_PATH_MAX];
    if (!program)
        fail_msg("MILLRACE does not name the program");
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", place->port);
    assert_err(mr_path_join(data, place->dir, "data"), MR_OK);
    assert_err(mr_path_join(said, place->dir, "said"), MR_OK);
    int fd = open(said, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)snprintf(size, sizeof size, "size=%um", place->disk_mib);
    /* In a namespace of its own, so that nobody else sees the disk and it goes with the server. */
    const char *const on_disk[] = {
        "/usr/bin/env",
        "unshare",
        geteuid() == 0 ? "-m" : "-rm",
        "sh",
        "-c",
        "mkdir -p \"$1\" && mount -t tmpfs -o \"$0\" tmpfs \"$1\" && shift && exec \"$@\"",
        size,
        data,
        program,
        "serve",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--grpc",
        address,
        NULL};
    const char *const plainly[] = {program,       "serve",  "--data", data, "--listen",
                                   "127.0.0.1:0", "--grpc", address,  NULL};
    place->pid = accept_spawn(place->disk_mib ? on_disk : plainly, fd);
    (void)close(fd);
    UNTIL((place->port = ready_port(said)) != 0);
    (void)snprintf(place->url, sizeof place->url, "millrace://127.0.0.1:%u", place->port);
}

static void remote_start(struct accept_place *place)
{
    make_folder(place);
    remote_restart(place);
}

static void remote_kill(struct accept_place *place)
{
    if (place->pid <= 0)
        return;
    (void)kill(place->pid, SIGKILL);
    (void)waitpid(place->pid, NULL, 0);
    place->pid = 0;
}

static void remote_stop(struct accept_place *place)
{
    remote_kill(place);
    remove_folder(place);
}

const struct accept_engine accept_remote = {
    .name = "remote",
    .start = remote_start,
    .stop = remote_stop,
    .kill = remote_kill,
    .restart = remote_restart,
    .shared = true,
};

/* ---- a Redis -------------------------------------------------------------------------------- */

static struct redis_rig *first_redis; /* stays from test to test */
static mr_mono first_began;
static bool first_in_use;

static void end_first(void)
{
    redis_rig_stop(first_redis);
}

static void redis_start(struct accept_place *place)
{
    /* What is acknowledged survives a kill; a power cut is no part of the tests. */
    struct redis_rig_options options = {.config = "appendonly yes\nappendfsync no\n"};
    if (first_in_use) {
        place->redis = redis_rig_standalone(&options);
    } else if (!first_redis) {
        first_redis = redis_rig_standalone(&options);
        first_began = accept_now();
        (void)atexit(end_first);
    }
    if (!place->redis) {
        place->redis = first_redis;
        first_in_use = true;
    }
    struct redis_rig_server *server = redis_rig_server(place->redis, 0);
    if (server->pid == 0) {
        redis_rig_start(server);
        first_began = accept_now();
    }
    place->began = place->redis == first_redis ? first_began : accept_now();
    RIG_ALL(place->redis, "FLUSHALL");
    place->port = server->port;
    (void)snprintf(place->url, sizeof place->url, "%s", redis_rig_url(place->redis));
}

static void redis_stop(struct accept_place *place)
{
    if (place->redis == first_redis)
        first_in_use = false;
    else
        redis_rig_stop(place->redis);
    place->redis = NULL;
}

static void redis_kill(struct accept_place *place)
{
    redis_rig_kill(redis_rig_server(place->redis, 0));
}

static void redis_restart(struct accept_place *place)
{
    redis_rig_start(redis_rig_server(place->redis, 0));
    place->began = accept_now();
    if (place->redis == first_redis)
        first_began = place->began;
}

void accept_settle(struct accept *t)
{
    enum { SETTLED_MS = 2100 };
    int64_t age_ms = accept_since_ms(t->place[0].began);
    if (t->place[0].redis && age_ms < SETTLED_MS)
        accept_pass_ms(SETTLED_MS - age_ms);
}

const struct accept_engine accept_redis = {
    .name = "redis",
    .start = redis_start,
    .stop = redis_stop,
    .kill = redis_kill,
    .restart = redis_restart,
    .shared = true,
    .namespaces = true,
};
