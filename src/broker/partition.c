/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/partition.h"

#include <assert.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/id.h"

uint32_t mr_partition_of(struct mr_slice key, uint32_t n)
{
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){0, 0}, key);
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof number; i++)
        number = number << 8 | hash.bytes[i];
    return (uint32_t)(number % n);
}

/*
 * The fewer are the bins, the others the items: with more partitions than members, partitions are put
 * into members, else members into partitions. So there are never more bins than MR_PARTITIONS_MAX.
 */
struct sharing {
    uint32_t partitions;
    const struct mr_member *members;
    size_t items, bins;
    bool shared; /* members are the items */
    uint16_t bin_of[MR_MEMBERS_MAX];
    size_t filled[MR_PARTITIONS_MAX]; /* by bin */
};
static_assert((int)MR_MEMBERS_MAX >= (int)MR_PARTITIONS_MAX, "both may be the items");

enum { NO_BIN = UINT16_MAX };

static void put(struct sharing *sharing, size_t item, size_t bin)
{
    sharing->bin_of[item] = (uint16_t)bin;
    sharing->filled[bin]++;
}

/* ---- round robin ---------------------------------------------------------------------------- */

static bool owned(const struct sharing *sharing, size_t item, size_t bin)
{
    size_t member = sharing->shared ? item : bin, partition = sharing->shared ? bin : item;
    return (sharing->members[member].owned >> partition & 1) != 0;
}

/* An even share, and one more for those that have the most already, as far as it goes. */
static void quotas(const struct sharing *sharing, size_t quota[MR_PARTITIONS_MAX])
{
    size_t has[MR_PARTITIONS_MAX] = {0}, share = sharing->items / sharing->bins;
    for (size_t bin = 0; bin < sharing->bins; bin++) {
        quota[bin] = share;
        for (size_t item = 0; item < sharing->items; item++)
            has[bin] += owned(sharing, item, bin);
    }
    for (size_t left = sharing->items % sharing->bins; left > 0; left--) {
        size_t best = SIZE_MAX;
        for (size_t bin = 0; bin < sharing->bins; bin++)
            if (quota[bin] == share && (best == SIZE_MAX || has[bin] > has[best]))
                best = bin;
        quota[best]++;
    }
}

static void share_evenly(struct sharing *sharing)
{
    size_t quota[MR_PARTITIONS_MAX];
    quotas(sharing, quota);
    for (size_t item = 0; item < sharing->items; item++)
        for (size_t bin = 0; bin < sharing->bins && sharing->bin_of[item] == NO_BIN; bin++)
            if (owned(sharing, item, bin) && sharing->filled[bin] < quota[bin])
                put(sharing, item, bin);
    for (size_t item = 0; item < sharing->items; item++) {
        size_t best = SIZE_MAX;
        for (size_t bin = 0; bin < sharing->bins; bin++)
            if (sharing->filled[bin] < quota[bin] &&
                (best == SIZE_MAX || sharing->filled[bin] < sharing->filled[best]))
                best = bin;
        if (sharing->bin_of[item] == NO_BIN)
            put(sharing, item, best);
    }
}

/* ---- consistent hash ------------------------------------------------------------------------ */

/* How much a member wants a partition. What others want is no part of it: so if one comes or goes, the
 * wishes of the others stay. */
static uint64_t wish(const struct sharing *sharing, size_t item, size_t bin)
{
    size_t member = sharing->shared ? item : bin, partition = sharing->shared ? bin : item;
    uint64_t mix = sharing->members[member].id + 0x9e3779b97f4a7c15ULL * (partition + 1);
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9ULL;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111ebULL;
    return mix ^ mix >> 31;
}

static void share_by_hash(struct sharing *sharing)
{
    size_t most = (5 * sharing->items + 4 * sharing->bins - 1) / (4 * sharing->bins);
    /* First one member for each partition, then the others. */
    for (size_t bin = 0; sharing->shared && bin < sharing->bins; bin++) {
        size_t best = SIZE_MAX;
        for (size_t item = 0; item < sharing->items; item++)
            if (sharing->bin_of[item] == NO_BIN &&
                (best == SIZE_MAX || wish(sharing, item, bin) > wish(sharing, best, bin)))
                best = item;
        put(sharing, best, bin);
    }
    for (size_t item = 0; item < sharing->items; item++) {
        size_t best = SIZE_MAX;
        for (size_t bin = 0; bin < sharing->bins && sharing->bin_of[item] == NO_BIN; bin++)
            if (sharing->filled[bin] < most &&
                (best == SIZE_MAX || wish(sharing, item, bin) > wish(sharing, item, best)))
                best = bin;
        if (best != SIZE_MAX)
            put(sharing, item, best);
    }
}

