/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries: how they come in, which copy counts, and how they go. See registry.h.
 *
 * Invariants: an entry that lives is in its bucket and its group, and in the digest of its bucket; one that is gone is
 * in graves and in no digest, so that nameservers which forget a grave at different times do not differ. All are in the
 * heap. What a change needs is allocated before anything is changed.
 */
#include "names/registry.h"

#include <assert.h>
#include <stdlib.h>

#include "names/internal.h"

enum {
    ENTRIES_MAX = 100 * 1000,
    TTL_SERVER_MS = 30 * 1000,
    TTL_WORKER_MS = 60 * 1000,
    GRAVE_MS = 600 * 1000,
    HOLD_MS = 20 * 1000,
    STALL_MS = 5 * 1000,
    AGE_MAX_MS = 24 * 3600 * 1000, /* as others say it; nothing is kept for so long */
    TEXT_MAX = 3 * MR_NAME_MAX + MR_NAMES_ADDRESS_MAX + MR_NAMES_BODY_MAX,
};
static_assert(MR_NAMES_BUCKETS == 256, "the first byte of an id is its bucket");
static_assert(TEXT_MAX + MR_NAMES_ENTRY_OVERHEAD <= MR_NAMES_MSG_BYTES,
              "a message has room for any");

/* ---- what an entry says ----------------------------------------------------------------------- */

/* An entry that was looked through: its id, and its texts as they are kept. */
struct said {
    struct mr_uuid id;
    uint64_t sum;
    size_t len;
    char text[TEXT_MAX];
};

static enum mr_err check_plain(struct mr_slice text, size_t max)
{
    if (text.len > max)
        return MR_TOO_BIG;
    const unsigned char *at = text.data;
    for (size_t i = 0; i < text.len; i++) {
        if (at[i] < 0x20 || at[i] == 0x7f)
            return MR_INVALID;
    }
    return mr_utf8_valid(text) ? MR_OK : MR_INVALID;
}

static enum mr_err check_entry(const struct mr_names_entry *in)
{
    bool known = (unsigned)in->kind < MR_NAMES_KIND_COUNT && (unsigned)in->fate <= MR_NAMES_LEFT;
    if (!known || in->incarnation == 0 || in->version == 0 || in->age_ms < 0)
        return MR_INVALID;
    MR_TRY(mr_name_check(in->name));
    if (in->fate != MR_NAMES_LIVES)
        return MR_OK;
    bool is_server = in->kind == MR_NAMES_SERVER;
    if (is_server ? in->app.len > 0 || in->server.len > 0 || in->address.len == 0
                  : in->app.len == 0)
        return MR_INVALID;
    if (!is_server)
        MR_TRY(mr_name_check(in->app));
    if (in->server.len > 0)
        MR_TRY(mr_name_check(in->server));
    MR_TRY(check_plain(in->address, MR_NAMES_ADDRESS_MAX));
    return in->body.len <= MR_NAMES_BODY_MAX ? MR_OK : MR_TOO_BIG;
}

static void say(struct said *said, struct mr_slice text)
{
    mr_assert(said->len + text.len <= sizeof said->text);
    if (text.len > 0)
        memcpy(said->text + said->len, text.data, text.len);
    said->len += text.len;
}

static uint64_t first_half(struct mr_uuid hash)
{
    return mr_load64(hash.bytes);
}

/* Where one text ends and the next begins is a part of it: so it is of the key. */
static uint64_t sum_of(const struct said *said, const struct mr_names_entry *in)
{
    struct mr_hash_key key = {in->app.len << 32 | in->address.len,
                              in->server.len << 32 | in->body.len};
    struct mr_slice text = {said->text + in->name.len, said->len - in->name.len};
    uint64_t sum = first_half(mr_hash128(key, text));
    return sum != 0 ? sum : 1;
}

