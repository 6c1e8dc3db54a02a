/* SPDX-License-Identifier: Apache-2.0 */
/* Retention and figures. Thread: the store's. */
#include "store/internal.h"

static enum mr_err count_row(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    (void)row;
    ++*(size_t *)arg;
    return MR_OK;
}

static enum mr_err retain_check(const struct mr_store_req *req)
{
    const struct mr_store_retain *retain = store_request(req, mr_store_retain);
    MR_TRY(page_check(retain->max));
    bool ages_ok = retain->firings_ms >= 0 &&
                   (retain->tombstones_ms == 0 || retain->tombstones_ms >= MR_MS_PER_DAY);
    return ages_ok ? MR_OK : MR_INVALID;
}

static enum mr_err remove_older(struct tx *tx, enum sql statement, int64_t age_ms, size_t max,
                                size_t *ret_n)
{
    *ret_n = 0;
    if (age_ms == 0)
        return MR_OK;
    struct db_value values[] = {db_number(tx->now_ms - age_ms), db_number((int64_t)max)};
    return tx_run(tx, statement, values, 1, count_row, ret_n);
}

static enum mr_err retain_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_retain *retain = store_request(req, mr_store_retain);
    MR_TRY(remove_older(tx, SQL_RETAIN_FIRINGS, retain->firings_ms, retain->max, &retain->firings));
    return remove_older(tx, SQL_RETAIN_TIMERS, retain->tombstones_ms, retain->max,
                        &retain->tombstones);
}

static size_t retain_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_retain)->max;
}

const struct store_op op_retain = {
    .access = DB_WRITE,
    .cost = retain_cost,
    .check = retain_check,
    .carry = retain_carry,
};

/* ---- figures -------------------------------------------------------------------------------- */

struct by_state {
    uint64_t *counts;
    size_t n;
};

static enum mr_err take_count(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct by_state *by_state = arg;
    if (row[0].number < 0 || (uint64_t)row[0].number >= by_state->n)
        return MR_DAMAGED;
    by_state->counts[row[0].number] = (uint64_t)row[1].number;
    return MR_OK;
}

static enum mr_err take_rest(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct mr_store_stats *stats = arg;
    stats->apps = (uint64_t)row[0].number;
    stats->leases = (uint64_t)row[1].number;
    return MR_OK;
}

static enum mr_err stats_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_stats *stats = store_request(req, mr_store_stats);
    memset(stats->timers, 0, sizeof stats->timers);
    memset(stats->firings, 0, sizeof stats->firings);
    struct by_state timers = {stats->timers, MR_ROW_STATE_COUNT};
    struct by_state firings = {stats->firings, MR_LEDGER_STATE_COUNT};
    struct db_value none = {0};
    MR_TRY(tx_run(tx, SQL_COUNT_TIMERS, &none, 1, take_count, &timers));
    MR_TRY(tx_run(tx, SQL_COUNT_FIRINGS, &none, 1, take_count, &firings));
    MR_TRY(tx_run(tx, SQL_COUNT_REST, &none, 1, take_rest, stats));
    stats->schema = sql_schema;
    stats->now_ms = tx->now_ms;
    return tx->db->ops->about(tx->db, stats->engine, sizeof stats->engine, &stats->bytes);
}

const struct store_op op_stats = {
    .access = DB_READ,
    .carry = stats_carry,
};
