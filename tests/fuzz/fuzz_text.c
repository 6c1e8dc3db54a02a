/* SPDX-License-Identifier: Apache-2.0 */
/* What people type: durations, sizes, times, numbers. What parses is in range and survives its own
 * format. */
#include "base/text.h"

#include <math.h>

#include "fuzz/fuzz.h"

enum { TEXT_MAX = 200 };

#define YEAR_10000_MS 253402300800000LL

static void check_duration(const char *text)
{
    int64_t ms = -7, again;
    if (mr_parse_duration_ms(text, &ms) != MR_OK) {
        mr_assert(ms == -7);
        return;
    }
    mr_assert(ms >= 0);
    char shown[32];
    mr_format_duration_ms(ms, shown);
    mr_assert(strlen(shown) < sizeof shown);
    /* The two largest units are shown, so what is read back is never more, and stable from then on.
     */
    mr_assert(mr_parse_duration_ms(shown, &again) == MR_OK && again <= ms);
    char twice[32];
    mr_format_duration_ms(again, twice);
    mr_assert(strcmp(shown, twice) == 0);
}

static void check_time(const char *text)
{
    int64_t ms = -7, again;
    if (mr_parse_time_ms(text, &ms) != MR_OK) {
        mr_assert(ms == -7);
        return;
    }
    if (ms < 0 || ms >= YEAR_10000_MS)
        return;
    char shown[32];
    mr_format_time_ms(ms, shown);
    mr_assert(strlen(shown) == 24);
    mr_assert(mr_parse_time_ms(shown, &again) == MR_OK && again == ms);
}

static void check_numbers(const char *text)
{
    int64_t whole = 7;
    double number = 7;
    if (mr_parse_int64(text, &whole) != MR_OK)
        mr_assert(whole == 7);
    if (mr_parse_double(text, &number) != MR_OK)
        mr_assert(number == 7);
    else
        mr_assert(isfinite(number));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"enqueue", "work", "queue", "task", "dead", NULL};
    char text[TEXT_MAX + 1];
    if (size > TEXT_MAX)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    check_duration(text);
    check_time(text);
    check_numbers(text);
    const char *nearest = mr_nearest_word(text, words);
    bool known = nearest == NULL;
    for (size_t i = 0; words[i] != NULL; i++)
        known |= nearest == words[i];
    mr_assert(known);
    return 0;
}
