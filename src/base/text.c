/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people type. Parsers take the whole text or nothing: no blanks, no signs where a negative
 * value makes no sense, MR_INVALID for what is not in the grammar and MR_TOO_BIG for what does not
 * fit. The locale has no influence.
 */
#include "base/text.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/date.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads one or more digits at *text and moves it behind them. */
static enum mr_err read_uint64(const char **text, uint64_t *ret_value)
{
    const char *p = *text;
    if (!is_digit(*p))
        return MR_INVALID;
    uint64_t value = 0;
    bool overflow = false;
    for (; is_digit(*p); p++) {
        overflow |= __builtin_mul_overflow(value, 10, &value);
        overflow |= __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value);
    }
    if (overflow)
        return MR_TOO_BIG;
    *text = p;
    *ret_value = value;
    return MR_OK;
}

/* ---- durations and sizes -------------------------------------------------------------------- */

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first. */
static const struct unit duration_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1},
};

/* The unit at *text, all letters up to the next digit, moved behind it; NULL when there is none. */
static const struct unit *read_duration_unit(const char **text)
{
    size_t len = strcspn(*text, "0123456789");
    for (size_t i = 0; i < sizeof duration_units / sizeof duration_units[0]; i++) {
        const char *name = duration_units[i].name;
        if (strlen(name) == len && memcmp(*text, name, len) == 0) {
            *text += len;
            return &duration_units[i];
        }
    }
    return NULL;
}

enum mr_err mr_parse_duration_ms(const char *text, int64_t *ret_ms)
{
    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return MR_OK;
    }
    int64_t total = 0;
    uint64_t above = UINT64_MAX;
    bool overflow = false;
    do {
        uint64_t count;
        MR_TRY(read_uint64(&text, &count));
        const struct unit *unit = read_duration_unit(&text);
        /* Each unit at most once, and a smaller one behind a larger one. */
        if (unit == NULL || unit->factor >= above)
            return MR_INVALID;
        above = unit->factor;
        int64_t part;
        overflow |= __builtin_mul_overflow(count, unit->factor, &part);
        overflow |= __builtin_add_overflow(total, part, &total);
    } while (*text != '\0');
    if (overflow)
        return MR_TOO_BIG;
    *ret_ms = total;
    return MR_OK;
}

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", 1ULL << 10},
    {"MiB", 1ULL << 20},
    {"GiB", 1ULL << 30},
    {"TiB", 1ULL << 40},
};

enum mr_err mr_parse_size(const char *text, uint64_t *ret_bytes)
{
    uint64_t count;
    MR_TRY(read_uint64(&text, &count));
    for (size_t i = 0; i < sizeof size_units / sizeof size_units[0]; i++) {
        if (strcmp(text, size_units[i].name) != 0)
            continue;
        uint64_t bytes;
        if (__builtin_mul_overflow(count, size_units[i].factor, &bytes))
            return MR_TOO_BIG;
        *ret_bytes = bytes;
        return MR_OK;
    }
    return MR_INVALID;
}

/* ---- numbers -------------------------------------------------------------------------------- */

bool mr_parse_hex_name(const char *text, const char *prefix, size_t digits, uint64_t *ret_number)
{
    static const char values[] = "0123456789abcdef";
    size_t len = strlen(prefix);
    uint64_t number = 0;
    if (strncmp(text, prefix, len) != 0 || strlen(text) != len + digits)
        return false;
    for (const char *at = text + len; *at != '\0'; at++) {
        const char *value = strchr(values, *at);
        if (value == NULL)
            return false;
        number = number << 4 | (uint64_t)(value - values);
    }
    *ret_number = number;
    return true;
}

enum mr_err mr_parse_int64(const char *text, int64_t *ret_value)
{
    bool negative = *text == '-';
    text += negative;
    uint64_t magnitude;
    MR_TRY(read_uint64(&text, &magnitude));
    if (*text != '\0')
        return MR_INVALID;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return MR_TOO_BIG;
    *ret_value = (int64_t)(negative ? -magnitude : magnitude);
    return MR_OK;
}

/* Moves over one or more digits. */
static bool skip_digits(const char **text)
{
    const char *from = *text;
    while (is_digit(**text))
        (*text)++;
    return *text != from;
}

