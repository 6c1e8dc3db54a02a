/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an app is cut: its timers have slots, by their uids, and each slot belongs to one subApp. A subApp is slots, the server
 * that owns it, and an epoch; any worker of the app serves it. Pure functions from a table and what is seen to the next
 * table; who writes it, and what the epoch fences, is in docs/nameserver.md.
 *
 * There are ceil(workers / threshold) subApps, at least one and at most one for each slot. After a split or a merge
 * none has two slots more than another, and no slot has moved that need not. Each subApp whose slots or owner have
 * changed has a new epoch, which is higher than any that the app has had.
 *
 * Thread: any.
 */
#ifndef MR_NAMES_SUBAPP_H
#define MR_NAMES_SUBAPP_H

#include "base/clock.h"
#include "base/slice.h"

enum {
    MR_SLOTS = 64, /* of each app: a bit each. Stored data depends on it */
    MR_SUBAPPS_MAX = MR_SLOTS,
    MR_SUBAPP_WORKERS = 2,          /* default of threshold */
    MR_SUBAPP_MERGE_MS = 30 * 1000, /* default of merge_after_ms */
    MR_WEIGHT = 100,                /* of a server that says nothing */
    MR_WEIGHT_MAX = 1000,
    MR_LOAD_FEW = 60, /* dispatches in a window: who has fewer is as good as idle */
    MR_SUBAPP_CHANGES = 3 * MR_SUBAPPS_MAX, /* that a plan can have */
};
#define MR_LOAD_MAX (1LL << 40) /* dispatches in a window; more count as so many */

struct mr_subapp {
    uint32_t id;    /* never used again in this app */
    uint64_t slots; /* a bit each */
    uint64_t owner; /* a server; 0: nobody may have it */
    uint64_t epoch;
};

struct mr_subapps {
    uint64_t epoch;   /* the highest so far */
    uint32_t next_id; /* the last that was given */
    size_t n;
    struct mr_subapp parts[MR_SUBAPPS_MAX];
};

/* An app that nobody has cut yet: one subApp with all slots, which nobody owns. */
void mr_subapps_init(struct mr_subapps *table);
/* Whether it can be: each slot has one subApp, and so on. Of what was read from anywhere. */
bool mr_subapps_valid(const struct mr_subapps *table);
/* SIZE_MAX: none. */
size_t mr_subapps_find(const struct mr_subapps *table, uint32_t id);

/* A server that lives, by the store. */
struct mr_subapp_server {
    uint64_t id; /* not 0 */
    int64_t
        load; /* dispatches in the window; a plan adds what it gives and takes off what it takes */
    uint32_t weight; /* 0: MR_WEIGHT */
    uint32_t owns;   /* subApps of all apps; counted on likewise */
    bool may;        /* have this app */
};

struct mr_subapp_seen {
    struct mr_subapp_server *servers;
    size_t servers_n;
    const int64_t *loads;   /* of each subApp of the table, in the window; NULL: not known */
    size_t workers_n;       /* that live, by the registry */
    bool complete;          /* the registry: if not, nothing is merged */
    int64_t few_ms;         /* for so long there have been fewer workers than the subApps need */
    int64_t few_load;       /* of a server: less is none. 0: default */
    uint32_t threshold;     /* workers of a subApp; 0: default */
    int64_t merge_after_ms; /* 0: default */
};

enum mr_subapp_reason {
    MR_SUBAPP_SPLIT,  /* it is new: the app has more workers */
    MR_SUBAPP_MERGED, /* it is no more: the app has fewer */
    MR_SUBAPP_LOST,   /* had an owner that does not live or may not have it */
    MR_SUBAPP_FIRST,  /* had none */
    MR_SUBAPP_MOVED,  /* for balance */
    MR_SUBAPP_REASON_COUNT,
};
const char *mr_subapp_reason_name(enum mr_subapp_reason reason);

struct mr_subapp_change {
    enum mr_subapp_reason reason;
    uint32_t part;     /* id */
    uint64_t from, to; /* servers; 0: nobody */
};

struct mr_subapp_plan {
    struct mr_subapps table; /* as it is to be; the same as before if n is 0 */
    size_t n;
    struct mr_subapp_change changes[MR_SUBAPP_CHANGES];
};

/* So many subApps are right for so many workers. */
size_t mr_subapps_wanted(size_t workers, uint32_t threshold);
/* The table is valid. */
void mr_subapps_plan(const struct mr_subapps *table, const struct mr_subapp_seen *seen,
                     struct mr_subapp_plan *ret_plan);
/* One subApp goes to another server; false: it is there already, or there is no such subApp. */
bool mr_subapps_move(struct mr_subapps *table, uint32_t part, uint64_t to);

#endif
