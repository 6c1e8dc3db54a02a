/* SPDX-License-Identifier: Apache-2.0 */
/* Figures in the text form of Prometheus. Thread: the owner. */
#ifndef MR_API_METRICS_TEXT_H
#define MR_API_METRICS_TEXT_H

#include "base/buf.h"
#include "base/meter.h"
#include "base/slice.h"

#define METRICS_PREFIX "millrace_"

enum { METRICS_LABELS_MAX = 1024 };

/* Of one line: several names of MR_NAME_MAX bytes, each byte escaped, fit. */
struct metrics_labels {
    char text[METRICS_LABELS_MAX];
    size_t len;
};

/* Zero-initialised is empty. */
struct metrics_text {
    struct mr_buf buf;
    enum mr_err err;  /* of the first line that failed */
    const char *name; /* of what is written */
};

/* What follows is of this name, without the prefix; it lives as long as the text is written. */
void metrics_head(struct metrics_text *text, const char *name, const char *type, const char *help);

/* Bytes that a reader would refuse become question marks: one bad name does not cost all figures. */
void metrics_label(struct metrics_labels *labels, const char *name, struct mr_slice value);

/* labels may be NULL. */
void metrics_count(struct metrics_text *text, const struct metrics_labels *labels, uint64_t value);
void metrics_number(struct metrics_text *text, const struct metrics_labels *labels, double value);
/* A histogram; per: so many of the meter's units are one of the figure's. */
void metrics_meter(struct metrics_text *text, const struct metrics_labels *labels,
                   const struct mr_meter *meter, const uint64_t edges[MR_METER_EDGES], double per);

#endif
