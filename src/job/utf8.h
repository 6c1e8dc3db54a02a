/* SPDX-License-Identifier: Apache-2.0 */
/* One character of UTF-8 (RFC 3629) as it comes byte by byte. Zero-initialised stands between two of them. */
#ifndef MR_JOB_UTF8_H
#define MR_JOB_UTF8_H

#include "base/slice.h"

struct job_utf8 {
    uint8_t left;     /* bytes of it that are still to come */
    uint8_t min, max; /* what the next of them is within */
};

/* The first byte. False: no character begins so. */
static inline bool job_utf8_lead(struct job_utf8 *utf8, uint8_t byte)
{
    *utf8 = (struct job_utf8){.min = 0x80, .max = 0xbf};
    if (byte < 0x80)
        return true;
    if (byte < 0xc2 || byte > 0xf4)
        return false;
    utf8->left = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    /* Overlong forms, surrogates, and what is beyond the last character. */
    if (byte == 0xe0)
        utf8->min = 0xa0;
    else if (byte == 0xed)
        utf8->max = 0x9f;
    else if (byte == 0xf0)
        utf8->min = 0x90;
    else if (byte == 0xf4)
        utf8->max = 0x8f;
    return true;
}

/* One more, while some are left. False: it does not go on so. */
static inline bool job_utf8_next(struct job_utf8 *utf8, uint8_t byte)
{
    if (byte < utf8->min || byte > utf8->max)
        return false;
    *utf8 = (struct job_utf8){.left = utf8->left - 1, .min = 0x80, .max = 0xbf};
    return true;
}

#endif
