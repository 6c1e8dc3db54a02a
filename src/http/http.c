/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server: its socket, its certificates, its thread and its clients. The library is driven by
 * a thread of ours, since it knows only how long a client says nothing, not how long it takes: one
 * that sends a byte now and then would never end.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/exec.h"
#include "base/fs.h"
#include "http/internal.h"

enum {
    PEM_BYTES_MAX = 1024 * 1024,
    HEADER_BYTES_DEFAULT = 32 * 1024,
    BODY_BYTES_DEFAULT = 1024 * 1024,
    BODIES_BYTES_DEFAULT = 64 * 1024 * 1024,
    ANSWERS_BYTES_DEFAULT = 256 * 1024 * 1024,
    CONNECTIONS_DEFAULT = 4096,
    CONNECTIONS_LEAST = 8,
    STREAMS_DEFAULT = 2048,
    CONNECTIONS_LEAVING = 64, /* beside them: cut, and not yet found so by the library */
    REQUEST_S_DEFAULT = 10,
    IDLE_S_DEFAULT = 30,
};

/* Nothing older than TLS 1.2. */
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* ---- clients -------------------------------------------------------------------------------- */

void client_move(struct client *client, struct mr_link *list)
{
    client->since = mr_mono_now(mr_clock_system());
    mr_list_remove(&client->link);
    mr_list_push_back(list, &client->link);
}

static struct client *first_of(const struct mr_link *list)
{
    return mr_list_empty(list) ? NULL : mr_container(list->next, struct client, link);
}

void client_cut(struct client *client)
{
    mr_list_remove(&client->link);
    mr_net_cut(client->fd);
}

/* Whoever did nothing for the longest time goes for one that is new: nobody keeps others out by
 * being silent, be it in the middle of a request or before an answer it does not take. Streams last, and are fewer. */
static void make_room(struct mr_http *http)
{
    struct client *waiting = first_of(&http->waiting), *answered = first_of(&http->answered);
    if (http->clients_n <= http->options.limits.connections_max)
        return;
    if (waiting && (!answered || waiting->since.ns <= answered->since.ns))
        client_cut(waiting);
    else if (answered)
        client_cut(answered);
}

/* Who has let an answer lie for the longest time; NULL: nobody. */
static struct client *slowest(const struct mr_http *http, const struct client *but)
{
    for (struct mr_link *link = http->answered.next; link != &http->answered; link = link->next) {
        struct client *client = mr_container(link, struct client, link);
        if (client->answer_bytes > 0 && client != but)
            return client;
    }
    return NULL;
}

void client_owes(struct mr_http *http, struct client *client, size_t bytes)
{
    http->answers_bytes += bytes - client->answer_bytes;
    client->answer_bytes = bytes;
    if (bytes == 0 || http->answers_bytes <= http->options.limits.answers_bytes)
        return;
    /* What it had is free as soon as the library sees it: one for each that comes is enough. */
    struct client *slow = slowest(http, client);
    if (slow)
        client_cut(slow);
}

struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info->socket_context;
}

/* Resuming wakes nobody: the library sees it when it looks next, which it does at once then. */
void connection_resume(struct mr_http *http, struct MHD_Connection *connection)
{
    http->resumed = true;
    MHD_resume_connection(connection);
}

/* Without memory for it nobody would look at its time, so it is ended. */
static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct mr_http *http = arg;
    struct client *client = *state;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (client) {
            mr_list_remove(&client->link);
            http->clients_n--;
        }
        free(client);
        return;
    }
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    client = calloc(1, sizeof *client);
    *state = client;
    if (!client) {
        mr_net_cut(fd);
        return;
    }
    client->fd = fd;
    mr_list_init(&client->link);
    client_move(client, &http->waiting);
    http->clients_n++;
    make_room(http);
}

