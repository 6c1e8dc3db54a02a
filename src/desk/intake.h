/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the results of a topic as a master does: by a node of its own they are in its hands until whoever it works for has written
 * them, then they are committed. Who dies between leaves them to the next one, who finds that they are written already. What
 * cannot be written is tried again for as long as the node lives; with it they go back. Several batches are in hand at
 * once, the next ones are taken while those are written.
 *
 * Thread: the desk's.
 */
#ifndef MR_DESK_INTAKE_H
#define MR_DESK_INTAKE_H

#include "broker/result.h"
#include "desk/desk.h"

struct mr_intake;

/* Results in hand. */
struct mr_intake_batch {
    struct mr_intake *intake;
    struct mr_link link; /* in the intake's batches */
    void *of;            /* what was made of them: its owner's */
};

struct mr_intake_calls {
    /* Room for n results, in of. Not MR_OK: they go back with the node. */
    enum mr_err (*begin)(struct mr_intake_batch *batch, size_t n);
    /* One of them, of which the slices are valid as long as the batch. Those that are passed over are committed unseen. */
    void (*read)(struct mr_intake_batch *batch, const struct mr_result *result);
    /* All are read, or it is time to try again: mr_intake_written or mr_intake_later follows. */
    void (*write)(struct mr_intake_batch *batch);
    /* It was written, and the broker has answered to the commit; or NULL. */
    void (*committed)(struct mr_intake_batch *batch);
    /* Frees of, which may be NULL. */
    void (*end)(struct mr_intake_batch *batch);
    /* For the log of people: it is tried again. */
    void (*trouble)(struct mr_intake *intake, enum mr_err err);
};

/* Memory of its owner's. Fields are set by intake.c alone. */
struct mr_intake {
    struct mr_desk *desk;
    const struct mr_intake_calls *calls;
    void *of; /* whose it is */
    const char *topic;
    int64_t lease_ms;
    bool on;
    uint64_t round; /* so often it was begun or ended */
    uint64_t node;  /* 0: none */
    bool taking;
    unsigned batches_n;     /* in hand, ... */
    struct mr_link batches; /* ... those */
    struct mr_timer beat, again;
};

/* What is given stays valid as long as the intake; so long a node may be silent before its results go back. */
void mr_intake_init(struct mr_intake *intake, struct mr_desk *desk,
                    const struct mr_intake_calls *calls, void *of);
/* Nothing happens if it is on. */
void mr_intake_begin(struct mr_intake *intake, const char *topic, int64_t lease_ms);
/* What is not written goes back. Nothing happens if it is off. */
void mr_intake_end(struct mr_intake *intake);

/* Of a batch that is to be written: all of it was; or not, and it is tried again after so long, unless its node is gone. It
 * may be freed now. */
void mr_intake_written(struct mr_intake_batch *batch, enum mr_err err, int64_t again_ms);
/* Not now, but after so long; now. */
void mr_intake_later(struct mr_intake_batch *batch, int64_t ms);
void mr_intake_now(struct mr_intake_batch *batch);

#endif
