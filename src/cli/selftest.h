/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace selftest: proves on this disk what the README says of a server that is killed.
 *
 * Processes of their own produce and work at a server that is killed again and again, and say what
 * they do through one pipe (selftest_load.c). We kill and start the server (selftest.c) and keep the
 * ledger of what was acknowledged (selftest_ledger.c). At the end everything acknowledged must have
 * ended once, and nothing else be there; selftest_report.c says so.
 *
 * A task is known by its token, from which its id, its payload and its fate follow.
 */
#ifndef MR_CLI_SELFTEST_H
#define MR_CLI_SELFTEST_H

#include <sys/types.h>

#include "base/buf.h"

#define SELFTEST_QUEUE "selftest"

enum { SELFTEST_PAYLOAD_MAX = 1024, SELFTEST_RESULT_MAX = 64 };

/* ---- what the processes say ------------------------------------------------------------------ */

enum selftest_kind {
    SELFTEST_ACKNOWLEDGED, /* a task was enqueued */
    SELFTEST_IN_DOUBT,     /* it may have been or not */
    SELFTEST_RUNS,         /* a run begins under the epoch */
    SELFTEST_ACCEPTED,     /* the end of a run was accepted */
    SELFTEST_WRONG,        /* something that must not happen; err says what */
};

/* Written whole, so that those of several processes do not mix. */
struct selftest_message {
    uint32_t kind;
    uint32_t token;
    uint64_t epoch;
    uint32_t outcome; /* SELFTEST_ACCEPTED: enum mr_outcome */
    uint32_t err;
};

/* ---- selftest_load.c ------------------------------------------------------------------------- */

enum { SELFTEST_PRODUCERS = 2, SELFTEST_WORKERS = 2, SELFTEST_LOADS = 4 };

struct selftest_load {
    const char *name; /* of the process, for people */
    const char *url;
    int pipe;
    uint32_t number; /* of its kind, from 0 */
};

/* The bodies of the processes, in the order in which they are started: producers first. Each works
 * until SIGTERM and answers the exit code. */
typedef int selftest_body(const struct selftest_load *load);
extern selftest_body *const selftest_bodies[SELFTEST_LOADS];

/* What follows from a token. */
size_t selftest_payload(uint32_t token, uint8_t payload[SELFTEST_PAYLOAD_MAX]);
/* The token of a payload as it was sent; UINT32_MAX: it is not. */
uint32_t selftest_token(struct mr_slice payload);
bool selftest_fails_first(uint32_t token);
/* The id the producer gives it; empty: the client makes one. */
void selftest_id(uint32_t token, char id[32]);
/* What a run under this epoch leaves as its result. */
size_t selftest_result(uint32_t token, uint64_t epoch, char text[SELFTEST_RESULT_MAX]);

/* ---- selftest_ledger.c ----------------------------------------------------------------------- */

struct selftest_entry {
    uint64_t last_run; /* the highest epoch under which it ran */
    uint64_t accepted; /* the epoch under which its end was; 0: nobody heard so */
    uint32_t runs;
    uint8_t failures; /* accepted */
    bool acknowledged, in_doubt, found;
};

struct selftest_ledger {
    struct selftest_entry *entries; /* by token */
    size_t n, cap;
    uint64_t acknowledged, in_doubt, runs, accepted;
    uint64_t finished;      /* found completed, as it must be */
    uint64_t lost;          /* acknowledged and not there */
    uint64_t twice;         /* ended a second time */
    uint64_t wrong;         /* anything else */
    struct mr_detail first; /* what was wrong first */
};

void ledger_done(struct selftest_ledger *ledger);
void ledger_hear(struct selftest_ledger *ledger, const struct selftest_message *message);
/* Counts a finding of another kind. */
void ledger_wrong(struct selftest_ledger *ledger, const char *fmt, ...) MR_PRINTF(2, 3);
/* Nothing waits or runs any more: looks at everything that is there. */
MR_MUST_USE enum mr_err ledger_check(struct selftest_ledger *ledger, struct mr_client *client);
bool ledger_is_clean(const struct selftest_ledger *ledger);

/* ---- selftest_report.c ----------------------------------------------------------------------- */

struct selftest_figures {
    uint64_t killed, seed;
    double *restart_ms, *outage_ms; /* of each kill: until ready, and until work was taken */
    size_t restarts_n, outages_n;
    struct mr_stats stats;
    struct mr_fsck_report fsck;
};

void selftest_report_json(struct selftest_figures *figures, const struct selftest_ledger *ledger);
void selftest_report_text(struct selftest_figures *figures, const struct selftest_ledger *ledger);

#endif
