/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads one JSON value (RFC 8259) as it comes in pieces: whether it is one, and where it ends. Nothing of it is kept.
 * Keys may repeat, and lone surrogates be escaped: the RFC allows both.
 */
#ifndef MR_JOB_JSON_H
#define MR_JOB_JSON_H

#include "job/utf8.h"

enum { JOB_JSON_DEPTH_MAX = 512 }; /* arrays and objects within each other */

enum job_json_verdict {
    JOB_JSON_MORE, /* it goes on */
    JOB_JSON_DONE, /* it is whole */
    JOB_JSON_BAD,  /* it is none */
};

struct job_json {
    uint8_t state;
    uint8_t more; /* hexadecimal digits that are to come; letters of a literal that were there */
    bool key;     /* the string at hand is the name of a member */
    struct job_utf8 utf8; /* of the character at hand of a string */
    uint32_t depth;
    uint64_t objects[JOB_JSON_DEPTH_MAX / 64]; /* a bit for each level: an object; else an array */
    const char *literal;                       /* at hand: "true", "false", "null" */
    const char *fault;                         /* JOB_JSON_BAD: what is wrong, for people */
};

static inline bool job_json_is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* A value is expected, without white space before it. */
void job_json_begin(struct job_json *json);
/* JOB_JSON_MORE: all of it was read. JOB_JSON_DONE: the value ends with byte ret_used, which may be 0: that a number is
 * whole is seen by what comes behind it. JOB_JSON_BAD: by byte ret_used. */
enum job_json_verdict job_json_read(struct job_json *json, struct mr_slice bytes, size_t *ret_used);
/* Whether this is one value, and nothing else. */
bool job_json_valid(struct mr_slice text);

#endif
