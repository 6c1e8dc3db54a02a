/* SPDX-License-Identifier: Apache-2.0 */
/* How an app is cut: see subapp.h. */
#include "names/subapp.h"

#include <assert.h>

enum { SCALE = 1024 }; /* loads of slots are fractions */

static_assert(MR_SLOTS == 64, "a slot is a bit of a word");

static size_t slots_of(uint64_t slots)
{
    return (size_t)__builtin_popcountll(slots);
}

void mr_subapps_init(struct mr_subapps *table)
{
    *table = (struct mr_subapps){.next_id = 1, .n = 1};
    table->parts[0] = (struct mr_subapp){.id = 1, .slots = UINT64_MAX};
}

bool mr_subapps_valid(const struct mr_subapps *table)
{
    uint64_t seen = 0;
    if (table->n == 0 || table->n > MR_SUBAPPS_MAX)
        return false;
    for (size_t i = 0; i < table->n; i++) {
        const struct mr_subapp *part = &table->parts[i];
        if (part->id == 0 || part->id > table->next_id || part->epoch > table->epoch ||
            part->slots == 0 || (seen & part->slots) != 0 || mr_subapps_find(table, part->id) != i)
            return false;
        seen |= part->slots;
    }
    return seen == UINT64_MAX;
}

size_t mr_subapps_find(const struct mr_subapps *table, uint32_t id)
{
    for (size_t i = 0; i < table->n; i++) {
        if (table->parts[i].id == id)
            return i;
    }
    return SIZE_MAX;
}

static const char *const reason_names[] = {
    [MR_SUBAPP_SPLIT] = "split", [MR_SUBAPP_MERGED] = "merged", [MR_SUBAPP_LOST] = "owner lost",
    [MR_SUBAPP_FIRST] = "first", [MR_SUBAPP_MOVED] = "moved",
};

const char *mr_subapp_reason_name(enum mr_subapp_reason reason)
{
    return (unsigned)reason < MR_SUBAPP_REASON_COUNT ? reason_names[reason] : NULL;
}

/* ---- a plan that is being made ---------------------------------------------------------------- */

struct planning {
    const struct mr_subapps *old;
    const struct mr_subapp_seen *seen;
    struct mr_subapp_plan *plan;
    struct mr_subapps *table;    /* the plan's */
    int64_t slot_load[MR_SLOTS]; /* times SCALE */
};

static void note(struct planning *p, enum mr_subapp_reason reason, uint32_t part, uint64_t from,
                 uint64_t to)
{
    mr_assert(p->plan->n < MR_SUBAPP_CHANGES);
    p->plan->changes[p->plan->n++] =
        (struct mr_subapp_change){.reason = reason, .part = part, .from = from, .to = to};
}

/* NULL: it does not live, or may not have the app. */
static struct mr_subapp_server *server_of(const struct planning *p, uint64_t id)
{
    for (size_t i = 0; id != 0 && i < p->seen->servers_n; i++) {
        if (p->seen->servers[i].id == id && p->seen->servers[i].may)
            return &p->seen->servers[i];
    }
    return NULL;
}

static int64_t limited(int64_t load)
{
    return load < 0 ? 0 : load < MR_LOAD_MAX ? load : MR_LOAD_MAX;
}

static void spread_loads(struct planning *p)
{
    for (size_t i = 0; p->seen->loads != NULL && i < p->old->n; i++) {
        uint64_t slots = p->old->parts[i].slots;
        for (size_t slot = 0; slot < MR_SLOTS; slot++) {
            if ((slots >> slot & 1) != 0)
                p->slot_load[slot] = limited(p->seen->loads[i]) * SCALE / (int64_t)slots_of(slots);
        }
    }
}

static int64_t load_of(const struct planning *p, uint64_t slots)
{
    int64_t sum = 0;
    for (size_t slot = 0; slot < MR_SLOTS; slot++)
        sum += (slots >> slot & 1) != 0 ? p->slot_load[slot] : 0;
    return sum / SCALE;
}

/* ---- how many --------------------------------------------------------------------------------- */

size_t mr_subapps_wanted(size_t workers, uint32_t threshold)
{
    size_t each = threshold > 0 ? threshold : MR_SUBAPP_WORKERS;
    size_t parts = workers / each + (workers % each != 0);
    return parts == 0 ? 1 : parts < MR_SUBAPPS_MAX ? parts : MR_SUBAPPS_MAX;
}

