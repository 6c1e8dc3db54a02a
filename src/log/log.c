/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending, group commit, and the log's life. Invariants:
 *   durable_seq <= written_seq <= last_seq, and wanted_seq <= last_seq;
 *   the last segment is the only one that is written to; buf holds its bytes from buf_offset on;
 *   at most two syncs are under way, one behind the other, and each covers what was written when it
 *   began.
 */
#include <stdlib.h>

#include "log/internal.h"

enum mr_err mr_log_new(const struct mr_log_options *options, struct mr_log **ret_log)
{
    mr_assert(options->segment_bytes >= MR_SEGMENT_BYTES_MIN);
    struct mr_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return MR_NOMEM;
    *log = (struct mr_log){
        .fs = options->fs,
        .store = options->store,
        .salt = options->salt,
        .segment_bytes = options->segment_bytes,
        .clock = options->clock,
        .sync_exec = options->sync_exec,
        .file_exec = options->file_exec,
        .changed = options->changed,
        .arg = options->arg,
        .ready_wanted = 1,
    };
    size_t len = strlen(options->dir);
    if (len >= sizeof log->dir) {
        free(log);
        return MR_TOO_BIG;
    }
    memcpy(log->dir, options->dir, len + 1);
    mr_assert(options->label.len <= sizeof log->label);
    if (options->label.len > 0)
        memcpy(log->label, options->label.data, options->label.len);
    *ret_log = log;
    return MR_OK;
}

void mr_log_free(struct mr_log *log)
{
    if (log == NULL)
        return;
    for (size_t i = 0; i < log->segments_n; i++)
        mr_file_close(log->segments[i].file);
    for (size_t i = 0; i < log->ready_n; i++)
        mr_file_close(log->ready[i].file);
    mr_file_close(log->filing.file);
    for (size_t i = 0; i < BLOCKS; i++)
        free(log->blocks[i].data);
    mr_buf_done(&log->buf);
    mr_buf_done(&log->scratch);
    free(log->segments);
    free(log);
}

/* ---- room ----------------------------------------------------------------------------------- */

static uint64_t left_in_current(const struct mr_log *log)
{
    uint64_t used = log->buf_offset + log->buf.len, bytes = segment_current(log)->bytes;
    return bytes > used ? bytes - used : 0;
}

/*
 * While a reserve is kept, new work goes on into the next segment only when another one is ready
 * behind that: with a full disk there is always more than a segment left for what was accepted to
 * be handed out and finished, which frees space in its turn. As soon as the disk is known to be
 * full it is refused.
 */
static bool new_work_fits(const struct mr_log *log, size_t size, uint64_t left)
{
    if (log->ready_n >= log->ready_wanted)
        return true;
    return log->full == MR_OK && size + log->segment_bytes / RESERVE_DIVISOR <= left;
}

enum mr_err mr_log_room(struct mr_log *log, size_t body_len, enum mr_log_use use)
{
    if (log->failure != MR_OK)
        return log->failure;
    size_t size = mr_record_size(body_len);
    if (size > (log->segment_bytes - MR_SEGMENT_HEADER) / 2)
        return MR_TOO_BIG;
    uint64_t left = left_in_current(log);
    if (use == MR_LOG_ONGOING || new_work_fits(log, size, left)) {
        if (size <= left)
            return MR_OK;
        if (log->ready_n > 0)
            return log->unsynced_n < FILES_PER_SYNC ? MR_OK : MR_BUSY;
    }
    mr_log_prepare(log); /* at once, however little of this one is used: somebody waits for it */
    return log->full != MR_OK ? log->full : MR_BUSY;
}

uint64_t mr_log_left(const struct mr_log *log)
{
    return left_in_current(log) + log->ready_n * (log->segment_bytes - MR_SEGMENT_HEADER);
}

/* ---- appending ------------------------------------------------------------------------------ */

static void seal_tail(struct mr_log *log)
{
    if (log->tail_open)
        mr_record_seal(log->buf.data + log->tail_at, &log->tail, log->salt);
    log->tail_open = false;
}

