/* SPDX-License-Identifier: Apache-2.0 */
/* Part L, what a broker keeps: through its death under load, a torn last write, and a full disk. */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accept/accept.h"
#include "accept/hand.h"
#include "accept/load.h"
#include "base/rand.h"
#include "support/redis_rig.h"

enum { LIFE_MS_MIN = 50, LIFE_MS_MAX = 400 };

static void await_broker(struct accept *t)
{
    struct mr_stats stats;
    UNTIL(mr_stats_get(t->client, &stats) == MR_OK);
}

/* What was in the hands of the dead comes back; then nothing changes any more. */
static void await_rest(struct accept *t)
{
    struct hand *watch = hand_open(t, "watch", NULL, ACCEPT_DEATH_MS);
    UNTIL((hand_beat(watch), accept_total(t, MR_ACTIVE) == 0));
    hand_close(watch);
}

/* ---- killed under load ---------------------------------------------------------------------- */

/* The load outlives a server; an engine of its own dies with it. */
static void kill_under_load(struct accept *t, struct load_book *book, pid_t *load, size_t i)
{
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "l%zu", i);
    if (*load == 0) {
        accept_close(t);
        *load = load_spawn(t, t->place[0].url, prefix);
    }
    UNTIL(load_read(book) > 0);
    accept_pass_ms(LIFE_MS_MIN + (int64_t)(i * 37 % LIFE_MS_MAX));
    (void)load_read(book);
    if (t->engine->kill) {
        t->engine->kill(&t->place[0]);
        t->engine->restart(&t->place[0]);
        await_broker(t);
    } else {
        accept_kill_process(t, *load);
        *load = 0;
        accept_open(t);
    }
    load_check_news(book);
}

static void test_122_what_was_acknowledged_survives_kills_under_load(void **state)
{
    struct accept *t = *state;
    size_t kills = accept_size(100, 2);
    struct load_book *book = load_book_open(t);
    pid_t load = t->engine->kill ? load_spawn(t, t->place[0].url, "l") : 0;
    for (size_t i = 0; i < kills; i++)
        kill_under_load(t, book, &load, i);
    if (load != 0)
        accept_end_process(t, load);
    await_rest(t);
    (void)load_read(book);
    load_settle(book);
    print_message("%zu kills, %zu tasks, %llu of them done, %zu deleted\n", kills, t->ids_n,
                  (unsigned long long)accept_total(t, MR_COMPLETED), (size_t)t->deleted);
    assert_true(t->deleted > 0 && accept_total(t, MR_COMPLETED) > 0);
}

/* ---- a torn last write ---------------------------------------------------------------------- */

enum { FILES_MAX = 64 };

/* What a kill would leave of a folder: all its files, without the zeroes at their ends. */
struct folder {
    const char *root;
    struct file {
        char path[MR_PATH_MAX];
        char *data;
        size_t len, size;
    } files[FILES_MAX];
    size_t n;
};

static struct folder *reading; /* nftw has no argument */

static int read_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    if (type != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    assert_true(reading->n < FILES_MAX);
    struct file *file = &reading->files[reading->n++];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)snprintf(file->path, sizeof file->path, "%s", path);
    file->size = (size_t)st->st_size;
    file->data = malloc(file->size + 1);
    assert_non_null(file->data);
    file->size = file->len = (size_t)pread(fd, file->data, file->size, 0);
    while (file->len > 0 && file->data[file->len - 1] == '\0')
        file->len--;
    (void)close(fd);
    return 0;
}

static void folder_read(struct folder *folder, const char *root)
{
    folder->root = root;
    folder->n = 0;
    reading = folder;
    assert_int_equal(nftw(root, read_one, 16, FTW_PHYS), 0);
}

static int remove_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)at;
    return type == FTW_F ? remove(path) : 0;
}

/* As it was, but of one file only what stands before the cut; its size stays, or not. */
static void folder_write(const struct folder *folder, const char *cut_path, size_t cut, bool short_)
{
    (void)nftw(folder->root, remove_file, 16, FTW_PHYS);
    for (size_t i = 0; i < folder->n; i++) {
        const struct file *file = &folder->files[i];
        bool torn = strcmp(file->path, cut_path) == 0;
        size_t len = torn && cut < file->len ? cut : file->len;
        int fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, file->data, len), (ssize_t)len);
        assert_int_equal(ftruncate(fd, (off_t)(torn && short_ ? len : file->size)), 0);
        (void)close(fd);
    }
}

