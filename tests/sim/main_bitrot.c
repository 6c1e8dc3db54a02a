/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-bitrot: damages a small store at rest and opens it. It must refuse, naming file and
 * place, or serve nothing but correct data; with repair it must open and serve every task that was
 * not hit. Damage: single bits (each bit of each file's head, and at least one in each 16 bytes
 * elsewhere), zeroed and swapped sectors, files cut short, lost or doubled, and bits that flip
 * while the store is open. MR_FLIPS says how many bits, spread evenly.
 *
 * One exception: a snapshot that lost more than its parity can mend (sectors swapped, or the file
 * cut) may be refused also with repair, since it alone knows what became of older tasks.
 *
 * The store ends with one task that stands alone: a damaged last record cannot be told from one
 * that was never finished, so that task alone may be missing without a word.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/rig.h"
#include "sim/simfs_int.h"
#include "sim/world.h"

enum {
    FLIPS_DEFAULT = 3000,
    FLIPS_A_STORE = 1000,
    STEPS = 250,
    HEAD_BYTES = 512,
    ERRORS_SHOWN_MAX = 20,
    ERRORS_MAX = 200
};

struct rot {
    struct simfs *disk; /* undamaged */
    struct oracle *known;
    struct rig_clock clock;
    uint64_t seed;
    size_t tasks; /* on the undamaged disk */
    uint64_t passed, failed, refused, served, flipped;
    bool beyond;    /* the present damage is more than a snapshot's parity can mend */
    char what[128]; /* the present damage, for messages */
};

static void report(struct rot *rot, const char *error)
{
    rot->failed++;
    if (rot->failed <= ERRORS_SHOWN_MAX)
        printf("seed %llu, %s: %s\n", (unsigned long long)rot->seed, rot->what, error);
    fflush(stdout);
}

static void begin(struct rot *rot, struct rig *rig, struct simfs *fs, bool repair)
{
    rig_init(rig, fs, 3);
    rig->clock.mono_ns = rot->clock.mono_ns;
    rig->clock.wall_us = rot->clock.wall_us;
    rig->repair = repair;
}

/* Tasks that an undamaged store shows and this one does not, not even as damaged, the last one
 * aside. */
static size_t missing(struct rot *rot, const struct rig *rig, const struct oracle_view *view)
{
    struct oracle *known = oracle_clone(rot->known);
    oracle_time(known, rig_wall_ms(rig)); /* some have expired meanwhile */
    bool *seen = calloc(oracle_count(known), sizeof *seen);
    mr_assert(seen);
    size_t shown_damaged = 0;
    for (size_t i = 0; i < view->tasks_n; i++) {
        if (view->tasks[i].type.len == 0) {
            shown_damaged++;
            continue;
        }
        for (uint32_t t = 0; t < oracle_count(known); t++)
            if (mr_slice_equal(view->tasks[i].id, mr_slice_str(oracle_id(known, t))))
                seen[t] = true;
    }
    size_t n = 0;
    for (uint32_t t = 0; t + 1 < oracle_count(known); t++)
        n += !seen[t] && !oracle_may_be_gone(known, t);
    free(seen);
    oracle_free(known);
    return n > shown_damaged ? n - shown_damaged : 0;
}

static bool names_a_place(const struct mr_detail *detail)
{
    return detail->text[0] && strpbrk(detail->text, "0123456789");
}

static void check_none_missing(struct rot *rot, struct oracle *oracle, struct rig *rig)
{
    struct rig_view view;
    if (rig_view(rig, &view) == MR_OK) {
        size_t lost = missing(rot, rig, &view.view);
        if (lost)
            oracle_fail(oracle, "opened without a word, %zu tasks are missing", lost);
    }
    rig_view_done(&view);
}