static enum mr_err said_make(struct said *said, const struct mr_names_entry *in)
{
    MR_TRY(check_entry(in));
    said->sum = 0;
    said->len = 0;
    said->id = mr_hash128((struct mr_hash_key){in->incarnation, in->kind}, in->name);
    say(said, in->name);
    if (in->fate != MR_NAMES_LIVES)
        return MR_OK;
    say(said, in->app);
    say(said, in->address);
    say(said, in->server);
    say(said, in->body);
    said->sum = sum_of(said, in);
    return MR_OK;
}

/* ---- which copy counts ------------------------------------------------------------------------ */

int registry_rank(enum mr_names_fate a, uint64_t a_version, uint64_t a_sum, enum mr_names_fate b,
                  uint64_t b_version, uint64_t b_sum)
{
#ifndef MR_PLANT_LEAVER_RETURNS
    bool a_left = a == MR_NAMES_LEFT, b_left = b == MR_NAMES_LEFT;
    if (a_left || b_left)
        return a_left - b_left;
#endif
    if (a_version != b_version)
        return a_version > b_version ? 1 : -1;
    if (a != b)
        return a > b ? 1 : -1;
    return (a_sum > b_sum) - (a_sum < b_sum);
}

struct entry *registry_find(const struct mr_registry *r, const struct mr_uuid *id)
{
    uint32_t handle = mr_map_find(r->ids, mr_uuid_hash(id), id);
    return handle == MR_MAP_NONE ? NULL : r->entries.at[handle];
}

static uint64_t id_hash(uint32_t handle, void *arg)
{
    const struct mr_registry *r = arg;
    return mr_uuid_hash(&((const struct entry *)r->entries.at[handle])->id);
}

static bool id_equal(uint32_t handle, const void *key, void *arg)
{
    const struct mr_registry *r = arg;
    return memcmp(((const struct entry *)r->entries.at[handle])->id.bytes, key,
                  sizeof(struct mr_uuid)) == 0;
}

static const struct mr_map_ops id_ops = {.hash = id_hash, .equal = id_equal};

/* ---- in and out of the lists ------------------------------------------------------------------ */

/* What a copy adds to the digest of its bucket. Terms are combined by exclusive or, so each must look like chance. */
uint64_t registry_term(const struct entry *e)
{
    uint64_t mix = mr_uuid_hash(&e->id) ^ e->sum;
    mix += 0x9e3779b97f4a7c15ULL * e->version;
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9ULL;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111ebULL;
    return mix ^ mix >> 31;
}

static int64_t keep_ms(const struct mr_registry *r, enum mr_names_kind kind,
                       enum mr_names_fate fate)
{
    return fate == MR_NAMES_LIVES ? r->options.ttl_ms[kind] : r->options.grave_ms;
}

/* It is in the heap already, so there is room. */
static void set_due(struct mr_registry *r, struct entry *e)
{
    mr_heap_remove(&r->due, &e->due);
    e->due.key = mr_mono_add_ms(e->since, keep_ms(r, e->kind, e->fate)).ns;
    enum mr_err err = mr_heap_push(&r->due, &e->due);
    mr_assert(err == MR_OK);
}

static void hide(struct mr_registry *r, struct entry *e)
{
    if (!e->shown)
        return;
    e->shown = false;
    if (e->fate != MR_NAMES_LIVES) {
        mr_list_remove(&e->grave);
        r->figures.graves--;
        return;
    }
    r->digest[registry_bucket(&e->id)] ^= registry_term(e);
    mr_list_remove(&e->bucket);
    mr_list_remove(&e->member);
    names_group_leave(r, e->group);
    e->group = NULL;
    r->figures.live[e->kind]--;
}

/* One that lives has entered its group. */
static void show(struct mr_registry *r, struct entry *e)
{
    mr_assert(!e->shown);
    e->shown = true;
    set_due(r, e);
    if (e->fate != MR_NAMES_LIVES) {
        mr_list_push_back(&r->graves, &e->grave);
        r->figures.graves++;
        return;
    }
    r->digest[registry_bucket(&e->id)] ^= registry_term(e);
    mr_list_push_back(&r->buckets[registry_bucket(&e->id)], &e->bucket);
    mr_list_push_back(&e->group->members, &e->member);
    e->group->changed = ++r->changes;
    r->figures.live[e->kind]++;
}

