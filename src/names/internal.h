/* SPDX-License-Identifier: Apache-2.0 */
/* What registry.c, view.c and exchange.c share. See registry.h. */
#ifndef MR_NAMES_INTERNAL_H
#define MR_NAMES_INTERNAL_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "names/registry.h"

/* Numbers for things that a map is to find. */
struct handles {
    void **at; /* NULL: free */
    uint32_t *spare;
    uint32_t spare_n, n, cap;
};

/* A list that people ask for: the servers, or the workers of an app. It is there while it has members. */
struct group {
    struct mr_link link; /* of mr_registry.groups */
    struct mr_link members;
    size_t n;
    uint64_t changed, hash;
    uint32_t handle;
    enum mr_names_kind kind;
    size_t len;
    char app[]; /* len bytes */
};

struct entry {
    struct mr_heap_node due; /* expires then, or is forgotten */
    struct mr_link bucket;   /* lives: of its bucket */
    struct mr_link member;   /* lives: of its group */
    struct mr_link grave;    /* is gone: of all those, by when they went here */
    struct mr_link fresh;    /* to be pushed */
    struct group *group;     /* lives */
    struct mr_uuid id;
    uint64_t incarnation, version;
    uint64_t sum;   /* of what it says; 0 of the gone */
    uint64_t round; /* of the last message that it was looked at for */
    mr_mono since;  /* heard of, or gone, by our clock */
    uint32_t handle;
    enum mr_names_kind kind;
    enum mr_names_fate fate;
    bool shown; /* in the lists above */
    uint16_t name_len, app_len, address_len, server_len, body_len;
    char *text; /* these, one behind the other; of the gone only the name */
};

struct mr_registry {
    struct mr_registry_options options;
    struct handles entries, groups;
    struct mr_map *ids;  /* of entries, by id */
    struct mr_map *apps; /* of groups, by kind and app */
    struct mr_link all_groups;
    struct mr_heap due;
    struct mr_link graves, fresh;
    struct mr_link buckets[MR_NAMES_BUCKETS];
    uint64_t digest[MR_NAMES_BUCKETS];
    uint64_t changes; /* the greatest number of a list */
    uint64_t round;
    mr_mono ticked, hold; /* nothing expires before hold */
    struct mr_registry_figures figures;
};

/* group.c. MR_NOMEM. */
MR_MUST_USE enum mr_err handles_take(struct handles *h, void *thing, uint32_t *ret_handle);
void handles_give(struct handles *h, uint32_t handle);
void handles_done(struct handles *h);

/* Entering makes it, leaving by the last one frees it. MR_NOMEM: NULL. */
extern const struct mr_map_ops names_group_ops;
struct group *names_group_find(const struct mr_registry *r, enum mr_names_kind kind,
                               struct mr_slice app);
struct group *names_group_enter(struct mr_registry *r, enum mr_names_kind kind,
                                struct mr_slice app);
void names_group_leave(struct mr_registry *r, struct group *group);

/* registry.c */
struct entry *registry_find(const struct mr_registry *r, const struct mr_uuid *id);
/* Above 0: a goes before b. */
int registry_rank(enum mr_names_fate a, uint64_t a_version, uint64_t a_sum, enum mr_names_fate b,
                  uint64_t b_version, uint64_t b_sum);
uint64_t registry_term(const struct entry *e);
/* As mr_registry_merge; the entry is the one that has changed, or that the copy is older than, or NULL. */
MR_MUST_USE enum mr_err registry_merge(struct mr_registry *r, mr_mono now,
                                       const struct mr_names_entry *entry,
                                       enum mr_names_put *ret_put, struct entry **ret_entry);
static inline size_t registry_bucket(const struct mr_uuid *id)
{
    return id->bytes[0];
}

/* view.c */
struct mr_names_entry registry_view(const struct entry *e, mr_mono now);

#endif