/* Without repair: refused with a place, or all correct. Answers whether it was refused. */
static bool try_open(struct rot *rot, const struct simfs *damaged)
{
    struct simfs *fs = simfs_clone(damaged);
    struct oracle *oracle = oracle_clone(rot->known);
    struct rig rig;
    begin(rot, &rig, fs, false);
    enum mr_err err = rig_open(&rig);
    bool refused = err == MR_DAMAGED || err == MR_VERSION || err == MR_NOT_A_STORE;
    if (err == MR_DAMAGED && !names_a_place(&rig.detail))
        oracle_fail(oracle, "refused without a place: %s", rig.detail.text);
    if (err == MR_OK) {
        oracle_allow_loss(oracle);
        err = rig_judge(&rig, oracle, RIG_CHECK, NULL);
        if (err == MR_OK)
            check_none_missing(rot, oracle, &rig);
        else if (err != MR_DAMAGED)
            oracle_fail(oracle, "opened, then answers %s", mr_err_name(err));
        rot->served++;
    } else if (!refused) {
        oracle_fail(oracle, "refused with %s: %s", mr_err_name(err), rig.detail.text);
    }
    rot->refused += refused;
    if (oracle_error(oracle))
        report(rot, oracle_error(oracle));
    else
        rot->passed++;
    rig_done(&rig);
    oracle_free(oracle);
    simfs_free(fs);
    return refused;
}

/* A task whose record is damaged is shown, by id and queue, without a type. */
static void check_bodies(struct oracle *oracle, const struct oracle_view *view)
{
    for (size_t i = 0; i < view->tasks_n; i++)
        if (view->tasks[i].type.len > 0)
            oracle_check_task_body(oracle, &view->tasks[i]);
}

/* The payloads and names of what a repaired store shows; what came back may have ended before. */
static void check_repaired(struct rot *rot, struct oracle *oracle, struct rig *rig, size_t lost_max)
{
    struct rig_view view;
    enum mr_err err = rig_view(rig, &view);
    if (err == MR_OK) {
        size_t lost = missing(rot, rig, &view.view);
        if (lost > lost_max)
            oracle_fail(oracle, "repaired, but %zu tasks are missing, %zu were hit", lost,
                        lost_max);
        check_bodies(oracle, &view.view);
    } else {
        oracle_fail(oracle, "repaired, but answers %s", mr_err_name(err));
    }
    rig_view_done(&view);
}

static void try_repair(struct rot *rot, const struct simfs *damaged, size_t lost_max)
{
    struct simfs *fs = simfs_clone(damaged);
    struct oracle *oracle = oracle_clone(rot->known);
    struct rig rig;
    begin(rot, &rig, fs, true);
    enum mr_err err = rig_open(&rig);
    if (err == MR_OK)
        check_repaired(rot, oracle, &rig, lost_max);
    else if (err != MR_VERSION && err != MR_NOT_A_STORE && !(err == MR_DAMAGED && rot->beyond))
        oracle_fail(oracle, "repair refused with %s: %s", mr_err_name(err), rig.detail.text);
    /* Once repaired, a plain open must do. */
    if (err == MR_OK && !oracle_error(oracle)) {
        struct mr_rand rand;
        mr_rand_seed(&rand, 1);
        simfs_stop(fs);
        rig_kill(&rig);
        simfs_crash(fs, &rand, SIMFS_DROP_ALL);
        rig.repair = false;
        err = rig_open(&rig);
        if (err == MR_OK)
            check_repaired(rot, oracle, &rig, lost_max);
        else
            oracle_fail(oracle, "repaired, then refused with %s: %s", mr_err_name(err),
                        rig.detail.text);
    }
    if (oracle_error(oracle))
        report(rot, oracle_error(oracle));
    else
        rot->passed++;
    rig_done(&rig);
    oracle_free(oracle);
    simfs_free(fs);
}

/* Refused damage is then repaired. */
static void try_damage(struct rot *rot, const struct simfs *damaged, size_t lost_max)
{
    if (try_open(rot, damaged))
        try_repair(rot, damaged, lost_max);
}

/* ---- kinds of damage ------------------------------------------------------------------------ */