static void forget(struct mr_registry *r, struct entry *e)
{
    hide(r, e);
    mr_list_remove(&e->fresh);
    mr_heap_remove(&r->due, &e->due);
    mr_map_remove(r->ids, mr_uuid_hash(&e->id), e->handle);
    handles_give(&r->entries, e->handle);
    free(e->text);
    free(e);
}

/* Its texts are of no use any more, but its name is. */
static void bury(struct mr_registry *r, struct entry *e, enum mr_names_fate fate, mr_mono since)
{
    hide(r, e);
    e->fate = fate;
    e->since = since;
    e->sum = 0;
    char *name = realloc(e->text, e->name_len);
    if (name != NULL)
        e->text = name;
    e->app_len = e->address_len = e->server_len = e->body_len = 0;
    show(r, e);
}

/* ---- a copy comes in -------------------------------------------------------------------------- */

static enum mr_err make_room(struct mr_registry *r, const struct mr_names_entry *in)
{
    if (mr_map_count(r->ids) < r->options.entries_max)
        return MR_OK;
    if (in->fate != MR_NAMES_LIVES || mr_list_empty(&r->graves))
        return MR_BUSY;
    forget(r, mr_container(r->graves.next, struct entry, grave));
    r->figures.forgotten++;
    return MR_OK;
}

/* In no list yet. */
static enum mr_err entry_new(struct mr_registry *r, const struct said *said,
                             const struct mr_names_entry *in, struct entry **ret)
{
    MR_TRY(make_room(r, in));
    struct entry *e = calloc(1, sizeof *e);
    char *text = malloc(in->name.len);
    if (e == NULL || text == NULL || handles_take(&r->entries, e, &e->handle) != MR_OK)
        goto no_handle;
    *e = (struct entry){.handle = e->handle,
                        .id = said->id,
                        .kind = in->kind,
                        .incarnation = in->incarnation,
                        .text = text,
                        .name_len = (uint16_t)in->name.len,
                        .due.key = INT64_MAX,
                        .due.tie = e->handle};
    memcpy(text, in->name.data, in->name.len);
    mr_list_init(&e->bucket);
    mr_list_init(&e->member);
    mr_list_init(&e->grave);
    mr_list_init(&e->fresh);
    if (mr_map_insert(r->ids, mr_uuid_hash(&e->id), e->handle) != MR_OK)
        goto no_map;
    if (mr_heap_push(&r->due, &e->due) != MR_OK)
        goto no_heap;
    *ret = e;
    return MR_OK;

no_heap:
    mr_map_remove(r->ids, mr_uuid_hash(&e->id), e->handle);
no_map:
    handles_give(&r->entries, e->handle);
no_handle:
    free(text);
    free(e);
    return MR_NOMEM;
}

static enum mr_err live_on(struct mr_registry *r, struct entry *e, const struct said *said,
                           const struct mr_names_entry *in, mr_mono since)
{
    char *text = malloc(said->len);
    struct group *group = text != NULL ? names_group_enter(r, in->kind, in->app) : NULL;
    if (group == NULL) {
        free(text);
        return MR_NOMEM;
    }
    memcpy(text, said->text, said->len);
    hide(r, e);
    free(e->text);
    e->text = text;
    e->app_len = (uint16_t)in->app.len;
    e->address_len = (uint16_t)in->address.len;
    e->server_len = (uint16_t)in->server.len;
    e->body_len = (uint16_t)in->body.len;
    e->group = group;
    e->fate = MR_NAMES_LIVES;
    e->version = in->version;
    e->sum = said->sum;
    e->since = since;
    show(r, e);
    return MR_OK;
}

/* Everything but its body, which is nobody's list. */
static bool is_same_face(const struct entry *e, const struct said *said,
                         const struct mr_names_entry *in)
{
    return e->shown && e->fate == MR_NAMES_LIVES && e->app_len == in->app.len &&
           e->address_len == in->address.len && e->server_len == in->server.len &&
           memcmp(e->text, said->text, said->len - in->body.len) == 0;
}

