/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list. A link that is in no list points at itself. */
#ifndef MR_BASE_LIST_H
#define MR_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct mr_link {
    struct mr_link *next, *prev;
};

#define mr_container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void mr_list_init(struct mr_link *list)
{
    list->next = list->prev = list;
}
static inline bool mr_list_empty(const struct mr_link *list)
{
    return list->next == list;
}
static inline void mr_list_insert_before(struct mr_link *at, struct mr_link *link)
{
    link->prev = at->prev;
    link->next = at;
    at->prev->next = link;
    at->prev = link;
}
static inline void mr_list_push_back(struct mr_link *list, struct mr_link *link)
{
    mr_list_insert_before(list, link);
}
static inline void mr_list_push_front(struct mr_link *list, struct mr_link *link)
{
    mr_list_insert_before(list->next, link);
}
/* Harmless on a link that is in no list. */
static inline void mr_list_remove(struct mr_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    mr_list_init(link);
}
/* NULL when empty. */
static inline struct mr_link *mr_list_pop_front(struct mr_link *list)
{
    if (mr_list_empty(list))
        return NULL;
    struct mr_link *link = list->next;
    mr_list_remove(link);
    return link;
}
/* Moves all links of from to the end of to; from is empty afterwards. */
static inline void mr_list_splice_back(struct mr_link *to, struct mr_link *from)
{
    if (mr_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    mr_list_init(from);
}

#endif
