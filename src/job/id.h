/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The id of the task that a part of a job becomes: "JOB.SEGMENT.INDEX.STAGE.ROUND". Whoever submits the part again
 * submits the same task, and a result finds the rows of its part by it. Pure. Thread: any.
 */
#ifndef MR_JOB_ID_H
#define MR_JOB_ID_H

#include "base/id.h"

struct mr_part_id {
    struct mr_uuid job;
    uint64_t segment; /* of the store, from 1; below 2^63, as index */
    uint64_t index;   /* of the part, from 0 */
    uint32_t stage;   /* from 0; below MR_JOB_STAGES_MAX */
    uint32_t round;   /* from 0 */
};

enum {
    MR_PART_ID_MAX = MR_UUID_TEXT_LEN + 1 + 20 + 1 + 20 + 1 + 10 + 1 + 10 /* bytes of the text */
};
_Static_assert((int)MR_PART_ID_MAX <= (int)MR_ID_MAX, "it is the id of a task");

/* Writes it and a NUL; how long it is. Of numbers out of place, which a damaged store may have, it makes a text, too; but
 * nothing that is an id. */
size_t mr_part_id_format(const struct mr_part_id *id, char text[MR_PART_ID_MAX + 1]);
/* False unless text is what mr_part_id_format writes of an id. */
bool mr_part_id_parse(struct mr_slice text, struct mr_part_id *ret_id);

#endif
