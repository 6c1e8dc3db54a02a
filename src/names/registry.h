/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of a nameserver: which servers and workers there are. It is soft state: everything in it was said by
 * those it is about, is said again every few seconds, and goes when it is not. Nothing is decided by it; see
 * docs/nameserver.md.
 *
 * An entry belongs to one process: kind, name and incarnation, a random number that no other process has. Its version
 * is counted by that process, one more each time it registers. So an entry has one author, and any two copies of it
 * can be put in order by looking at them: who left stays gone, then the higher version counts, then "expired" goes
 * before "lives" in the same version, then the sum of the contents (which differs in one version only when a process
 * was copied). Merging is taking the higher one: it does not matter how often, in which order or by which way copies
 * come. Nothing is ever added up that was said by another nameserver.
 *
 * Time is passed in, and is the receiver's own. A copy says how old it is; how long it was on its way nobody knows, so
 * of two ages of the same version the greater one is nearer to the truth. Who was not heard of for the time-to-live of
 * its kind has expired. What is gone leaves a grave, which keeps older copies out, for longer than they can be under way.
 *
 * A nameserver that has just begun, or that itself stood still, knows too little: for a while nothing expires, and it
 * says that it is not complete. Nobody is to conclude anything from what is missing then.
 *
 * Thread: the owner's. Texts of entries that come in are borrowed for the call.
 */
#ifndef MR_NAMES_REGISTRY_H
#define MR_NAMES_REGISTRY_H

#include "base/arena.h"
#include "base/clock.h"
#include "base/id.h"

struct mr_registry;

enum {
    MR_NAMES_ADDRESS_MAX = 256,    /* bytes */
    MR_NAMES_BODY_MAX = 4096,      /* bytes: metrics and the like */
    MR_NAMES_BUCKETS = 256,        /* parts of the digest */
    MR_NAMES_MSG_ENTRIES = 4096,   /* of a message */
    MR_NAMES_MSG_MARKS = 8192,     /* of a message, and as many that are wanted */
    MR_NAMES_MSG_BYTES = 1 << 20,  /* of the entries of a message, in memory */
    MR_NAMES_ENTRY_OVERHEAD = 128, /* bytes that an entry costs beside its texts, in a message */
};

enum mr_names_kind { MR_NAMES_SERVER, MR_NAMES_WORKER, MR_NAMES_KIND_COUNT };

/* In the order in which one goes before another of the same version. */
enum mr_names_fate {
    MR_NAMES_LIVES,
    MR_NAMES_EXPIRED, /* was not heard of; a higher version shows that it lives */
    MR_NAMES_LEFT,    /* said so itself: never comes back */
};

struct mr_names_entry {
    enum mr_names_kind kind;
    enum mr_names_fate fate;
    uint64_t incarnation, version; /* not 0 */
    struct mr_slice name;          /* as a node's */
    /* Only of those that live. */
    struct mr_slice app;     /* of a worker: its app; of a server: empty */
    struct mr_slice address; /* of a server: where it is reached */
    struct mr_slice server;  /* of a worker: the name of the one it works for; may be empty */
    struct mr_slice body;    /* what else it says, not looked into here */
    int64_t age_ms;          /* since it was heard of, or since it went */
};

/* Zero means default. */
struct mr_registry_options {
    size_t entries_max;                  /* graves count: 100 000 */
    int64_t ttl_ms[MR_NAMES_KIND_COUNT]; /* servers 30 s, workers 60 s: three times missed */
    int64_t grave_ms;                    /* 10 min */
    int64_t hold_ms;                     /* not complete for so long: 20 s */
    int64_t stall_ms;                    /* between two ticks: it stood still: 5 s */
};

MR_MUST_USE enum mr_err mr_registry_new(const struct mr_registry_options *options, mr_mono now,
                                        struct mr_registry **ret_registry);
void mr_registry_free(struct mr_registry *registry);

/* What became of a copy. */
enum mr_names_put {
    MR_PUT_NEW,   /* it was not known, or had gone */
    MR_PUT_NEWER, /* takes the place of an older copy */
    MR_PUT_KNOWN, /* the same is there */
    MR_PUT_OLD,   /* a newer one is there, or it is older than it may be */
};

/*
 * The process itself says that it is there, or with MR_NAMES_LEFT that it goes; its age is 0, whatever it says. Goes to the
 * other nameservers with the next mr_registry_push. MR_INVALID, MR_TOO_BIG: no such entry can be; MR_BUSY: too many
 * entries; MR_NOMEM.
 */
