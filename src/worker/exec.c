/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process per task. The handler's thread feeds the payload, collects result, error text and
 * progress and waits for the end, all in one poll loop without timers of its own but the grace. It
 * never blocks on a pipe, so a command that reads nothing, writes first or writes without end does
 * no harm.
 *
 * The run is over when the process is: what it left running may hold the pipes open, nobody waits
 * for that. After a stop the rest of its process group is killed.
 */
#include "worker/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "worker/exec_env.h"
#include "worker/internal.h"

/* Our ends of the child's pipes by the child's descriptor, then what else the loop waits for. */
enum { IN, OUT, ERR, PROGRESS, PIPES, STOP = PIPES, PROCESS, FDS };

enum {
    CHUNK = 64 * 1024,
    LINE_MAX_BYTES = 512, /* of a progress line; the rest of a longer one is dropped */
};

static atomic_bool short_said;

struct process {
    struct mr_run *run;
    int fds[FDS]; /* -1: closed */
    pid_t pid;
    struct mr_slice input;            /* what stdin has not taken yet */
    enum mr_err result_err;           /* why the result is not kept */
    bool told, killed;                /* SIGTERM, SIGKILL was sent */
    mr_mono kill_at;                  /* when told: then SIGKILL */
    char tail[2 * MR_ERROR_TEXT_MAX]; /* the last of stderr */
    size_t tail_len;
    bool tail_cut; /* more stood before it */
    char line[LINE_MAX_BYTES + 1];
    size_t line_len;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- streams -------------------------------------------------------------------------------- */

/* A command that does not want its input is fine. */
static void feed(struct process *p)
{
    ssize_t n = p->input.len > 0 ? write(p->fds[IN], p->input.data, p->input.len) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        p->input = mr_slice_make((const char *)p->input.data + n, p->input.len - (size_t)n);
    if (n < 0 || p->input.len == 0)
        close_fd(&p->fds[IN]);
}

static void take_result(struct process *p, struct mr_slice bytes)
{
    if (p->result_err == MR_OK)
        p->result_err = mr_run_result(p->run, bytes);
}

/* Keeps the last MR_ERROR_TEXT_MAX bytes, moving them only once per as many new ones. */
static void take_error(struct process *p, struct mr_slice bytes)
{
    const char *data = bytes.data;
    p->tail_cut |= p->tail_len + bytes.len > sizeof p->tail || bytes.len > MR_ERROR_TEXT_MAX;
    if (bytes.len > MR_ERROR_TEXT_MAX) {
        data += bytes.len - MR_ERROR_TEXT_MAX;
        bytes.len = MR_ERROR_TEXT_MAX;
    }
    if (p->tail_len + bytes.len > sizeof p->tail) {
        memmove(p->tail, p->tail + p->tail_len - MR_ERROR_TEXT_MAX, MR_ERROR_TEXT_MAX);
        p->tail_len = MR_ERROR_TEXT_MAX;
    }
    memcpy(p->tail + p->tail_len, data, bytes.len);
    p->tail_len += bytes.len;
}

/* "PERCENT [TEXT]"; what is not of this form is ignored. */
static void take_line(struct process *p)
{
    p->line[p->line_len] = '\0';
    char *text;
    errno = 0;
    long percent = strtol(p->line, &text, 10);
    bool number = text != p->line && errno == 0 && (*text == ' ' || *text == '\0' || *text == '%');
    if (!number || percent < 0 || percent > 100)
        return;
    text += *text == '%';
    text += *text == ' ';
    if (mr_run_progress(p->run, (int)percent, mr_slice_str(text)) != MR_OK)
        return; /* only a value that was checked above can be refused */
}

static void take_progress(struct process *p, struct mr_slice bytes)
{
    const char *data = bytes.data;
    for (size_t i = 0; i < bytes.len; i++) {
        if (data[i] == '\n') {
            take_line(p);
            p->line_len = 0;
        } else if (p->line_len < LINE_MAX_BYTES) {
            p->line[p->line_len++] = data[i];
        }
    }
}

static void (*const takers[PIPES])(struct process *p, struct mr_slice bytes) = {
    [OUT] = take_result,
    [ERR] = take_error,
    [PROGRESS] = take_progress,
};

/* Reads what is there; false when nothing is left for now. Closes the pipe at its end. */
static bool drink(struct process *p, int pipe)
{
    char chunk[CHUNK];
    if (p->fds[pipe] < 0)
        return false;
    ssize_t n = read(p->fds[pipe], chunk, sizeof chunk);
    if (n > 0)
        takers[pipe](p, mr_slice_make(chunk, (size_t)n));
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_fd(&p->fds[pipe]);
    return n > 0;
}

/* What the process wrote before it ended. A child of its own that goes on writing is not waited
 * for: a pipe holds no more than is read here. */
static void drink_rest(struct process *p)
{
    for (int pipe = OUT; pipe < PIPES; pipe++)
        for (int i = 0; i < 2 * MR_RESULT_MAX / CHUNK && drink(p, pipe); i++)
            continue;
    if (p->line_len > 0)
        take_line(p);
}

/* ---- start ---------------------------------------------------------------------------------- */

static bool open_pipe(int *ours, int *childs, bool child_reads)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    /* Out of the child's range, so that its dup2 calls cannot meet. */
    *ours = mr_fd_above(ends[child_reads ? 1 : 0], MR_SPAWN_PROGRESS_FD);
    *childs = mr_fd_above(ends[child_reads ? 0 : 1], MR_SPAWN_PROGRESS_FD);
    return *ours >= 0 && *childs >= 0 && fcntl(*ours, F_SETFL, O_NONBLOCK) == 0;
}

