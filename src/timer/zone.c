/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of zones, and local time. A name is letters, digits, _ + - and single slashes between
 * them, so it cannot leave the folder by itself; that no link leads out of it is checked as well.
 * Zones are never removed from the cache: there are a few hundred of them.
 */
#include "timer/zone.h"

#include <stdlib.h>

#include "base/chan.h"
#include "timer/internal.h"

enum { FILE_MAX = 64 * 1024 };

struct mr_zones {
    struct mr_fs *fs;
    char folder[MR_PATH_MAX]; /* without links */
    struct mr_lock lock;
    struct mr_zone *first; /* under the lock; what it points to never changes */
    struct mr_zone *utc;
};

/* ---- names and files ------------------------------------------------------------------------- */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '+' || c == '-';
}

static bool is_zone_name(struct mr_slice name)
{
    const char *at = name.data;
    bool begins = true; /* a part begins here */
    if (name.len == 0 || name.len > MR_ZONE_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        if (at[i] == '/' && begins)
            return false;
        if (at[i] != '/' && !is_name_char(at[i]))
            return false;
        begins = at[i] == '/';
    }
    return !begins;
}

static enum mr_err find_file(struct mr_zones *zones, const char *name, char path[MR_PATH_MAX])
{
    char joined[MR_PATH_MAX];
    MR_TRY(mr_path_join(joined, zones->folder, name));
    MR_TRY(zones->fs->ops->real(zones->fs, joined, path));
    size_t len = strlen(zones->folder);
    bool inside = strncmp(path, zones->folder, len) == 0 && path[len] == '/';
    return inside ? MR_OK : MR_NOT_FOUND;
}

static enum mr_err read_zone_file(struct mr_zones *zones, const char *name, struct mr_buf *buf)
{
    char path[MR_PATH_MAX];
    struct mr_file *file = NULL;
    uint64_t size = 0;
    MR_TRY(find_file(zones, name, path));
    MR_TRY(mr_fs_open(zones->fs, path, MR_OPEN_READ, &file));
    enum mr_err err = mr_file_size(file, &size);
    if (err == MR_OK && size > FILE_MAX)
        err = MR_TOO_BIG;
    if (err == MR_OK)
        err = mr_buf_reserve(buf, size > 0 ? size : 1);
    if (err == MR_OK)
        err = mr_file_pread(file, buf->data, size, 0);
    if (err == MR_OK)
        buf->len = size;
    mr_file_close(file);
    return err;
}

static enum mr_err load_zone(struct mr_zones *zones, const char *name, struct mr_zone **ret_zone,
                             struct mr_detail *detail)
{
    struct mr_buf buf = {0};
    enum mr_err err = read_zone_file(zones, name, &buf);
    if (err == MR_OK) {
        err = mr_zone_parse(name, mr_buf_slice(&buf), ret_zone, detail);
    } else if (err == MR_NOT_FOUND || err == MR_INVALID || err == MR_IO) {
        /* What is not there leads to the folder, or the file, above it, which is no zone. */
        mr_detail_set(
            detail, "no time zone '%s' in %s; names are like Europe/Berlin, America/New_York, UTC",
            name, zones->folder);
        err = MR_INVALID;
    } else {
        mr_detail_set(detail, "time zone '%s': cannot read it: %s", name, mr_err_text(err));
    }
    mr_buf_done(&buf);
    return err;
}

/* ---- the cache ------------------------------------------------------------------------------- */

enum mr_err mr_zones_new(struct mr_fs *fs, const char *folder, struct mr_zones **ret_zones)
{
    struct mr_zones *zones = calloc(1, sizeof *zones);
    struct mr_zone *utc = calloc(1, sizeof *utc + sizeof utc->changes[0]);
    enum mr_err err = zones != NULL && utc != NULL ? MR_OK : MR_NOMEM;
    if (err == MR_OK)
        err = fs->ops->real(fs, folder != NULL ? folder : MR_ZONE_FOLDER, zones->folder);
    if (err != MR_OK) {
        free(zones);
        free(utc);
        return err;
    }
    memcpy(utc->name, "UTC", sizeof "UTC");
    utc->count = 1;
    utc->changes[0] = (struct zone_change){INT64_MIN, 0};
    zones->fs = fs;
    zones->utc = zones->first = utc;
    mr_lock_init(&zones->lock);
    *ret_zones = zones;
    return MR_OK;
}

void mr_zones_free(struct mr_zones *zones)
{
    if (zones == NULL)
        return;
    while (zones->first != NULL) {
        struct mr_zone *zone = zones->first;
        zones->first = zone->next;
        mr_zone_free(zone);
    }
    mr_lock_done(&zones->lock);
    free(zones);
}

static struct mr_zone *find_zone(struct mr_zones *zones, const char *name)
{
    struct mr_zone *zone = zones->first;
    while (zone != NULL && strcmp(zone->name, name) != 0)
        zone = zone->next;
    return zone;
}

enum mr_err mr_zones_get(struct mr_zones *zones, struct mr_slice name,
                         const struct mr_zone **ret_zone, struct mr_detail *detail)
{
    if (name.len == 0) {
        *ret_zone = zones->utc;
        return MR_OK;
    }
    if (!is_zone_name(name)) {
        mr_detail_set(detail, "this is no name of a time zone; names are like Europe/Berlin, UTC");
        return MR_INVALID;
    }
    char text[MR_ZONE_NAME_MAX + 1] = {0};
    memcpy(text, name.data, name.len);
    enum mr_err err = MR_OK;
    mr_lock_enter(&zones->lock);
    struct mr_zone *zone = find_zone(zones, text);
    if (zone == NULL) {
        err = load_zone(zones, text, &zone, detail);
        if (err == MR_OK) {
            zone->next = zones->first;
            zones->first = zone;
        }
    }
    mr_lock_leave(&zones->lock);
    if (err == MR_OK)
        *ret_zone = zone;
    return err;
}

/* ---- local time ------------------------------------------------------------------------------ */

const char *mr_zone_name(const struct mr_zone *zone)
{
    return zone->name;
}

/* Which change is in force. */
static size_t change_at(const struct mr_zone *zone, int64_t unix_s)
{
    size_t low = 0, high = zone->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (zone->changes[middle].at <= unix_s)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t end_of(const struct mr_zone *zone, size_t i)
{
    return i + 1 < zone->count ? zone->changes[i + 1].at : INT64_MAX;
}

int32_t mr_zone_offset(const struct mr_zone *zone, int64_t unix_s)
{
    return zone->changes[change_at(zone, unix_s)].offset;
}

int64_t mr_zone_to_unix(const struct mr_zone *zone, int64_t local_s)
{
    /* Nowhere has the clock shown local_s before this. */
    size_t i = change_at(zone, local_s - TIMER_OFFSET_MAX);
    for (;; i++) {
        int64_t at = local_s - zone->changes[i].offset;
        if (at < zone->changes[i].at)
            at = zone->changes[i].at;
        if (at < end_of(zone, i))
            return at;
    }
}

int64_t mr_zone_latest_local(const struct mr_zone *zone, int64_t unix_s)
{
    size_t i = change_at(zone, unix_s);
    int64_t latest = unix_s + zone->changes[i].offset;
#ifdef MR_PLANT_FOLD_FIRES_TWICE
    return latest;
#endif
    /* An older change cannot have been ahead of now by more than two offsets. */
    for (; i > 0 && zone->changes[i].at > unix_s - 2 * TIMER_OFFSET_MAX - 1; i--) {
        int64_t shown = zone->changes[i].at - 1 + zone->changes[i - 1].offset;
        if (shown > latest)
            latest = shown;
    }
    return latest;
}
