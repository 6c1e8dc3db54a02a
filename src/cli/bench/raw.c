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

static enum mr_err open_filled(const struct bench *bench, char path[MR_PATH_MAX],
                               struct mr_file **ret_file)
{
    struct mr_file *file = NULL;
    MR_TRY(mr_path_join(path, bench->dir, "raw"));
    MR_TRY(mr_fs_open(mr_fs_system(), path, MR_OPEN_CREATE, &file));
    uint8_t *zeros = cli_alloc(1, FILL_BYTES);
    enum mr_err err = MR_OK;
    for (uint64_t at = 0; err == MR_OK && at < FILE_BYTES; at += FILL_BYTES)
        err = mr_file_pwrite(file, zeros, FILL_BYTES, at);
    if (err == MR_OK)
        err = mr_file_sync(file);
    free(zeros);
    if (err != MR_OK) {
        mr_file_close(file);
        return err;
    }
    *ret_file = file;
    return MR_OK;
}

static void frame(uint8_t *record, uint64_t number)
{
    mr_store32(record, RECORD_BYTES - FRAME_BYTES);
    mr_store64(record + FRAME_BYTES, number);
    mr_store32(record + 4, mr_crc32c(0, record + FRAME_BYTES, RECORD_BYTES - FRAME_BYTES));
}

static enum mr_err write_rounds(struct mr_file *file, unsigned batch, double seconds,
                                struct bench_samples *samples, uint64_t *ret_records)
{
    size_t len = (size_t)batch * RECORD_BYTES;
    uint8_t *bytes = cli_alloc(1, len);
    memset(bytes, 'x', len);
    enum mr_err err = MR_OK;
    uint64_t records = 0, offset = 0;
    for (int64_t start = bench_now_ns(); err == MR_OK && bench_seconds_since(start) < seconds;) {
        int64_t begin = bench_now_ns();
        for (unsigned i = 0; i < batch; i++)
            frame(bytes + (size_t)i * RECORD_BYTES, records++);
        if (offset + len > FILE_BYTES)
            offset = 0;
        err = mr_file_pwrite(file, bytes, len, offset);
        if (err == MR_OK)
            err = mr_file_sync(file);
        offset += len;
        bench_samples_add(samples, bench_now_ns() - begin);
        if (err == MR_OK && bench_interrupted())
            err = MR_CANCELLED;
    }
    free(bytes);
    if (err == MR_OK)
        *ret_records = records;
    return err;
}

enum mr_err bench_raw(struct bench *bench, unsigned batch, double *ret_rate, double *ret_p99_ms)
{
    char path[MR_PATH_MAX];
    struct mr_file *file = NULL;
    bench_doing(bench,
                batch == 1 ? "yardstick: one record a sync" : "yardstick: 256 records a sync");
    MR_TRY(open_filled(bench, path, &file));
    struct bench_samples samples;
    bench_samples_init(&samples, SAMPLES_MAX);
    uint64_t records = 0;
    int64_t start = bench_now_ns();
    enum mr_err err = write_rounds(file, batch, bench->seconds, &samples, &records);
    double seconds = bench_seconds_since(start);
    mr_file_close(file);
    enum mr_err remove_err = mr_fs_system()->ops->remove(mr_fs_system(), path);
    err = err == MR_OK ? remove_err : err;
    if (err == MR_OK) {
        *ret_rate = (double)records / seconds;
        *ret_p99_ms = bench_samples_ms(&samples, 0.99);
    }
    bench_samples_done(&samples);
    return err;
}
