/* SPDX-License-Identifier: Apache-2.0 */
/* Names that follow from a firing or an app: nobody has to remember them. */
#include <inttypes.h>
#include <stdio.h>

#include "timer/sched/internal.h"

enum { UID_HEX = 32 };

size_t mr_firing_id(const struct mr_uuid *uid, int64_t planned_ms, uint32_t run,
                    char id[MR_FIRING_ID_MAX + 1])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof uid->bytes; i++) {
        id[2 * i] = hex[uid->bytes[i] >> 4];
        id[2 * i + 1] = hex[uid->bytes[i] & 15];
    }
    return UID_HEX + (size_t)snprintf(id + UID_HEX, MR_FIRING_ID_MAX + 1 - UID_HEX,
                                      "-%" PRId64 "-%" PRIu32, planned_ms, run);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A number without signs and zeros in front, up to max; false: there is none. */
static bool read_number(const char **at, const char *end, uint64_t max, uint64_t *ret_number)
{
    const char *p = *at;
    uint64_t number = 0;
    if (p == end || (*p == '0' && p + 1 < end && p[1] >= '0' && p[1] <= '9'))
        return false;
    while (p < end && *p >= '0' && *p <= '9') {
        uint64_t digit = (uint64_t)(*p - '0');
        if (number > (max - digit) / 10)
            return false;
        number = number * 10 + digit;
        p++;
    }
    if (p == *at)
        return false;
    *at = p;
    *ret_number = number;
    return true;
}

bool mr_firing_id_parse(struct mr_slice id, struct mr_uuid *ret_uid, int64_t *ret_planned_ms,
                        uint32_t *ret_run)
{
    const char *at = id.data, *end = at + id.len;
    uint64_t planned_ms, run;
    if (id.len <= UID_HEX + 1 || id.len > MR_FIRING_ID_MAX || at[UID_HEX] != '-')
        return false;
    for (size_t i = 0; i < sizeof ret_uid->bytes; i++) {
        int high = digit_of(at[2 * i]), low = digit_of(at[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_uid->bytes[i] = (uint8_t)(high << 4 | low);
    }
    at += UID_HEX + 1;
    if (!read_number(&at, end, INT64_MAX, &planned_ms) || at == end || *at++ != '-' ||
        !read_number(&at, end, UINT32_MAX, &run) || at != end)
        return false;
    *ret_planned_ms = (int64_t)planned_ms;
    *ret_run = (uint32_t)run;
    return true;
}

/* An app whose name is too long for that has a topic by its hash. */
struct mr_slice mr_firing_topic(struct mr_slice app, char topic[MR_TOPIC_MAX + 1])
{
    char uuid[MR_UUID_TEXT_LEN + 1];
    if (app.len + sizeof MR_FIRING_TOPICS > MR_TOPIC_MAX) {
        struct mr_uuid hash = mr_hash128((struct mr_hash_key){0}, app);
        mr_uuid_format(&hash, uuid);
        app = mr_slice_str(uuid);
    }
    int len = snprintf(topic, MR_TOPIC_MAX + 1, MR_FIRING_TOPICS "%.*s", (int)app.len,
                       (const char *)app.data);
    return (struct mr_slice){topic, (size_t)len};
}