static size_t many_of(const struct planning *p)
{
    const struct mr_subapp_seen *seen = p->seen;
    size_t wanted = mr_subapps_wanted(seen->workers_n, seen->threshold), n = p->old->n;
    int64_t after_ms = seen->merge_after_ms > 0 ? seen->merge_after_ms : MR_SUBAPP_MERGE_MS;
    bool may_merge = seen->complete && seen->few_ms >= after_ms;
    return wanted < n && !may_merge ? n : wanted;
}

static size_t parts_of_owner(const struct mr_subapps *table, uint64_t owner)
{
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++)
        n += table->parts[i].owner == owner;
    return n;
}

/* Whether a goes rather than b: one that has lost its owner, the smaller one, one of a server that has several. */
static bool goes_before(const struct planning *p, const struct mr_subapp *a,
                        const struct mr_subapp *b)
{
    bool a_lost = server_of(p, a->owner) == NULL, b_lost = server_of(p, b->owner) == NULL;
    if (a_lost != b_lost)
        return a_lost;
    size_t a_slots = slots_of(a->slots), b_slots = slots_of(b->slots);
    if (a_slots != b_slots)
        return a_slots < b_slots;
    size_t a_many = parts_of_owner(p->table, a->owner), b_many = parts_of_owner(p->table, b->owner);
    return a_many != b_many ? a_many > b_many : a->id > b->id;
}

/* Its slots are nobody's until they are evened out. */
static void merge_one(struct planning *p, uint64_t *loose)
{
    struct mr_subapps *table = p->table;
    size_t goes = 0;
    for (size_t i = 1; i < table->n; i++) {
        if (goes_before(p, &table->parts[i], &table->parts[goes]))
            goes = i;
    }
    struct mr_subapp *part = &table->parts[goes];
    struct mr_subapp_server *owner = server_of(p, part->owner);
    if (owner != NULL) {
        owner->load = limited(owner->load - load_of(p, part->slots));
        owner->owns -= owner->owns > 0;
    }
    *loose |= part->slots;
    note(p, MR_SUBAPP_MERGED, part->id, part->owner, 0);
    memmove(part, part + 1, (--table->n - goes) * sizeof *part);
}

/* ---- whose the slots are ---------------------------------------------------------------------- */

/* An even share, and one more for those that have the most already, as far as it goes. */
static void quotas(const struct mr_subapps *table, size_t quota[MR_SUBAPPS_MAX])
{
    size_t share = MR_SLOTS / table->n;
    for (size_t i = 0; i < table->n; i++)
        quota[i] = share;
    for (size_t left = MR_SLOTS % table->n; left > 0; left--) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < table->n; i++) {
            if (quota[i] == share && (best == SIZE_MAX || slots_of(table->parts[i].slots) >
                                                              slots_of(table->parts[best].slots)))
                best = i;
        }
        quota[best]++;
    }
}

static void even_out(struct mr_subapps *table, uint64_t loose)
{
    size_t quota[MR_SUBAPPS_MAX];
    quotas(table, quota);
    for (size_t i = 0; i < table->n; i++) {
        uint64_t *slots = &table->parts[i].slots;
        while (slots_of(*slots) > quota[i]) {
            uint64_t last = 1ULL << (MR_SLOTS - 1 - __builtin_clzll(*slots));
            *slots ^= last;
            loose |= last;
        }
    }
    for (size_t i = 0; i < table->n; i++) {
        uint64_t *slots = &table->parts[i].slots;
        while (slots_of(*slots) < quota[i]) {
            uint64_t first = loose & -loose;
            *slots |= first;
            loose ^= first;
        }
    }
    mr_assert(loose == 0);
}

static void cut(struct planning *p)
{
    struct mr_subapps *table = p->table;
    size_t many = many_of(p);
    uint64_t loose = 0;
    if (many == table->n)
        return;
    while (table->n > many)
        merge_one(p, &loose);
    while (table->n < many)
        table->parts[table->n++] = (struct mr_subapp){.id = ++table->next_id};
    even_out(table, loose);
}

/* ---- whose the subApps are -------------------------------------------------------------------- */

