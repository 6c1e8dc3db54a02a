/* SPDX-License-Identifier: Apache-2.0 */
/* The Redis of --broker itself, beside the engine: yardsticks, and what it says of itself. */
#ifndef MR_CLI_BENCH_REDIS_H
#define MR_CLI_BENCH_REDIS_H

#include "cli/bench/bench.h"

struct bench_redis;

MR_MUST_USE enum mr_err bench_redis_open(struct bench *bench, struct bench_redis **ret_redis);
/* NULL is fine. */
void bench_redis_close(struct bench_redis *redis);

/* A number of its INFO, all primaries together. */
MR_MUST_USE enum mr_err bench_redis_info(struct bench_redis *redis, const char *name,
                                         double *ret_number);
/*
 * One round of the bare script, which does EXISTS, HSET and LPUSH for BENCH_BATCH tasks a call, with so
 * many calls in flight; adds to the tasks and to the time. Leaves nothing behind.
 */
MR_MUST_USE enum mr_err bench_redis_bare(struct bench_redis *redis, unsigned in_flight,
                                         double seconds, uint64_t *tasks, double *total_seconds);
/* One round of redis-benchmark: LPUSH of 50 connections, one at a time on each. Leaves nothing behind. */
MR_MUST_USE enum mr_err bench_redis_pushes(struct bench_redis *redis, double seconds,
                                           uint64_t *pushes, double *total_seconds);

#endif
