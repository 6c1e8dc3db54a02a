/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reduce that is a command. Each part's result is a file in a folder of its own, which is the command's working folder;
 * the names are the indexes, padded so that * has them in order. What it prints is the result. The folder goes with it;
 * one that a crash has left, which nobody has locked, with the next server that starts on this machine.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "job/internal.h"

extern char **environ;

enum {
    STDERR_MAX = 2048, /* bytes kept of what it says on its standard error */
    LOOK_MS = 100,     /* how often it is seen whether it is to be given up */
    OPEN_FOLDERS = 8,
    LEFT_S = 60, /* a folder that is younger may be about to be locked */
    STDOUT = 0,  /* of the pipes */
    STDERR = 1,
    PIPES = 2,
};

#define FOLDER "millrace-job-"

struct mr_reduce_command {
    struct job_command options;
    char *dir;
    int lock;   /* on it; -1: none */
    int digits; /* of the names */
    struct mr_arena arena;
    struct mr_buf out; /* a piece of the result that is not full yet */
    mr_mono end;       /* it may run so long, if there is a limit */
    char said[STDERR_MAX + 1];
    size_t said_n;
};

/* ---- the folder ------------------------------------------------------------------------------ */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    return remove(path);
}

void job_command_free(struct mr_reduce_command *command)
{
    if (command == NULL)
        return;
    if (command->dir != NULL)
        (void)nftw(command->dir, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    if (command->lock >= 0)
        close(command->lock);
    free(command->dir);
    mr_buf_done(&command->out);
    mr_arena_done(&command->arena);
    free(command);
}

/* The lock goes with the process. -1: somebody has it. */
static int lock_folder(const char *path)
{
    int fd = mr_fd_apart(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

static enum mr_err make_dir(struct mr_reduce_command *command, struct mr_detail *detail)
{
    char *dir = NULL;
    if (asprintf(&dir, "%s/" FOLDER "XXXXXX", command->options.temp_dir) < 0)
        return MR_NOMEM;
    if (mkdtemp(dir) == NULL) {
        mr_detail_set(detail, "cannot make a folder in %s: %s", command->options.temp_dir,
                      strerror(errno));
        enum mr_err err = mr_err_from_errno(errno);
        free(dir);
        return err;
    }
    command->dir = dir;
    command->lock = lock_folder(dir);
    return MR_OK;
}

/* One that nobody has locked for long enough. */
static void remove_left(const char *path)
{
    struct stat status;
    int64_t now_s = mr_wall_ms(mr_wall_now(mr_clock_system())) / MR_MS_PER_S;
    bool ours = lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
    int lock = ours && now_s - status.st_mtime > LEFT_S ? lock_folder(path) : -1;
    if (lock < 0)
        return;
    (void)nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    close(lock);
}

void job_command_clean(const char *temp_dir)
{
    DIR *folder = opendir(temp_dir);
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char *path = NULL;
        if (strncmp(entry->d_name, FOLDER, sizeof FOLDER - 1) != 0 ||
            asprintf(&path, "%s/%s", temp_dir, entry->d_name) < 0)
            continue;
        remove_left(path);
        free(path);
    }
    if (folder != NULL)
        (void)closedir(folder);
}

enum mr_err job_command_new(const struct job_command *options,
                            struct mr_reduce_command **ret_command, struct mr_detail *detail)
{
    struct mr_reduce_command *command = calloc(1, sizeof *command);
    if (command == NULL)
        return MR_NOMEM;
    command->options = *options;
    command->lock = -1;
    command->digits = 1;
    for (uint64_t last = options->total - 1; last >= 10; last /= 10)
        command->digits++;
    enum mr_err err = make_dir(command, detail);
    if (err == MR_OK)
        err = mr_buf_reserve(&command->out, MR_STORE_CHUNK_MAX);
    if (err != MR_OK) {
        job_command_free(command);
        return err;
    }
    *ret_command = command;
    return MR_OK;
}

static bool write_all(int fd, struct mr_slice bytes)
{
    const char *at = bytes.data;
    for (size_t left = bytes.len; left > 0;) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        left -= (size_t)n;
    }
    return true;
}

enum mr_err job_command_part(struct mr_reduce_command *command, uint64_t index,
                             struct mr_slice bytes, struct mr_detail *detail)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%0*llu", command->dir, command->digits, (unsigned long long)index) < 0)
        return MR_NOMEM;
    int fd = mr_fd_apart(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    bool fine = fd >= 0 && write_all(fd, bytes);
    int errnum = errno;
    if (fd >= 0)
        fine = close(fd) == 0 && fine;
    free(path);
    if (fine)
        return MR_OK;
    mr_detail_set(detail, "cannot write a file in %s: %s", command->options.temp_dir,
                  strerror(errnum));
    return mr_err_from_errno(errnum);
}

/* ---- running it ------------------------------------------------------------------------------ */

/* Descriptors of the child are above those that it gets. */
static int above(int fd)
{
    return mr_fd_above(fd, MR_SPAWN_PROGRESS_FD);
}

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static enum mr_err make_env(struct mr_reduce_command *command, char ***ret_env)
{
    static const char name[] = "MILLRACE_JOB_ID=";
    size_t n = 0, kept = 0;
    while (environ[n] != NULL)
        n++;
    char **env = mr_arena_calloc(&command->arena, n + 2, sizeof(*env));
    char *ours = mr_arena_alloc(&command->arena, sizeof name + MR_UUID_TEXT_LEN);
    if (env == NULL || ours == NULL)
        return MR_NOMEM;
    snprintf(ours, sizeof name + MR_UUID_TEXT_LEN, "%s%s", name, command->options.job_id);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], name, sizeof name - 1) != 0)
            env[kept++] = environ[i];
    }
    env[kept] = ours;
    *ret_env = env;
    return MR_OK;
}