static void flip(struct rot *rot, size_t file, uint64_t bit)
{
    struct simfs *damaged = simfs_clone(rot->disk);
    snprintf(rot->what, sizeof rot->what, "bit %llu of %s (byte %llu)", (unsigned long long)bit,
             simfs_file_path(rot->disk, file), (unsigned long long)(bit / 8));
    simfs_flip_bit(damaged, file, bit);
    rot->flipped++;
    try_damage(rot, damaged, 1);
    simfs_free(damaged);
}

/* Bits of a file that count: all of its head, two in each 16 bytes of the rest that is in use. */
static uint64_t used_bytes(const struct rot *rot, size_t file)
{
    const uint8_t *data = simfs_file_data(rot->disk, file);
    uint64_t size = simfs_file_size(rot->disk, file);
    while (size > 0 && data[size - 1] == 0)
        size--;
    return size;
}

static uint64_t bits_of(const struct rot *rot, size_t file)
{
    uint64_t used = used_bytes(rot, file);
    uint64_t head = used < HEAD_BYTES ? used : HEAD_BYTES;
    return head * 8 + (used - head) / 8 * 2;
}

static uint64_t bit_at(const struct rot *rot, size_t file, uint64_t i)
{
    uint64_t used = used_bytes(rot, file);
    uint64_t head = used < HEAD_BYTES ? used : HEAD_BYTES;
    if (i < head * 8)
        return i;
    uint64_t rest = i - head * 8;
    return head * 8 + rest * 32 + rest * 7 % 32;
}

static void flip_all(struct rot *rot, uint64_t flips)
{
    uint64_t all = 0, done = 0;
    for (size_t f = 0; f < simfs_file_count(rot->disk); f++)
        all += bits_of(rot, f);
    for (size_t f = 0; f < simfs_file_count(rot->disk); f++)
        for (uint64_t i = 0; i < bits_of(rot, f) && rot->failed < ERRORS_MAX; i++, done++)
            if (flips >= all || (done + 1) * flips / all != done * flips / all)
                flip(rot, f, bit_at(rot, f, i));
}

static void sectors(struct rot *rot, struct mr_rand *rand, uint64_t n)
{
    static const uint8_t zeros[SIMFS_SECTOR];
    for (uint64_t i = 0; i < n && rot->failed < ERRORS_MAX; i++) {
        size_t f = (size_t)mr_rand_below(rand, simfs_file_count(rot->disk));
        uint64_t all = (used_bytes(rot, f) + SIMFS_SECTOR - 1) / SIMFS_SECTOR;
        if (all < 2 || simfs_file_size(rot->disk, f) % SIMFS_SECTOR)
            continue;
        uint64_t a = mr_rand_below(rand, all), b = mr_rand_below(rand, all);
        struct simfs *damaged = simfs_clone(rot->disk);
        const uint8_t *data = simfs_file_data(rot->disk, f);
        bool swap = mr_rand_one_in(rand, 2);
        rot->beyond = swap && strstr(simfs_file_path(rot->disk, f), "/snap-");
        snprintf(rot->what, sizeof rot->what, "%s sector %llu (and %llu) of %s",
                 swap ? "swapped" : "zeroed", (unsigned long long)a, (unsigned long long)b,
                 simfs_file_path(rot->disk, f));
        simfs_overwrite(damaged, f, a * SIMFS_SECTOR, swap ? data + b * SIMFS_SECTOR : zeros,
                        SIMFS_SECTOR);
        if (swap)
            simfs_overwrite(damaged, f, b * SIMFS_SECTOR, data + a * SIMFS_SECTOR, SIMFS_SECTOR);
        try_damage(rot, damaged, rot->tasks);
        simfs_free(damaged);
    }
}