/* The current segment is full: what is sealed goes to it, the next one takes over. */
static enum mr_err roll(struct mr_log *log)
{
    MR_TRY(mr_log_write(log));
    struct segment *current = segment_current(log);
    mr_assert(log->ready_n > 0 && log->ready[0].number == current->number + 1);
    mr_assert(log->unsynced_n < FILES_PER_SYNC);
    current->sealed = true;
    log->unsynced[log->unsynced_n++] = current->file;
    MR_TRY(segment_add(log, &log->ready[0]));
    log->ready_n--;
    memmove(log->ready, log->ready + 1, log->ready_n * sizeof *log->ready);
    log->buf_offset = MR_SEGMENT_HEADER;
    return MR_OK;
}

uint8_t *mr_log_begin(struct mr_log *log, size_t body_len)
{
    size_t size = mr_record_size(body_len);
    uint64_t used = log->buf_offset + log->buf.len;
    seal_tail(log);
    if (used + size > segment_current(log)->bytes && roll(log) != MR_OK)
        return NULL;
    if (mr_buf_reserve(&log->buf, size) != MR_OK)
        return NULL;
    log->open_len = body_len;
    return log->buf.data + log->buf.len + MR_RECORD_HEADER;
}

uint64_t mr_log_append(struct mr_log *log, enum mr_record_type type, enum mr_log_wait wait,
                       struct mr_log_pos *ret_pos)
{
    struct segment *segment = segment_current(log);
    uint64_t seq = log->last_seq + 1;
    uint64_t lag = seq - log->durable_seq;
    log->tail = (struct mr_record){
        .seq = seq,
        .lag = lag < UINT32_MAX ? (uint32_t)lag : UINT32_MAX,
        .term = log->term,
        .segment = segment->number,
        .type = (uint8_t)type,
        .version = MR_RECORD_VERSION,
        .body.len = log->open_len,
    };
    log->tail_at = log->buf.len;
    log->tail_open = true;
    if (ret_pos != NULL)
        *ret_pos = (struct mr_log_pos){segment->number, (uint32_t)(log->buf_offset + log->buf.len)};
    log->buf.len += mr_record_size(log->open_len);
    log->last_seq = seq;
    if (segment->first_seq == 0)
        segment->first_seq = seq;
    segment->last_seq = seq;
    segment->end = log->buf_offset + log->buf.len;
    if (wait == MR_LOG_DURABLE)
        log->wanted_seq = seq;
    return seq;
}

uint8_t *mr_log_extend(struct mr_log *log, enum mr_record_type type, size_t more)
{
    struct segment *segment = segment_current(log);
    size_t old_len = log->tail.body.len, len = old_len + more;
    uint64_t end = log->buf_offset + log->tail_at + mr_record_size(len);
    if (!log->tail_open || log->tail.type != type || len > EXTEND_MAX || end > segment->bytes ||
        mr_buf_reserve(&log->buf, mr_record_size(len)) != MR_OK)
        return NULL;
    log->tail.body.len = len;
    log->buf.len = log->tail_at + mr_record_size(len);
    segment->end = end;
    return log->buf.data + log->tail_at + MR_RECORD_HEADER + old_len;
}

/* ---- writing and syncing -------------------------------------------------------------------- */

enum mr_err mr_log_write(struct mr_log *log)
{
    if (log->failure != MR_OK)
        return log->failure;
    if (log->buf.len == 0)
        return MR_OK;
    seal_tail(log);
    enum mr_err err =
        mr_file_pwrite(segment_current(log)->file, log->buf.data, log->buf.len, log->buf_offset);
    if (err != MR_OK) {
        /* What reached the file is unknown; appending behind it would be a gap nobody can explain.
         */
        log->failure = MR_IO;
        return MR_IO;
    }
    log->buf_offset += log->buf.len;
    mr_buf_clear(&log->buf);
    log->written_seq = log->last_seq;
    segment_prepare(log);
    return MR_OK;
}

