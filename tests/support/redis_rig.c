/* SPDX-License-Identifier: Apache-2.0 */
/* Folder, processes, and the rig's own way to say something to a server. */
#include "support/redis_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/spawn.h"
#include "support/look.h"
#include "support/ports.h"
#include "support/redis_rig_own.h"

enum {
    /* Below the ports that the system gives to clients, so that none of those is taken while a server
     * is away. */
    ANSWER_S = 20, /* a server that does not answer for so long never will */
    ANSWER_BYTES_MAX = 64 * 1024 * 1024,
};

extern char **environ;

/* ---- telling, waiting ----------------------------------------------------------------------- */

void rig_die(const char *format, ...)
{
    va_list args;
    (void)fputs("redis rig: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

void rig_print(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(to, size, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= size)
        rig_die("too long: %s", to);
}

void rig_look_again(mr_mono since, const char *what)
{
    if (!look_again(since, RIG_WAIT_MS))
        rig_die("waited in vain for: %s", what);
}

/* ---- folder --------------------------------------------------------------------------------- */

static bool in_path(const char *name, char *ret_path, size_t size)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, ":");
        rig_print(ret_path, size, "%.*s/%s", (int)len, at, name);
        if (access(ret_path, X_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

static void find_program(struct redis_rig *rig)
{
    char found[REDIS_RIG_PATH_MAX];
    if (!in_path("redis-server", found, sizeof found) &&
        !in_path("redis-check-rdb", found, sizeof found))
        rig_die("neither redis-server nor redis-check-rdb is in the PATH");
    /* The program looks at its name to know what to do. */
    RIG_PRINT(rig->program, "%s/redis-server", rig->dir);
    if (symlink(found, rig->program) != 0)
        rig_die("%s: %s", rig->program, strerror(errno));
}

static void start_process(const char *const *argv, const int fds[4], pid_t *ret_pid, int *ret_pidfd)
{
    struct mr_spawn spawn = {.argv = (char *const *)(uintptr_t)argv, .env = environ};
    int errnum = 0;
    for (int i = 0; i < 4; i++)
        if ((spawn.fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, MR_SPAWN_PROGRESS_FD + 1)) < 0)
            rig_die("dup: %s", strerror(errno));
    if (mr_spawn(&spawn, ret_pid, ret_pidfd, &errnum) != MR_OK)
        rig_die("%s: %s", argv[0], strerror(errnum));
    for (int i = 0; i < 4; i++)
        (void)close(spawn.fds[i]);
}

/* A shell outlives us on purpose, so it is not started as the others are. */
static void start_sweeper(struct redis_rig *rig)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        rig_die("pipe: %s", strerror(errno));
    rig->sweeper = fork();
    if (rig->sweeper < 0)
        rig_die("fork: %s", strerror(errno));
    if (rig->sweeper == 0) {
        (void)setsid();
        (void)dup2(ends[0], STDIN_FILENO);
        execl("/bin/sh", "sh", "-c", "read -r line; rm -rf -- \"$0\"", rig->dir, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[0]);
    rig->sweeper_fd = ends[1];
}

static void random_id(struct redis_rig *rig, char id[REDIS_RIG_ID_LEN + 1])
{
    for (int i = 0; i < REDIS_RIG_ID_LEN; i++)
        id[i] = "0123456789abcdef"[mr_rand_below(&rig->rand, 16)];
}

/* A certificate authority, and a server and a client with its signature. */
static void make_certificates(const struct redis_rig *rig)
{
    static const char script[] =
        "set -e; cd \"$0\"; exec 2>openssl.log\n"
        "key() { openssl ecparam -name prime256v1 -genkey -noout -out \"$1\"; }\n"
        "key ca.key; openssl req -x509 -new -key ca.key -days 2 -subj /CN=rig-ca -out ca.pem\n"
        "printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n' >names\n"
        "for who in server client; do key $who.key\n"
        "openssl req -new -key $who.key -subj /CN=$who | openssl x509 -req -CA ca.pem -CAkey ca.key"
        " -CAcreateserial -days 2 -extfile names -out $who.pem; done\n";
    const char *argv[] = {"sh", "-c", script, rig->dir, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), pidfd = -1, status = 0;
    pid_t pid = 0;
    start_process(argv, (int[]){null, null, null, null}, &pid, &pidfd);
    (void)close(null);
    (void)close(pidfd);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        rig_die("openssl could not make certificates: see %s/openssl.log", rig->dir);
}

struct redis_rig *rig_new(enum rig_kind kind, const struct redis_rig_options *options, size_t n)
{
    struct redis_rig *rig = calloc(1, sizeof *rig);
    const char *tmp = getenv("TMPDIR");
    if (rig == NULL)
        rig_die("no memory");
    rig->kind = kind;
    rig->n = n;
    if (options != NULL)
        rig->options = *options;
    mr_rand_seed_system(&rig->rand);
    RIG_PRINT(rig->dir, "%s/millrace-redis-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(rig->dir) == NULL)
        rig_die("%s: %s", rig->dir, strerror(errno));
    start_sweeper(rig);
    find_program(rig);
    if (rig->options.tls)
        make_certificates(rig);
    for (size_t i = 0; i < n; i++) {
        struct redis_rig_server *server = &rig->servers[i];
        *server = (struct redis_rig_server){.rig = rig, .pidfd = -1, .conn = -1};
        server->port = free_port();
        server->bus_port = free_port();
        if (server->port == 0 || server->bus_port == 0)
            rig_die("no free port");
        random_id(rig, server->id);
        RIG_PRINT(server->dir, "%s/%zu", rig->dir, i);
        RIG_PRINT(server->socket, "%s/%zu/sock", rig->dir, i);
        if (mkdir(server->dir, 0700) != 0)
            rig_die("%s: %s", server->dir, strerror(errno));
    }
    return rig;
}

void redis_rig_stop(struct redis_rig *rig)
{
    if (rig == NULL)
        return;
    for (size_t i = 0; i < rig->n; i++)
        redis_rig_kill(&rig->servers[i]);
    (void)close(rig->sweeper_fd);
    (void)waitpid(rig->sweeper, NULL, 0);
    for (size_t i = 0; i < RIG_ANSWERS; i++)
        free(rig->answers[i]);
    free(rig);
}

/* ---- configuration -------------------------------------------------------------------------- */

static void print_ports(const struct redis_rig_server *server, FILE *file)
{
    const struct redis_rig_options *o = &server->rig->options;
    const char *dir = server->rig->dir;
    if (!o->tls) {
        (void)fprintf(file, "port %u\n", server->port);
        return;
    }
    (void)fprintf(file,
                  "port 0\ntls-port %u\ntls-ca-cert-file %s/ca.pem\ntls-cert-file %s/server.pem\n"
                  "tls-key-file %s/server.key\ntls-auth-clients %s\ntls-replication yes\n",
                  server->port, dir, dir, dir, o->tls_clients ? "yes" : "no");
}

FILE *rig_config(struct redis_rig_server *server)
{
    char path[REDIS_RIG_PATH_MAX + 16];
    RIG_PRINT(path, "%s/redis.conf", server->dir);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        rig_die("%s: %s", path, strerror(errno));
    (void)fprintf(file, "bind 127.0.0.1\ndir %s\nunixsocket %s\nprotected-mode no\n", server->dir,
                  server->socket);
    print_ports(server, file);
    return file;
}

FILE *rig_server_config(struct redis_rig_server *server)
{
    const struct redis_rig_options *o = &server->rig->options;
    FILE *file = rig_config(server);
    (void)fputs("save \"\"\nappendonly no\nenable-debug-command yes\nrepl-diskless-sync yes\n"
                "repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n",
                file);
    if (o->password != NULL && o->user != NULL)
        (void)fprintf(
            file, "user default off\nuser %s on >%s ~* &* +@all\nmasteruser %s\nmasterauth %s\n",
            o->user, o->password, o->user, o->password);
    else if (o->password != NULL)
        (void)fprintf(file, "requirepass %s\nmasterauth %s\n", o->password, o->password);
    if (o->config != NULL)
        (void)fprintf(file, "%s\n", o->config);
    return file;
}

/* ---- processes ------------------------------------------------------------------------------ */

static void tell_log(const struct redis_rig_server *server)
{
    char path[REDIS_RIG_PATH_MAX + 16], line[512];
    RIG_PRINT(path, "%s/log", server->dir);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)fputs(line, stderr);
    if (file != NULL)
        (void)fclose(file);
}

void rig_launch(struct redis_rig_server *server, const char *const *more)
{
    char conf[REDIS_RIG_PATH_MAX + 16], log[REDIS_RIG_PATH_MAX + 16];
    const char *argv[16] = {server->rig->program, conf};
    size_t n = 2;
    RIG_PRINT(conf, "%s/redis.conf", server->dir);
    RIG_PRINT(log, "%s/log", server->dir);
    for (; more != NULL && *more != NULL && n < 15; more++)
        argv[n++] = *more;
    if (rig_is_sentinel(server))
        argv[n] = "--sentinel";
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (out < 0 || null < 0)
        rig_die("%s: %s", log, strerror(errno));
    start_process(argv, (int[]){null, out, out, null}, &server->pid, &server->pidfd);
    (void)close(out);
    (void)close(null);
}

static bool has_ended(const struct redis_rig_server *server)
{
    struct pollfd end = {.fd = server->pidfd, .events = POLLIN};
    return poll(&end, 1, 0) > 0;
}

/* Whether it answers; a server that ended instead ends the program. */
static bool is_ready(struct redis_rig_server *server)
{
    if (RIG_SAYS(server, "PONG", "PING"))
        return true;
    if (has_ended(server)) {
        tell_log(server);
        rig_die("the server of %s did not start", server->dir);
    }
    return false;
}

void rig_await_ping(struct redis_rig_server *server)
{
    RIG_UNTIL(is_ready(server));
}

/* A half of a transaction is cut off, which the server itself would leave in the file. */
static void mend(const struct redis_rig_server *server)
{
    static const char script[] =
        "cd \"$0/appendonlydir\" 2>/dev/null && test -f appendonly.aof.manifest || exit 0\n"
        "echo y | redis-check-aof --fix appendonly.aof.manifest";
    const char *argv[] = {"sh", "-c", script, server->dir, NULL};
    char log[REDIS_RIG_PATH_MAX + 16];
    int pidfd = -1, status = 0;
    pid_t pid = 0;
    RIG_PRINT(log, "%s/mended", server->dir);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    start_process(argv, (int[]){null, out, out, null}, &pid, &pidfd);
    (void)close(null);
    (void)close(out);
    (void)close(pidfd);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        rig_die("redis-check-aof could not mend the files of %s: see %s", server->dir, log);
}

void redis_rig_start(struct redis_rig_server *server)
{
    if (server->pid == 0)
        mend(server);
    redis_rig_start_unmended(server);
}

void redis_rig_start_unmended(struct redis_rig_server *server)
{
    struct redis_rig_server *primary = NULL;
    char port[16] = "";
    if (server->pid != 0)
        return;
    if (server->rig->kind == RIG_SENTINEL && !rig_is_sentinel(server))
        primary = rig_named_primary(server->rig);
    if (primary != NULL && primary != server)
        RIG_PRINT(port, "%u", primary->port);
    /* Else it would be a primary, and an empty one, until a Sentinel looks at it. */
    const char *const follows[] = {"--replicaof", "127.0.0.1", port, NULL};
    rig_launch(server, port[0] != '\0' ? follows : NULL);
    rig_await_ping(server);
}

static void hang_up(struct redis_rig_server *server)
{
    if (server->conn >= 0)
        (void)close(server->conn);
    server->conn = -1;
}

void redis_rig_kill(struct redis_rig_server *server)
{
    hang_up(server);
    if (server->pid == 0)
        return;
    (void)kill(server->pid, SIGKILL);
    (void)waitpid(server->pid, NULL, 0);
    (void)close(server->pidfd);
    (void)unlink(server->socket);
    server->pid = 0;
    server->pidfd = -1;
}

void redis_rig_freeze(struct redis_rig_server *server)
{
    if (server->pid != 0)
        (void)kill(server->pid, SIGSTOP);
}

void redis_rig_thaw(struct redis_rig_server *server)
{
    if (server->pid != 0)
        (void)kill(server->pid, SIGCONT);
}

/* ---- commands ------------------------------------------------------------------------------- */

/* Text that grows. */
struct text {
    char *data;
    size_t len, size;
};

static void add(struct text *text, const void *bytes, size_t len)
{
    if (text->len + len + 1 > text->size) {
        text->size = 2 * (text->len + len + 1);
        text->data = realloc(text->data, text->size);
        if (text->data == NULL)
            rig_die("no memory");
    }
    if (len > 0)
        memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = '\0';
}

/* What came from a server and was not looked at. */
struct stream {
    int fd;
    bool broken;
    size_t at, len;
    char bytes[16 * 1024];
};

static int next_byte(struct stream *stream)
{
    if (stream->at == stream->len) {
        ssize_t got = read(stream->fd, stream->bytes, sizeof stream->bytes);
        stream->broken = got <= 0;
        stream->at = 0;
        stream->len = got > 0 ? (size_t)got : 0;
    }
    return stream->broken ? -1 : (unsigned char)stream->bytes[stream->at++];
}

static void read_line(struct stream *stream, char *line, size_t size)
{
    size_t len = 0;
    for (int c = next_byte(stream); c >= 0 && c != '\r'; c = next_byte(stream))
        if (len + 1 < size)
            line[len++] = (char)c;
    (void)next_byte(stream);
    line[len] = '\0';
}

static void read_bulk(struct stream *stream, long len, struct text *ret)
{
    for (long i = 0; i < len + 2 && !stream->broken; i++) {
        char c = (char)next_byte(stream);
        if (i < len)
            add(ret, &c, 1);
    }
}

/* Nested arrays become lines of one list, so nothing here calls itself. */
static void read_answer(struct stream *stream, struct text *ret)
{
    long left = 1;
    add(ret, "", 0);
    for (bool first = true; left > 0 && !stream->broken; left--) {
        char line[1024];
        read_line(stream, line, sizeof line);
        long n = strtol(line + (line[0] != '\0'), NULL, 10);
        if (n > ANSWER_BYTES_MAX && line[0] != ':')
            rig_die("an answer of %ld bytes or items", n);
        if (line[0] == '*' && n >= 0) {
            left += n;
            continue;
        }
        if (!first)
            add(ret, "\n", 1);
        first = false;
        if (n < 0 && (line[0] == '$' || line[0] == '*'))
            add(ret, "(nil)", 5);
        else if (line[0] == '$')
            read_bulk(stream, n, ret);
        else
            add(ret, line + (line[0] != '-'), strlen(line + (line[0] != '-')));
    }
}

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t put = send(fd, bytes, len, MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        bytes += put;
        len -= (size_t)put;
    }
    return true;
}

/* False when the connection broke; ret is an empty text then. */
static bool exchange(int fd, const char *const *args, struct text *ret)
{
    struct text out = {.data = NULL};
    struct stream stream = {.fd = fd};
    char head[32];
    size_t n = 0;
    while (args[n] != NULL)
        n++;
    add(&out, head, (size_t)snprintf(head, sizeof head, "*%zu\r\n", n));
    for (size_t i = 0; i < n; i++) {
        add(&out, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", strlen(args[i])));
        add(&out, args[i], strlen(args[i]));
        add(&out, "\r\n", 2);
    }
    bool sent = write_all(fd, out.data, out.len);
    free(out.data);
    ret->len = 0;
    add(ret, "", 0);
    if (sent)
        read_answer(&stream, ret);
    return sent && !stream.broken;
}

static bool log_in(struct redis_rig_server *server)
{
    const struct redis_rig_options *o = &server->rig->options;
    const char *password = rig_is_sentinel(server) ? o->sentinel_password : o->password;
    const char *user = rig_is_sentinel(server) || o->user == NULL ? "default" : o->user;
    struct text answer = {.data = NULL};
    if (password == NULL)
        return true;
    bool ok = exchange(server->conn, (const char *const[]){"AUTH", user, password, NULL}, &answer);
    free(answer.data);
    return ok;
}

static bool dial(struct redis_rig_server *server)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = ANSWER_S};
    RIG_PRINT(at.sun_path, "%s", server->socket);
    if (server->pid == 0)
        return false;
    server->conn = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(server->conn, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(server->conn, (struct sockaddr *)&at, sizeof at) == 0 && log_in(server))
        return true;
    hang_up(server);
    return false;
}