/* The shell goes to the folder first, then does what it is told. */
static enum mr_err start(struct mr_reduce_command *command, int ends[PIPES], pid_t *ret_pid,
                         int *ret_pidfd, int *ret_errno)
{
    char shell[] = "sh", flag[] = "-c", line[] = "cd \"$0\" && exec sh -c \"$1\"";
    struct mr_slice text;
    char **env;
    MR_TRY(mr_arena_copy(&command->arena, command->options.command, &text));
    MR_TRY(make_env(command, &env));
    char *argv[] = {shell, flag, line, command->dir, (char *)text.data, NULL};
    struct mr_spawn spawn = {.argv = argv, .env = env, .fds = {-1, -1, -1, -1}};
    bool fine = true;
    spawn.fds[0] = above(open("/dev/null", O_RDWR | O_CLOEXEC));
    spawn.fds[MR_SPAWN_PROGRESS_FD] = above(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (size_t i = 0; i < PIPES; i++) {
        int both[2] = {-1, -1};
        fine = fine && pipe2(both, O_CLOEXEC) == 0;
        ends[i] = above(both[0]);
        spawn.fds[i + 1] = above(both[1]);
    }
    for (size_t i = 0; i <= MR_SPAWN_PROGRESS_FD; i++)
        fine = fine && spawn.fds[i] >= 0;
    enum mr_err err = fine ? mr_spawn(&spawn, ret_pid, ret_pidfd, ret_errno) : MR_FAILED;
    close_all(spawn.fds, MR_SPAWN_PROGRESS_FD + 1);
    return err;
}

static enum mr_err flush(struct mr_reduce_command *command)
{
    enum mr_err err = MR_OK;
    if (command->out.len > 0)
        err = command->options.chunk(mr_buf_slice(&command->out), command->options.arg);
    command->out.len = 0;
    return err;
}

static enum mr_err heard(struct mr_reduce_command *command, int pipe, const char *bytes, size_t n)
{
    if (pipe == STDERR) { /* the end of it says most */
        if (n > STDERR_MAX) {
            bytes += n - STDERR_MAX;
            n = STDERR_MAX;
        }
        size_t keep = command->said_n + n > STDERR_MAX ? STDERR_MAX - n : command->said_n;
        memmove(command->said, command->said + command->said_n - keep, keep);
        memcpy(command->said + keep, bytes, n);
        command->said_n = keep + n;
        return MR_OK;
    }
    while (n > 0) {
        size_t room = MR_STORE_CHUNK_MAX - command->out.len, some = n < room ? n : room;
        MR_TRY(mr_buf_append(&command->out, bytes, some));
        bytes += some;
        n -= some;
        if (command->out.len == MR_STORE_CHUNK_MAX)
            MR_TRY(flush(command));
    }
    return MR_OK;
}

/* MR_OK: it is still waited for. */
static enum mr_err patience(const struct mr_reduce_command *command, struct mr_detail *detail)
{
    int64_t limit_ms = command->options.limit_ms;
    if (atomic_load(command->options.cancel))
        return MR_CANCELLED;
    if (limit_ms <= 0 || mr_mono_now(mr_clock_system()).ns < command->end.ns)
        return MR_OK;
    mr_detail_set(detail, "the reduce command was still running after %lld s, and was killed",
                  (long long)(limit_ms / MR_MS_PER_S));
    return MR_TIMEOUT;
}

/* Until both are closed, by all who have them. */
static enum mr_err listen_to(struct mr_reduce_command *command, int ends[PIPES],
                             struct mr_detail *detail)
{
    char bytes[16 * 1024];
    while (ends[STDOUT] >= 0 || ends[STDERR] >= 0) {
        struct pollfd polled[PIPES] = {{.fd = ends[STDOUT], .events = POLLIN},
                                       {.fd = ends[STDERR], .events = POLLIN}};
        MR_TRY(patience(command, detail));
        if (poll(polled, PIPES, LOOK_MS) < 0) {
            if (errno != EINTR)
                return mr_err_from_errno(errno);
            continue; /* what is polled was not looked at */
        }
        for (int i = 0; i < PIPES; i++) {
            if (polled[i].revents == 0 || ends[i] < 0)
                continue;
            ssize_t n = read(ends[i], bytes, sizeof bytes);
            if (n > 0)
                MR_TRY(heard(command, i, bytes, (size_t)n));
            else if (n == 0 || errno != EINTR)
                close_all(&ends[i], 1);
        }
    }
    return flush(command);
}

/* One that prints nothing more may run on. */
static enum mr_err await_exit(const struct mr_reduce_command *command, int pidfd,
                              struct mr_detail *detail)
{
    for (;;) {
        struct pollfd polled = {.fd = pidfd, .events = POLLIN};
        if (poll(&polled, 1, LOOK_MS) > 0)
            return MR_OK;
        MR_TRY(patience(command, detail));
    }
}

static enum mr_err await_end(struct mr_reduce_command *command, pid_t pid, struct mr_detail *detail)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED) != 0)
        return mr_err_from_errno(errno);
    if (info.si_code == CLD_EXITED && info.si_status == 0)
        return MR_OK;
    while (command->said_n > 0 && (unsigned char)command->said[command->said_n - 1] <= ' ')
        command->said_n--;
    command->said[command->said_n] = '\0';
    mr_detail_set(detail, "the reduce command %s %d%s%s",
                  info.si_code == CLD_EXITED ? "ended with" : "was killed by signal",
                  info.si_status, command->said_n > 0 ? ": " : "", command->said);
    return MR_FAILED;
}

enum mr_err job_command_run(struct mr_reduce_command *command, struct mr_detail *detail)
{
    int ends[PIPES] = {-1, -1}, pidfd = -1, errnum = 0;
    pid_t pid = 0;
    enum mr_err err = start(command, ends, &pid, &pidfd, &errnum);
    if (err != MR_OK) {
        mr_detail_set(detail, "cannot start the reduce command: %s",
                      errnum != 0 ? strerror(errnum) : "no descriptors are left");
        close_all(ends, PIPES);
        return err;
    }
    if (command->options.limit_ms > 0)
        command->end = mr_mono_add_ms(mr_mono_now(mr_clock_system()), command->options.limit_ms);
    err = listen_to(command, ends, detail);
    if (err == MR_OK)
        err = await_exit(command, pidfd, detail);
    if (err != MR_OK)
        (void)kill(-pid, SIGKILL);
    close_all(ends, PIPES);
    struct mr_detail killed;
    enum mr_err end = await_end(command, pid, err == MR_OK ? detail : &killed);
    close(pidfd);
    return err != MR_OK ? err : end;
}
