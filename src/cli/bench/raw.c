/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw loop that figures are compared with: what this disk gives to a program that does nothing
 * but append framed records and sync. One file of 256 MiB, zero-filled and synced before, written
 * round and round.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/crc.h"
#include "cli/bench/bench.h"

enum {
    FILE_BYTES = 256 * 1024 * 1024,
    FILL_BYTES = 4 * 1024 * 1024,
    RECORD_BYTES = 200,
    FRAME_BYTES = 8, /* length and CRC32C */
    SAMPLES_MAX = 1000 * 1000,
};

static enum mr_err fill_with_zeros(struct mr_file *file)
{
    uint8_t *zeros = cli_alloc(1, FILL_BYTES);
    enum mr_err err = MR_OK;
    for (uint64_t at = 0; err == MR_OK && at < FILE_BYTES; at += FILL_BYTES)
        err = mr_file_pwrite(file, zeros, FILL_BYTES, at);
    if (err == MR_OK)
        err = mr_file_sync(file);
    free(zeros);
    return err;
}

enum mr_err bench_raw_open(struct bench *bench, struct bench_raw *raw)
{
    *raw = (struct bench_raw){0};
    bench_doing(bench, "yardstick: filling its file");
    MR_TRY(mr_path_join(raw->path, bench->dir, "raw"));
    MR_TRY(mr_fs_open(mr_fs_system(), raw->path, MR_OPEN_CREATE, &raw->file));
    bench_samples_init(&raw->samples, SAMPLES_MAX);
    MR_TRY(fill_with_zeros(raw->file));
    return MR_OK;
}

static void frame(uint8_t *record, uint64_t number)
{
    mr_store32(record, RECORD_BYTES - FRAME_BYTES);
    mr_store64(record + FRAME_BYTES, number);
    mr_store32(record + 4, mr_crc32c(0, record + FRAME_BYTES, RECORD_BYTES - FRAME_BYTES));
}

static enum mr_err write_batch(struct bench_raw *raw, uint8_t *bytes, unsigned batch)
{
    size_t len = (size_t)batch * RECORD_BYTES;
    for (unsigned i = 0; i < batch; i++)
        frame(bytes + (size_t)i * RECORD_BYTES, raw->records++);
    if (raw->offset + len > FILE_BYTES)
        raw->offset = 0;
    MR_TRY(mr_file_pwrite(raw->file, bytes, len, raw->offset));
    raw->offset += len;
    return mr_file_sync(raw->file);
}

enum mr_err bench_raw_run(struct bench_raw *raw, unsigned batch, double seconds)
{
    size_t len = (size_t)batch * RECORD_BYTES;
    uint8_t *bytes = cli_alloc(1, len);
    memset(bytes, 'x', len);
    enum mr_err err = MR_OK;
    int64_t start = bench_now_ns();
    while (err == MR_OK && bench_seconds_since(start) < seconds) {
        int64_t begin = bench_now_ns();
        err = write_batch(raw, bytes, batch);
        bench_samples_add(&raw->samples, bench_now_ns() - begin);
        if (err == MR_OK && bench_interrupted())
            err = MR_CANCELLED;
    }
    raw->seconds += bench_seconds_since(start);
    free(bytes);
    return err;
}

double bench_raw_rate(const struct bench_raw *raw)
{
    return raw->seconds > 0 ? (double)raw->records / raw->seconds : 0;
}

void bench_raw_close(struct bench_raw *raw)
{
    if (!raw->file)
        return;
    mr_file_close(raw->file);
    enum mr_err err = mr_fs_system()->ops->remove(mr_fs_system(), raw->path);
    if (err != MR_OK)
        cli_fail_err(err, "cannot remove %s", raw->path);
    bench_samples_done(&raw->samples);
    raw->file = NULL;
}

double bench_round_seconds(const struct bench *bench)
{
    return bench->seconds / BENCH_ROUNDS;
}