static int64_t weight_of(const struct mr_subapp_server *server)
{
    return server->weight == 0
               ? MR_WEIGHT
               : (int64_t)(server->weight < MR_WEIGHT_MAX ? server->weight : MR_WEIGHT_MAX);
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Few dispatches say nothing: what is left of a start, or what others have that is not reported yet. */
static int64_t weighty_load(const struct planning *p, const struct mr_subapp_server *server)
{
    int64_t few = p->seen->few_load > 0 ? p->seen->few_load : MR_LOAD_FEW;
    return server->load < few ? 0 : server->load;
}

/* By load, then by how many of this app's they own, then by how many at all: each for its weight. */
static bool has_less(const struct planning *p, const struct mr_subapp_server *a,
                     const struct mr_subapp_server *b)
{
    int64_t a_weight = weight_of(a), b_weight = weight_of(b);
    int order = compare(weighty_load(p, a) * b_weight, weighty_load(p, b) * a_weight);
    if (order == 0)
        order = compare((int64_t)parts_of_owner(p->table, a->id) * b_weight,
                        (int64_t)parts_of_owner(p->table, b->id) * a_weight);
    if (order == 0)
        order = compare(a->owns * b_weight, b->owns * a_weight);
    return order != 0 ? order < 0 : a->id < b->id;
}

static struct mr_subapp_server *least(const struct planning *p)
{
    struct mr_subapp_server *found = NULL;
    for (size_t i = 0; i < p->seen->servers_n; i++) {
        struct mr_subapp_server *server = &p->seen->servers[i];
        if (server->may && server->id != 0 && (found == NULL || has_less(p, server, found)))
            found = server;
    }
    return found;
}

static void give(struct planning *p, struct mr_subapp *part, bool is_new)
{
    struct mr_subapp_server *to = least(p);
    uint64_t from = part->owner, owner = to != NULL ? to->id : 0;
    if (to != NULL) {
        to->load = limited(to->load + load_of(p, part->slots));
        to->owns++;
    }
    part->owner = owner;
    if (is_new || from != owner)
        note(p,
             is_new      ? MR_SUBAPP_SPLIT
             : from != 0 ? MR_SUBAPP_LOST
                         : MR_SUBAPP_FIRST,
             part->id, from, owner);
}

/* Those that stay carry now what they have, before the others are given to who has least. */
static void assign(struct planning *p)
{
    for (size_t i = 0; i < p->table->n; i++) {
        struct mr_subapp *part = &p->table->parts[i];
        struct mr_subapp_server *owner = server_of(p, part->owner);
        size_t before = mr_subapps_find(p->old, part->id);
        if (owner != NULL && before != SIZE_MAX)
            owner->load = limited(owner->load + load_of(p, part->slots) -
                                  load_of(p, p->old->parts[before].slots));
    }
    for (size_t i = 0; i < p->table->n; i++) {
        struct mr_subapp *part = &p->table->parts[i];
        if (server_of(p, part->owner) == NULL)
            give(p, part, mr_subapps_find(p->old, part->id) == SIZE_MAX);
    }
}

static void raise_epochs(struct planning *p)
{
    uint64_t epoch = p->old->epoch + 1;
    for (size_t i = 0; i < p->table->n; i++) {
        struct mr_subapp *part = &p->table->parts[i];
        size_t before = mr_subapps_find(p->old, part->id);
        const struct mr_subapp *old = before != SIZE_MAX ? &p->old->parts[before] : NULL;
        if (old != NULL && old->slots == part->slots && old->owner == part->owner)
            continue;
        part->epoch = p->table->epoch = epoch;
    }
}

void mr_subapps_plan(const struct mr_subapps *table, const struct mr_subapp_seen *seen,
                     struct mr_subapp_plan *ret_plan)
{
    mr_assert(mr_subapps_valid(table));
    struct planning p = {.old = table, .seen = seen, .plan = ret_plan, .table = &ret_plan->table};
    ret_plan->n = 0;
    ret_plan->table = *table;
    for (size_t i = 0; i < seen->servers_n; i++)
        seen->servers[i].load = limited(seen->servers[i].load);
    spread_loads(&p);
    cut(&p);
    assign(&p);
    raise_epochs(&p);
    mr_assert(mr_subapps_valid(&ret_plan->table));
}

bool mr_subapps_move(struct mr_subapps *table, uint32_t part, uint64_t to)
{
    size_t at = mr_subapps_find(table, part);
    if (at == SIZE_MAX || table->parts[at].owner == to)
        return false;
    table->parts[at].owner = to;
#ifndef MR_PLANT_MOVE_UNFENCED
    table->parts[at].epoch = ++table->epoch;
#endif
    return true;
}
