/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list that is kept by asking for it over and over: a question that knows the number of the list waits at the nameserver for a
 * change. A long list comes in pages; the old one stays until the new one is whole.
 */
#include <assert.h>
#include <stdlib.h>

#include "names/client_internal.h"

enum {
    WAIT_MS = 3 * 1000,   /* one that hangs is known, and another asked, within 10 s */
    RETRY_MS = 500,       /* after a failure */
    INCOMPLETE_MS = 1000, /* between looks at a nameserver that is not complete */
    LIST_MAX = 200 * 1000,
};

static_assert(WAIT_MS + MR_NAMES_ANSWER_MS < 10 * 1000,
              "a list is no older, while any nameserver answers");

static void drop_answer(struct known_list *list)
{
    mr_arena_done(&list->coming);
    free(list->got);
    list->got = NULL;
    list->got_n = list->got_cap = 0;
    list->has_page = false;
}

void known_list_done(struct known_list *list)
{
    drop_answer(list);
    mr_arena_done(&list->arena);
    list->entries = NULL;
    list->n = 0;
}

/* ---- answers ---------------------------------------------------------------------------------- */

static enum mr_err keep_entry(struct known_list *list, const struct mr_names_entry *entry)
{
    if (list->got_n == LIST_MAX)
        return MR_TOO_BIG;
    if (list->got_n == list->got_cap) {
        size_t cap = list->got_cap > 0 ? 2 * list->got_cap : 64;
        struct mr_names_entry *grown = realloc(list->got, cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        list->got = grown;
        list->got_cap = cap;
    }
    struct mr_names_entry *to = &list->got[list->got_n];
    *to = *entry;
    MR_TRY(mr_arena_copy(&list->coming, entry->name, &to->name));
    MR_TRY(mr_arena_copy(&list->coming, entry->app, &to->app));
    MR_TRY(mr_arena_copy(&list->coming, entry->address, &to->address));
    MR_TRY(mr_arena_copy(&list->coming, entry->server, &to->server));
    MR_TRY(mr_arena_copy(&list->coming, entry->body, &to->body));
    list->got_n++;
    return MR_OK;
}

static enum mr_err read_page(struct known_list *list, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    bool is_first = list->got_n == 0;
    enum mr_err err = mr_names_page_decode(bytes, &arena, &list->page);
    if (err == MR_OK && is_first)
        list->begun = list->page.changed;
    for (size_t i = 0; err == MR_OK && i < list->page.entries_n; i++)
        err = keep_entry(list, &list->page.entries[i]);
    mr_arena_done(&arena);
    list->page.entries = NULL;
    return err;
}

static int compare(const struct mr_names_entry *a, const struct mr_names_entry *b)
{
    int order = mr_slice_compare(a->name, b->name);
    return order != 0 ? order
                      : (a->incarnation > b->incarnation) - (a->incarnation < b->incarnation);
}

static int compare_entries(const void *a, const void *b)
{
    return compare(a, b);
}

/* What is missing in the answer of one that is not complete is kept. */
static enum mr_err keep_missing(struct known_list *list)
{
    size_t got_n = list->got_n;
    for (size_t i = 0, at = 0; i < list->n; i++) {
        while (at < got_n && compare(&list->got[at], &list->entries[i]) < 0)
            at++;
        if (at == got_n || compare(&list->got[at], &list->entries[i]) != 0)
            MR_TRY(keep_entry(list, &list->entries[i]));
    }
    if (list->got_n > got_n)
        qsort(list->got, list->got_n, sizeof *list->got, compare_entries);
    return MR_OK;
}

static bool is_other(const struct known_list *list)
{
    if (list->n != list->got_n)
        return true;
    for (size_t i = 0; i < list->n; i++) {
        const struct mr_names_entry *a = &list->entries[i], *b = &list->got[i];
        if (compare(a, b) != 0 || !mr_slice_equal(a->app, b->app) ||
            !mr_slice_equal(a->address, b->address) || !mr_slice_equal(a->server, b->server))
            return true;
    }
    return false;
}

static enum mr_err take_over(struct known_list *list)
{
    if (!list->page.complete)
        MR_TRY(keep_missing(list));
    struct mr_names_entry *entries =
        mr_arena_calloc(&list->coming, list->got_n + 1, sizeof *entries);
    if (entries == NULL)
        return MR_NOMEM;
    bool changed = is_other(list);
    if (list->got_n > 0)
        memcpy(entries, list->got, list->got_n * sizeof *entries);
    mr_arena_done(&list->arena);
    list->arena = list->coming;
    list->coming = (struct mr_arena){0};
    list->entries = entries;
    list->n = list->got_n;
    const struct mr_names_client_options *options = &list->client->options;
    if (changed && options->changed != NULL)
        options->changed(list->client, list->kind, options->arg);
    return MR_OK;
}

/* Whether it is the list that we have. */
static bool is_known(const struct known_list *list)
{
    return list->is_complete && list->page.from == list->from && list->page.changed == list->number;
}

/* What changed between two pages may be missing: then the number is an old one, and the next answer has all of it.
 * A list that has not changed is not asked for again at once: who answers without waiting cannot be asked all the time. */
static enum mr_err finish(struct known_list *list, mr_mono now)
{
    bool had = is_known(list) && !list->is_whole;
    if (!had)
        MR_TRY(take_over(list));
    if (!had)
        list->read = now;
    list->from = list->page.from;
    list->number = list->begun;
    list->is_complete = list->page.complete;
    list->next = mr_mono_add_ms(now, !list->is_complete ? INCOMPLETE_MS : had ? RETRY_MS : 0);
    return MR_OK;
}

/* ---- questions -------------------------------------------------------------------------------- */

static void list_message(struct mr_call *call, struct mr_slice bytes)
{
    struct known_list *list = mr_call_data(call);
    enum mr_err err = read_page(list, bytes);
    list->has_page = err == MR_OK;
}

/* The next page is asked for at once, the list with the next look. */
static void list_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct known_list *list = mr_call_data(call);
    struct mr_names_client *client = list->client;
    mr_mono now = mr_rpc_now(client->options.rpc);
    list->call = NULL;
    if (client->stopped)
        return;
    names_client_note(client, list->asked, status, text);
    enum mr_err err = status == MR_RPC_OK && list->has_page ? MR_OK : MR_UNAVAILABLE;
    if (err == MR_OK)
        client->heard = now;
    if (err == MR_OK && list->page.more && list->got_n > 0) {
        list->has_page = false;
        list->next = now;
        known_list_look(list, now);
        return;
    }
    if (err == MR_OK)
        err = finish(list, now);
    drop_answer(list);
    if (err == MR_OK)
        return;
    list->next = mr_mono_add_ms(now, RETRY_MS);
    if (status != MR_RPC_CANCELLED)
        names_client_pass_over(client, list->asked);
}