static void cuts(struct rot *rot, struct mr_rand *rand, uint64_t n)
{
    for (uint64_t i = 0; i < n && rot->failed < ERRORS_MAX; i++) {
        size_t f = (size_t)mr_rand_below(rand, simfs_file_count(rot->disk));
        uint64_t size = simfs_file_size(rot->disk, f);
        if (size == 0)
            continue;
        uint64_t cut = mr_rand_below(rand, size);
        rot->beyond = strstr(simfs_file_path(rot->disk, f), "/snap-");
        struct simfs *damaged = simfs_clone(rot->disk);
        snprintf(rot->what, sizeof rot->what, "%s cut at %llu of %llu",
                 simfs_file_path(rot->disk, f), (unsigned long long)cut, (unsigned long long)size);
        simfs_cut(damaged, f, cut);
        try_damage(rot, damaged, rot->tasks);
        simfs_free(damaged);
    }
}

/* The number in the name of a segment; 0 for other files. */
static unsigned segment_number(const struct rot *rot, size_t file)
{
    unsigned number = 0;
    const char *name = strrchr(simfs_file_path(rot->disk, file), '/');
    return name && sscanf(name, "/log-%8x", &number) == 1 ? number : 0;
}

static unsigned last_segment(const struct rot *rot)
{
    unsigned last = 0;
    for (size_t f = 0; f < simfs_file_count(rot->disk); f++)
        last = segment_number(rot, f) > last ? segment_number(rot, f) : last;
    return last;
}

static void losses(struct rot *rot)
{
    for (size_t f = 0; f < simfs_file_count(rot->disk); f++) {
        if (segment_number(rot, f) == last_segment(rot))
            continue; /* nothing is left that could know of it */
        struct simfs *damaged = simfs_clone(rot->disk);
        snprintf(rot->what, sizeof rot->what, "%s lost", simfs_file_path(rot->disk, f));
        simfs_lose(damaged, f);
        try_damage(rot, damaged, rot->tasks);
        simfs_free(damaged);
    }
}

/* A segment once more, under the name of the one behind the last. */
static void doubles(struct rot *rot)
{
    for (size_t f = 0; f < simfs_file_count(rot->disk); f++) {
        if (segment_number(rot, f) == 0)
            continue;
        struct simfs *damaged = simfs_clone(rot->disk);
        struct mr_fs *fs = simfs_fs(damaged);
        struct mr_file *file = NULL;
        char path[MR_PATH_MAX];
        snprintf(path, sizeof path, RIG_DIR "/log-%08x", last_segment(rot) + 1);
        snprintf(rot->what, sizeof rot->what, "%s doubled", simfs_file_path(rot->disk, f));
        mr_assert(mr_fs_open(fs, path, MR_OPEN_CREATE, &file) == MR_OK);
        mr_assert(mr_file_pwrite(file, simfs_file_data(rot->disk, f), simfs_file_size(rot->disk, f),
                                 0) == MR_OK);
        mr_file_close(file);
        try_damage(rot, damaged, 0);
        simfs_free(damaged);
    }
}

/* Bits that flip under an open store: what is read is correct or refused. */
static void flip_open(struct rot *rot, struct mr_rand *rand, uint64_t n)
{
    for (uint64_t i = 0; i < n && rot->failed < ERRORS_MAX; i++) {
        struct simfs *fs = simfs_clone(rot->disk);
        struct oracle *oracle = oracle_clone(rot->known);
        struct rig rig;
        begin(rot, &rig, fs, false);
        mr_assert(rig_open(&rig) == MR_OK);
        size_t f = (size_t)mr_rand_below(rand, simfs_file_count(fs));
        uint64_t used = simfs_file_size(fs, f);
        snprintf(rot->what, sizeof rot->what, "a bit of %s while open", simfs_file_path(fs, f));
        if (used)
            simfs_flip_bit(fs, f, mr_rand_below(rand, used * 8));
        rot->flipped += used > 0;
        struct rig_view view;
        enum mr_err err = rig_view(&rig, &view);
        if (err == MR_OK)
            check_bodies(oracle, &view.view);
        if (err != MR_OK && err != MR_DAMAGED)
            oracle_fail(oracle, "answers %s", mr_err_name(err));
        rig_view_done(&view);
        if (oracle_error(oracle))
            report(rot, oracle_error(oracle));
        else
            rot->passed++;
        rig_done(&rig);
        oracle_free(oracle);
        simfs_free(fs);
    }
}

