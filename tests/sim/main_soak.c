/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-soak: mixed load on one store for as long as wanted, in a process that is killed and
 * started again, and the bounds it must keep to all that time: disk (twice the live data and three
 * segments), memory (128 bytes a task), resident memory, open files and threads that do not grow,
 * snapshots and backups that are written. Every hundredth task stays; after each kill the parent
 * counts them, in the store and in the last backup: as many as were acknowledged, and none that
 * nobody sent. MR_SOAK_SECONDS says how long.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/rand.h"
#include "broker/broker.h"
#include "sim/rig.h"
#include "wire/event.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* whose own memory is part of what the process has */
#else
#define SANITIZED false
#endif

enum {
    SECONDS_DEFAULT = 10,
    LIFE_MS_MIN = 2000,
    LIVES_WANTED = 20, /* lives are as long as this allows */
    LIFE_MS_MAX = 30000,
    PRODUCERS = 3,
    SLOTS = 4,
    BATCH_MAX = 32,
    KEPT_EVERY = 100,
    BACKLOG_MAX = 20000,
    LOOK_MS = 100,
    REST_MS = 20000,    /* time to come to rest after a kill */
    FILES_BESIDE = 24,  /* open besides the segments */
    SPARE_SEGMENTS = 8, /* while the load goes on */
};
static const uint64_t segment_bytes = 1024 * 1024, mib = 1024 * 1024;
/* The index, and what of a snapshot in the making has not been written yet. */
static const uint64_t rss_bytes_a_task = 128 + 2 * (uint64_t)MR_ENTRY_MAX;
static const uint64_t index_bytes_a_task = 128, index_bytes_fixed = 4 * 1024 * 1024;

/* In memory that outlives the child. */
struct tally {
    _Atomic uint64_t kept_sent, kept_acked; /* tasks that stay */
    _Atomic uint64_t acked, ended, looks, snapshots, backups;
    _Atomic uint64_t backup_kept; /* acknowledged before the last whole backup; + 1, 0: none */
    _Atomic uint64_t rss_max;
    _Atomic bool failed;
    char text[256]; /* the first failure */
};

struct soak {
    struct tally *tally;
    const char *dir;
    struct mr_client *client;
    int64_t life_ms, began_ms;
};

static void fail(struct soak *soak, const char *fmt, ...) MR_PRINTF(2, 3);

static void fail(struct soak *soak, const char *fmt, ...)
{
    if (atomic_exchange(&soak->tally->failed, true))
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(soak->tally->text, sizeof soak->tally->text, fmt, args);
    va_end(args);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * MR_MS_PER_S + now.tv_nsec / 1000000;
}

static void rest(int ms)
{
    poll(NULL, 0, ms);
}

static struct mr_client *open_store(struct soak *soak, const char *dir)
{
    char url[300];
    struct mr_client_options options = {.segment_bytes = segment_bytes};
    struct mr_client *client = NULL;
    struct mr_detail detail = {{0}};
    snprintf(url, sizeof url, "file:%s", dir);
    enum mr_err err = mr_client_open(url, &options, &client, &detail);
    if (err != MR_OK)
        fail(soak, "%s does not open: %s: %s", dir, mr_err_name(err), detail.text);
    return client;
}

/* ---- the load ------------------------------------------------------------------------------- */

static size_t fill_batch(struct soak *soak, struct mr_rand *rand, struct mr_task_options *tasks,
                         char ids[][32], uint8_t *payload)
{
    size_t n = 1 + (size_t)mr_rand_below(rand, BATCH_MAX), kept = 0;
    memset(tasks, 0, n * sizeof *tasks);
    for (size_t i = 0; i < n; i++) {
        struct mr_task_options *task = &tasks[i];
        task->payload = mr_slice_make(payload, (size_t)mr_rand_below(rand, 400));
        task->queue = MR_SLICE_LIT("load");
        task->delay_ms = mr_rand_below(rand, 10) ? 0 : (int64_t)mr_rand_below(rand, 300);
        task->retention_ms = mr_rand_below(rand, 4) ? 0 : 500;
        task->priority_s = (double)mr_rand_below(rand, 3);
        if (mr_rand_below(rand, 20) == 0) {
            task->unique_key = MR_SLICE_LIT("one");
            task->unique_ms = 1000;
        }
        if (mr_rand_below(rand, KEPT_EVERY) == 0) {
            uint64_t number = atomic_fetch_add(&soak->tally->kept_sent, 1);
            snprintf(ids[kept], sizeof ids[kept], "kept-%llu", (unsigned long long)number);
            *task = (struct mr_task_options){.queue = MR_SLICE_LIT("kept"),
                                             .payload = task->payload,
                                             .id = mr_slice_str(ids[kept++]),
                                             .delay_ms = 100 * MR_MS_PER_DAY};
        }
    }
    return n;
}