/* No list changes. */
static enum mr_err sign_of_life(struct mr_registry *r, struct entry *e, const struct said *said,
                                const struct mr_names_entry *in, mr_mono since)
{
    size_t bucket = registry_bucket(&e->id);
    if (e->sum != said->sum) {
        char *text = malloc(said->len);
        if (text == NULL)
            return MR_NOMEM;
        memcpy(text, said->text, said->len);
        free(e->text);
        e->text = text;
        e->body_len = (uint16_t)in->body.len;
    }
    r->digest[bucket] ^= registry_term(e);
    e->version = in->version;
    e->sum = said->sum;
    r->digest[bucket] ^= registry_term(e);
    e->since = since;
    set_due(r, e);
    return MR_OK;
}

static enum mr_err replace(struct mr_registry *r, struct entry *e, const struct said *said,
                           const struct mr_names_entry *in, mr_mono since)
{
    if (in->fate != MR_NAMES_LIVES) {
        r->figures.left += in->fate == MR_NAMES_LEFT;
        hide(r, e); /* with the version that it was shown with */
        e->version = in->version;
        bury(r, e, in->fate, since);
        return MR_OK;
    }
    return is_same_face(e, said, in) ? sign_of_life(r, e, said, in, since)
                                     : live_on(r, e, said, in, since);
}

/* The entry that has changed, or that the copy is older than; NULL: neither. */
static enum mr_err put(struct mr_registry *r, const struct mr_names_entry *in, mr_mono since,
                       enum mr_names_put *ret_put, struct entry **ret_entry)
{
    struct said said;
    MR_TRY(said_make(&said, in));
    struct entry *e = registry_find(r, &said.id);
    int rank =
        e == NULL ? 1 : registry_rank(in->fate, in->version, said.sum, e->fate, e->version, e->sum);
    if (rank == 0 && since.ns < e->since.ns) {
        e->since = since;
        set_due(r, e);
    }
    bool is_late = in->age_ms >= keep_ms(r, in->kind, in->fate);
    *ret_put = rank == 0 ? MR_PUT_KNOWN : MR_PUT_OLD;
    *ret_entry = rank < 0 ? e : NULL;
    if (rank <= 0 || is_late)
        return MR_OK;
    enum mr_names_put put = e != NULL && e->fate == MR_NAMES_LIVES ? MR_PUT_NEWER : MR_PUT_NEW;
    if (e == NULL)
        MR_TRY(entry_new(r, &said, in, &e));
    enum mr_err err = replace(r, e, &said, in, since);
    if (err != MR_OK) {
        if (!e->shown)
            forget(r, e);
        return err;
    }
    *ret_put = put;
    *ret_entry = e;
    return MR_OK;
}

static enum mr_err count_refused(struct mr_registry *r, enum mr_err err)
{
    r->figures.refused += err != MR_OK && err != MR_NOMEM;
    return err;
}

enum mr_err mr_registry_register(struct mr_registry *registry, mr_mono now,
                                 const struct mr_names_entry *entry, enum mr_names_put *ret_put)
{
    struct mr_names_entry in = *entry;
    struct entry *e;
    in.age_ms = 0;
    if (in.fate == MR_NAMES_EXPIRED) /* nobody says that of itself */
        return count_refused(registry, MR_INVALID);
    MR_TRY(count_refused(registry, put(registry, &in, now, ret_put, &e)));
    if (*ret_put == MR_PUT_NEW || *ret_put == MR_PUT_NEWER) {
        mr_list_remove(&e->fresh);
        mr_list_push_back(&registry->fresh, &e->fresh);
    }
    return MR_OK;
}

enum mr_err registry_merge(struct mr_registry *r, mr_mono now, const struct mr_names_entry *entry,
                           enum mr_names_put *ret_put, struct entry **ret_entry)
{
    struct mr_names_entry in = *entry;
    in.age_ms = in.age_ms < AGE_MAX_MS ? in.age_ms : AGE_MAX_MS;
    mr_mono since = in.age_ms > 0 ? mr_mono_add_ms(now, -in.age_ms) : now;
    return count_refused(r, put(r, &in, since, ret_put, ret_entry));
}

