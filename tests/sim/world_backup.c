/* SPDX-License-Identifier: Apache-2.0 */
/* A backup taken while everybody works: the copy opens after a power cut, and holds all that was
 * acknowledged before it was asked for, as it was then or later. */
#include <stdio.h>
#include <string.h>

#include "sim/world_int.h"

#define BACKUP_DIR "backup"

static bool is_copy(const struct simfs *fs, size_t i)
{
    return strncmp(simfs_file_path(fs, i), BACKUP_DIR "/", strlen(BACKUP_DIR "/")) == 0;
}

/* Somebody takes away what stands in the folder; a fault that hits this is no harm. */
static void clear_folder(struct simfs *simfs)
{
    struct mr_fs *fs = simfs_fs(simfs);
    for (size_t i = simfs_file_count(simfs); i-- > 0;)
        if (is_copy(simfs, i))
            (void)!fs->ops->remove(fs, simfs_file_path(simfs, i));
    (void)!fs->ops->dir_sync(fs, BACKUP_DIR);
}

void world_backup(struct world *world)
{
    if (world->before)
        return;
    clear_folder(world->fs); /* of a life that was cut short */
    world->before = oracle_clone(world->oracle);
    struct wreq *wreq = world_new_req(world, MR_OP_BACKUP);
    wreq->u.backup.dir = BACKUP_DIR;
    world_trace(world, "backup_sent", 0, 0);
    rig_submit(&world->rig, &wreq->u.req);
}

static void judge_copy(struct world *world)
{
    struct simfs *fs = simfs_clone(world->fs);
    struct oracle *oracle = oracle_clone(world->oracle);
    struct mr_rand rand;
    struct rig rig;
    mr_rand_seed(&rand, (uint64_t)world->rig.clock.mono_ns);
    oracle_forget_since(oracle, world->before);
    oracle_crashed(oracle, ORACLE_POWER_CUT);
    simfs_stop(fs);
    simfs_crash(fs, &rand, SIMFS_DROP_ALL);
    simfs_heal(fs);
    rig_init(&rig, fs, 5);
    rig.dir = BACKUP_DIR;
    rig.segment_bytes = world->rig.segment_bytes;
    rig.clock.mono_ns = world->rig.clock.mono_ns;
    rig.clock.wall_us = world->rig.clock.wall_us;
    enum mr_err err = rig_open(&rig);
    if (err == MR_OK)
        err = rig_judge(&rig, oracle, RIG_CHECK, NULL);
    if (oracle_error(oracle))
        oracle_fail(world->oracle, "in a backup: %s", oracle_error(oracle));
    else if (err != MR_OK)
        oracle_fail(world->oracle, "a backup does not open: %s: %s", mr_err_name(err),
                    rig.detail.text);
    rig_done(&rig);
    oracle_free(oracle);
    simfs_free(fs);
}

void world_backup_answered(struct world *world, struct wreq *wreq)
{
    world_trace(world, "backup", 0, wreq->u.req.err);
    if (wreq->u.req.err == MR_OK) {
        judge_copy(world);
        world->report->backups++;
    } else if (world->calm) {
        oracle_fail(world->oracle, "no faults, but a backup is answered %s: %s",
                    mr_err_name(wreq->u.req.err), wreq->u.backup.detail.text);
    }
    /* A fault may also have hit the tidying up. */
    for (size_t i = 0; wreq->u.req.err != MR_OK && i < simfs_file_count(world->fs); i++)
        if (is_copy(world->fs, i) && !world->io_failed)
            oracle_fail(world->oracle, "a backup answered %s leaves %s behind",
                        mr_err_name(wreq->u.req.err), simfs_file_path(world->fs, i));
    clear_folder(world->fs);
    oracle_free(world->before);
    world->before = NULL;
}
