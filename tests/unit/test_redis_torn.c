/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis that dies while it writes a change to its file, and then dies again. As it mends such a file itself, the half of the
 * change comes into force with the second start, and fsck has to mend what that leaves; with redis-check-aof it does not.
 */
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"

struct scene {
    struct redis_rig *rig;
    struct redis_rig_server *server;
    struct mr_broker *broker;
};

static struct mr_broker *open_broker(struct scene *scene)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {.url = redis_rig_url(scene->rig)};
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    return broker;
}

static int setup(void **state)
{
    static const struct redis_rig_options options = {.config =
                                                         "appendonly yes\nappendfsync always\n"};
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene->rig = redis_rig_standalone(&options);
    scene->server = redis_rig_server(scene->rig, 0);
    scene->broker = open_broker(scene);
    *state = scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    if (scene->broker != NULL)
        mr_broker_close(scene->broker);
    redis_rig_stop(scene->rig);
    free(scene);
    return 0;
}

/* ---- death ---------------------------------------------------------------------------------- */

/* Of so many bytes: where this stands last, up to an end; NULL: nowhere. */
static char *last_of(char *data, const char *end, const char *word)
{
    char *found = NULL;
    for (char *at = data; (at = memmem(at, (size_t)(end - at), word, strlen(word))) != NULL; at++)
        found = at;
    return found;
}

/* In the middle of the last command of the last transaction that has this one. */
static void tear(const struct scene *scene, const char *command)
{
    enum { BYTES = 1 << 20, SOME = 3 };
    static char data[BYTES];
    char pattern[REDIS_RIG_PATH_MAX + 64];
    glob_t found;
    (void)snprintf(pattern, sizeof pattern, "%s/appendonlydir/*.incr.aof", scene->server->dir);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    int fd = open(found.gl_pathv[0], O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t len = read(fd, data, sizeof data);
    assert_in_range(len, 1, BYTES - 1);
    char *at = last_of(data, data + len, command);
    assert_non_null(at);
    static const char end[] = "*1\r\n$4\r\nEXEC";
    const char *exec = memmem(at, (size_t)(data + len - at), end, sizeof end - 1);
    assert_non_null(exec);
    assert_int_equal(ftruncate(fd, exec - data - SOME), 0);
    (void)close(fd);
    globfree(&found);
}

/* torn: a command of the transaction that is; NULL: none is. */
static void restart(struct scene *scene, void (*start)(struct redis_rig_server *server),
                    const char *torn)
{
    mr_broker_close(scene->broker);
    scene->broker = NULL;
    redis_rig_kill(scene->server);
    if (torn != NULL)
        tear(scene, torn);
    start(scene->server);
    scene->broker = open_broker(scene);
}

static void put_id(const struct scene *scene, const char *id)
{
    put(scene->broker, (struct mr_task_options){.id = mr_slice_str(id)});
}

static void add_line(const char *text, void *arg)
{
    struct mr_buf *lines = arg;
    if (mr_buf_printf(lines, "%s\n", text) != MR_OK)
        abort();
}

/* How much was mended; if any was, this is said of it. */
static size_t mended(const struct scene *scene, const char *what)
{
    struct mr_buf lines = {0};
    struct mr_fsck_report report;
    struct mr_detail detail = {.text = ""};
    struct mr_redis_check check = {
        .url = redis_rig_url(scene->rig), .mode = MR_FSCK_REPAIR, .line = add_line, .arg = &lines};
    assert_int_equal(mr_redis_fsck(&check, &report, &detail), MR_OK);
    printf("%.*s", (int)lines.len, lines.len > 0 ? (const char *)lines.data : "");
    assert_int_equal(lines.len > 0, report.repaired > 0);
    assert_true(lines.len == 0 || memmem(lines.data, lines.len, what, strlen(what)) != NULL);
    mr_buf_done(&lines);
    return report.repaired;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* A task that was acknowledged, one that is torn while it comes, and one that comes after the first death. */
static void tear_an_enqueue(struct scene *scene, void (*start)(struct redis_rig_server *server))
{
    put_id(scene, "kept");
    put_id(scene, "torn");
    restart(scene, start, "LPUSH");
    assert_int_equal(state_of(scene->broker, "kept"), MR_PENDING);
    assert_int_equal(state_of(scene->broker, "torn"), MR_STATE_NONE);
    assert_int_equal(mended(scene, "a task in no place"), 0);
    put_id(scene, "after");
    restart(scene, start, NULL);
    assert_int_equal(state_of(scene->broker, "kept"), MR_PENDING);
    assert_int_equal(state_of(scene->broker, "after"), MR_PENDING);
}

static void half_of_an_enqueue_is_mended_by_fsck(void **state)
{
    struct scene *scene = *state;
    tear_an_enqueue(scene, redis_rig_start_unmended);
    assert_int_equal(mended(scene, "a task in no place"), 1);
    assert_int_equal(mended(scene, "a task in no place"), 0);
}

static void half_of_an_enqueue_is_gone_after_redis_check_aof(void **state)
{
    struct scene *scene = *state;
    tear_an_enqueue(scene, redis_rig_start);
    assert_int_equal(state_of(scene->broker, "torn"), MR_STATE_NONE);
    assert_int_equal(mended(scene, "a task in no place"), 0);
}

/* Its half takes a task that was acknowledged out of its place. */
static void tear_a_take(struct scene *scene, void (*start)(struct redis_rig_server *server))
{
    put_id(scene, "kept");
    struct mr_lease *lease = take_one(scene->broker);
    mr_lease_free(lease);
    restart(scene, start, "RPOP");
    assert_int_equal(state_of(scene->broker, "kept"), MR_PENDING);
    put_id(scene, "after");
    restart(scene, start, NULL);
}

static void half_of_a_take_is_mended_by_fsck(void **state)
{
    struct scene *scene = *state;
    tear_a_take(scene, redis_rig_start_unmended);
    assert_int_equal(mended(scene, "in active without a lease"), 1);
    assert_int_equal(state_of(scene->broker, "kept"), MR_PENDING);
    assert_int_equal(mended(scene, "a task in no place"), 0);
}

static void half_of_a_take_is_gone_after_redis_check_aof(void **state)
{
    struct scene *scene = *state;
    tear_a_take(scene, redis_rig_start);
    assert_int_equal(state_of(scene->broker, "kept"), MR_PENDING);
    assert_int_equal(mended(scene, "a task in no place"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(half_of_an_enqueue_is_mended_by_fsck, setup, teardown),
        cmocka_unit_test_setup_teardown(half_of_an_enqueue_is_gone_after_redis_check_aof, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(half_of_a_take_is_mended_by_fsck, setup, teardown),
        cmocka_unit_test_setup_teardown(half_of_a_take_is_gone_after_redis_check_aof, setup,
                                        teardown),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
