/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, the leader and whose partitions are whose, as a client sees them: copies, to be compared. */
#ifndef MR_TESTS_ACCEPT_VIEW_H
#define MR_TESTS_ACCEPT_VIEW_H

#include "accept/accept.h"

enum { VIEW_OWNERS_MAX = 16 };

struct view_node {
    bool there;
    enum mr_node_state state;
    enum mr_node_role role;
    uint64_t incarnation, in_hand;
    int64_t started_ms, last_beat_ms;
};
/* Of several with the same name, the one that came last. */
struct view_node view_node(struct mr_client *client, const char *name);
bool view_is_live(struct mr_client *client, const char *name);

struct view_leader {
    char node[MR_NAME_MAX + 1]; /* empty: nobody leads */
    uint64_t incarnation, term;
    int64_t since_ms, leaderless_ms;
};
struct view_leader view_leader(struct mr_client *client);
bool view_leads(struct mr_client *client, const char *name);

struct view_shares {
    uint64_t version, term; /* 0: nothing is written */
    uint32_t partitions;
    size_t n;
    struct {
        char node[MR_NAME_MAX + 1];
        uint64_t incarnation, owned;
    } owners[VIEW_OWNERS_MAX];
};
struct view_shares view_shares(struct mr_client *client, const char *queue);
/* Bits of what this one owns. */
uint64_t view_owned(const struct view_shares *shares, const char *name);
/* Each partition has an owner; and only one unless there are more owners than partitions. */
void view_check_shares(const struct view_shares *shares);
/* Exactly these n own something, and it is whole. */
bool view_shared_by(struct mr_client *client, const char *queue, const char *const *names,
                    size_t n);
unsigned view_count(uint64_t bits);

#endif
