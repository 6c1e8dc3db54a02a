/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on a disk whose reads fail: an answer is right, or says that there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/rig.h"

struct fixture {
    struct simfs *fs;
    struct rig rig;
};

static void begin(struct fixture *f)
{
    f->fs = simfs_new(1);
    rig_init(&f->rig, f->fs, 1);
    assert_int_equal(rig_open(&f->rig), MR_OK);
}

static void end(struct fixture *f)
{
    rig_done(&f->rig);
    simfs_free(f->fs);
}

/* Another process, with nothing of the log in its memory. */
static void reopen(struct fixture *f)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    simfs_stop(f->fs);
    rig_kill(&f->rig);
    simfs_crash(f->fs, &rand, SIMFS_KEEP_ALL);
    assert_int_equal(rig_open(&f->rig), MR_OK);
}

static struct mr_enqueue_result enqueue(struct fixture *f, const char *id, enum mr_on_duplicate how)
{
    struct mr_task_options task = {.id = mr_slice_str(id),
                                   .unique_key = MR_SLICE_LIT("key"),
                                   .unique_ms = 3600 * MR_MS_PER_S,
                                   .on_duplicate = how};
    struct mr_enqueue_result result = {0};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return result;
}

static void a_holder_whose_name_cannot_be_read_is_not_named_by_another(void **state)
{
    (void)state;
    for (enum mr_on_duplicate how = MR_DUPLICATE_REJECT; how <= MR_DUPLICATE_REPLACE; how++) {
        struct fixture f;
        begin(&f);
        assert_int_equal(enqueue(&f, "holder", MR_DUPLICATE_REJECT).err, MR_OK);
        reopen(&f);
        simfs_fail(f.fs, SIMFS_READ, 0, SIMFS_FOR_EVER, MR_IO);
        struct mr_enqueue_result result = enqueue(&f, "other", how);
        assert_int_equal(result.err, MR_DAMAGED);
        assert_string_equal(result.id, "");
        simfs_heal(f.fs);
        result = enqueue(&f, "other", MR_DUPLICATE_IGNORE);
        assert_int_equal(result.err, MR_OK);
        assert_string_equal(result.id, "holder");
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_holder_whose_name_cannot_be_read_is_not_named_by_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