static void folder_done(struct folder *folder)
{
    for (size_t i = 0; i < folder->n; i++)
        free(folder->files[i].data);
}

/* A server writes to the store of timers and jobs by itself. */
static bool is_of_tasks(const char *path)
{
    return strstr(path, "/store.db") == NULL;
}

/* The file where the last task was written, and where it begins there. */
static const struct file *find_written(const struct folder *before, const struct folder *after,
                                       size_t *ret_from)
{
    const struct file *found = NULL;
    for (size_t i = 0; i < after->n; i++) {
        const struct file *file = &after->files[i];
        for (size_t k = 0; k < before->n; k++) {
            const struct file *old = &before->files[k];
            if (strcmp(file->path, old->path) != 0 || file->len <= old->len ||
                !is_of_tasks(file->path))
                continue;
            assert_null(found);
            assert_memory_equal(file->data, old->data, old->len);
            found = file;
            *ret_from = old->len;
        }
    }
    assert_non_null(found);
    return found;
}

static void store_folder(struct accept *t, char root[MR_PATH_MAX])
{
    const struct accept_place *place = &t->place[0];
    if (place->redis)
        (void)snprintf(root, MR_PATH_MAX, "%s", redis_rig_server(place->redis, 0)->dir);
    else
        assert_in_range(snprintf(root, MR_PATH_MAX, "%s%s", place->dir, place->pid ? "/data" : ""),
                        1, MR_PATH_MAX - 1);
    if (place->redis)
        (void)strncat(root, "/appendonlydir", MR_PATH_MAX - strlen(root) - 1);
}

/* No torn write makes a file of a store shorter: that is damage, told and to be repaired. */
static void repair_short(const struct folder *folder)
{
    char url[MR_PATH_MAX + 8];
    struct mr_fsck_report report = {0};
    struct mr_client *client = NULL;
    (void)snprintf(url, sizeof url, "file:%s", folder->root);
    assert_err(mr_client_open(url, NULL, &client, NULL), MR_DAMAGED);
    assert_err(mr_fsck(url, MR_FSCK_REPAIR, NULL, NULL, &report, NULL), MR_OK);
}

/* Starts on what is left with the cut; what was written before it is there. */
static void start_torn(struct accept *t, const struct folder *folder, const struct file *file,
                       size_t cut)
{
    bool is_store = !t->place[0].redis, short_ = !is_store || cut % 2 == 0;
    accept_close(t);
    if (t->engine->kill)
        t->engine->kill(&t->place[0]);
    folder_write(folder, file->path, cut, short_ && cut < file->len);
    if (is_store && short_ && cut < file->len)
        repair_short(folder);
    if (t->engine->restart)
        t->engine->restart(&t->place[0]);
    accept_open(t);
    await_broker(t);
    assert_int_equal(accept_state(t, "a"), MR_PENDING);
    assert_int_equal(accept_state(t, "b"), MR_PENDING);
}

static void test_123_a_torn_last_write_takes_that_record_only(void **state)
{
    struct accept *t = *state;
    static struct folder before, after;
    char root[MR_PATH_MAX];
    size_t from = 0, cuts = 0;
    bool there = false;
    PUT(t, .id = "a", .payload = "first");
    PUT(t, .id = "b", .payload = "second");
    store_folder(t, root);
    folder_read(&before, root);
    PUT(t, .id = "c", .payload = "third");
    folder_read(&after, root);
    const struct file *file = find_written(&before, &after, &from);
    /* A server takes longer to start than a folder to open. */
    size_t every =
        t->engine->restart ? accept_size(t->place[0].redis ? 7 : 11, 131) : accept_size(1, 7);
    const char *payload = memmem(file->data + from, file->len - from, "third", 5);
    assert_non_null(payload);
    for (size_t cut = from; cut < file->len; cut += every, cuts++) {
        start_torn(t, &after, file, cut);
        enum mr_state found = accept_state(t, "c");
        bool behind = there || cut >= (size_t)(payload - file->data) + 5;
        assert_true(found == MR_STATE_NONE ? !there : behind && found == MR_PENDING);
        there =
            found == MR_PENDING; /* from there on it is what the log says of itself that is torn */
        struct mr_task_options more = {.id = mr_slice_str("c"), .payload = mr_slice_str("again")};
        assert_err(accept_try(t, more).err, there ? MR_CONFLICT : MR_OK);
    }
    start_torn(t, &after, file, file->len);
    assert_int_equal(accept_state(t, "c"), MR_PENDING);
    print_message("%zu cuts in %zu bytes\n", cuts, file->len - from);
    folder_done(&before);
    folder_done(&after);
}

