/* SPDX-License-Identifier: Apache-2.0 */
/* What client.c and client_list.c share. Thread: the loop. */
#ifndef MR_NAMES_CLIENT_INTERNAL_H
#define MR_NAMES_CLIENT_INTERNAL_H

#include "names/client.h"
#include "names/wire.h"

#define NAMES_NOBODY SIZE_MAX

struct nameserver {
    struct mr_names_client *client;
    struct mr_channel *channel; /* NULL: none, of one that is brief */
    bool is_up;
    /* Of one that is brief. */
    const char *address;
    bool is_done;  /* the connection is not needed any more */
    mr_mono until; /* it is waited for an answer */
};

/* A list that is kept. */
struct known_list {
    struct mr_names_client *client;
    bool is_wanted;
    enum mr_names_kind kind;
    struct mr_call *call; /* the question that is under way; NULL: none */
    size_t asked;         /* whom */
    mr_mono next;         /* not before */
    uint64_t from, number;
    mr_mono read;     /* as a whole, last */
    bool is_complete; /* the last answer was */
    bool is_whole;    /* what was asked for: all of it, whatever is known */
    struct mr_arena arena;
    struct mr_names_entry *entries;
    size_t n;
    /* The answer as it comes, page by page. */
    struct mr_arena coming;
    struct mr_names_page page; /* the last one; its entries are in coming */
    struct mr_names_entry *got;
    size_t got_n, got_cap;
    bool has_page;
    uint64_t begun; /* the number that the first page had */
};

struct mr_names_client {
    struct mr_names_client_options options;
    struct nameserver nameservers[MR_NAMESERVERS_MAX];
    size_t nameservers_n, current;
    struct mr_arena texts; /* of the entry */
    struct mr_names_entry entry;
    struct mr_call *registering; /* NULL: not now */
    size_t asked;                /* whom */
    bool has_answer;
    mr_mono next; /* registration */
    mr_mono heard;
    int told; /* why it is not registered, as it was last said; MR_RPC_OK: it is, or nothing was said */
    struct mr_detail refusal; /* what the last answer said; empty: it was none */
    mr_mono tried;            /* since then nobody was reached; 0: somebody is */
    struct mr_call *looking;  /* NULL: not now */
    size_t look_asked;        /* whom */
    bool has_look;
    mr_mono next_look;
    struct known_list lists[MR_NAMES_KIND_COUNT];
    struct mr_slice workers_of;
    struct mr_timer timer;
    struct mr_buf buf;
    bool leaving, stopped;
    bool has_left; /* the good-bye was said, or is not to be */
    struct mr_event left;
};

/* client.c: one that can be asked, NAMES_NOBODY: there is none. */
size_t names_client_pick(struct mr_names_client *client);
/* How a question ended, for mr_names_client_trouble. */
void names_client_note(struct mr_names_client *client, size_t nameserver, int status,
                       struct mr_slice text);
/* This one did not answer: the next one is asked. */
void names_client_pass_over(struct mr_names_client *client, size_t nameserver);

/* client_look.c */
void names_client_look(struct mr_names_client *client, mr_mono now);

/* client_list.c */
void known_list_look(struct known_list *list, mr_mono now);
void known_list_done(struct known_list *list);

#endif