/* The task is not to blame: with fewer of them at a time, or in another process, it runs. */
static bool passes(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE || errnum == EAGAIN || errnum == ENOMEM;
}

/* Why it is not run. What passes is said once, until something could be started again. */
static enum mr_outcome not_started(struct mr_run *run, const char *command, int errnum)
{
    if (!passes(errnum)) {
        mr_run_error(run, "cannot run %s: %s", command, strerror(errnum));
        return MR_FAIL;
    }
    if (!atomic_exchange(&short_said, true))
        mr_diag(MR_DIAG_WARN, "exec.short", "error=\"%s\" handing back", strerror(errnum));
    return MR_HAND_BACK;
}

/* 0 or an errno. */
static int start(struct process *p, char *const *argv)
{
    struct mr_arena arena = {0};
    struct mr_spawn spawn = {.argv = argv, .fds = {-1, -1, -1, -1}};
    int errnum = 0;
    p->fds[STOP] = mr_fd_apart(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    bool fine = p->fds[STOP] >= 0;
    for (int i = 0; fine && i < PIPES; i++)
        fine = open_pipe(&p->fds[i], &spawn.fds[i], i == IN);
    if (!fine)
        errnum = errno;
    char **env = NULL;
    if (fine && mr_exec_env(mr_run_task(p->run), mr_run_deadline_ms(p->run), MR_SPAWN_PROGRESS_FD,
                            environ, &arena, &env) != MR_OK) {
        errnum = ENOMEM;
        fine = false;
    }
    spawn.env = env;
    fine = fine && mr_spawn(&spawn, &p->pid, &p->fds[PROCESS], &errnum) == MR_OK;
    for (int i = 0; i < PIPES; i++)
        close_fd(&spawn.fds[i]);
    mr_arena_done(&arena);
    if (fine)
        atomic_store(&short_said, false);
    return errnum;
}

/* ---- until its end -------------------------------------------------------------------------- */

static void wake_loop(void *arg)
{
    const struct process *p = arg;
    if (eventfd_write(p->fds[STOP], 1) != 0)
        return; /* it counts already */
}

/* Asks the whole group to end; again when the time it has for that was cut short. */
static void tell(struct process *p)
{
    mr_mono kill_at = mr_mono_add_ms(mr_mono_now(mr_clock_system()), mr_run_grace_ms(p->run));
    if (!p->told || kill_at.ns < p->kill_at.ns)
        p->kill_at = kill_at;
    if (p->told)
        return;
    p->told = true;
    kill(-p->pid, SIGTERM);
    kill(-p->pid, SIGCONT); /* a stopped one could not obey */
}

static int wait_ms(struct process *p)
{
    if (!p->told || p->killed)
        return -1;
    int64_t left_ns = p->kill_at.ns - mr_mono_now(mr_clock_system()).ns;
    if (left_ns > 0)
        return (int)(left_ns / MR_NS_PER_MS) + 1;
    kill(-p->pid, SIGKILL);
    p->killed = true;
    return -1;
}

static void loop(struct process *p)
{
    for (;;) {
        struct pollfd polls[FDS];
        for (int i = 0; i < FDS; i++)
            polls[i] = (struct pollfd){.fd = p->fds[i], .events = i == IN ? POLLOUT : POLLIN};
        if (poll(polls, FDS, wait_ms(p)) <= 0)
            continue;
        if (polls[IN].revents)
            feed(p);
        for (int pipe = OUT; pipe < PIPES; pipe++)
            if (polls[pipe].revents)
                drink(p, pipe);
        if (polls[PROCESS].revents)
            return;
        if (polls[STOP].revents) {
            eventfd_t times;
            (void)!eventfd_read(p->fds[STOP], &times);
        }
        if (polls[STOP].revents || p->result_err != MR_OK)
            tell(p);
    }
}

/* The process has ended but still has its number, so the group is still its own. */
static int reap(struct process *p)
{
    if (p->told)
        kill(-p->pid, SIGKILL);
    int status = 0;
    while (waitpid(p->pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

/* ---- what it meant -------------------------------------------------------------------------- */

static const struct {
    int code;
    enum mr_outcome outcome;
} exit_codes[] = {
    {0, MR_DONE}, {100, MR_FAIL_FOR_GOOD}, {101, MR_HAND_BACK}, {102, MR_DROP}, {103, MR_LATER},
};

static enum mr_outcome outcome_of(int status)
{
    if (WIFEXITED(status))
        for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++)
            if (exit_codes[i].code == WEXITSTATUS(status))
                return exit_codes[i].outcome;
    return MR_FAIL;
}

/* The last of stderr, and how it ended where that does not follow. */
static void explain(struct process *p, int status)
{
    char end[64] = "";
    while (p->tail_len > 0 && strchr("\n\r\t ", p->tail[p->tail_len - 1]))
        p->tail_len--;
    bool said = p->tail_len > 0;
    if (mr_run_cancelled(p->run))
        end[0] = '\0'; /* the worker knows why */
    else if (WIFSIGNALED(status))
        snprintf(end, sizeof end, "%skilled by signal %d (%s)", said ? "\n" : "", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (!said)
        snprintf(end, sizeof end, "exit status %d", WEXITSTATUS(status));
    size_t max = MR_ERROR_TEXT_MAX - strlen(end);
    size_t from = p->tail_len > max ? p->tail_len - max : 0;
    bool cut = p->tail_cut || from > 0;
    for (int i = 0; cut && i < 3 && from < p->tail_len && (p->tail[from] & 0xc0) == 0x80; i++)
        from++; /* not in the middle of a character, which is at most three bytes more */
    if (said || end[0])
        mr_run_error(p->run, "%.*s%s", (int)(p->tail_len - from), p->tail + from, end);
}

enum mr_outcome mr_exec_handler(struct mr_run *run, void *arg)
{
    const struct mr_exec_command *command = arg;
    struct process *p = malloc(sizeof *p);
    if (!p)
        return not_started(run, command->argv[0], ENOMEM);
    *p = (struct process){.run = run, .input = mr_run_task(run)->payload};
    for (int i = 0; i < FDS; i++)
        p->fds[i] = -1;
    enum mr_outcome outcome;
    int errnum = start(p, command->argv);
    if (errnum != 0) {
        outcome = not_started(run, command->argv[0], errnum);
    } else {
        mr_run_watch(run, wake_loop, p);
        loop(p);
        mr_run_watch(run, NULL, NULL);
        drink_rest(p);
        int status = reap(p);
        outcome = outcome_of(status);
        if (outcome != MR_DONE)
            explain(p, status);
        if (p->result_err != MR_OK) {
            outcome = MR_FAIL;
            bool too_big = p->result_err == MR_TOO_BIG;
            mr_run_error(run, "result %s", too_big ? "over 1 MiB" : mr_err_text(p->result_err));
        }
    }
    for (int i = 0; i < FDS; i++)
        close_fd(&p->fds[i]);
    free(p);
    return outcome;
}
