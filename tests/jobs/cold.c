/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 120: how long it takes from a job that is there to a worker that has taken its task, with ten segments of parts that have
 * ended in the store, and with none. A take here, the next one there: what disturbs the machine disturbs both. What it
 * disturbs all the same is outweighed by more of them.
 */
#include <stdio.h>

#include "jobs/child.h"
#include "jobs/rig.h"

enum { COLD = 10, SLOTS = 8, BLOCKS = 15, TOLERANCE_PERCENT = 20 };

struct takes {
    struct rig *rig;
    int64_t *ns;
    size_t n;
    _Atomic int64_t taken_ns; /* when the last task was */
    struct mr_event taken;
};

static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    struct takes *takes = arg;
    atomic_store(&takes->taken_ns, mr_mono_now(mr_clock_system()).ns);
    mr_event_set(&takes->taken);
    return mr_run_result(run, MR_SLICE_LIT("done\n")) == MR_OK ? MR_DONE : MR_FAIL;
}

static void takes_begin(struct takes *takes, size_t max)
{
    *takes = (struct takes){.rig = rig_make(), .ns = calloc(max, sizeof *takes->ns)};
    assert_non_null(takes->ns);
    mr_event_init(&takes->taken);
    rig_serve(takes->rig, 0);
    takes->rig->workers[0] = child_work(takes->rig->broker, SLOTS, "default", handle, takes);
    assert_non_null(takes->rig->workers[0]);
}

static void takes_end(struct takes *takes)
{
    rig_free(takes->rig);
    free(takes->ns);
}

/* So many segments are full, and all that is in them has ended. What comes next has room in one. */
static void make_cold(struct rig *rig, uint32_t parts)
{
    uint64_t begin, end;
    rig_unserve(rig, 0);
    rig->settings.segment_parts = parts;
    rig_serve(rig, 0);
    for (size_t i = 0; i < COLD; i++) {
        char id[RIG_ID_MAX];
        rig_load(rig, RIG_JOB(), "line %zu of a text that is neither long nor short\n", parts, id);
        rig_await_end(rig, id);
        assert_int_equal(rig_job(rig, id).done, parts);
    }
    rig_segments(rig, &begin, &end);
    assert_int_equal(begin, COLD + 1);
    assert_int_equal(end, COLD + 1);
    rig_unserve(rig, 0);
    rig->settings.segment_parts = 0;
    rig_serve(rig, 0);
}

static void take(struct takes *takes)
{
    char id[RIG_ID_MAX];
    mr_event_reset(&takes->taken);
    rig_load(takes->rig, RIG_JOB(), "part %zu\n", 1, id);
    int64_t there_ns = mr_mono_now(mr_clock_system()).ns;
    assert_true(mr_event_wait(&takes->taken, RIG_WAIT_MS * MR_NS_PER_MS));
    int64_t ns = atomic_load(&takes->taken_ns) - there_ns;
    takes->ns[takes->n++] =
        ns > 0 ? ns : 0; /* it may be sooner than we are told that it is there */
    rig_await_end(takes->rig, id);
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t p99_us(struct takes *takes)
{
    qsort(takes->ns, takes->n, sizeof *takes->ns, compare_ns);
    return takes->ns[takes->n * 99 / 100] / 1000;
}

static void test_120_takes_are_as_quick_behind_cold_segments(void **state)
{
    size_t block = rig_full() ? 400 : 100;
    uint32_t segment = rig_full() ? 100000 : 2000;
    int64_t none_us = 0, cold_us = 1;
    struct takes none, cold;
    (void)state;
    takes_begin(&none, block * BLOCKS);
    takes_begin(&cold, block * BLOCKS);
    make_cold(cold.rig, segment);
    for (size_t i = 0; i < BLOCKS && cold_us * 100 > none_us * (100 + (int64_t)TOLERANCE_PERCENT);
         i++) {
        for (size_t k = 0; k < block; k++) {
            take(k % 2 == 0 ? &none : &cold);
            take(k % 2 == 0 ? &cold : &none);
        }
        none_us = p99_us(&none);
        cold_us = p99_us(&cold);
        printf("120: p99 of %zu takes: %lld us behind %d segments of %lu, %lld us without\n",
               none.n, (long long)cold_us, COLD, (unsigned long)segment, (long long)none_us);
    }
    assert_true(cold_us * 100 <= none_us * (100 + (int64_t)TOLERANCE_PERCENT));
    takes_end(&none);
    takes_end(&cold);
}

int jobs_cold(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_120_takes_are_as_quick_behind_cold_segments),
    };
    return JOBS_RUN("jobs: cold segments", tests);
}
