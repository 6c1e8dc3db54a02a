/* SPDX-License-Identifier: Apache-2.0 */
/* What people type: durations, sizes, times, numbers. And the nearest known word for "did you
 * mean". */
#ifndef MR_BASE_TEXT_H
#define MR_BASE_TEXT_H

#include "base/slice.h"

/* "250ms", "10s", "5m", "1h30m", "7d"; a bare number is refused except "0". Never negative. */
MR_MUST_USE enum mr_err mr_parse_duration_ms(const char *text, int64_t *ret_ms);
/* "64KiB", "1MiB", "2GiB", plain bytes. */
MR_MUST_USE enum mr_err mr_parse_size(const char *text, uint64_t *ret_bytes);
/* RFC 3339 with zone, or Unix seconds (with fraction); ms since the Unix epoch. */
MR_MUST_USE enum mr_err mr_parse_time_ms(const char *text, int64_t *ret_ms);
/* Whether text is the prefix and so many digits 0-9 a-f (at most 16) behind it, and nothing else: the
 * name of a file with a number in it. */
bool mr_parse_hex_name(const char *text, const char *prefix, size_t digits, uint64_t *ret_number);
MR_MUST_USE enum mr_err mr_parse_int64(const char *text, int64_t *ret_value);
MR_MUST_USE enum mr_err mr_parse_double(const char *text, double *ret_value);
enum { MR_DOUBLE_TEXT_MAX = 31 }; /* bytes of the text of a double */
/* In 15 to 17 digits, as few as it can be read back from; finite. MR_NOMEM. */
MR_MUST_USE enum mr_err mr_format_double(double value, char text[MR_DOUBLE_TEXT_MAX + 1]);
/* RFC 3339 in UTC with milliseconds: 24 characters and a NUL. */
void mr_format_time_ms(int64_t ms, char text[32]);
/* "1h30m", "250ms", the two largest units. */
void mr_format_duration_ms(int64_t ms, char text[32]);
/* "task%s": "s" for all but one. */
static inline const char *mr_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}
/* The entry of words (NULL-terminated) nearest to word, or NULL when none is near. */
const char *mr_nearest_word(const char *word, const char *const *words);

#endif
