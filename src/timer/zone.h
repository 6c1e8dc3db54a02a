/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time zones of the IANA database, read from the system's zoneinfo folder: TZif files with 32-bit
 * and 64-bit times, and the POSIX rule of their footer for the years beyond. A zone is one table of
 * changes that reaches to the end of all rules (MR_RULE_YEAR_MAX); finding an offset is one binary
 * search. Nothing here looks at TZ or changes it.
 *
 * Seconds are Unix seconds; local seconds are those a clock on the wall shows, counted as if it
 * showed UTC.
 */
#ifndef MR_TIMER_ZONE_H
#define MR_TIMER_ZONE_H

#include "base/fs.h"

enum {
    MR_ZONE_NAME_MAX = 64,
    MR_RULE_YEAR_MIN = 1970,
    MR_RULE_YEAR_MAX = 2199, /* no rule fires later */
};

#define MR_ZONE_FOLDER "/usr/share/zoneinfo"

struct mr_zones;
struct mr_zone;

/* A cache of zones, read from folder (copied; NULL is MR_ZONE_FOLDER) when first asked for. */
MR_MUST_USE enum mr_err mr_zones_new(struct mr_fs *fs, const char *folder,
                                     struct mr_zones **ret_zones);
/* With every zone it handed out. NULL is fine. */
void mr_zones_free(struct mr_zones *zones);
/* The zone of a name like "Europe/Berlin"; it lives as long as zones. "" and "UTC" need no file.
 * MR_INVALID: no such zone, or a file that is none; detail says which. Thread: any. */
MR_MUST_USE enum mr_err mr_zones_get(struct mr_zones *zones, struct mr_slice name,
                                     const struct mr_zone **ret_zone, struct mr_detail *detail);

const char *mr_zone_name(const struct mr_zone *zone);
/* Seconds ahead of UTC at this moment. */
int32_t mr_zone_offset(const struct mr_zone *zone, int64_t unix_s);
/* The first moment at which the clock shows local_s or more: the moment itself, the first of two
 * when it is shown twice, the end of the gap when it is never shown. It never goes back when
 * local_s rises. */
int64_t mr_zone_to_unix(const struct mr_zone *zone, int64_t local_s);
/* The latest local time that has been shown up to unix_s. So mr_zone_to_unix(l) > unix_s exactly
 * when l is later than that. */
int64_t mr_zone_latest_local(const struct mr_zone *zone, int64_t unix_s);

/* ---- for mr_zones, and for tests ------------------------------------------------------------- */

/* A zone of the bytes of a TZif file. MR_INVALID with the reason in detail. */
MR_MUST_USE enum mr_err mr_zone_parse(const char *name, struct mr_slice file,
                                      struct mr_zone **ret_zone, struct mr_detail *detail);
void mr_zone_free(struct mr_zone *zone);

#endif
