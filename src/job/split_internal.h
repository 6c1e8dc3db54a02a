/* SPDX-License-Identifier: Apache-2.0 */
/* What the kinds of split share. Functions that fail have said why in split->why. */
#ifndef MR_JOB_SPLIT_INTERNAL_H
#define MR_JOB_SPLIT_INTERNAL_H

#include "job/json.h"
#include "job/split.h"

/* paragraphs */
struct split_paragraphs {
    bool in_line;  /* something that is no space was in the line at hand */
    bool text;     /* the part has a line that is not blank */
    bool gap;      /* and behind it one that is */
    size_t spaces; /* at the beginning of the line at hand, before anything else */
};

/* chars */
struct split_chars {
    uint64_t count;       /* characters of the part */
    struct job_utf8 utf8; /* of the one at hand, */
    size_t pending;       /* and bytes of it that were there */
};

enum split_json_place { JSON_BEFORE, JSON_FIRST, JSON_NEXT, JSON_WITHIN, JSON_BEHIND, JSON_AFTER };

struct split_json {
    enum split_json_place place;
    struct job_json value;
};

enum split_csv_place {
    CSV_BEGIN,  /* of a field */
    CSV_PLAIN,  /* within one without quotes */
    CSV_QUOTED, /* within one with quotes */
    CSV_QUOTE,  /* behind a quote in it: it is over, or there is a second one */
    CSV_RETURN, /* behind a carriage return behind it: a newline follows */
};

struct split_csv {
    enum split_csv_place place;
    bool filled;         /* something else than carriage returns was in the line at hand */
    uint64_t line_bytes; /* of the line at hand, so far */
    uint64_t rows;       /* of the part */
    uint64_t quote_at;   /* where in the input the quoted field at hand began */
    struct mr_buf header;
    bool has_header;
};

struct mr_split {
    struct mr_split_spec spec;
    size_t part_max;
    mr_split_part *part;
    void *arg;
    uint64_t index;     /* of the part at hand */
    uint64_t offset;    /* in the input, of what is being written */
    struct mr_buf held; /* of the part at hand, what came with earlier writes */
    size_t back;        /* bytes at the end of what is being held that may not be of the part */
    union {
        uint64_t count; /* lines, bytes: of the part, so far */
        struct split_paragraphs paragraphs;
        struct split_chars chars;
        struct split_json json;
        struct split_csv csv;
    } is;
    enum mr_err failed;
    struct mr_detail why;
};

/* One kind: what write and end do. */
typedef enum mr_err split_write(struct mr_split *split, const uint8_t *p, size_t len);
typedef enum mr_err split_end(struct mr_split *split);

split_write split_lines_write, split_bytes_write, split_paragraphs_write, split_chars_write,
    split_json_write, split_csv_write;
split_end split_held_end, split_paragraphs_end, split_chars_end, split_json_end, split_csv_end;

/* Bytes that belong to the part at hand, but for the last split->back of them. MR_TOO_BIG. */
MR_MUST_USE enum mr_err split_hold(struct mr_split *split, const uint8_t *p, size_t len);
/* What is held and these bytes are a part. */
MR_MUST_USE enum mr_err split_cut(struct mr_split *split, const uint8_t *p, size_t len);

/* What of a write has not been cut or held. */
struct split_rest {
    const uint8_t *from, *end;
};
/* The part ends back bytes before at, wherever that is. */
MR_MUST_USE enum mr_err split_cut_back(struct mr_split *split, struct split_rest *rest,
                                       const uint8_t *at, size_t back);

MR_MUST_USE enum mr_err split_fault(struct mr_split *split, const char *fmt, ...) MR_PRINTF(2, 3);
/* The part at hand is over the limit: MR_TOO_BIG. */
MR_MUST_USE enum mr_err split_too_big(struct mr_split *split);
/* There is no part in the input. */
MR_MUST_USE enum mr_err split_empty(struct mr_split *split);

#endif