static const struct mr_call_ops list_ops = {.message = list_message, .closed = list_closed};

/* What its members say of themselves is older than it may be. */
static bool is_stale(const struct known_list *list, mr_mono now)
{
    int64_t fresh_ms = list->client->options.fresh_ms;
    return fresh_ms > 0 && now.ns - list->read.ns >= fresh_ms * MR_NS_PER_MS;
}

static struct mr_names_query query_of(struct known_list *list, mr_mono now)
{
    struct mr_names_query query = {.kind = list->kind};
    int64_t fresh_ms = list->client->options.fresh_ms;
    if (list->kind == MR_NAMES_WORKER)
        query.app = list->client->workers_of;
    if (list->got_n > 0) { /* the next page */
        query.after_name = list->got[list->got_n - 1].name;
        query.after_incarnation = list->got[list->got_n - 1].incarnation;
        return query;
    }
    list->is_whole = !list->is_complete || is_stale(list, now);
    if (!list->is_whole) {
        query.from = list->from;
        query.known = list->number;
        query.wait_ms = fresh_ms > 0 && fresh_ms < WAIT_MS ? fresh_ms : WAIT_MS;
    }
    return query;
}

void known_list_look(struct known_list *list, mr_mono now)
{
    struct mr_names_client *client = list->client;
    if (!list->is_wanted || list->call != NULL || client->stopped || now.ns < list->next.ns)
        return;
    size_t whom = names_client_pick(client);
    if (whom == NAMES_NOBODY)
        return;
    if (whom != list->asked)
        drop_answer(list); /* pages of two nameservers do not go together */
    list->asked = whom;
    struct mr_names_query query = query_of(list, now);
    mr_buf_clear(&client->buf);
    if (mr_names_query_encode(&query, &client->buf) != MR_OK ||
        mr_channel_call(client->nameservers[whom].channel, "/millrace.v1.Names/List",
                        query.wait_ms + MR_NAMES_ANSWER_MS, &list_ops, list,
                        &list->call) != MR_OK) {
        list->next = mr_mono_add_ms(now, RETRY_MS);
        return;
    }
    enum mr_err err = mr_call_send(list->call, mr_buf_slice(&client->buf));
    if (err == MR_OK)
        mr_call_half_close(list->call);
    else
        mr_call_cancel(list->call);
}