static void sync_run(struct mr_chore *base)
{
    struct sync_chore *chore = mr_container(base, struct sync_chore, chore);
    mr_mono start = mr_mono_now(chore->log->clock);
    chore->err = MR_OK;
    chore->upto =
        atomic_load_explicit(&chore->want, memory_order_acquire); /* before the sync, not after */
    for (size_t i = 0; i < chore->files_n && chore->err == MR_OK; i++)
        chore->err = mr_file_sync(chore->files[i]);
    chore->took_ns = mr_mono_now(chore->log->clock).ns - start.ns;
}

static void sync_done(struct mr_chore *base)
{
    struct sync_chore *chore = mr_container(base, struct sync_chore, chore);
    struct mr_log *log = chore->log;
    chore->busy = false;
    log->syncs_n++;
    mr_hist_add(&log->sync_times, chore->took_ns / MR_NS_PER_US);
    mr_meter_add(&log->sync_us, mr_meter_us, chore->took_ns / MR_NS_PER_US);
    if (chore->err == MR_OK && log->failure == MR_OK) {
        mr_assert(chore->upto <= log->last_seq);
        if (chore->upto > log->durable_seq) {
            mr_meter_add(&log->group, mr_meter_many, (int64_t)(chore->upto - log->durable_seq));
            log->durable_seq = chore->upto;
        }
    } else if (log->failure == MR_OK) {
        /* The kernel may have dropped the pages: asking again could succeed and mean nothing. */
        log->failure = MR_IO;
        seal_tail(log); /* what is not written yet is read from memory from now on */
    }
    log->changed(log->arg);
}

static void sync_submit(struct mr_log *log, struct sync_chore *chore)
{
    const struct segment *current = segment_current(log);
    *chore = (struct sync_chore){
        .log = log, .busy = true, .segment = current->number, .promised = log->written_seq};
    mr_chore_init(&chore->chore, sync_run, sync_done);
    atomic_init(&chore->want, log->written_seq);
    for (size_t i = 0; i < log->unsynced_n; i++)
        chore->files[chore->files_n++] = log->unsynced[i];
    log->unsynced_n = 0;
    chore->files[chore->files_n++] = current->file;
    log->newest = chore;
    log->sync_exec->submit(log->sync_exec, &chore->chore);
#ifdef MR_PLANT_ACK_BEFORE_SYNC
    log->durable_seq = log->written_seq;
#endif
}

void mr_log_sync(struct mr_log *log)
{
    struct sync_chore *newest = log->newest;
    bool wanted = log->wanted_seq > log->durable_seq || log->unsynced_n == FILES_PER_SYNC;
    if (log->failure != MR_OK || !wanted)
        return;
    if (newest != NULL && newest->busy) {
        if (newest->segment == segment_current(log)->number)
            atomic_store_explicit(&newest->want, log->written_seq, memory_order_release);
        if (newest->promised >= log->wanted_seq)
            return;
    }
    struct sync_chore *free_chore = !log->syncs[0].busy ? &log->syncs[0] : &log->syncs[1];
    if (!free_chore->busy)
        sync_submit(log, free_chore);
}

static bool syncing(const struct mr_log *log)
{
    return log->syncs[0].busy || log->syncs[1].busy;
}

void mr_log_demand(struct mr_log *log)
{
    seal_tail(log);
    log->wanted_seq = log->last_seq;
}

uint64_t mr_log_wanted(const struct mr_log *log)
{
    return log->wanted_seq;
}

enum mr_err mr_log_sync_now(struct mr_log *log)
{
    MR_TRY(mr_log_write(log));
    mr_assert(!syncing(log));
    for (size_t i = 0; i < log->unsynced_n && log->failure == MR_OK; i++)
        if (mr_file_sync(log->unsynced[i]) != MR_OK)
            log->failure = MR_IO;
    log->unsynced_n = 0;
    if (log->failure == MR_OK && mr_file_sync(segment_current(log)->file) != MR_OK)
        log->failure = MR_IO;
    if (log->failure == MR_OK)
        log->durable_seq = log->written_seq;
    return log->failure;
}