/* ---- a full disk ---------------------------------------------------------------------------- */

enum { DISK_MIB = 200, KNOWN = 20, BIG = 1000 * 1000, BIGS_MAX = 150 };

/* Puts in big ones until one is refused; answers with what. */
static enum mr_err fill_with_tasks(struct accept *t)
{
    static char big[BIG];
    for (size_t i = 0; i < BIGS_MAX; i++) {
        struct mr_task_options options = {
            .queue = mr_slice_str("big"), .type = mr_slice_str("echo"), .payload = {big, BIG}};
        struct mr_enqueue_result result = accept_try(t, options);
        if (result.err != MR_OK)
            return result.err;
        (void)accept_remember(t, result.id);
    }
    return MR_OK;
}

static bool accepts(struct accept *t)
{
    struct mr_task_options options = {
        .queue = mr_slice_str("big"), .type = mr_slice_str("echo"), .payload = mr_slice_str("p")};
    struct mr_enqueue_result result = accept_try(t, options);
    if (result.err == MR_OK)
        (void)accept_remember(t, result.id);
    return result.err == MR_OK;
}

/* The rest of the server's disk, which is seen through the process. */
static void ballast_path(const struct accept_place *place, char path[MR_PATH_MAX + 64])
{
    (void)snprintf(path, MR_PATH_MAX + 64, "/proc/%d/root%s/data/ballast", (int)place->pid,
                   place->dir);
}

static void put_ballast(const struct accept_place *place)
{
    static const char zeroes[4096];
    char path[MR_PATH_MAX + 64];
    ballast_path(place, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeroes, sizeof zeroes) > 0)
        ;
    (void)close(fd);
}

static void full_disk_of_a_server(struct accept *t)
{
    struct accept_place *place = &t->place[0];
    char path[MR_PATH_MAX + 64];
    accept_close(t);
    t->engine->kill(place);
    place->disk_mib = DISK_MIB;
    t->engine->restart(place);
    accept_open(t);
    accept_put_many(t, "k", KNOWN, &(struct accept_task){.payload = "p"});
    put_ballast(place);
    assert_err(fill_with_tasks(t), MR_DISK_FULL);
    BURST(t); /* what is known is handed out and finished all the same */
    assert_int_equal(accept_count(t, "default", MR_COMPLETED), KNOWN);
    ballast_path(place, path);
    assert_int_equal(unlink(path), 0);
    UNTIL(accepts(t));
    BURST(t, .queues = "big");
}

/* Its disk is its memory. */
static void full_redis(struct accept *t)
{
    struct redis_rig_server *server = redis_rig_server(t->place[0].redis, 0);
    accept_put_many(t, "k", KNOWN, &(struct accept_task){.type = "hold", .payload = "p"});
    t->hold = true;
    WORKER(t, .slots = 2);
    UNTIL(accept_ran_all(t) == 2);
    (void)RIG(server, "CONFIG", "SET", "maxmemory", "1");
    assert_err(fill_with_tasks(t), MR_DISK_FULL);
    t->hold = false; /* what is known is handed out and finished all the same */
    UNTIL(accept_count(t, "default", MR_COMPLETED) == KNOWN);
    (void)RIG(server, "CONFIG", "SET", "maxmemory", "0");
    UNTIL(accepts(t));
    BURST(t, .queues = "big");
}

static void test_124_a_full_disk_refuses_new_work_only(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* the server has this engine */
    if (t->place[0].redis)
        full_redis(t);
    else
        full_disk_of_a_server(t);
    UNTIL(accept_all_completed(t));
}

int accept_durable(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_122_what_was_acknowledged_survives_kills_under_load),
        ACCEPT_TEST(test_123_a_torn_last_write_takes_that_record_only),
        ACCEPT_TEST(test_124_a_full_disk_refuses_new_work_only),
    };
    return ACCEPT_RUN(engine, "L: what is kept", tests);
}