enum mr_err mr_registry_merge(struct mr_registry *registry, mr_mono now,
                              const struct mr_names_entry *entry, enum mr_names_put *ret_put)
{
    struct entry *e;
    return registry_merge(registry, now, entry, ret_put, &e);
}

/* ---- time ------------------------------------------------------------------------------------- */

void mr_registry_tick(struct mr_registry *registry, mr_mono now)
{
    /* That we heard nobody while we stood still is not their fault. */
    if (now.ns > mr_mono_add_ms(registry->ticked, registry->options.stall_ms).ns) {
        registry->hold = mr_mono_add_ms(now, registry->options.hold_ms);
        registry->figures.stalls++;
    }
    registry->ticked = now;
    struct mr_heap_node *node;
    while (now.ns >= registry->hold.ns && (node = mr_heap_top(&registry->due)) != NULL &&
           node->key <= now.ns) {
        struct entry *e = mr_container(node, struct entry, due);
        if (e->fate != MR_NAMES_LIVES) {
            forget(registry, e);
            continue;
        }
        registry->figures.expired++;
        bury(registry, e, MR_NAMES_EXPIRED, now);
    }
}

bool mr_registry_complete(const struct mr_registry *registry, mr_mono now)
{
    return now.ns >= registry->hold.ns;
}

/* ---- the registry ----------------------------------------------------------------------------- */

static int64_t or_default(int64_t ms, int64_t standard)
{
    return ms <= 0 ? standard : ms < AGE_MAX_MS ? ms : AGE_MAX_MS;
}

static void set_options(struct mr_registry *r, const struct mr_registry_options *options)
{
    if (options != NULL)
        r->options = *options;
    struct mr_registry_options *o = &r->options;
    o->entries_max = o->entries_max > 0 ? o->entries_max : ENTRIES_MAX;
    o->ttl_ms[MR_NAMES_SERVER] = or_default(o->ttl_ms[MR_NAMES_SERVER], TTL_SERVER_MS);
    o->ttl_ms[MR_NAMES_WORKER] = or_default(o->ttl_ms[MR_NAMES_WORKER], TTL_WORKER_MS);
    o->grave_ms = or_default(o->grave_ms, GRAVE_MS);
    o->hold_ms = or_default(o->hold_ms, HOLD_MS);
    o->stall_ms = or_default(o->stall_ms, STALL_MS);
}

enum mr_err mr_registry_new(const struct mr_registry_options *options, mr_mono now,
                            struct mr_registry **ret_registry)
{
    struct mr_registry *r = calloc(1, sizeof *r);
    if (r == NULL)
        return MR_NOMEM;
    set_options(r, options);
    mr_list_init(&r->all_groups);
    mr_list_init(&r->graves);
    mr_list_init(&r->fresh);
    for (size_t i = 0; i < MR_NAMES_BUCKETS; i++)
        mr_list_init(&r->buckets[i]);
    r->ticked = now;
    r->hold = mr_mono_add_ms(now, r->options.hold_ms);
    enum mr_err err = mr_map_new(&id_ops, r, &r->ids);
    if (err == MR_OK)
        err = mr_map_new(&names_group_ops, r, &r->apps);
    if (err != MR_OK) {
        mr_registry_free(r);
        return err;
    }
    *ret_registry = r;
    return MR_OK;
}

void mr_registry_free(struct mr_registry *registry)
{
    if (registry == NULL)
        return;
    struct mr_heap_node *node;
    while ((node = mr_heap_top(&registry->due)) != NULL)
        forget(registry, mr_container(node, struct entry, due));
    mr_heap_done(&registry->due);
    mr_map_free(registry->ids);
    mr_map_free(registry->apps);
    handles_done(&registry->entries);
    handles_done(&registry->groups);
    free(registry);
}
