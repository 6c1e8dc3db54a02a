/* SPDX-License-Identifier: Apache-2.0 */
#include "api/words.h"

#include <stdio.h>

#include "millrace/v1/events.pb-c.h"
#include "millrace/v1/task.pb-c.h"

/* Those of an enum, by the function that names them. */
#define WORDS(set, type, name_of, first_, end_)                                                    \
    static const char *set##_name(int number)                                                      \
    {                                                                                              \
        return name_of((enum type)number);                                                         \
    }                                                                                              \
    const struct words words_##set = {.name = set##_name, .first = (first_), .end = (end_)};

WORDS(states, mr_state, mr_state_name, MR_STATE_NONE + 1, MR_STATE_COUNT)
WORDS(timer_states, mr_timer_state, mr_timer_state_name, MR_TIMER_STATE_NONE + 1,
      MR_TIMER_STATE_COUNT)
WORDS(job_states, mr_job_state, mr_job_state_name, MR_JOB_STATE_NONE + 1, MR_JOB_STATE_COUNT)
WORDS(part_states, mr_part_state, mr_part_state_name, 0, MR_PART_STATE_COUNT)
WORDS(assigns, mr_assign, mr_assign_name, 0, MR_ASSIGN_COUNT)
WORDS(retry_modes, mr_retry_mode, mr_retry_mode_name, 0, MR_RETRY_MODE_COUNT)
WORDS(timer_kinds, mr_timer_kind, mr_timer_kind_name, 0, MR_TIMER_KIND_COUNT)
WORDS(misfires, mr_misfire, mr_misfire_name, 0, MR_MISFIRE_COUNT)
WORDS(overlaps, mr_overlap, mr_overlap_name, 0, MR_OVERLAP_COUNT)

/* Without gaps, from 0. */
static_assert(MILLRACE__V1__STATE__AGGREGATING + 1 == MR_STATE_COUNT, "numbers of the .proto");
static const char *state_number_name(int number)
{
    return millrace__v1__state__descriptor.values[number].name;
}
const struct words words_state_numbers = {
    .name = state_number_name, .first = 0, .end = MR_STATE_COUNT};

static const char *event_kind_name(int number)
{
    return millrace__v1__event_kind__descriptor.values[number].name;
}
const struct words words_event_kinds = {
    .name = event_kind_name, .first = 0, .end = MILLRACE__V1__EVENT_KIND__EVENT_LEADER + 1};

/* `state: "lost" is none of scheduled, pending, active` */
static enum mr_err refuse(const struct words *words, const char *what, const char *said,
                          struct mr_detail *detail)
{
    char all[sizeof detail->text / 2] = "";
    size_t at = 0;
    for (int i = words->first; i < words->end && at < sizeof all; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i > words->first ? ", " : "",
                               words->name(i));
    mr_detail_set(detail, "%s: %s is none of %s", what, said, all);
    return MR_INVALID;
}

enum mr_err words_read(const struct words *words, const char *what, struct mr_slice word,
                       int *ret_number, struct mr_detail *detail)
{
    enum { SAID_MAX = 100 };
    char said[SAID_MAX + sizeof "\"\""];
    if (word.len == 0)
        return MR_OK;
    for (int i = words->first; i < words->end; i++) {
        if (mr_slice_equal(word, mr_slice_str(words->name(i)))) {
            *ret_number = i;
            return MR_OK;
        }
    }
    (void)snprintf(said, sizeof said, "\"%.*s\"", (int)mr_utf8_cut(word, SAID_MAX),
                   (const char *)word.data);
    return refuse(words, what, said, detail);
}

enum mr_err words_check(const struct words *words, const char *what, int number,
                        struct mr_detail *detail)
{
    char said[16];
    if (number >= words->first && number < words->end)
        return MR_OK;
    (void)snprintf(said, sizeof said, "%d", number);
    return refuse(words, what, said, detail);
}