const char *redis_rig_run(struct redis_rig_server *server, const char *const *args)
{
    struct redis_rig *rig = server->rig;
    struct text answer = {.data = NULL};
    char **place = &rig->answers[rig->answers_at++ % RIG_ANSWERS];
    /* An idle connection may have been closed by the server, so there is a second try. */
    bool ok = server->conn >= 0 && exchange(server->conn, args, &answer);
    if (!ok) {
        hang_up(server);
        ok = dial(server) && exchange(server->conn, args, &answer);
    }
    if (!ok) {
        hang_up(server);
        answer.len = 0;
        add(&answer, "-AWAY", 5);
    }
    free(*place);
    *place = answer.data;
    return answer.data;
}

int64_t redis_rig_int(struct redis_rig_server *server, const char *const *args)
{
    const char *answer = redis_rig_run(server, args);
    char *end = NULL;
    int64_t value = strtoll(answer, &end, 10);
    if (end == answer || *end != '\0')
        rig_die("%s: \"%s\" is no integer", args[0], answer);
    return value;
}

bool rig_says(struct redis_rig_server *server, const char *const *args, const char *text)
{
    return strstr(redis_rig_run(server, args), text) != NULL;
}

void rig_line(const char *answer, size_t i, char *to, size_t size)
{
    for (; i > 0 && answer != NULL; i--) {
        answer = strchr(answer, '\n');
        answer = answer != NULL ? answer + 1 : NULL;
    }
    rig_print(to, size, "%.*s", answer != NULL ? (int)strcspn(answer, "\r\n") : 0,
              answer != NULL ? answer : "");
}

