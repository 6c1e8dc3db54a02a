/* SPDX-License-Identifier: Apache-2.0 */
/* See alarm.h. */
#include "timer/alarm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/diag.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/list.h"
#include "base/spawn.h"

enum {
    EVENTS_MAX = 1000,  /* that wait to be told */
    TELL_MS = 5 * 1000, /* of one try */
    LAST_MS = 2 * 1000, /* for all that waits when it is stopped */
    TRIES = 3,          /* of an event */
    AGAIN_MS = 1000,    /* before the next one, times the number of tries so far */
    REASON_BYTES_MAX = 4096,
};

extern char **environ;

struct event {
    struct mr_link link;
    struct mr_buf json;
};

struct mr_alarm {
    char *command; /* NULL: it is a URL */
    char *secret;
    struct mr_webhook hook;
    struct mr_lock lock;
    struct mr_link events; /* under the lock, as all that follows */
    size_t n, dropped;
    bool stopping;
    mr_mono last; /* when it stops: what is not told by then is not told */
    pthread_t thread;
};

/* ---- an event as JSON ------------------------------------------------------------------------ */

static enum mr_err put_text(struct mr_buf *json, const char *name, struct mr_slice text)
{
    const uint8_t *bytes = text.data;
    if (text.len == 0)
        return MR_OK;
    if (!mr_utf8_valid(text))
        text = MR_SLICE_LIT("(not text)");
    bytes = text.data;
    MR_TRY(mr_buf_printf(json, ",\"%s\":\"", name));
    for (size_t i = 0; i < text.len; i++) {
        if (bytes[i] == '"' || bytes[i] == '\\')
            MR_TRY(mr_buf_printf(json, "\\%c", bytes[i]));
        else if (bytes[i] < 0x20 || bytes[i] == 0x7f)
            MR_TRY(mr_buf_printf(json, "\\u%04x", bytes[i]));
        else
            MR_TRY(mr_buf_append(json, &bytes[i], 1));
    }
    return mr_buf_append(json, "\"", 1);
}

static enum mr_err put_number(struct mr_buf *json, const char *name, int64_t value)
{
    return value == 0 ? MR_OK : mr_buf_printf(json, ",\"%s\":%lld", name, (long long)value);
}

/* Every event has an id of its own, so that one which was told twice is known. */
static enum mr_err put_event(struct mr_buf *json, const struct mr_alarm_event *event)
{
    struct mr_uuid uuid;
    char id[MR_UUID_TEXT_LEN + 1];
    mr_wall now = mr_wall_now(mr_clock_system());
    struct mr_slice reason = event->reason;
    mr_uuid_make(&uuid, now, mr_rand_of_thread());
    mr_uuid_format(&uuid, id);
    reason.len = mr_utf8_cut(reason, REASON_BYTES_MAX);
    MR_TRY(mr_buf_printf(json, "{\"id\":\"%s\",\"event\":\"%s\",\"at_ms\":%lld", id, event->kind,
                         (long long)mr_wall_ms(now)));
    MR_TRY(put_text(json, "app", event->app));
    MR_TRY(put_text(json, "timer", event->timer));
    MR_TRY(put_number(json, "planned_ms", event->planned_ms));
    MR_TRY(put_number(json, "until_ms", event->until_ms));
    MR_TRY(put_text(json, "task_id", event->task_id));
    MR_TRY(put_text(json, "operation", event->operation));
    MR_TRY(put_text(json, "verb", mr_slice_str(event->verb != NULL ? event->verb : "")));
    MR_TRY(put_text(json, "reason", reason));
    return mr_buf_append(json, "}\n", 2);
}

static void event_free(struct event *event)
{
    mr_buf_done(&event->json);
    free(event);
}

void mr_alarm_tell(struct mr_alarm *alarm, const struct mr_alarm_event *event)
{
    if (alarm == NULL)
        return;
    struct event *copy = calloc(1, sizeof *copy);
    if (copy == NULL || put_event(&copy->json, event) != MR_OK) {
        if (copy != NULL)
            event_free(copy);
        return;
    }
    mr_lock_enter(&alarm->lock);
    bool fits = alarm->n < EVENTS_MAX;
    if (fits) {
        mr_list_push_back(&alarm->events, &copy->link);
        alarm->n++;
        mr_lock_notify_one(&alarm->lock);
    } else {
        alarm->dropped++;
    }
    mr_lock_leave(&alarm->lock);
    if (!fits)
        event_free(copy);
}

