/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of parts' tasks: what is read as one is written as it was. */
#include "fuzz/fuzz.h"
#include "job/id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_slice text = mr_slice_make(data, size);
    struct mr_part_id id;
    char again[MR_PART_ID_MAX + 1];
    if (!mr_part_id_parse(text, &id))
        return 0;
    mr_assert(id.segment >= 1 && id.stage < MR_JOB_STAGES_MAX);
    size_t len = mr_part_id_format(&id, again);
    mr_assert(mr_slice_equal(mr_slice_make(again, len), text) && again[len] == '\0');
    return 0;
}