void redis_rig_run_on_primaries(struct redis_rig *rig, const char *const *args)
{
    for (size_t i = 0; i < rig->n; i++) {
        struct redis_rig_server *server = &rig->servers[i];
        if (server->pid == 0 || rig_is_sentinel(server) || !RIG_SAYS(server, "master", "ROLE"))
            continue;
        const char *answer = redis_rig_run(server, args);
        if (answer[0] == '-')
            rig_die("%s: %s", args[0], answer);
    }
}

/* ---- looking -------------------------------------------------------------------------------- */

const char *redis_rig_url(const struct redis_rig *rig)
{
    return rig->url;
}

const char *redis_rig_unix_url(const struct redis_rig *rig)
{
    return rig->unix_url;
}

const char *redis_rig_dir(const struct redis_rig *rig)
{
    return rig->dir;
}

const char *redis_rig_pem(struct redis_rig *rig, const char *name)
{
    char *path = rig->pem[rig->pem_at++ % 4];
    rig_print(path, REDIS_RIG_PATH_MAX, "%s/%s", rig->dir, name);
    return path;
}

size_t redis_rig_count(const struct redis_rig *rig)
{
    return rig->n;
}

struct redis_rig_server *redis_rig_server(struct redis_rig *rig, size_t i)
{
    return &rig->servers[i];
}
