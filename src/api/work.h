/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work.Attach. An attach is a stream; a session is the node behind it. The session outlives its
 * stream by the grace, in which another stream of the same worker may take it over.
 *
 *            Hello                 stream broken              grace over, or Bye
 *   (none) --------> OPENING -> LIVE <---------> LIVE, alone ------------------> CLOSING -> (none)
 *                                  Hello: CHECKING (is the node still there?)
 */
#ifndef MR_API_WORK_H
#define MR_API_WORK_H

#include "api/internal.h"

enum {
    TAKES_MAX = 64,             /* of one node, waiting */
    QUEUED_TASKS_MAX = 4 << 20, /* bytes that wait for a reader; then tasks go back */
    LEASE_MAX_MS = 3600 * 1000,
};

/* ---- leases in hand, by epoch --------------------------------------------------------------- */

struct held {
    uint64_t epoch; /* 0: free */
    uint64_t ref;
    char *id; /* its own */
    size_t id_len;
    bool cancelled; /* it was told to stop, or would have been */
};

struct helds {
    struct held *slots;
    size_t n, cap; /* cap is a power of two, or 0 */
};

void helds_done(struct helds *helds);
MR_MUST_USE enum mr_err helds_add(struct helds *helds, const struct mr_lease *lease);
/* NULL when it is not there. */
struct held *helds_find(const struct helds *helds, uint64_t epoch);
/* Fine when it is not there. */
void helds_remove(struct helds *helds, uint64_t epoch);

/* ---- the stream ----------------------------------------------------------------------------- */

struct attach {
    struct stream head;
    uint64_t serial;
    struct valve valve; /* on the session's budget, once there is one */
    struct session *session;
    bool ended; /* by us, or by Bye: what comes is not read */
};

/* Ends the stream; its session goes on without it. */
void attach_end(struct attach *attach, enum mr_err err, const char *text);
/* Sends, unless there is no stream; a stream that cannot be sent to is ended. */
void attach_say(struct attach *attach, const Millrace__V1__ServerMessage *message);

/* ---- the node ------------------------------------------------------------------------------- */

enum session_state { SESSION_OPENING, SESSION_LIVE, SESSION_CHECKING, SESSION_CLOSING };

struct session {
    struct mr_link link; /* in the api's, by incarnation; in no list once closing */
    struct mr_api *api;
    enum session_state state;
    struct attach *attach; /* NULL: it is alone */
    char name[MR_NAME_MAX + 1];
    uint64_t incarnation;
    char token[MR_TOKEN_ID_LEN + 1]; /* whose it is */
    bool all_queues;                 /* the token covers all */
    bool leads;                      /* it may: the token covers all queues */
    bool master;                     /* what it holds are results */
    uint64_t node;
    uint32_t slots, first_slot;
    int64_t lease_ms, grace_ms;
    bool gone; /* the broker has given its node up */
    struct mr_timer grace;
    struct mr_timer beat; /* while it is not read its beats are not heard: we beat for it */
    struct budget budget; /* finishes and beats under way */
    struct helds helds;
    struct mr_link takes; /* of struct work: not with the broker, the reader is slow */
    uint32_t takes_n;     /* those with the broker included */
    uint32_t errands_n;   /* with the broker */
    struct errand closing;
    struct mr_msg wanted; /* posted at most once at a time */
    _Atomic bool wanted_posted;
    bool closed; /* the node is gone; freed with its last errand */
};

/* A request of a session. */
struct work {
    struct errand errand;
    struct session *session;
    struct mr_link link;
    uint64_t serial; /* of the stream it came over */
    uint32_t tag;
    const Millrace__V1__Hello *hello; /* in its arena */
    struct mr_lease *leases;          /* to be freed with it */
    void (*back)(struct work *work);
};

struct work *work_new(struct session *session, uint32_t tag);
/* Gives it to the broker; back is called once, and then it is freed. */
void work_submit(struct work *work, enum mr_op op, void (*back)(struct work *work));
void work_free(struct work *work);

/* arena: where hello lives; taken over when it is needed for longer. */
void session_hello(struct attach *attach, const Millrace__V1__Hello *hello, struct mr_arena *arena);
/* The stream is gone; it may come back. */
void session_left(struct session *session);
/* Its node goes at once; then its stream, if there is one, ends well. */
void session_close(struct session *session);
/* While the server stops: ends the stream once nothing is in hand; of a master at once, whose results
 * wait as well as they are held. */
void session_stopping(struct session *session);
void sessions_close_all(struct mr_api *api);
/* Frees it when the node is gone and nothing is with the broker. */
void session_try_free(struct session *session);

/* ---- what it says, and what it is told ------------------------------------------------------ */

MR_MUST_USE enum mr_err work_take(struct session *session, struct mr_slice bytes);
MR_MUST_USE enum mr_err work_finishes(struct session *session, struct mr_slice bytes);
MR_MUST_USE enum mr_err work_beat(struct session *session, struct mr_slice bytes);
MR_MUST_USE enum mr_err work_begun(struct session *session, struct mr_slice bytes);
/* The reader takes again. */
void work_go_on(struct session *session);
/* A stream came back with these epochs: what else is held never arrived, and goes back at once; of
 * those that are not held any more, and of those cancelled meanwhile, it is told. */
void work_reconcile(struct session *session, const uint64_t *epochs, size_t n);
void work_drop_parked(struct session *session);
void work_beat_for_it(struct mr_timer *timer, void *arg);

/* Events of the node, on the broker's thread. */
void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg);
void event_wanted(void *arg);

#endif
