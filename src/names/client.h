/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process and the nameservers: it says again and again that it is there, and knows who else is. Any one of the
 * nameservers is enough. It talks to one of them; when that does not answer it goes on with the next one.
 *
 * Its lists stay as they are while no nameserver answers. One that is not complete (registry.h) adds to them and
 * takes nothing off.
 *
 * Everything but new and free is on the loop.
 */
#ifndef MR_NAMES_CLIENT_H
#define MR_NAMES_CLIENT_H

#include "base/buf.h"
#include "names/look.h"
#include "names/registry.h"
#include "rpc/rpc.h"

struct mr_names_client;

enum {
    MR_NAMESERVERS_MAX = 16,
    MR_NAMES_SERVER_MS = 10 * 1000, /* between registrations */
    MR_NAMES_WORKER_MS = 20 * 1000,
    MR_NAMES_ANSWER_MS = 5 * 1000, /* who takes longer is passed over */
    MR_NAMES_LOOK_MS = 1000,       /* between looks */
};

/* Zero means default, but for the rpc and the nameservers. */
struct mr_names_client_options {
    struct mr_rpc *rpc;
    const char *const *nameservers; /* addresses */
    size_t nameservers_n;
    const struct mr_rpc_tls *tls;
    const char *authorization;
    /* Who it is; copied. Version, fate, age and body do not count. Without a name it registers nothing. */
    struct mr_names_entry entry;
    int64_t register_ms;
    /* It connects when it has to say something, and has no lists: a connection costs a nameserver 16 KiB, an entry less than one. */
    bool is_brief;
    struct mr_slice workers_of; /* an app whose workers it wants to know; copied. Empty: none */
    /* Lists are read again after so long, since a list that has not changed comes without what its members say of themselves.
     * 0: never for that alone. */
    int64_t fresh_ms;
    int64_t look_ms;
    /* Appends what it says of itself, before each registration. May be NULL. */
    enum mr_err (*body)(struct mr_buf *buf, void *arg);
    /* A list has changed. May be NULL. */
    void (*changed)(struct mr_names_client *client, enum mr_names_kind kind, void *arg);
    /* What the nameserver shows, every look_ms; NULL: none has answered. Needs the right to see all apps. May be NULL. */
    void (*looked)(struct mr_names_client *client, const struct mr_names_look *look, void *arg);
    void *arg;
};

/* Begins at once, and needs nobody to be there. MR_INVALID: no nameservers, too many, or no addresses. Thread: any but
 * the loop. */
MR_MUST_USE enum mr_err mr_names_client_new(const struct mr_names_client_options *options,
                                            struct mr_names_client **ret_client,
                                            struct mr_detail *detail);
/* Says good-bye, if somebody hears it within a second. Before the rpc is freed. NULL is fine. Thread: any but the loop. */
void mr_names_client_free(struct mr_names_client *client);

/* Those that live, as far as it knows, by (name, incarnation); good until the caller has returned to the loop. */
const struct mr_names_entry *mr_names_client_list(struct mr_names_client *client,
                                                  enum mr_names_kind kind, size_t *ret_n);
/* Whether the list was whole when it was read; if not, somebody may be missing. */
bool mr_names_client_complete(const struct mr_names_client *client, enum mr_names_kind kind);
/*
 * Why lists may be empty: MR_DENIED, the last question was refused; MR_UNAVAILABLE, no nameserver has ever answered; both with
 * detail. MR_OK: one has. Thread: any but the loop.
 */
MR_MUST_USE enum mr_err mr_names_client_trouble(struct mr_names_client *client,
                                                struct mr_detail *detail);

#endif
