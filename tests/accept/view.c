/* SPDX-License-Identifier: Apache-2.0 */
#include "accept/view.h"

#include <stdio.h>

static void copy_name(char to[MR_NAME_MAX + 1], struct mr_slice from)
{
    (void)snprintf(to, MR_NAME_MAX + 1, "%.*s", (int)from.len, (const char *)from.data);
}

static struct mr_node_list *list_of(struct mr_client *client)
{
    struct mr_node_list *list = NULL;
    assert_err(mr_node_list_get(client, &list), MR_OK);
    return list;
}

struct view_node view_node(struct mr_client *client, const char *name)
{
    struct mr_node_list *list = list_of(client);
    struct view_node view = {.there = false};
    for (size_t i = 0; i < mr_node_list_count(list); i++) {
        const struct mr_node_info *node = mr_node_list_at(list, i);
        char text[MR_NAME_MAX + 1];
        copy_name(text, node->name);
        if (strcmp(text, name) == 0)
            view = (struct view_node){.there = true,
                                      .state = node->state,
                                      .role = node->role,
                                      .incarnation = node->incarnation,
                                      .in_hand = node->in_hand,
                                      .started_ms = node->started_ms,
                                      .last_beat_ms = node->last_beat_ms};
    }
    mr_node_list_free(list);
    return view;
}

bool view_is_live(struct mr_client *client, const char *name)
{
    struct view_node node = view_node(client, name);
    return node.there && node.state == MR_NODE_LIVE;
}

struct view_leader view_leader(struct mr_client *client)
{
    struct mr_node_list *list = list_of(client);
    const struct mr_leader *leader = mr_node_list_leader(list);
    struct view_leader view = {.incarnation = leader->incarnation,
                               .term = leader->term,
                               .since_ms = leader->since_ms,
                               .leaderless_ms = leader->leaderless_ms};
    copy_name(view.node, leader->node);
    assert_int_equal(view.node[0] == '\0', view.incarnation == 0);
    assert_int_equal(view.node[0] == '\0', view.leaderless_ms > 0);
    mr_node_list_free(list);
    return view;
}

bool view_leads(struct mr_client *client, const char *name)
{
    return strcmp(view_leader(client).node, name) == 0;
}

struct view_shares view_shares(struct mr_client *client, const char *queue)
{
    struct mr_node_list *list = list_of(client);
    struct view_shares view = {.version = 0};
    const struct mr_assignment *assignment;
    for (size_t i = 0; (assignment = mr_node_list_assignment(list, i)) != NULL; i++) {
        char text[MR_NAME_MAX + 1];
        copy_name(text, assignment->queue);
        if (strcmp(text, queue) != 0)
            continue;
        assert_true(assignment->owners_n <= VIEW_OWNERS_MAX);
        view.version = assignment->version;
        view.term = assignment->term;
        view.partitions = assignment->partitions;
        view.n = assignment->owners_n;
        for (size_t k = 0; k < view.n; k++) {
            copy_name(view.owners[k].node, assignment->owners[k].node);
            view.owners[k].incarnation = assignment->owners[k].incarnation;
            view.owners[k].owned = assignment->owners[k].owned;
        }
    }
    mr_node_list_free(list);
    return view;
}

uint64_t view_owned(const struct view_shares *shares, const char *name)
{
    uint64_t owned = 0;
    for (size_t i = 0; i < shares->n; i++)
        if (strcmp(shares->owners[i].node, name) == 0)
            owned |= shares->owners[i].owned;
    return owned;
}

void view_check_shares(const struct view_shares *shares)
{
    uint64_t once = 0, twice = 0;
    if (shares->version == 0)
        return;
    for (size_t i = 0; i < shares->n; i++) {
        assert_true(shares->owners[i].owned != 0);
        twice |= once & shares->owners[i].owned;
        once |= shares->owners[i].owned;
    }
    assert_true(once != 0 && (once & (once + 1)) == 0);
    if (shares->n <= view_count(once))
        assert_true(twice == 0);
}

bool view_shared_by(struct mr_client *client, const char *queue, const char *const *names, size_t n)
{
    struct view_shares shares = view_shares(client, queue);
    uint64_t all = 0;
    view_check_shares(&shares);
    bool fits = shares.version > 0 && shares.n == n;
    for (size_t i = 0; i < n; i++) {
        fits = fits && view_owned(&shares, names[i]) != 0;
        all |= view_owned(&shares, names[i]);
    }
    return fits && view_count(all) == shares.partitions;
}

unsigned view_count(uint64_t bits)
{
    return (unsigned)__builtin_popcountll(bits);
}