MR_MUST_USE enum mr_err mr_registry_register(struct mr_registry *registry, mr_mono now,
                                             const struct mr_names_entry *entry,
                                             enum mr_names_put *ret_put);
/* Another nameserver says so. Errors as above. */
MR_MUST_USE enum mr_err mr_registry_merge(struct mr_registry *registry, mr_mono now,
                                          const struct mr_names_entry *entry,
                                          enum mr_names_put *ret_put);

/* Those whose time is over expire, and old graves are forgotten. To be called each second at least. */
void mr_registry_tick(struct mr_registry *registry, mr_mono now);
bool mr_registry_complete(const struct mr_registry *registry, mr_mono now);

/*
 * Those of a kind that live, by (name, incarnation); with an app only its workers. The array is the arena's, texts are borrowed
 * until the registry is next changed. MR_NOMEM.
 */
MR_MUST_USE enum mr_err mr_registry_list(struct mr_registry *registry, mr_mono now,
                                         enum mr_names_kind kind, struct mr_slice app,
                                         struct mr_arena *arena,
                                         struct mr_names_entry **ret_entries, size_t *ret_n);
/*
 * Changes when somebody comes into such a list, goes, or is reached elsewhere, but not with signs of life and bodies: who
 * knows the number need not read the list again. 0: the list is empty.
 */
uint64_t mr_registry_changed(struct mr_registry *registry, enum mr_names_kind kind,
                             struct mr_slice app);

/* Of all of them together: no list has changed while this has not. */
uint64_t mr_registry_changes(const struct mr_registry *registry);

/* An app that has workers. */
struct mr_names_app {
    struct mr_slice name; /* borrowed likewise */
    size_t workers;
};
/* By name. MR_NOMEM. */
MR_MUST_USE enum mr_err mr_registry_apps(struct mr_registry *registry, struct mr_arena *arena,
                                         struct mr_names_app **ret_apps, size_t *ret_n);

struct mr_registry_figures {
    size_t live[MR_NAMES_KIND_COUNT], graves, apps;
    uint64_t expired, left;
    uint64_t refused;   /* for want of room, or because they could not be */
    uint64_t forgotten; /* graves that had to make room before their time */
    uint64_t stalls;    /* times it stood still */
};
void mr_registry_figures(const struct mr_registry *registry, struct mr_registry_figures *ret);

/* ---- with other nameservers ------------------------------------------------------------------- */

/*
 * Each nameserver sends every other one its digest once an interval. Who gets one that is not like its own
 * answers with marks: which entries live in the buckets that differ, and in which version. The answer to marks is the
 * entries that are newer or missing there, graves of what lives there and does not, and the ids of what is wanted; the
 * answer to those is what is wanted, and ours for each copy that is older. So one digest that arrives makes both equal,
 * and equal ones cost one message.
 */
struct mr_names_mark {
    struct mr_uuid id;
    uint64_t version, sum;
};

enum mr_names_say { MR_SAY_DIGEST, MR_SAY_MARKS, MR_SAY_ENTRIES };

struct mr_names_msg {
    enum mr_names_say say;
    const uint64_t *digest;                  /* MR_SAY_DIGEST: of each bucket */
    uint64_t buckets[MR_NAMES_BUCKETS / 64]; /* MR_SAY_MARKS: all is said of these, a bit each */
    const struct mr_names_mark *marks;
    size_t marks_n;
    const struct mr_names_entry *entries; /* MR_SAY_ENTRIES */
    size_t entries_n;
    const struct mr_uuid *wants;
    size_t wants_n;
};

/* Takes a message away; what it points to is borrowed for the call. It must not change the registry. */
typedef enum mr_err (*mr_names_send)(const struct mr_names_msg *msg, void *arg);

/* To every other nameserver, once an interval. */
MR_MUST_USE enum mr_err mr_registry_digest(struct mr_registry *registry, mr_names_send send,
                                           void *arg);
/* To all of them: what has registered here since the last time. What is not sent, digests make up for. */
MR_MUST_USE enum mr_err mr_registry_push(struct mr_registry *registry, mr_mono now,
                                         mr_names_send send, void *arg);
/*
 * What another one said; the answer goes to it. Entries that cannot be are left out and counted. MR_TOO_BIG,
 * MR_INVALID: it is no message; MR_NOMEM and what send answers: the answer is not whole, the next digest makes up for that.
 */
MR_MUST_USE enum mr_err mr_registry_hear(struct mr_registry *registry, mr_mono now,
                                         const struct mr_names_msg *msg, mr_names_send send,
                                         void *arg);

/* O(n); asserts that everything agrees with everything. */
void mr_registry_validate(struct mr_registry *registry);

#endif