static void run_all(struct rot *rot, uint64_t flips)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, rot->seed);
    flip_all(rot, flips);
    sectors(rot, &rand, flips / 10);
    cuts(rot, &rand, flips / 10);
    rot->beyond = false;
    losses(rot);
    doubles(rot);
    flip_open(rot, &rand, flips / 10);
}

/* ---- the store ------------------------------------------------------------------------------ */

static void at_end(const struct simfs *fs, const struct oracle *oracle,
                   const struct rig_clock *clock, void *arg)
{
    struct rot *rot = arg;
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    rot->disk = simfs_clone(fs);
    simfs_crash(rot->disk, &rand, SIMFS_DROP_ALL);
    rot->known = oracle_clone(oracle);
    oracle_crashed(rot->known, ORACLE_POWER_CUT);
    rot->clock = *clock;
}

/* One undamaged opening, so that leases of the workload are settled, and the oracle knows all. */
static bool settle(struct rot *rot)
{
    struct rig rig;
    begin(rot, &rig, rot->disk, false);
    enum mr_err err = rig_open(&rig);
    if (err == MR_OK)
        err = rig_judge(&rig, rot->known, RIG_CHECK, NULL);
    struct rig_view view;
    if (err == MR_OK && (err = rig_view(&rig, &view)) == MR_OK) {
        rot->tasks = view.view.tasks_n;
        rig_view_done(&view);
    }
    if (err != MR_OK)
        oracle_fail(rot->known, "the undamaged store answers %s: %s", mr_err_name(err),
                    rig.detail.text);
    rot->clock = rig.clock;
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    simfs_stop(rot->disk);
    rig_done(&rig);
    simfs_crash(rot->disk, &rand, SIMFS_DROP_ALL);
    oracle_crashed(rot->known, ORACLE_POWER_CUT);
    if (oracle_error(rot->known))
        report(rot, oracle_error(rot->known));
    return !oracle_error(rot->known);
}

/* One store and its share of the damage; adds to the sums. */
static void run_store(uint64_t seed, uint64_t flips, struct rot *sum)
{
    struct rot rot = {.seed = seed, .failed = sum->failed};
    struct world_report world;
    struct world_calm calm = {.seed = seed, .steps = STEPS, .ended = at_end, .arg = &rot};
    world_run_calm(&calm, &world);
    snprintf(rot.what, sizeof rot.what, "no damage");
    if (!rot.disk || world.failed)
        report(&rot, world.failed ? world.error : "no store");
    else if (settle(&rot))
        run_all(&rot, flips);
    sum->passed += rot.passed;
    sum->failed = rot.failed;
    sum->refused += rot.refused;
    sum->served += rot.served;
    sum->flipped += rot.flipped;
    sum->tasks += rot.tasks;
    simfs_free(rot.disk);
    oracle_free(rot.known);
}

int main(int argc, char **argv)
{
    uint64_t flips = rig_env("MR_FLIPS", FLIPS_DEFAULT);
    uint64_t stores = (flips + FLIPS_A_STORE - 1) / FLIPS_A_STORE;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : rig_env("MR_SEED", 1);
    struct rot sum = {0};
    for (uint64_t i = 0; i < stores && sum.failed < ERRORS_MAX; i++)
        run_store(seed + i, flips / stores, &sum);
    printf("%llu stores, %zu tasks; %llu bits flipped, %llu times refused, %llu times served\n",
           (unsigned long long)stores, sum.tasks, (unsigned long long)sum.flipped,
           (unsigned long long)sum.refused, (unsigned long long)sum.served);
    printf("%llu passed, %llu failed\n", (unsigned long long)sum.passed,
           (unsigned long long)sum.failed);
    return sum.failed ? 1 : 0;
}
