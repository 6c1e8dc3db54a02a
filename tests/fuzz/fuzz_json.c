/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks as JSON, as the command line and HTTP read them. What is accepted has sizes that the broker's own door can
 * look at, what is refused has a reason, and the answer is JSON again.
 */
#include <jansson.h>

#include "api/task_json.h"
#include "broker/broker.h"
#include "fuzz/fuzz.h"

enum { TEXT_MAX = 64 * 1024 };

static void answer(const struct mr_task_options *task, enum mr_err err, const char *why)
{
    struct mr_enqueue_result result = {.err = err, .state = MR_PENDING, .id = "x"};
    struct mr_detail detail = {.text = ""};
    if (mr_task_refusal(task, &result, &detail))
        mr_assert(detail.text[0] != '\0');
    struct jw jw = {0};
    mr_task_answer_json(&jw, task->id, &result, why);
    mr_assert(mr_utf8_valid(mr_buf_slice(&jw.buf)));
    mr_buf_done(&jw.buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_error_t error;
    json_t *json = size <= TEXT_MAX ? json_loadb((const char *)data, size,
                                                 JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error)
                                    : NULL;
    if (json == NULL)
        return 0;
    struct mr_arena arena = {0};
    struct mr_task_options task = {0};
    struct mr_detail detail = {.text = ""};
    enum mr_err err = mr_task_from_json(json, &arena, &task, &detail);
    mr_assert(err == MR_OK || detail.text[0] != '\0');
    if (err == MR_OK && mr_task_options_check(&task, MR_PAYLOAD_MAX, &detail) == MR_OK) {
        answer(&task, MR_OK, NULL);
        answer(&task, MR_CONFLICT, "there is one of this id");
    }
    mr_arena_done(&arena);
    json_decref(json);
    return 0;
}