static void *produce(void *arg)
{
    struct soak *soak = arg;
    struct mr_rand rand;
    uint8_t payload[400] = {0};
    mr_rand_seed_system(&rand);
    for (;;) {
        struct mr_task_options tasks[BATCH_MAX];
        struct mr_enqueue_result results[BATCH_MAX];
        char ids[BATCH_MAX][32];
        struct mr_queue_info info;
        if (mr_queue_get(soak->client, MR_SLICE_LIT("load"), &info) == MR_OK &&
            info.counts[MR_PENDING] > BACKLOG_MAX) {
            rest(5);
            continue;
        }
        size_t n = fill_batch(soak, &rand, tasks, ids, payload);
        enum mr_err err = mr_enqueue(soak->client, tasks, n, results);
        for (size_t i = 0; i < n; i++) {
            enum mr_err one = err != MR_OK ? err : results[i].err;
            bool kept = tasks[i].id.len > 0;
            if (one != MR_OK && (kept || one != MR_DUPLICATE))
                fail(soak, "an enqueue is answered %s", mr_err_name(one));
            atomic_fetch_add(&soak->tally->acked, one == MR_OK);
            atomic_fetch_add(&soak->tally->kept_acked, kept && one == MR_OK);
        }
    }
    return NULL;
}

static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    struct soak *soak = arg;
    const struct mr_task *task = mr_run_task(run);
    uint64_t ended = atomic_fetch_add(&soak->tally->ended, 1);
    if (ended % 20 == 0 && task->retried == 0) {
        mr_run_error(run, "the first time it fails");
        mr_run_retry_after(run, 50);
        return MR_FAIL;
    }
    if (ended % 50 == 1)
        return MR_DROP;
    if (ended % 70 == 2)
        return MR_LATER;
    return mr_run_result(run, task->payload) == MR_OK ? MR_DONE : MR_FAIL;
}

static void ignore(const struct mr_task *task, const char *error, void *arg)
{
    (void)task, (void)error, (void)arg;
}

static int64_t soon(const struct mr_task *task, uint32_t n, void *arg)
{
    (void)task, (void)n, (void)arg;
    return 20;
}

static void start_worker(struct soak *soak)
{
    static const struct mr_worker_queue queue = {{"load", 4}, 1};
    struct mr_worker_options options = {
        .queues = &queue, .queues_n = 1, .slots = SLOTS, .on_error = ignore, .retry_delay = soon};
    struct mr_worker *worker = NULL;
    mr_assert(mr_worker_new(soak->client, &options, &worker) == MR_OK);
    mr_assert(mr_worker_handle(worker, "*", handle, soak) == MR_OK);
    mr_assert(mr_worker_start(worker) == MR_OK);
}

/* ---- the bounds, seen from inside ----------------------------------------------------------- */

