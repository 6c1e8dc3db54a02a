/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs with a past: several lives, each ended by a power cut that leaves what it likes of what was not synced, with
 * snapshots and recycled segments; then damage, and a repair; and all of it again. Whatever was durable and is whole is
 * found, and nothing that was cut off comes back. MR_SEEDS pasts (1000) from MR_SEED (1).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "sim/simfs.h"
#include "unit/log_rig.h"

enum { SEEDS = 1000, ROUNDS = 3, LIVES = 3, LEN_MAX = 300, SEQS = 1500 };

struct written {
    size_t len;
    struct mr_log_pos pos;
    uint32_t term;
    bool lost; /* to damage */
};

struct lives {
    struct log_rig *rig;
    struct mr_rand rand;
    struct written written[SEQS];
    uint64_t last; /* newest record that is there */
};

static uint64_t below(struct lives *lives, uint64_t n)
{
    return mr_rand_below(&lives->rand, n);
}

static void put(struct lives *lives)
{
    struct log_rig *rig = lives->rig;
    struct written *written = &lives->written[++lives->last];
    assert_true(lives->last < SEQS);
    *written = (struct written){.len = 1 + below(lives, LEN_MAX), .term = mr_log_term(rig->log)};
    assert_int_equal(log_put(rig, written->len, MR_LOG_LAZY, &written->pos), lives->last);
}

static void put_durable(struct lives *lives)
{
    put(lives);
    log_flush(lives->rig);
}

/* What was found is what was written last under its number, and all of it that is not lost. */
static void compare(const struct lives *lives)
{
    const struct log_rig *rig = lives->rig;
    size_t n = 0, whole = 0;
    assert_int_equal(mr_log_last_seq(rig->log), lives->last);
    for (size_t i = 0; i < rig->found_n; i++) {
        const struct log_found *found = &rig->found[i];
        const struct written *written = &lives->written[found->seq];
        if (found->type == MR_RECORD_SKIP)
            continue;
        assert_in_range(found->seq, rig->recovery.after_seq + 1, lives->last);
        assert_int_equal(found->len, written->len);
        assert_int_equal(found->pos.segment, written->pos.segment);
        assert_int_equal(found->pos.offset, written->pos.offset);
        n += !written->lost;
    }
    for (uint64_t seq = rig->recovery.after_seq + 1; seq <= lives->last; seq++)
        whole += !lives->written[seq].lost;
    assert_int_equal(n, whole);
}

/* Everything durable up to some record is in a snapshot, and segments that have only that go. */
static void cover(struct lives *lives)
{
    struct log_rig *rig = lives->rig;
    uint64_t old = rig->recovery.after_seq, durable = mr_log_durable(rig->log);
    uint64_t seq = old + below(lives, durable - old + 1);
    if (seq == old || lives->written[seq].lost)
        return;
    rig->recovery.after_seq = seq;
    rig->recovery.after_term = lives->written[seq].term;
    mr_log_trim(rig->log, seq);
    log_run_chores(rig);
}

static void live(struct lives *lives)
{
    struct log_rig *rig = lives->rig;
    put_durable(lives); /* as each opening does: with it its term is durable */
    for (uint64_t n = below(lives, 50); n > 0; n--) {
        put(lives);
        if (below(lives, 8) == 0)
            assert_int_equal(mr_log_write(rig->log), MR_OK);
        if (below(lives, 16) == 0)
            log_flush(rig);
        if (below(lives, 64) == 0)
            cover(lives);
    }
    if (below(lives, 2) == 0)
        assert_int_equal(mr_log_write(rig->log), MR_OK);
}

static void die(struct lives *lives)
{
    struct log_rig *rig = lives->rig;
    uint64_t durable = mr_log_durable(rig->log);
    simfs_stop(rig->sim);
    log_drop(rig);
    simfs_crash(rig->sim, &lives->rand, (enum simfs_policy)below(lives, SIMFS_POLICY_COUNT));
    log_open(rig);
    assert_in_range(mr_log_last_seq(rig->log), durable, lives->last);
    lives->last = mr_log_last_seq(rig->log);
    compare(lives);
}

static bool overlaps(const struct written *written, uint32_t segment, uint64_t from, uint64_t len)
{
    return written->pos.segment == segment && written->pos.offset < from + len &&
           from < written->pos.offset + mr_record_size(written->len);
}

/* Sectors, or bytes, somewhere in the records up to one. Those behind it knew them to be durable. */
static void damage(struct lives *lives, uint64_t upto)
{
    static uint8_t garbage[3 * SIMFS_SECTOR];
    struct log_rig *rig = lives->rig;
    const struct written *at = &lives->written[1 + below(lives, upto)];
    uint64_t from = at->pos.offset, len = 1 + below(lives, sizeof garbage);
    char name[32];
    mr_segment_name(name, at->pos.segment);
    size_t file = log_file(rig, name);
    if (file == SIZE_MAX)
        return; /* it is covered, and gone */
    if (below(lives, 2) == 0) {
        from = from / SIMFS_SECTOR * SIMFS_SECTOR;
        len = (1 + below(lives, 3)) * SIMFS_SECTOR;
    }
    if (from < MR_SEGMENT_HEADER || from + len > simfs_file_size(rig->sim, file))
        return;
    for (uint64_t seq = upto + 1; seq <= lives->last; seq++)
        if (overlaps(&lives->written[seq], at->pos.segment, from, len))
            return;
    memset(garbage, (int)below(lives, 256), len);
    simfs_overwrite(rig->sim, file, from, garbage, len);
    for (uint64_t seq = 1; seq <= upto; seq++)
        if (overlaps(&lives->written[seq], at->pos.segment, from, len))
            lives->written[seq].lost = true;
}

static void damage_and_repair(struct lives *lives)
{
    struct log_rig *rig = lives->rig;
    put_durable(lives);
    uint64_t upto = lives->last;
    for (int i = 0; i < 3; i++)
        put_durable(lives);
    log_drop(rig);
    for (uint64_t n = below(lives, 4); n > 0; n--)
        damage(lives, upto);
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    compare(lives);
    rig->recovery.mode = MR_FSCK_CHECK;
    log_open(rig);
    compare(lives);
}

static void run(uint64_t seed)
{
    static struct lives lives;
    static struct log_rig rig;
    memset(&lives, 0, sizeof lives);
    mr_rand_seed(&lives.rand, seed);
    lives.rig = &rig;
    log_rig_begin(&rig);
    log_open(&rig);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LIVES; i++) {
            live(&lives);
            die(&lives);
        }
        damage_and_repair(&lives);
    }
    log_rig_end(&rig);
}

static uint64_t seed;

static void what_is_whole_survives_any_past_and_nothing_else_comes_back(void **state)
{
    (void)state;
    seed = rig_env("MR_SEED", 1);
    for (uint64_t n = rig_env("MR_SEEDS", SEEDS); n > 0; n--, seed++)
        run(seed);
    seed = 0;
}

static int tell_seed(void **state)
{
    (void)state;
    if (seed != 0)
        print_error("repeat with: MR_SEED=%llu MR_SEEDS=1\n", (unsigned long long)seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_whole_survives_any_past_and_nothing_else_comes_back,
                                  tell_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