/* Of the client whose time for a request ends first; INT64_MAX: there is none. */
static int64_t request_left_ns(const struct mr_http *http)
{
    const struct client *client = first_of(&http->waiting);
    if (!client)
        return INT64_MAX;
    int64_t whole_ns = http->options.limits.request_s * MR_NS_PER_S;
    return client->since.ns + whole_ns - mr_mono_now(mr_clock_system()).ns;
}

static void cut_late(struct mr_http *http)
{
    while (request_left_ns(http) <= 0)
        client_cut(first_of(&http->waiting));
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void ready(struct mr_watch *watch, unsigned events)
{
    (void)watch, (void)events; /* the library looks itself, in each turn */
}

/* New connections wait in the socket, and nobody takes them. */
static void stop(struct mr_msg *msg, void *receiver)
{
    (void)msg;
    struct mr_http *http = receiver;
    http->stopping = true;
    http->listen_fd = MHD_quiesce_daemon(http->daemon);
}

/* Until the next tick; INT64_MAX: there is none. */
static int64_t tick_left_ns(const struct mr_http *http)
{
    if (http->streams_n == 0)
        return INT64_MAX;
    return http->ticked.ns + MR_HTTP_TICK_MS * MR_NS_PER_MS - mr_mono_now(mr_clock_system()).ns;
}

/* Until the next beat. */
static int64_t beat_left_ns(const struct mr_http *http)
{
    return http->beaten.ns + MR_HTTP_BEAT_MS * MR_NS_PER_MS - mr_mono_now(mr_clock_system()).ns;
}

static int64_t wait_ns(struct mr_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;
    int64_t ns = http->resumed ? 0 : INT64_MAX;
    if (ns > 0 && MHD_get_timeout(http->daemon, &ms) == MHD_YES)
        ns = (int64_t)ms * MR_NS_PER_MS;
    int64_t left = request_left_ns(http);
    ns = left < ns ? left : ns;
    left = tick_left_ns(http);
    ns = left < ns ? left : ns;
    left = http->beats ? beat_left_ns(http) : INT64_MAX;
    ns = left < ns ? left : ns;
    return ns > 0 ? ns : 0;
}

static void tick(struct mr_http *http)
{
    if (tick_left_ns(http) > 0)
        return;
    http->ticked = mr_mono_now(mr_clock_system());
    for (size_t i = 0; i < http->options.tables_n; i++)
        if (http->tables[i].tick)
            http->tables[i].tick(http->tables[i].arg);
}

static void beat(struct mr_http *http)
{
    if (!http->beats || http->stopping || beat_left_ns(http) > 0)
        return;
    http->beaten = mr_mono_now(mr_clock_system());
    for (size_t i = 0; i < http->options.tables_n; i++)
        if (http->tables[i].beat)
            http->tables[i].beat(http, http->tables[i].arg);
}

static void deliver_all(struct mr_http *http)
{
    for (struct mr_msg *msg = mr_chan_take_all(mr_loop_inbox(http->loop)), *next; msg; msg = next) {
        next = msg->next;
        msg->deliver(msg, http);
    }
}

static void turn(struct mr_http *http)
{
    mr_loop_wait(http->loop, wait_ns(http));
    mr_loop_dispatch(http->loop);
    deliver_all(http);
    cut_late(http);
    tick(http);
    beat(http);
    http->resumed = false;
    (void)MHD_run(http->daemon);
}

/* Who is answered later still is, and a stream has its end sent, if it is taken at once. */
static void *run(void *arg)
{
    struct mr_http *http = arg;
    mr_thread_gives_way(); /* who looks at work does not hold it up */
    while (!http->stopping)
        turn(http);
    streams_end(http);
    (void)MHD_run(http->daemon);
    while (http->held_n > 0)
        turn(http);
    (void)MHD_run(http->daemon);
    return NULL;
}

static enum mr_err start_thread(struct mr_http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    http->watch = (struct mr_watch){.fd = info->epoll_fd, .ready = ready};
    MR_TRY(mr_loop_new(&http->loop));
    MR_TRY(mr_loop_add(http->loop, &http->watch, MR_LOOP_READ));
    MR_TRY(mr_thread_start(&http->thread, "mr-http", run, http));
    http->running = true;
    return MR_OK;
}

/* ---- start and stop ------------------------------------------------------------------------- */

static enum mr_err read_pem(const char *path, char **ret_text, struct mr_detail *detail)
{
    struct mr_file *file = NULL;
    uint64_t size = 0;
    char *text = NULL;
    enum mr_err err = mr_fs_open(mr_fs_system(), path, MR_OPEN_READ, &file);
    if (err == MR_OK)
        err = mr_file_size(file, &size);
    if (err == MR_OK && (size == 0 || size > PEM_BYTES_MAX))
        err = MR_INVALID;
    if (err == MR_OK && !(text = calloc(1, size + 1)))
        err = MR_NOMEM;
    if (err == MR_OK)
        err = mr_file_pread(file, text, size, 0);
    mr_file_close(file);
    if (err != MR_OK) {
        mr_detail_set(detail, "%s: %s", path,
                      err == MR_INVALID ? "not a file in PEM" : mr_err_text(err));
        free(text);
        return err;
    }
    *ret_text = text;
    return MR_OK;
}

static enum mr_err read_tls(struct mr_http *http, struct mr_detail *detail)
{
    const struct mr_http_tls *tls = http->options.tls;
    if (!tls)
        return MR_OK;
    MR_TRY(read_pem(tls->cert_file, &http->cert, detail));
    MR_TRY(read_pem(tls->key_file, &http->key, detail));
    http->certificates = tls->ca_file != NULL;
    return tls->ca_file ? read_pem(tls->ca_file, &http->ca, detail) : MR_OK;
}

static enum mr_err open_socket(const char *address, int *ret_fd, struct mr_addr *ret_bound,
                               struct mr_detail *detail)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    struct mr_addr addr;
    size_t n;
    enum mr_err err = mr_host_parse(address, host, &port);
    if (err != MR_OK) {
        mr_detail_set(detail, "%s: not of the form HOST:PORT", address);
        return err;
    }
    MR_TRY(mr_host_resolve(host, port, MR_RESOLVE_NAMES, &addr, 1, &n, detail));
    err = mr_net_listen(&addr, ret_fd, ret_bound);
    if (err != MR_OK)
        mr_detail_set(detail, "%s: %s", address, mr_net_listen_text(err));
    return err;
}