/* -?DIGITS[.DIGITS][(e|E)[+-]DIGITS], so neither "inf" nor "nan" nor hexadecimal. */
static bool looks_like_double(const char *text)
{
    if (*text == '-')
        text++;
    if (!skip_digits(&text))
        return false;
    if (*text == '.') {
        text++;
        if (!skip_digits(&text))
            return false;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-')
            text++;
        if (!skip_digits(&text))
            return false;
    }
    return *text == '\0';
}

enum mr_err mr_parse_double(const char *text, double *ret_value)
{
    if (!looks_like_double(text))
        return MR_INVALID;
    /* The program around us may have chosen a locale with a decimal comma. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return MR_NOMEM;
    double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (isinf(value))
        return MR_TOO_BIG;
    *ret_value = value;
    return MR_OK;
}

enum mr_err mr_format_double(double value, char text[MR_DOUBLE_TEXT_MAX + 1])
{
    enum { DIGITS_ENOUGH = 15, DIGITS_EXACT = 17 };
    mr_assert(isfinite(value));
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return MR_NOMEM;
    locale_t around = uselocale(plain);
    for (int digits = DIGITS_ENOUGH; digits <= DIGITS_EXACT; digits++) {
        snprintf(text, MR_DOUBLE_TEXT_MAX + 1, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    uselocale(around);
    freelocale(plain);
    return MR_OK;
}

/* ---- times ---------------------------------------------------------------------------------- */

/* Exactly n digits, then the byte `then` unless that is NUL. */
static bool read_field(const char **text, int n, char then, int *ret_value)
{
    int value = 0;
    for (int i = 0; i < n; i++, (*text)++) {
        if (!is_digit(**text))
            return false;
        value = value * 10 + (**text - '0');
    }
    if (then != '\0') {
        if (**text != then)
            return false;
        (*text)++;
    }
    *ret_value = value;
    return true;
}

/* ".5" and the like in ms, further digits cut off; 0 when there is none. */
static bool read_fraction_ms(const char **text, int *ret_ms)
{
    *ret_ms = 0;
    if (**text != '.')
        return true;
    const char *p = *text + 1;
    int ms = 0;
    for (int i = 0; i < 3; i++)
        ms = ms * 10 + (is_digit(*p) ? *p++ - '0' : 0);
    if (!is_digit((*text)[1]))
        return false;
    while (is_digit(*p))
        p++;
    *text = p;
    *ret_ms = ms;
    return true;
}

/* "Z" or "+hh:mm": minutes ahead of UTC. It is the end of the text. */
static bool read_zone(const char *text, int *ret_minutes)
{
    *ret_minutes = 0;
    if (*text == 'Z' || *text == 'z')
        return text[1] == '\0';
    int sign = *text == '+' ? 1 : *text == '-' ? -1 : 0;
    if (sign == 0)
        return false;
    text++;
    int hours, minutes;
    if (!read_field(&text, 2, ':', &hours) || !read_field(&text, 2, '\0', &minutes))
        return false;
    *ret_minutes = sign * (hours * 60 + minutes);
    return hours <= 23 && minutes <= 59 && *text == '\0';
}

static enum mr_err parse_rfc3339(const char *text, int64_t *ret_ms)
{
    int year, month, day, hour, minute, second, ms, zone;
    if (!read_field(&text, 4, '-', &year) || !read_field(&text, 2, '-', &month) ||
        !read_field(&text, 2, '\0', &day))
        return MR_INVALID;
    if (*text != 'T' && *text != 't' && *text != ' ')
        return MR_INVALID;
    text++;
    if (!read_field(&text, 2, ':', &hour) || !read_field(&text, 2, ':', &minute) ||
        !read_field(&text, 2, '\0', &second) || !read_fraction_ms(&text, &ms) ||
        !read_zone(text, &zone))
        return MR_INVALID;
    if (month < 1 || month > 12 || day < 1 || day > mr_date_days_in_month(year, month) ||
        hour > 23 || minute > 59 || second > 60)
        return MR_INVALID;
    int64_t minutes = mr_date_to_days(year, month, day) * 1440 + hour * 60 + minute - zone;
    /* A leap second ends a day of UTC; it becomes the first second of the next one, as on Linux. */
    if (second == 60 && ((minutes % 1440) + 1440) % 1440 != 1439)
        return MR_INVALID;
    *ret_ms = (minutes * 60 + second) * MR_MS_PER_S + ms;
    return MR_OK;
}

static enum mr_err parse_unix_seconds(const char *text, int64_t *ret_ms)
{
    uint64_t seconds;
    MR_TRY(read_uint64(&text, &seconds));
    int ms;
    if (!read_fraction_ms(&text, &ms) || *text != '\0')
        return MR_INVALID;
    int64_t total;
    if (__builtin_mul_overflow(seconds, MR_MS_PER_S, &total) ||
        __builtin_add_overflow(total, ms, &total))
        return MR_TOO_BIG;
    *ret_ms = total;
    return MR_OK;
}

enum mr_err mr_parse_time_ms(const char *text, int64_t *ret_ms)
{
    return strchr(text, '-') != NULL ? parse_rfc3339(text, ret_ms)
                                     : parse_unix_seconds(text, ret_ms);
}

/* Writes value with exactly n digits, then the byte `then`; returns what is behind. */
static char *put_field(char *p, int value, int n, char then)
{
    for (int i = n - 1; i >= 0; i--, value /= 10)
        p[i] = (char)('0' + value % 10);
    p[n] = then;
    return p + n + 1;
}

/* Beyond the years 0 .. 9999, which four digits cannot say, the nearest time that can be said. */
void mr_format_time_ms(int64_t ms, char text[32])
{
    int64_t first = mr_date_to_days(0, 1, 1) * MR_MS_PER_DAY;
    int64_t end = mr_date_to_days(10000, 1, 1) * MR_MS_PER_DAY;
    ms = ms < first ? first : ms >= end ? end - 1 : ms;
    int64_t days = (ms - first) / MR_MS_PER_DAY + first / MR_MS_PER_DAY;
    int of_day = (int)(ms - days * MR_MS_PER_DAY);
    struct mr_date date = mr_date_from_days(days);
    char *p = put_field(text, date.year, 4, '-');
    p = put_field(p, date.month, 2, '-');
    p = put_field(p, date.day, 2, 'T');
    p = put_field(p, of_day / 3600000, 2, ':');
    p = put_field(p, of_day / 60000 % 60, 2, ':');
    p = put_field(p, of_day / 1000 % 60, 2, '.');
    p = put_field(p, of_day % 1000, 3, 'Z');
    *p = '\0';
}

static char *put_count(char *p, uint64_t count, const char *unit)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + count % 10);
        count /= 10;
    } while (count != 0);
    while (n > 0)
        *p++ = digits[--n];
    while (*unit != '\0')
        *p++ = *unit++;
    *p = '\0';
    return p;
}