/* ---- both ----------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const struct mr_member *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

void mr_partitions_assign(enum mr_assign how, uint32_t n, struct mr_member *members,
                          size_t members_n)
{
    mr_assert(n >= 1 && n <= MR_PARTITIONS_MAX);
    if (members_n == 0)
        return;
    qsort(members, members_n, sizeof *members, by_id);
    size_t counted = members_n < MR_MEMBERS_MAX ? members_n : MR_MEMBERS_MAX;
    struct sharing sharing = {.partitions = n, .members = members, .shared = counted > n};
    sharing.items = sharing.shared ? counted : n;
    sharing.bins = sharing.shared ? n : counted;
    for (size_t item = 0; item < sharing.items; item++)
        sharing.bin_of[item] = NO_BIN;
    if (how == MR_ASSIGN_CONSISTENT_HASH)
        share_by_hash(&sharing);
    else
        share_evenly(&sharing);
    for (size_t i = 0; i < members_n; i++)
        members[i].owned = 0;
    for (size_t item = 0; item < sharing.items; item++) {
        size_t bin = sharing.bin_of[item];
        mr_assert(bin < sharing.bins);
        members[sharing.shared ? item : bin].owned |= (uint64_t)1 << (sharing.shared ? bin : item);
    }
}

void mr_partitions_assign_anew(enum mr_assign how, uint32_t n, struct mr_member *members,
                               size_t members_n)
{
    for (size_t i = 0; i < members_n; i++)
        members[i].owned = 0;
    if (members_n > 0)
        qsort(members, members_n, sizeof *members, by_id);
    /* Those beyond the n-th take nothing away from others. */
    for (size_t i = 1; how == MR_ASSIGN_ROUND_ROBIN && i < members_n && i <= n; i++)
        mr_partitions_assign(how, n, members, i);
    mr_partitions_assign(how, n, members, members_n);
}

/* ---- among nodes ---------------------------------------------------------------------------- */

static uint64_t name_id(const struct mr_sharer *sharer)
{
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){0, 0}, sharer->name);
    return mr_uuid_hash(&hash);
}

static int by_name(const void *a, const void *b)
{
    const struct mr_sharer *x = a, *y = b;
    uint64_t xid = name_id(x), yid = name_id(y);
    if (xid != yid)
        return xid < yid ? -1 : 1;
    return x->incarnation < y->incarnation ? -1 : x->incarnation > y->incarnation;
}

static int by_start(const void *a, const void *b)
{
    const struct mr_sharer *x = a, *y = b;
    if (x->started_ms != y->started_ms)
        return x->started_ms < y->started_ms ? -1 : 1;
    return by_name(a, b);
}

/* What stands for a sharer: what its name is, or where it stands. */
static uint64_t id_of(enum mr_assign how, const struct mr_sharer *sharers, size_t i)
{
    if (how != MR_ASSIGN_CONSISTENT_HASH)
        return i;
    bool again = i > 0 && name_id(&sharers[i]) == name_id(&sharers[i - 1]);
    return name_id(&sharers[i]) ^ (again ? sharers[i].incarnation : 0);
}

enum mr_err mr_partitions_share(enum mr_assign how, uint32_t n, struct mr_sharer *sharers,
                                size_t sharers_n)
{
    if (sharers_n == 0)
        return MR_OK;
    struct mr_member *members = calloc(sharers_n, sizeof *members);
    if (members == NULL)
        return MR_NOMEM;
    uint64_t owned = 0;
    qsort(sharers, sharers_n, sizeof *sharers,
          how == MR_ASSIGN_CONSISTENT_HASH ? by_name : by_start);
    for (size_t i = 0; i < sharers_n; i++) {
        members[i] = (struct mr_member){id_of(how, sharers, i), sharers[i].owned};
        owned |= sharers[i].owned;
    }
    if (owned != 0)
        mr_partitions_assign(how, n, members, sharers_n);
    else
        mr_partitions_assign_anew(how, n, members, sharers_n);
    for (size_t i = 0; i < sharers_n; i++) { /* the members are in the order of their ids now */
        struct mr_member key = {.id = id_of(how, sharers, i)};
        const struct mr_member *member = bsearch(&key, members, sharers_n, sizeof *members, by_id);
        sharers[i].owned = member != NULL ? member->owned : 0;
    }
    free(members);
    return MR_OK;
}
