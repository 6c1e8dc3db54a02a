/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the log: any bytes are judged without harm, and no single changed bit is ever good. */
#include "wire/record.h"

#include <stdlib.h>

#include "fuzz/fuzz.h"

enum { BODY_MAX = 64 * 1024 };

static void check_parsed(struct mr_slice bytes, uint32_t salt)
{
    struct mr_record record;
    memset(&record, 0, sizeof record);
    switch (mr_record_parse(bytes, salt, &record)) {
    case MR_RECORD_GOOD:
        mr_assert(record.type > MR_RECORD_NONE);
        mr_assert(record.body.len <= MR_RECORD_BODY_MAX && fuzz_within(record.body, bytes));
        mr_assert(mr_record_type_name(record.type) != NULL);
        break;
    case MR_RECORD_SHORT:
        mr_assert(record.body.len > bytes.len);
        mr_assert(record.body.len <= MR_RECORD_HEADER + (size_t)MR_RECORD_BODY_MAX);
        break;
    case MR_RECORD_BAD:
        break;
    }
}

/* Seals the input as a body, reads it back, then changes one bit anywhere. */
static void check_sealed(struct fuzz_in *in, uint32_t salt)
{
    struct mr_record record = {.seq = fuzz_u64(in),
                               .lag = (uint32_t)fuzz_u64(in),
                               .term = (uint32_t)fuzz_u64(in),
                               .segment = (uint32_t)fuzz_u64(in),
                               .version = MR_RECORD_VERSION};
    record.type = (uint8_t)(1 + fuzz_u8(in) % (MR_RECORD_TYPE_COUNT - 1));
    size_t flip = fuzz_u64(in);
    record.body = fuzz_bytes(in, BODY_MAX);
    size_t size = mr_record_size(record.body.len);
    size_t bytes_used = MR_RECORD_HEADER + record.body.len;
    uint8_t *at = malloc(size);
    mr_assert(at != NULL);
    if (record.body.len > 0)
        memcpy(at + MR_RECORD_HEADER, record.body.data, record.body.len);
    mr_record_seal(at, &record, salt);
    struct mr_record back;
    mr_assert(mr_record_parse(mr_slice_make(at, size), salt, &back) == MR_RECORD_GOOD);
    mr_assert(back.seq == record.seq && back.lag == record.lag && back.term == record.term);
    mr_assert(back.segment == record.segment && back.type == record.type);
    mr_assert(back.version == record.version && mr_slice_equal(back.body, record.body));
    mr_assert(mr_record_parse(mr_slice_make(at, size), salt + 1, &back) != MR_RECORD_GOOD);
    mr_assert(mr_record_parse(mr_slice_make(at, bytes_used - 1), salt, &back) == MR_RECORD_SHORT);
    at[flip / 8 % bytes_used] ^= (uint8_t)(1u << flip % 8);
    mr_assert(mr_record_parse(mr_slice_make(at, size), salt, &back) != MR_RECORD_GOOD);
    free(at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint32_t salt = (uint32_t)fuzz_u64(&in);
    check_parsed(mr_slice_make(in.at, in.left), salt);
    check_sealed(&in, salt);
    return 0;
}