/* ---- a command ------------------------------------------------------------------------------- */

/* Descriptors of the child are above those that it gets. */
static int above(int fd)
{
    return mr_fd_above(fd, MR_SPAWN_PROGRESS_FD);
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Waits for its end; kills it when that takes too long. MR_OK: it ended with 0. */
static enum mr_err wait_for_end(pid_t pid, int pidfd, int64_t max_ms, struct mr_detail *detail)
{
    struct pollfd poll_end = {.fd = pidfd, .events = POLLIN};
    siginfo_t info = {0};
    bool ended = poll(&poll_end, 1, (int)max_ms) > 0;
    if (!ended)
        (void)kill(-pid, SIGKILL);
    if (waitid(P_PID, (id_t)pid, &info, WEXITED) != 0 || !ended) {
        mr_detail_set(detail, "it took longer than %lld ms", (long long)max_ms);
        return MR_TIMEOUT;
    }
    if (info.si_code == CLD_EXITED && info.si_status == 0)
        return MR_OK;
    mr_detail_set(detail, "%s %d", info.si_code == CLD_EXITED ? "it ended with" : "signal",
                  info.si_status);
    return MR_FAILED;
}

/* The event fits the buffer of a pipe, so writing never waits. */
static enum mr_err run_command(const struct mr_alarm *alarm, struct mr_slice json, int64_t max_ms,
                               struct mr_detail *detail)
{
    char shell[] = "sh", flag[] = "-c", *argv[] = {shell, flag, alarm->command, NULL};
    struct mr_spawn spawn = {.argv = argv, .env = environ, .fds = {-1, -1, -1, -1}};
    int ends[2], pidfd, errnum = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return mr_err_from_errno(errno);
    int ours = above(ends[1]);
    spawn.fds[0] = above(ends[0]);
    for (size_t i = 1; i <= MR_SPAWN_PROGRESS_FD; i++)
        spawn.fds[i] = above(open("/dev/null", O_RDWR | O_CLOEXEC));
    bool fine = ours >= 0 && fcntl(ours, F_SETFL, O_NONBLOCK) == 0;
    for (size_t i = 0; i <= MR_SPAWN_PROGRESS_FD; i++)
        fine = fine && spawn.fds[i] >= 0;
    enum mr_err err = fine ? mr_spawn(&spawn, &pid, &pidfd, &errnum) : MR_FAILED;
    close_all(spawn.fds, MR_SPAWN_PROGRESS_FD + 1);
    if (err == MR_OK)
        (void)!write(ours, json.data, json.len);
    if (ours >= 0)
        close(ours);
    if (err != MR_OK) {
        mr_detail_set(detail, "cannot start it: %s", strerror(errnum));
        return err;
    }
    err = wait_for_end(pid, pidfd, max_ms, detail);
    close(pidfd);
    return err;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* How long a try may take now; 0: it is over. With the lock held. */
static int64_t time_left(const struct mr_alarm *alarm)
{
    if (!alarm->stopping)
        return TELL_MS;
    int64_t left_ms = (alarm->last.ns - mr_mono_now(mr_clock_system()).ns) / MR_NS_PER_MS;
    return left_ms > 0 ? left_ms : 0;
}

static enum mr_err try_once(const struct mr_alarm *alarm, struct mr_slice json, int64_t max_ms,
                            struct mr_detail *detail)
{
    if (alarm->command != NULL)
        return run_command(alarm, json, max_ms, detail);
    return mr_webhook_post(&alarm->hook, alarm->secret, json, max_ms, detail);
}

/* With the lock held; false: it is time to stop. */
static bool wait_a_moment(struct mr_alarm *alarm, int64_t ms)
{
    mr_mono until = mr_mono_add_ms(mr_mono_now(mr_clock_system()), ms);
    for (;;) {
        int64_t left = until.ns - mr_mono_now(mr_clock_system()).ns;
        if (alarm->stopping || left <= 0)
            return !alarm->stopping;
        (void)mr_lock_wait(&alarm->lock, left);
    }
}

static void tell(struct mr_alarm *alarm, struct event *event, int64_t max_ms)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = MR_FAILED;
    for (int i = 1; err != MR_OK && i <= TRIES; i++) {
        err = try_once(alarm, mr_buf_slice(&event->json), max_ms, &detail);
        if (err == MR_OK || i == TRIES)
            break;
        mr_lock_enter(&alarm->lock);
        bool goes_on = wait_a_moment(alarm, (int64_t)AGAIN_MS * i);
        mr_lock_leave(&alarm->lock);
        if (!goes_on)
            break;
    }
    if (err != MR_OK)
        mr_diag(MR_DIAG_WARN, "alarm.failed", "error=\"%s\" ignoring=the-event",
                detail.text[0] != '\0' ? detail.text : mr_err_text(err));
}

/* With the lock held, at the end. */
static void drop_rest(struct mr_alarm *alarm)
{
    size_t n = alarm->dropped;
    for (struct mr_link *link; (link = mr_list_pop_front(&alarm->events)) != NULL; n++)
        event_free(mr_container(link, struct event, link));
    if (n > 0)
        mr_diag(MR_DIAG_WARN, "alarm.dropped", "events=%zu", n);
}

static void *run(void *arg)
{
    struct mr_alarm *alarm = arg;
    mr_lock_enter(&alarm->lock);
    for (;;) {
        int64_t left_ms = time_left(alarm);
        struct mr_link *link = left_ms > 0 ? mr_list_pop_front(&alarm->events) : NULL;
        size_t dropped = alarm->dropped;
        if (link == NULL && alarm->stopping)
            break;
        if (link == NULL) {
            (void)mr_lock_wait(&alarm->lock, INT64_MAX);
            continue;
        }
        struct event *event = mr_container(link, struct event, link);
        alarm->n--;
        alarm->dropped = 0;
        mr_lock_leave(&alarm->lock);
        if (dropped > 0)
            mr_diag(MR_DIAG_WARN, "alarm.dropped", "events=%zu", dropped);
        tell(alarm, event, left_ms);
        event_free(event);
        mr_lock_enter(&alarm->lock);
    }
    drop_rest(alarm);
    mr_lock_leave(&alarm->lock);
    return NULL;
}

static void alarm_free(struct mr_alarm *alarm)
{
    free(alarm->command);
    free(alarm->secret);
    mr_lock_done(&alarm->lock);
    free(alarm);
}

enum mr_err mr_alarm_start(const char *target, const char *secret, struct mr_alarm **ret_alarm,
                           struct mr_detail *detail)
{
    bool is_url = strncmp(target, "http://", 7) == 0 || strncmp(target, "https://", 8) == 0;
    struct mr_alarm *alarm = calloc(1, sizeof *alarm);
    if (alarm == NULL)
        return MR_NOMEM;
    mr_lock_init(&alarm->lock);
    mr_list_init(&alarm->events);
    enum mr_err err = is_url ? mr_webhook_parse(target, &alarm->hook, detail) : MR_OK;
    if (!is_url)
        alarm->command = strdup(target);
    if (secret != NULL)
        alarm->secret = strdup(secret);
    if (err == MR_OK && ((!is_url && alarm->command == NULL) || (secret && !alarm->secret)))
        err = MR_NOMEM;
    if (err == MR_OK)
        err = mr_thread_start(&alarm->thread, "mr-alarm", run, alarm);
    if (err != MR_OK) {
        alarm_free(alarm);
        return err;
    }
    *ret_alarm = alarm;
    return MR_OK;
}

/* What waits is told once more, without waiting between tries, and not for long. */
void mr_alarm_stop(struct mr_alarm *alarm)
{
    if (alarm == NULL)
        return;
    mr_lock_enter(&alarm->lock);
    alarm->stopping = true;
    alarm->last = mr_mono_add_ms(mr_mono_now(mr_clock_system()), LAST_MS);
    mr_lock_notify_all(&alarm->lock);
    mr_lock_leave(&alarm->lock);
    mr_thread_join(alarm->thread);
    alarm_free(alarm);
}
