/* SPDX-License-Identifier: Apache-2.0 */
/* What split and reduce are told by: NAME or NAME:REST. */
#ifndef MR_JOB_SPEC_H
#define MR_JOB_SPEC_H

#include "base/slice.h"

struct job_spec {
    struct mr_slice name;
    struct mr_slice rest; /* behind the colon; data is NULL where there is none */
};

/* what: "split" or "reduce", for the line. MR_TOO_BIG, MR_INVALID: not UTF-8 without NULs. */
MR_MUST_USE enum mr_err job_spec_read(const char *what, struct mr_slice text,
                                      struct job_spec *ret_spec, struct mr_detail *detail);

#endif
