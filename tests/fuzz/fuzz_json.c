/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks as JSON, as the command line reads them. The files of the command line are in no library,
 * so the parser and the writer of answers are compiled in here. What is accepted must pass the
 * broker's own door, and what is refused has a reason.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "cli/enqueue_item.c"
#include "cli/jw.c"
#include "fuzz/fuzz.h"

enum { TEXT_MAX = 64 * 1024 };

/* In the program these end it with a message; running out of memory is not what is looked for here.
 */
void *cli_alloc(size_t n, size_t size)
{
    void *memory = calloc(n > 0 ? n : 1, size);
    mr_assert(memory != NULL);
    return memory;
}

void cli_must(enum mr_err err)
{
    mr_assert(err == MR_OK);
}

void cli_err_text(enum mr_err err, struct mr_detail *ret_text)
{
    mr_detail_set(ret_text, "%s", mr_err_text(err));
}

/* Answers stay in the writer's buffer. */
void out_write(struct mr_slice bytes)
{
    mr_assert(bytes.len == 0 || bytes.data != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct enqueue_template from_flags;
    if (size > TEXT_MAX)
        return 0;
    struct enqueue_item item = {0};
    enqueue_item_from_json_text(&item, &from_flags, mr_slice_make(data, size));
    if (item.err == MR_OK) {
        struct mr_detail detail;
        mr_assert(mr_task_options_check(&item.task, MR_PAYLOAD_MAX, &detail) == MR_OK);
    } else {
        mr_assert(item.why != NULL && item.why[0] != '\0');
    }
    char reason[600];
    struct mr_enqueue_result result = {.err = MR_CONFLICT, .state = MR_PENDING, .id = "x"};
    mr_assert(strlen(enqueue_reason(&item, &result, reason)) < sizeof reason);
    struct jw jw = {0};
    enqueue_answer_json(&jw, &item, &result);
    mr_assert(mr_utf8_valid(mr_buf_slice(&jw.buf)));
    mr_buf_done(&jw.buf);
    enqueue_item_done(&item);
    return 0;
}
