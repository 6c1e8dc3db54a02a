/* SPDX-License-Identifier: Apache-2.0 */
/* Borrowed bytes: comparison, UTF-8 (RFC 3629: no surrogates, no overlong forms) and the rule for
 * names. */
#include "base/slice.h"

struct mr_slice mr_slice_str(const char *text)
{
    return (struct mr_slice){text, text != NULL ? strlen(text) : 0};
}

int mr_slice_compare(struct mr_slice a, struct mr_slice b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common != 0 ? memcmp(a.data, b.data, common) : 0;
    if (order != 0)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

bool mr_slice_starts_with(struct mr_slice text, struct mr_slice prefix)
{
    return text.len >= prefix.len &&
           (prefix.len == 0 || memcmp(text.data, prefix.data, prefix.len) == 0);
}

/* One kind of sequence: lead bytes lead_min .. lead_max, and the range of the byte behind them; the
 * bytes after that one are always 80..BF. The rows are table 3-7 of the Unicode standard. */
struct utf8_row {
    uint8_t lead_min, lead_max;
    uint8_t len;
    uint8_t second_min, second_max;
};

static const struct utf8_row utf8_rows[] = {
    {0x00, 0x7f, 1, 0x00, 0x00}, {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf},
    {0xe1, 0xec, 3, 0x80, 0xbf}, {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
    {0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
};

/* Length of the sequence at the start of p, 0 when it is none. */
static size_t utf8_sequence(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < sizeof utf8_rows / sizeof utf8_rows[0]; i++) {
        const struct utf8_row *row = &utf8_rows[i];
        if (p[0] < row->lead_min || p[0] > row->lead_max)
            continue;
        if (row->len > len)
            return 0;
        if (row->len > 1 && (p[1] < row->second_min || p[1] > row->second_max))
            return 0;
        for (size_t j = 2; j < row->len; j++) {
            if ((p[j] & 0xc0) != 0x80)
                return 0;
        }
        return row->len;
    }
    return 0;
}

bool mr_utf8_valid(struct mr_slice text)
{
    const uint64_t high_bits = 0x8080808080808080ULL;
    const uint8_t *p = text.data;
    size_t i = 0;
    while (i < text.len) {
        /* Nearly all text is ASCII: eight bytes at a time. */
        if (text.len - i >= 8 && (mr_load64(p + i) & high_bits) == 0) {
            i += 8;
            continue;
        }
        size_t len = utf8_sequence(p + i, text.len - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

size_t mr_utf8_cut(struct mr_slice text, size_t max)
{
    if (text.len <= max)
        return text.len;
    const uint8_t *bytes = text.data;
    size_t len = max;
    while (len > 0 && (bytes[len] & 0xc0) == 0x80)
        len--;
    return len;
}

void mr_utf8_clean(void *text, size_t len)
{
    uint8_t *bytes = text;
    for (size_t i = 0; i < len;) {
        size_t one = utf8_sequence(bytes + i, len - i);
        if (one == 0)
            bytes[i] = '?';
        i += one == 0 ? 1 : one;
    }
}

/* Control characters are C0, DEL and C1 (U+0080 .. U+009F, in UTF-8 C2 80 .. C2 9F). */
static bool name_byte_ok(const uint8_t *p, size_t left)
{
    if (p[0] < 0x20 || p[0] == 0x7f || p[0] == '{' || p[0] == '}')
        return false;
    return !(p[0] == 0xc2 && left > 1 && p[1] < 0xa0);
}

enum mr_err mr_name_check(struct mr_slice name)
{
    if (name.len == 0)
        return MR_INVALID;
    if (name.len > MR_NAME_MAX)
        return MR_TOO_BIG;
    const uint8_t *p = name.data;
    for (size_t i = 0; i < name.len; i++) {
        if (!name_byte_ok(p + i, name.len - i))
            return MR_INVALID;
    }
    return mr_utf8_valid(name) ? MR_OK : MR_INVALID;
}

enum mr_err mr_name_check_of(const char *what, struct mr_slice name, struct mr_detail *detail)
{
    enum mr_err err = name.data != NULL ? mr_name_check(name) : MR_INVALID;
    if (err == MR_TOO_BIG)
        mr_detail_set(detail, "%s: %zu bytes, the limit is %d", what, name.len, MR_NAME_MAX);
    else if (err != MR_OK && name.len == 0)
        mr_detail_set(detail, "%s: missing", what);
    else if (err != MR_OK)
        mr_detail_set(detail, "%s: must be UTF-8 without control characters or braces", what);
    return err;
}
