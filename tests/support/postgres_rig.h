/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A PostgreSQL server of a test: in a folder of its own, as a user that is not root (it refuses that),
 * on a unix socket and a free port of the loopback. It ends with the program, however that ends.
 * Failures end the program with a line on stderr. Thread: the test's, the same for start and stop.
 */
#ifndef MR_TESTS_POSTGRES_RIG_H
#define MR_TESTS_POSTGRES_RIG_H

#include <stdbool.h>
#include <sys/types.h>

struct postgres_rig;

struct postgres_rig_options {
    bool durable; /* commits are synced; without it a test is faster, and the kernel must not die */
    const char *const *settings; /* "work_mem=1MB" ..., up to a NULL; may be NULL */
};

/* options may be NULL. */
struct postgres_rig *postgres_rig_start(const struct postgres_rig_options *options);
void postgres_rig_stop(struct postgres_rig *rig); /* NULL is fine */
/* For mr_store_open; alive as long as the rig. */
const char *postgres_rig_url(struct postgres_rig *rig);     /* by its socket */
const char *postgres_rig_tcp_url(struct postgres_rig *rig); /* by its port */
unsigned postgres_rig_port(struct postgres_rig *rig);
/* An empty database of this name, and its URL, alive until the next call. */
const char *postgres_rig_database(struct postgres_rig *rig, const char *name);

/* The server ends in the middle of everything; what was not committed is gone. */
void postgres_rig_crash(struct postgres_rig *rig);
/* It starts again after that, and recovers. */
void postgres_rig_start_again(struct postgres_rig *rig);

/* Carries SQL out over a connection of its own; answers the first value, as a number, 0 if there is none. */
long postgres_rig_sql(struct postgres_rig *rig, const char *text);

#endif
