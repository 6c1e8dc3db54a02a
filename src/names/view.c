/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a registry. See registry.h. */
#include <stdlib.h>

#include "names/internal.h"

struct mr_names_entry registry_view(const struct entry *e, mr_mono now)
{
    const char *at = e->text;
    struct mr_names_entry view = {
        .kind = e->kind,
        .fate = e->fate,
        .incarnation = e->incarnation,
        .version = e->version,
        .age_ms = now.ns > e->since.ns ? (now.ns - e->since.ns) / MR_NS_PER_MS : 0,
    };
    view.name = mr_slice_make(at, e->name_len);
    view.app = mr_slice_make(at += e->name_len, e->app_len);
    view.address = mr_slice_make(at += e->app_len, e->address_len);
    view.server = mr_slice_make(at += e->address_len, e->server_len);
    view.body = mr_slice_make(at += e->server_len, e->body_len);
    return view;
}

static int compare_entries(const void *a, const void *b)
{
    const struct mr_names_entry *x = a, *y = b;
    int order = mr_slice_compare(x->name, y->name);
    return order != 0 ? order
                      : (x->incarnation > y->incarnation) - (x->incarnation < y->incarnation);
}

static size_t add_group(const struct group *group, mr_mono now, struct mr_names_entry *to)
{
    size_t n = 0;
    for (const struct mr_link *at = group->members.next; at != &group->members; at = at->next)
        to[n++] = registry_view(mr_container(at, struct entry, member), now);
    mr_assert(n == group->n);
    return n;
}

enum mr_err mr_registry_list(struct mr_registry *registry, mr_mono now, enum mr_names_kind kind,
                             struct mr_slice app, struct mr_arena *arena,
                             struct mr_names_entry **ret_entries, size_t *ret_n)
{
    bool all = kind == MR_NAMES_WORKER && app.len == 0;
    const struct group *group = all ? NULL : names_group_find(registry, kind, app);
    size_t max = all ? registry->figures.live[kind] : group != NULL ? group->n : 0, n = 0;
    struct mr_names_entry *entries = mr_arena_calloc(arena, max + 1, sizeof *entries);
    if (entries == NULL)
        return MR_NOMEM;
    if (group != NULL)
        n = add_group(group, now, entries);
    for (struct mr_link *at = registry->all_groups.next; all && at != &registry->all_groups;
         at = at->next) {
        const struct group *each = mr_container(at, struct group, link);
        if (each->kind == kind)
            n += add_group(each, now, entries + n);
    }
    if (n > 1)
        qsort(entries, n, sizeof *entries, compare_entries);
    *ret_entries = entries;
    *ret_n = n;
    return MR_OK;
}

uint64_t mr_registry_changed(struct mr_registry *registry, enum mr_names_kind kind,
                             struct mr_slice app)
{
    if (kind == MR_NAMES_WORKER && app.len == 0)
        return registry->figures.live[kind] > 0 ? registry->changes : 0;
    const struct group *group = names_group_find(registry, kind, app);
    return group != NULL ? group->changed : 0;
}

uint64_t mr_registry_changes(const struct mr_registry *registry)
{
    return registry->changes;
}

static int compare_apps(const void *a, const void *b)
{
    return mr_slice_compare(((const struct mr_names_app *)a)->name,
                            ((const struct mr_names_app *)b)->name);
}

enum mr_err mr_registry_apps(struct mr_registry *registry, struct mr_arena *arena,
                             struct mr_names_app **ret_apps, size_t *ret_n)
{
    size_t n = 0;
    struct mr_names_app *apps =
        mr_arena_calloc(arena, mr_map_count(registry->apps) + 1, sizeof *apps);
    if (apps == NULL)
        return MR_NOMEM;
    for (struct mr_link *at = registry->all_groups.next; at != &registry->all_groups;
         at = at->next) {
        const struct group *group = mr_container(at, struct group, link);
        if (group->kind == MR_NAMES_WORKER)
            apps[n++] = (struct mr_names_app){mr_slice_make(group->app, group->len), group->n};
    }
    if (n > 1)
        qsort(apps, n, sizeof *apps, compare_apps);
    *ret_apps = apps;
    *ret_n = n;
    return MR_OK;
}

void mr_registry_figures(const struct mr_registry *registry, struct mr_registry_figures *ret)
{
    *ret = registry->figures;
    ret->apps = 0;
    for (const struct mr_link *at = registry->all_groups.next; at != &registry->all_groups;
         at = at->next)
        ret->apps += mr_container(at, struct group, link)->kind == MR_NAMES_WORKER;
}

/* ---- that it is in order ---------------------------------------------------------------------- */

static void validate_entry(const struct mr_registry *r, struct entry *e, uint64_t *digest)
{
    mr_assert(e->shown && r->entries.at[e->handle] == e && registry_find(r, &e->id) == e);
    bool lives = e->fate == MR_NAMES_LIVES;
    mr_assert(lives == (e->group != NULL) && lives == (e->sum != 0));
    mr_assert(lives == !mr_list_empty(&e->bucket) && lives == !mr_list_empty(&e->member));
    mr_assert(lives == mr_list_empty(&e->grave));
    if (!lives)
        return;
    struct mr_names_entry view = registry_view(e, e->since);
    mr_assert(e->group == names_group_find(r, e->kind, view.app));
    digest[registry_bucket(&e->id)] ^= registry_term(e);
}

void mr_registry_validate(struct mr_registry *registry)
{
    uint64_t digest[MR_NAMES_BUCKETS] = {0};
    size_t live[MR_NAMES_KIND_COUNT] = {0}, graves = 0, members = 0;
    mr_heap_validate(&registry->due);
    mr_map_validate(registry->ids);
    mr_map_validate(registry->apps);
    for (uint32_t i = 0; i < registry->entries.n; i++) {
        struct entry *e = registry->entries.at[i];
        if (e == NULL)
            continue;
        validate_entry(registry, e, digest);
        graves += e->fate != MR_NAMES_LIVES;
        live[e->kind] += e->fate == MR_NAMES_LIVES;
    }
    for (struct mr_link *at = registry->all_groups.next; at != &registry->all_groups; at = at->next)
        members += mr_container(at, struct group, link)->n;
    mr_assert(memcmp(digest, registry->digest, sizeof digest) == 0);
    mr_assert(memcmp(live, registry->figures.live, sizeof live) == 0);
    mr_assert(graves == registry->figures.graves);
    mr_assert(members == live[MR_NAMES_SERVER] + live[MR_NAMES_WORKER]);
    mr_assert(mr_map_count(registry->ids) == members + graves &&
              registry->due.n == members + graves);
    mr_assert(mr_map_count(registry->ids) <= registry->options.entries_max);
}