/* The library's own messages: of interest only when it does not start. */
static MR_PRINTF(2, 0) void on_message(void *arg, const char *fmt, va_list ap)
{
    struct mr_http *http = arg;
    if (http->starting)
        vsnprintf(http->why.text, sizeof http->why.text, fmt, ap);
}

static struct MHD_Daemon *start_daemon(struct mr_http *http, int fd)
{
    const struct mr_http_limits *limits = &http->options.limits;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, http->cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, http->key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES},
        {http->ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, http->ca},
        {MHD_OPTION_END, 0, NULL},
    };
    if (!http->cert)
        tls[0].option = MHD_OPTION_END;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME |
                     (http->cert ? MHD_USE_TLS : 0u);
    return MHD_start_daemon(
        flags, 0, NULL, NULL, request_on, http, MHD_OPTION_EXTERNAL_LOGGER, on_message, http,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_URI_LOG_CALLBACK, request_begin, http,
        MHD_OPTION_NOTIFY_COMPLETED, request_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_CONNECTION_MEMORY_LIMIT, limits->header_bytes,
        MHD_OPTION_CONNECTION_LIMIT, limits->connections_max + CONNECTIONS_LEAVING,
        MHD_OPTION_CONNECTION_TIMEOUT, limits->idle_s, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

static void set_limits(struct mr_http_limits *limits)
{
#define DEFAULT(field, value) limits->field = limits->field ? limits->field : (value)
    DEFAULT(header_bytes, HEADER_BYTES_DEFAULT);
    DEFAULT(body_bytes, BODY_BYTES_DEFAULT);
    DEFAULT(bodies_bytes, BODIES_BYTES_DEFAULT);
    DEFAULT(answers_bytes, ANSWERS_BYTES_DEFAULT);
    DEFAULT(connections_max, CONNECTIONS_DEFAULT);
    DEFAULT(streams_max, STREAMS_DEFAULT);
    DEFAULT(request_s, REQUEST_S_DEFAULT);
    DEFAULT(idle_s, IDLE_S_DEFAULT);
#undef DEFAULT
    /* Without a file to spare nobody could come, nor the store go on. */
    size_t half = mr_net_files_max() / 2;
    half = half > CONNECTIONS_LEAST ? half : CONNECTIONS_LEAST;
    if (limits->connections_max > half)
        limits->connections_max = (unsigned)half;
}

static enum mr_err start(struct mr_http *http, struct mr_addr *ret_bound, struct mr_detail *detail)
{
    int fd;
    MR_TRY(read_tls(http, detail));
    MR_TRY(open_socket(http->options.address, &fd, ret_bound, detail));
    http->starting = true;
    http->daemon = start_daemon(http, fd);
    http->starting = false;
    if (http->daemon)
        return start_thread(http);
    /* The socket was the library's already, and mostly it has closed it. */
    http->why.text[strcspn(http->why.text, "\n")] = '\0';
    mr_detail_set(detail, "%s: cannot serve HTTP%s: %s", http->options.address,
                  http->cert ? " with this certificate and key" : "",
                  http->why.text[0] ? http->why.text : "the library gives no reason");
    return http->cert ? MR_INVALID : MR_FAILED;
}

enum mr_err mr_http_start(const struct mr_http_options *options, struct mr_http **ret_http,
                          struct mr_addr *ret_bound, struct mr_detail *detail)
{
    struct mr_http *http = calloc(1, sizeof *http);
    if (!http)
        return MR_NOMEM;
    mr_assert(options->tables_n <= MR_HTTP_TABLES_MAX);
    http->options = *options;
    for (size_t i = 0; i < options->tables_n; i++) {
        http->tables[i] = options->tables[i];
        http->beats = http->beats || options->tables[i].beat;
    }
    http->beaten = mr_mono_now(mr_clock_system());
    http->options.tables = http->tables;
    http->listen_fd = -1;
    mr_list_init(&http->waiting);
    mr_list_init(&http->answered);
    mr_list_init(&http->streaming);
    mr_list_init(&http->streams);
    set_limits(&http->options.limits);
    enum mr_err err = start(http, ret_bound, detail);
    if (err != MR_OK) {
        mr_http_stop(http);
        return err;
    }
    *ret_http = http;
    return MR_OK;
}

void mr_http_stop(struct mr_http *http)
{
    if (!http)
        return;
    if (http->running) {
        http->stop_msg.deliver = stop;
        mr_chan_send(mr_loop_inbox(http->loop), &http->stop_msg);
        mr_thread_join(http->thread);
    }
    if (http->loop)
        mr_loop_remove(http->loop, &http->watch);
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    if (http->running)
        deliver_all(http);
    if (http->listen_fd >= 0)
        mr_net_close(http->listen_fd);
    mr_loop_free(http->loop);
    if (http->key)
        explicit_bzero(http->key, strlen(http->key));
    free(http->cert);
    free(http->key);
    free(http->ca);
    free(http);
}

void mr_http_post(struct mr_http *http, struct mr_msg *msg)
{
    mr_chan_send(mr_loop_inbox(http->loop), msg);
}

struct mr_chan *mr_http_inbox(struct mr_http *http)
{
    return mr_loop_inbox(http->loop);
}

void mr_http_hold(struct mr_http *http)
{
    http->held_n++;
}

void mr_http_release(struct mr_http *http)
{
    mr_assert(http->held_n > 0);
    http->held_n--;
}
