/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, names and ids, each against a second, slower implementation of the same rule. */
#include "base/diag.h"
#include "base/id.h"
#include "fuzz/fuzz.h"

/* The code point at the front and its length, by the definition: shortest form, no surrogates, at
 * most U+10FFFF. Length 0 when there is none. */
static size_t decode(const uint8_t *at, size_t left, uint32_t *ret_point)
{
    static const struct {
        uint8_t mask, lead;
        size_t len;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 1, 0},
                 {0xe0, 0xc0, 2, 0x80},
                 {0xf0, 0xe0, 3, 0x800},
                 {0xf8, 0xf0, 4, 0x10000}};
    for (size_t f = 0; f < 4; f++) {
        if ((at[0] & forms[f].mask) != forms[f].lead)
            continue;
        if (left < forms[f].len)
            return 0;
        uint32_t point = at[0] & (uint8_t)~forms[f].mask;
        for (size_t i = 1; i < forms[f].len; i++) {
            if ((at[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (at[i] & 0x3f);
        }
        bool surrogate = point >= 0xd800 && point <= 0xdfff;
        *ret_point = point;
        return point < forms[f].least || surrogate || point > 0x10ffff ? 0 : forms[f].len;
    }
    return 0;
}

static bool is_utf8(struct mr_slice text, bool *ret_plain)
{
    const uint8_t *at = text.data;
    *ret_plain = true;
    for (size_t i = 0; i < text.len;) {
        uint32_t point;
        size_t len = decode(at + i, text.len - i, &point);
        if (len == 0)
            return false;
        if (point < 0x20 || point == 0x7f || point == '{' || point == '}')
            *ret_plain = false;
        i += len;
    }
    return true;
}

static void check_name(struct mr_slice text)
{
    bool plain;
    bool valid = is_utf8(text, &plain);
    mr_assert(mr_utf8_valid(text) == valid);
    enum mr_err err = mr_name_check(text);
    mr_assert(err == MR_OK || err == MR_INVALID || err == MR_TOO_BIG);
    if (err == MR_OK)
        mr_assert(valid && plain && text.len >= 1 && text.len <= MR_NAME_MAX);
    if (text.len > MR_NAME_MAX)
        mr_assert(err == MR_TOO_BIG);
    if (text.len == 0 || (text.len <= MR_NAME_MAX && !(valid && plain)))
        mr_assert(err == MR_INVALID);
}

static void check_uuid(struct mr_slice text)
{
    struct mr_uuid uuid;
    if (!mr_uuid_parse(text, &uuid))
        return;
    char shown[MR_UUID_TEXT_LEN + 1];
    mr_uuid_format(&uuid, shown);
    mr_assert(mr_slice_equal(text, mr_slice_str(shown)));
}

static void check_escape(struct mr_slice bytes)
{
    char text[64];
    const char *shown = mr_diag_escape(bytes, text, sizeof text);
    mr_assert(strlen(shown) < sizeof text);
    for (const char *at = shown; *at != '\0'; at++)
        mr_assert((unsigned char)*at >= 0x20 && *at != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_slice text = mr_slice_make(data, size);
    check_name(text);
    check_uuid(text);
    check_escape(text);
    enum mr_state state = mr_state_parse(text);
    mr_assert(state == MR_STATE_NONE || mr_slice_equal(text, mr_slice_str(mr_state_name(state))));
    return 0;
}
