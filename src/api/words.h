/* SPDX-License-Identifier: Apache-2.0 */
/* Words that callers choose from, such as the states of a task: what stands for a number, and what there is where that is none. Thread: any. */
#ifndef MR_API_WORDS_H
#define MR_API_WORDS_H

#include "base/slice.h"

struct words {
    const char *(*name)(int number);
    int first, end;
};

extern const struct words words_states, words_timer_states, words_job_states, words_part_states,
    words_assigns, words_retry_modes, words_timer_kinds, words_misfires, words_overlaps;
/* Of the .proto. */
extern const struct words words_state_numbers, words_event_kinds;

/* Its number; *ret_number stays as it is where nothing is said. MR_INVALID: it is none of them, which detail lists, with what: "state". */
MR_MUST_USE enum mr_err words_read(const struct words *words, const char *what,
                                   struct mr_slice word, int *ret_number, struct mr_detail *detail);
/* The same where it comes as a number. */
MR_MUST_USE enum mr_err words_check(const struct words *words, const char *what, int number,
                                    struct mr_detail *detail);

#endif
