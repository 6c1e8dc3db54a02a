/* SPDX-License-Identifier: Apache-2.0 */
/* Folder, user and processes of a PostgreSQL server, and a way to say something to it. */
#include "support/postgres_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "support/look.h"
#include "support/ports.h"

enum {
    WAIT_MS = 60000, /* a server that is not up by then never will be */
    PATH_BYTES = 256,
    ARGS_MAX = 48,
};

struct postgres_rig {
    char dir[PATH_BYTES], data[PATH_BYTES], sockets[PATH_BYTES], log[PATH_BYTES], bin[PATH_BYTES];
    char url[2 * PATH_BYTES], tcp_url[PATH_BYTES], database_url[2 * PATH_BYTES];
    struct postgres_rig_options options;
    unsigned port;
    uid_t uid; /* 0: as ourselves */
    gid_t gid;
    pid_t pid;     /* 0: it is down */
    pid_t sweeper; /* removes the folder when sweeper_fd is closed, by us or by our end */
    int sweeper_fd;
};

_Noreturn static void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *format, ...)
{
    va_list args;
    (void)fputs("postgres rig: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

static void print(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void print(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(to, size, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= size)
        die("too long: %s", to);
}
#define PRINT(to, ...) print(to, sizeof(to), __VA_ARGS__)

/* ---- where ---------------------------------------------------------------------------------- */

/* Debian keeps the programs of a server out of the PATH, by version. */
static void find_programs(struct postgres_rig *rig)
{
    static const char base[] = "/usr/lib/postgresql";
    long best = 0;
    DIR *dir = opendir(base);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        long version = strtol(entry->d_name, NULL, 10);
        if (version <= best)
            continue;
        best = version;
        PRINT(rig->bin, "%s/%s/bin/", base, entry->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    char program[PATH_BYTES];
    PRINT(program, "%spostgres", rig->bin);
    if (best > 0 && access(program, X_OK) != 0)
        die("%s: %s", program, strerror(errno));
}

static void make_folder(struct postgres_rig *rig, char *path, size_t size, const char *name)
{
    print(path, size, "%s/%s", rig->dir, name);
    if (mkdir(path, 0700) != 0 || (rig->uid != 0 && chown(path, rig->uid, rig->gid) != 0))
        die("%s: %s", path, strerror(errno));
}

static void make_folders(struct postgres_rig *rig)
{
    const char *tmp = getenv("TMPDIR");
    PRINT(rig->dir, "%s/millrace-postgres-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(rig->dir) == NULL || chmod(rig->dir, 0755) != 0)
        die("%s: %s", rig->dir, strerror(errno));
    const struct passwd *nobody = geteuid() == 0 ? getpwnam("nobody") : NULL;
    if (geteuid() == 0 && nobody == NULL)
        die("there is no user nobody, and the server does not run as root");
    rig->uid = nobody != NULL ? nobody->pw_uid : 0;
    rig->gid = nobody != NULL ? nobody->pw_gid : 0;
    make_folder(rig, rig->data, sizeof rig->data, "data");
    make_folder(rig, rig->sockets, sizeof rig->sockets, "s");
    PRINT(rig->log, "%s/log", rig->dir);
}

/* ---- processes ------------------------------------------------------------------------------ */

static void become_nobody(const struct postgres_rig *rig)
{
    if (rig->uid != 0 &&
        (setgroups(0, NULL) != 0 || setgid(rig->gid) != 0 || setuid(rig->uid) != 0))
        _exit(126);
    /* A quick end, in which it takes its shared memory along. Another user loses what was said before. */
    (void)prctl(PR_SET_PDEATHSIG, SIGQUIT);
}

static pid_t launch(struct postgres_rig *rig, const char *const *argv)
{
    char program[2 * PATH_BYTES];
    PRINT(program, "%s%s", rig->bin, argv[0]);
    int out = open(rig->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (out < 0 || null < 0)
        die("%s: %s", rig->log, strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        (void)setsid();
        become_nobody(rig);
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(out, STDOUT_FILENO);
        (void)dup2(out, STDERR_FILENO);
        (void)chdir("/");
        execvp(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    (void)close(out);
    (void)close(null);
    return pid;
}

static void tell_log(const struct postgres_rig *rig)
{
    char line[512];
    FILE *file = fopen(rig->log, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)fputs(line, stderr);
    if (file != NULL)
        (void)fclose(file);
}

/* A shell outlives us on purpose. */
static void start_sweeper(struct postgres_rig *rig)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        die("pipe: %s", strerror(errno));
    rig->sweeper = fork();
    if (rig->sweeper < 0)
        die("fork: %s", strerror(errno));
    if (rig->sweeper == 0) {
        (void)setsid();
        (void)dup2(ends[0], STDIN_FILENO);
        execl("/bin/sh", "sh", "-c", "read -r line; rm -rf -- \"$0\"", rig->dir, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[0]);
    rig->sweeper_fd = ends[1];
}

static void make_cluster(struct postgres_rig *rig)
{
    const char *argv[] = {"initdb", "-D", rig->data, "-U",         "mill", "-A",
                          "trust",  "-E", "UTF8",    "--locale=C", "-N",   "--no-instructions",
                          NULL};
    int status = 0;
    pid_t pid = launch(rig, argv);
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        tell_log(rig);
        die("initdb failed");
    }
}

static bool answers(struct postgres_rig *rig)
{
    PGPing ping = PQping(rig->url);
    int status = 0;
    if (ping == PQPING_OK)
        return true;
    if (waitpid(rig->pid, &status, WNOHANG) == rig->pid) {
        tell_log(rig);
        die("the server did not start");
    }
    return false;
}

void postgres_rig_start_again(struct postgres_rig *rig)
{
    char port[16];
    PRINT(port, "%u", rig->port);
    const char *argv[ARGS_MAX] = {"postgres",
                                  "-D",
                                  rig->data,
                                  "-k",
                                  rig->sockets,
                                  "-p",
                                  port,
                                  "-c",
                                  "listen_addresses=127.0.0.1",
                                  "-c",
                                  "max_connections=50",
                                  "-c",
                                  "autovacuum_naptime=5s"};
    size_t n = 13;
    if (!rig->options.durable) {
        argv[n++] = "-c";
        argv[n++] = "fsync=off";
    }
    const char *const *more = rig->options.settings;
    for (; more != NULL && *more != NULL && n + 2 < ARGS_MAX; more++) {
        argv[n++] = "-c";
        argv[n++] = *more;
    }
    rig->pid = launch(rig, argv);
    mr_mono since = mr_mono_now(mr_clock_system());
    while (!answers(rig))
        if (!look_again(since, WAIT_MS))
            die("the server does not answer");
}

void postgres_rig_crash(struct postgres_rig *rig)
{
    if (rig->pid == 0)
        return;
    (void)kill(rig->pid, SIGQUIT);
    (void)waitpid(rig->pid, NULL, 0);
    rig->pid = 0;
}

struct postgres_rig *postgres_rig_start(const struct postgres_rig_options *options)
{
    struct postgres_rig *rig = calloc(1, sizeof *rig);
    if (rig == NULL)
        die("no memory");
    if (options != NULL)
        rig->options = *options;
    find_programs(rig);
    make_folders(rig);
    start_sweeper(rig);
    rig->port = free_port();
    if (rig->port == 0)
        die("no free port");
    PRINT(rig->url, "postgresql://mill@/postgres?host=%s&port=%u", rig->sockets, rig->port);
    PRINT(rig->tcp_url, "postgresql://mill@127.0.0.1:%u/postgres", rig->port);
    make_cluster(rig);
    postgres_rig_start_again(rig);
    return rig;
}

void postgres_rig_stop(struct postgres_rig *rig)
{
    if (rig == NULL)
        return;
    postgres_rig_crash(rig);
    (void)close(rig->sweeper_fd);
    (void)waitpid(rig->sweeper, NULL, 0);
    free(rig);
}

const char *postgres_rig_url(struct postgres_rig *rig)
{
    return rig->url;
}

const char *postgres_rig_tcp_url(struct postgres_rig *rig)
{
    return rig->tcp_url;
}

unsigned postgres_rig_port(struct postgres_rig *rig)
{
    return rig->port;
}

/* ---- saying something ----------------------------------------------------------------------- */

static void say_nothing(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

long postgres_rig_sql(struct postgres_rig *rig, const char *text)
{
    PGconn *conn = PQconnectdb(rig->url);
    PQsetNoticeReceiver(conn, say_nothing, NULL);
    if (PQstatus(conn) != CONNECTION_OK)
        die("%s", PQerrorMessage(conn));
    PGresult *result = PQexec(conn, text);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        die("%s: %s", text, PQerrorMessage(conn));
    long number = PQntuples(result) > 0 && PQnfields(result) > 0
                      ? strtol(PQgetvalue(result, 0, 0), NULL, 10)
                      : 0;
    PQclear(result);
    PQfinish(conn);
    return number;
}

const char *postgres_rig_database(struct postgres_rig *rig, const char *name)
{
    char text[PATH_BYTES];
    PRINT(text, "DROP DATABASE IF EXISTS \"%s\" WITH (FORCE)", name);
    (void)postgres_rig_sql(rig, text);
    PRINT(text, "CREATE DATABASE \"%s\"", name);
    (void)postgres_rig_sql(rig, text);
    PRINT(rig->database_url, "postgresql://mill@/%s?host=%s&port=%u", name, rig->sockets,
          rig->port);
    return rig->database_url;
}
