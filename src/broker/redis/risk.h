/* SPDX-License-Identifier: Apache-2.0 */
/* What a Redis may lose of what it has acknowledged, as far as its settings tell. */
#ifndef MR_BROKER_REDIS_RISK_H
#define MR_BROKER_REDIS_RISK_H

#include "base/buf.h"
#include "redis/redis.h"

/* From best to worst, what is not known behind all: of several primaries the worst counts. */
enum redis_files {
    REDIS_FILES_ALWAYS,       /* appendonly, appendfsync always */
    REDIS_FILES_HALVES,       /* the same with aof-load-truncated: see docs/redis.md */
    REDIS_FILES_SECOND,       /* appendfsync everysec */
    REDIS_FILES_KERNEL,       /* appendfsync no */
    REDIS_FILES_SNAPSHOTS,    /* appendonly no, save ... */
    REDIS_FILES_NONE,         /* appendonly no, save "" */
    REDIS_FILES_SYNC_UNKNOWN, /* appendonly, but it does not say how */
    REDIS_FILES_UNKNOWN,
};

enum redis_evicts {
    REDIS_EVICTS_NOTHING, /* noeviction, or no limit of memory */
    REDIS_EVICTS_SOME,    /* volatile-...: what expires anyway */
    REDIS_EVICTS_ALL,     /* allkeys-... */
    REDIS_EVICTS_UNKNOWN,
};

struct redis_facts {
    enum redis_files files;
    enum redis_evicts evicts;
    char policy[32];  /* of the worst primary */
    int32_t replicas; /* online, of the primary with the fewest; -1: not known */
    uint32_t wait_replicas;
};

/* What one primary says: its INFO, and the values of these settings; an empty slice where it does not tell. */
struct redis_says {
    struct mr_slice info, appendfsync, truncated, save;
    bool save_known; /* it may be empty */
};

/* Begins with {.replicas = INT32_MAX}. */
void redis_facts_add(struct redis_facts *facts, const struct redis_says *says);
/* One line for people. */
void redis_facts_line(const struct redis_facts *facts, struct mr_detail *ret_line);

/* Asks every primary and waits for it. MR_UNAVAILABLE: nobody answers. Thread: any but the loop. */
MR_MUST_USE enum mr_err redis_risk(struct mr_redis *redis, uint32_t wait_replicas,
                                   struct mr_detail *ret_line);

#endif