void mr_format_duration_ms(int64_t ms, char text[32])
{
    const struct unit *units = duration_units;
    size_t n = sizeof duration_units / sizeof duration_units[0];
    uint64_t left = ms < 0 ? -(uint64_t)ms : (uint64_t)ms;
    if (left == 0) {
        put_count(text, 0, "s");
        return;
    }
    size_t i = 0;
    while (left < units[i].factor)
        i++;
    char *p = text;
    if (ms < 0)
        *p++ = '-';
    p = put_count(p, left / units[i].factor, units[i].name);
    left %= units[i].factor;
    if (i + 1 < n && left >= units[i + 1].factor)
        put_count(p, left / units[i + 1].factor, units[i + 1].name);
}

/* ---- the nearest word ----------------------------------------------------------------------- */

enum { WORD_MAX = 64 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

/* Damerau-Levenshtein distance with each pair swapped at most once. Three rows of the usual matrix
 * are kept; row i is for the first i bytes of a. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned rows[3][WORD_MAX + 1];
    for (unsigned j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (unsigned i = 1; i <= a_len; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            unsigned change = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min3(change, above[j] + 1, row[j - 1] + 1);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && two_above[j - 2] + 1 < row[j])
                row[j] = two_above[j - 2] + 1;
        }
    }
    return rows[a_len % 3][b_len];
}

/* Near means a third of the word wrong at most, or one byte. */
const char *mr_nearest_word(const char *word, const char *const *words)
{
    size_t len = strlen(word);
    if (len > WORD_MAX)
        return NULL;
    unsigned limit = len / 3 > 1 ? (unsigned)(len / 3) : 1;
    const char *nearest = NULL;
    for (; *words != NULL; words++) {
        size_t other_len = strlen(*words);
        if (other_len > WORD_MAX)
            continue;
        unsigned d = distance(word, len, *words, other_len);
        /* The first of equally near ones wins, so a later one must be strictly nearer. */
        if (d <= limit) {
            nearest = *words;
            if (d == 0)
                break;
            limit = d - 1;
        }
    }
    return nearest;
}