/* ---- figures -------------------------------------------------------------------------------- */

void mr_log_set_term(struct mr_log *log, uint32_t term)
{
    mr_assert(term >= log->last_term);
    log->term = term;
}

uint64_t mr_log_last_seq(const struct mr_log *log)
{
    return log->last_seq;
}

uint64_t mr_log_durable(const struct mr_log *log)
{
    return log->durable_seq;
}

uint32_t mr_log_last_term(const struct mr_log *log)
{
    return log->last_term;
}

uint32_t mr_log_term(const struct mr_log *log)
{
    return log->term;
}

enum mr_err mr_log_failure(const struct mr_log *log)
{
    return log->failure;
}

enum mr_err mr_log_full(const struct mr_log *log)
{
    return log->full;
}

bool mr_log_wants_retry(const struct mr_log *log)
{
    return log->full != MR_OK || log->stuck;
}

bool mr_log_idle(const struct mr_log *log)
{
    return !syncing(log) && log->filing.kind == FILE_IDLE;
}

void mr_log_hold(struct mr_log *log, uint32_t number, int64_t bytes)
{
    struct segment *segment = segment_find(log, number);
    mr_assert(segment != NULL);
    mr_assert(bytes >= 0 || segment->live >= (uint64_t)-bytes);
    segment->live += (uint64_t)bytes;
    if (segment->live == 0)
        segment->dead_seq = log->last_seq;
}

void mr_log_unsaid(struct mr_log *log, uint32_t number)
{
    struct segment *segment = segment_find(log, number);
    if (segment != NULL)
        segment->unsaid = ++log->unsaids;
}

uint64_t mr_log_unsaids(const struct mr_log *log)
{
    return log->unsaids;
}

void mr_log_said(struct mr_log *log, uint64_t unsaids)
{
    log->said = unsaids;
}

size_t mr_log_ready(const struct mr_log *log)
{
    return log->ready_n;
}

size_t mr_log_segments(const struct mr_log *log)
{
    return log->segments_n;
}

void mr_log_segment_at(const struct mr_log *log, size_t i, struct mr_segment_info *ret_info)
{
    const struct segment *segment = &log->segments[i];
    *ret_info = (struct mr_segment_info){
        .number = segment->number,
        .bytes = segment->bytes,
        .end = segment->end,
        .live = segment->live,
        .left = segment->left,
        .last_seq = segment->last_seq,
        .unsaid = segment_unsaid(log, segment),
        .sealed = segment->sealed,
        .removing = segment->removing,
    };
}

size_t mr_log_segment_bytes(const struct mr_log *log)
{
    return log->segment_bytes;
}

uint64_t mr_log_disk_bytes(const struct mr_log *log)
{
    size_t more = log->ready_n + (log->filing.kind == FILE_CREATE);
    uint64_t bytes = more * log->segment_bytes;
    for (size_t i = 0; i < log->segments_n; i++)
        bytes += log->segments[i].bytes;
    return bytes;
}

bool mr_log_has_segment(const struct mr_log *log, uint32_t number)
{
    const struct segment *segment = segment_find(log, number);
    return segment != NULL && !segment->removing;
}

void mr_log_pin(struct mr_log *log)
{
    log->pins++;
}

void mr_log_unpin(struct mr_log *log)
{
    mr_assert(log->pins > 0);
    log->pins--;
    mr_log_trim(log, log->trim_seq);
}

void mr_log_figures(const struct mr_log *log, struct mr_log_figures *ret_figures)
{
    *ret_figures = (struct mr_log_figures){
        .syncs = log->syncs_n,
        .sync_p50_us = mr_hist_percentile_us(&log->sync_times, NULL, 50),
        .sync_p99_us = mr_hist_percentile_us(&log->sync_times, NULL, 99),
        .sync_us = log->sync_us,
        .group = log->group,
    };
}
