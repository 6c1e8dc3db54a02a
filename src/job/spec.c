/* SPDX-License-Identifier: Apache-2.0 */
#include "job/spec.h"

enum mr_err job_spec_read(const char *what, struct mr_slice text, struct job_spec *ret_spec,
                          struct mr_detail *detail)
{
    if (text.len > MR_JOB_SPEC_MAX) {
        mr_detail_set(detail, "%s: %zu bytes, the limit is %d", what, text.len, MR_JOB_SPEC_MAX);
        return MR_TOO_BIG;
    }
    struct job_spec spec = {.name = text};
    if (text.len > 0) {
        /* A command is an argument of a shell some day: it ends at a NUL there. */
        if (memchr(text.data, '\0', text.len) != NULL || !mr_utf8_valid(text)) {
            mr_detail_set(detail, "%s: must be UTF-8 without NUL bytes", what);
            return MR_INVALID;
        }
        const char *start = text.data, *colon = memchr(start, ':', text.len);
        if (colon != NULL) {
            spec.name.len = (size_t)(colon - start);
            spec.rest = mr_slice_make(colon + 1, text.len - spec.name.len - 1);
        }
    }
    *ret_spec = spec;
    return MR_OK;
}
