/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a registry: servers, and the workers of each app. And the numbers by which maps find things. */
#include <stdlib.h>

#include "names/internal.h"

enum { HANDLES_MIN = 16 };

enum mr_err handles_take(struct handles *h, void *thing, uint32_t *ret_handle)
{
    if (h->spare_n == 0 && h->n == h->cap) {
        uint32_t cap = h->cap > 0 ? 2 * h->cap : HANDLES_MIN;
        void **at = realloc(h->at, cap * sizeof *at);
        if (at == NULL)
            return MR_NOMEM;
        h->at = at;
        uint32_t *spare = realloc(h->spare, cap * sizeof *spare);
        if (spare == NULL)
            return MR_NOMEM;
        h->spare = spare;
        h->cap = cap;
    }
    uint32_t handle = h->spare_n > 0 ? h->spare[--h->spare_n] : h->n++;
    h->at[handle] = thing;
    *ret_handle = handle;
    return MR_OK;
}

void handles_give(struct handles *h, uint32_t handle)
{
    mr_assert(handle < h->n && h->at[handle] != NULL);
    h->at[handle] = NULL;
    h->spare[h->spare_n++] = handle;
}

void handles_done(struct handles *h)
{
    free(h->at);
    free(h->spare);
    *h = (struct handles){0};
}

struct group_key {
    enum mr_names_kind kind;
    struct mr_slice app;
};

static uint64_t key_hash(enum mr_names_kind kind, struct mr_slice app)
{
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){kind, 0}, app);
    return mr_uuid_hash(&hash);
}

static uint64_t group_hash(uint32_t handle, void *arg)
{
    const struct mr_registry *r = arg;
    return ((const struct group *)r->groups.at[handle])->hash;
}

static bool group_equal(uint32_t handle, const void *key, void *arg)
{
    const struct mr_registry *r = arg;
    const struct group *group = r->groups.at[handle];
    const struct group_key *wanted = key;
    return group->kind == wanted->kind &&
           mr_slice_equal(mr_slice_make(group->app, group->len), wanted->app);
}

const struct mr_map_ops names_group_ops = {.hash = group_hash, .equal = group_equal};

struct group *names_group_find(const struct mr_registry *r, enum mr_names_kind kind,
                               struct mr_slice app)
{
    struct group_key key = {kind, app};
    uint32_t handle = mr_map_find(r->apps, key_hash(kind, app), &key);
    return handle == MR_MAP_NONE ? NULL : r->groups.at[handle];
}

static struct group *group_new(struct mr_registry *r, enum mr_names_kind kind, struct mr_slice app)
{
    struct group *group = calloc(1, sizeof *group + app.len);
    if (group == NULL)
        return NULL;
    *group = (struct group){.kind = kind, .len = app.len, .hash = key_hash(kind, app)};
    if (app.len > 0)
        memcpy(group->app, app.data, app.len);
    mr_list_init(&group->members);
    if (handles_take(&r->groups, group, &group->handle) != MR_OK) {
        free(group);
        return NULL;
    }
    if (mr_map_insert(r->apps, group->hash, group->handle) != MR_OK) {
        handles_give(&r->groups, group->handle);
        free(group);
        return NULL;
    }
    mr_list_push_back(&r->all_groups, &group->link);
    return group;
}

struct group *names_group_enter(struct mr_registry *r, enum mr_names_kind kind, struct mr_slice app)
{
    struct group *group = names_group_find(r, kind, app);
    if (group == NULL)
        group = group_new(r, kind, app);
    if (group != NULL)
        group->n++;
    return group;
}

void names_group_leave(struct mr_registry *r, struct group *group)
{
    mr_assert(group->n > 0);
    group->changed = ++r->changes;
    if (--group->n > 0)
        return;
    mr_assert(mr_list_empty(&group->members));
    mr_map_remove(r->apps, group->hash, group->handle);
    handles_give(&r->groups, group->handle);
    mr_list_remove(&group->link);
    free(group);
}