static uint64_t rss_bytes(void)
{
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    mr_assert(file && fscanf(file, "%llu %llu", &pages, &resident) == 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t entries(const char *path)
{
    uint64_t n = 0;
    DIR *dir = opendir(path);
    mr_assert(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static uint64_t disk_bound(const struct mr_stats *stats)
{
    return 2 * stats->live_bytes + 3 * segment_bytes;
}

static void look(struct soak *soak)
{
    struct mr_stats stats;
    enum mr_err err = mr_stats_get(soak->client, &stats);
    if (err != MR_OK || stats.failed || stats.records_damaged)
        fail(soak, "the store has failed (%s), %llu records damaged", mr_err_name(err),
             (unsigned long long)stats.records_damaged);
    if (stats.disk_bytes > disk_bound(&stats) + SPARE_SEGMENTS * segment_bytes)
        fail(soak, "under load: %llu bytes of files, %llu live",
             (unsigned long long)stats.disk_bytes, (unsigned long long)stats.live_bytes);
    if (stats.memory_bytes > index_bytes_a_task * stats.tasks + index_bytes_fixed)
        fail(soak, "the index has %llu bytes for %llu tasks",
             (unsigned long long)stats.memory_bytes, (unsigned long long)stats.tasks);
    uint64_t files = entries("/proc/self/fd");
    if (files > stats.segments + FILES_BESIDE) /* segments follow the live data, bounded above */
        fail(soak, "%llu open files, %llu segments", (unsigned long long)files,
             (unsigned long long)stats.segments);
    atomic_fetch_add(&soak->tally->looks, 1);
    atomic_store(&soak->tally->snapshots, stats.snapshots);
}

static void back_up(struct soak *soak)
{
    char dir[300];
    struct mr_detail detail = {{0}};
    uint64_t kept = atomic_load(&soak->tally->kept_acked);
    snprintf(dir, sizeof dir, "%s-copy", soak->dir);
    enum mr_err err = mr_backup(soak->client, dir, &detail);
    if (err != MR_OK)
        fail(soak, "a backup is answered %s: %s", mr_err_name(err), detail.text);
    atomic_store(&soak->tally->backup_kept, kept + 1);
    atomic_fetch_add(&soak->tally->backups, 1);
}

/* Looks again and again until it is killed. */
static void watch(struct soak *soak)
{
    uint64_t early_rss = 0, early_threads = 0;
    bool copied = false;
    for (;;) {
        rest(LOOK_MS);
        look(soak);
        int64_t age_ms = now_ms() - soak->began_ms;
        uint64_t rss = rss_bytes(), threads = entries("/proc/self/task");
        if (age_ms > soak->life_ms / 2 && !copied) {
            back_up(soak);
            copied = true;
        }
        if (age_ms < soak->life_ms / 3)
            continue;
        if (early_rss == 0) {
            early_rss = rss;
            early_threads = threads;
        }
        if (rss > atomic_load(&soak->tally->rss_max))
            atomic_store(&soak->tally->rss_max, rss);
        if (!SANITIZED && rss > early_rss + early_rss / 10 + 16 * mib)
            fail(soak, "resident memory grew from %llu to %llu MiB in one life",
                 (unsigned long long)(early_rss / mib), (unsigned long long)(rss / mib));
        if (threads > early_threads)
            fail(soak, "threads grew from %llu to %llu", (unsigned long long)early_threads,
                 (unsigned long long)threads);
    }
}

static _Noreturn void run_child(struct soak *soak)
{
    pthread_t threads[PRODUCERS];
    soak->began_ms = now_ms();
    soak->client = open_store(soak, soak->dir);
    if (!soak->client)
        _exit(1);
    start_worker(soak);
    for (int i = 0; i < PRODUCERS; i++)
        mr_assert(mr_thread_start(&threads[i], "producer", produce, soak) == MR_OK);
    watch(soak);
    _exit(1);
}

/* ---- the parent ----------------------------------------------------------------------------- */

/* Counts what stays, and waits until the files keep to their bound without any load. */
static void check_rested(struct soak *soak, const char *dir, uint64_t kept_min)
{
    struct mr_client *client = open_store(soak, dir);
    if (!client)
        return;
    struct mr_queue_info info;
    enum mr_err err = mr_queue_get(client, MR_SLICE_LIT("kept"), &info);
    uint64_t kept = err == MR_OK ? info.counts[MR_SCHEDULED] : 0;
    uint64_t kept_max = atomic_load(&soak->tally->kept_sent);
    if (kept < kept_min || kept > kept_max)
        fail(soak, "%s holds %llu tasks that stay, not %llu to %llu", dir, (unsigned long long)kept,
             (unsigned long long)kept_min, (unsigned long long)kept_max);
    struct mr_stats stats = {0};
    for (int64_t end_ms = now_ms() + REST_MS; now_ms() < end_ms; rest(20))
        if (mr_stats_get(client, &stats) == MR_OK && stats.disk_bytes <= disk_bound(&stats))
            break;
    if (stats.disk_bytes > disk_bound(&stats))
        fail(soak, "%s at rest: %llu bytes of files, %llu live", dir,
             (unsigned long long)stats.disk_bytes, (unsigned long long)stats.live_bytes);
    mr_client_close(client);
}

static void remove_folder(const char *dir)
{
    char command[320];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0)
        printf("%s is left behind\n", dir);
}

static void live_and_die(struct soak *soak)
{
    atomic_store(&soak->tally->backup_kept, 0);
    fflush(stdout);
    pid_t pid = fork();
    mr_assert(pid >= 0);
    if (pid == 0)
        run_child(soak);
    for (int64_t end_ms = now_ms() + soak->life_ms;
         now_ms() < end_ms && !atomic_load(&soak->tally->failed);)
        rest(20);
    int status = 0;
    kill(pid, SIGKILL);
    mr_assert(waitpid(pid, &status, 0) == pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail(soak, "the child ended by itself (status %x)", status);
    check_rested(soak, soak->dir, atomic_load(&soak->tally->kept_acked));
    char copy[300];
    snprintf(copy, sizeof copy, "%s-copy", soak->dir);
    uint64_t backup_kept = atomic_load(&soak->tally->backup_kept);
    if (backup_kept > 0)
        check_rested(soak, copy, backup_kept - 1);
    remove_folder(copy);
}

static void check_whole(struct soak *soak)
{
    char url[300];
    struct mr_fsck_report report = {0};
    struct mr_detail detail = {{0}};
    snprintf(url, sizeof url, "file:%s", soak->dir);
    enum mr_err err = mr_fsck(url, MR_FSCK_CHECK, NULL, NULL, &report, &detail);
    if (err != MR_OK || report.damaged || report.mismatches)
        fail(soak, "fsck: %s, %llu places damaged: %s", mr_err_name(err),
             (unsigned long long)report.damaged, detail.text);
}

static void run_lives(struct soak *soak, int64_t seconds)
{
    int64_t end_ms = now_ms() + seconds * MR_MS_PER_S;
    uint64_t lives = 0, snapshots = 0, first_rss = 0;
    while (now_ms() < end_ms && !atomic_load(&soak->tally->failed)) {
        atomic_store(&soak->tally->rss_max, 0);
        live_and_die(soak);
        lives++;
        snapshots += atomic_load(&soak->tally->snapshots);
        uint64_t rss = atomic_load(&soak->tally->rss_max);
        first_rss = lives == 1 ? rss : first_rss;
        uint64_t stay = atomic_load(&soak->tally->kept_acked) * rss_bytes_a_task;
        if (!SANITIZED && rss > first_rss + first_rss / 4 + 16 * mib + stay)
            fail(soak, "resident memory grew from %llu MiB in the first life to %llu MiB",
                 (unsigned long long)(first_rss / mib), (unsigned long long)(rss / mib));
    }
    if (snapshots == 0 || atomic_load(&soak->tally->backups) == 0)
        fail(soak, "no snapshot or no backup was written");
    printf("%llu lives, %llu tasks acknowledged, %llu runs, %llu stay, %llu snapshots, "
           "%llu backups, %llu looks, %llu MiB resident at most\n",
           (unsigned long long)lives, (unsigned long long)atomic_load(&soak->tally->acked),
           (unsigned long long)atomic_load(&soak->tally->ended),
           (unsigned long long)atomic_load(&soak->tally->kept_acked), (unsigned long long)snapshots,
           (unsigned long long)atomic_load(&soak->tally->backups),
           (unsigned long long)atomic_load(&soak->tally->looks),
           (unsigned long long)(atomic_load(&soak->tally->rss_max) / mib));
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    int64_t seconds = (int64_t)rig_env("MR_SOAK_SECONDS", SECONDS_DEFAULT);
    char dir[200];
    snprintf(dir, sizeof dir, "%s/millrace-soak-XXXXXX", tmp ? tmp : "/tmp");
    mr_assert(mkdtemp(dir));
    struct tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mr_assert(tally != MAP_FAILED);
    struct soak soak = {.tally = tally, .dir = dir, .life_ms = seconds * 1000 / LIVES_WANTED};
    soak.life_ms = soak.life_ms < LIFE_MS_MIN ? LIFE_MS_MIN : soak.life_ms;
    soak.life_ms = soak.life_ms > LIFE_MS_MAX ? LIFE_MS_MAX : soak.life_ms;
    run_lives(&soak, seconds);
    if (!atomic_load(&tally->failed))
        check_whole(&soak);
    bool failed = atomic_load(&tally->failed);
    if (failed)
        printf("%s\n  the store is kept in %s\n", tally->text, dir);
    else
        remove_folder(dir);
    printf("%d passed, %d failed\n", !failed, failed);
    return failed;
}
