/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at timers: in this process, or through a server. Thread: any. */
#include "client/timer_look.h"

#include <stdlib.h>

#include "timer/def.h"

/* A look that was answered, as its caller sees it. */
struct mr_timer_list {
    struct mr_timer_look look;
    struct mr_timer_info *infos;
};

struct mr_firing_list {
    struct mr_timer_look look;
};

static enum mr_err look_at(struct mr_client *client, struct mr_timer_look *look)
{
    struct mr_timer_service *service = NULL;
    MR_TRY(mr_client_timers(client, MR_TIMERS_LOOK, &service, NULL));
    return service != NULL ? mr_timer_service_look_wait(service, look)
                           : mr_timer_broker_look_wait(client->broker, look);
}

/* ---- timers ---------------------------------------------------------------------------------- */

size_t mr_timer_list_count(const struct mr_timer_list *list)
{
    return list->look.timers_n;
}

const struct mr_timer_info *mr_timer_list_at(const struct mr_timer_list *list, size_t i)
{
    return i < list->look.timers_n ? &list->infos[i] : NULL;
}

const char *mr_timer_list_next(const struct mr_timer_list *list)
{
    return list->look.next;
}

void mr_timer_list_free(struct mr_timer_list *list)
{
    if (list == NULL)
        return;
    mr_timer_look_done(&list->look);
    free(list);
}

static enum mr_err open_infos(struct mr_timer_list *list)
{
    struct mr_timer_look *look = &list->look;
    list->infos = mr_arena_calloc(&look->arena, look->timers_n + 1, sizeof *list->infos);
    if (list->infos == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < look->timers_n; i++)
        MR_TRY(mr_timer_shown_open(&look->timers[i], &look->arena, &list->infos[i]));
    return MR_OK;
}

static enum mr_err get_list(struct mr_client *client, const struct mr_timer_look *asked,
                            struct mr_timer_list **ret_list)
{
    struct mr_timer_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return MR_NOMEM;
    list->look = *asked;
    enum mr_err err = look_at(client, &list->look);
    if (err == MR_OK)
        err = open_infos(list);
    if (err != MR_OK) {
        mr_timer_list_free(list);
        return err;
    }
    *ret_list = list;
    return MR_OK;
}

static struct mr_slice cursor_of(const char *cursor)
{
    return mr_slice_str(cursor != NULL ? cursor : "");
}

enum mr_err mr_timer_list_get(struct mr_client *client, const struct mr_timer_list_options *options,
                              struct mr_timer_list **ret_list)
{
    static const struct mr_timer_list_options defaults;
    options = options != NULL ? options : &defaults;
    if (options->limit > MR_BATCH_MAX || (unsigned)options->state >= MR_TIMER_STATE_COUNT)
        return MR_INVALID;
    struct mr_timer_look look = {.kind = MR_LOOK_LIST,
                                 .app = options->app,
                                 .state = options->state,
                                 .cursor = cursor_of(options->cursor),
                                 .limit = (uint32_t)options->limit};
    return get_list(client, &look, ret_list);
}

enum mr_err mr_timer_get(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                         struct mr_timer_list **ret_list)
{
    struct mr_timer_look look = {.kind = MR_LOOK_GET, .app = app, .name = name};
    return get_list(client, &look, ret_list);
}

enum mr_err mr_timer_next(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                          int64_t *ret_times_ms, size_t max, size_t *ret_n)
{
    if (max > MR_BATCH_MAX || name.len == 0)
        return max > MR_BATCH_MAX ? MR_INVALID : MR_NOT_FOUND;
    struct mr_timer_look look = {
        .kind = MR_LOOK_NEXT, .app = app, .name = name, .limit = (uint32_t)max};
    enum mr_err err = max > 0 ? look_at(client, &look) : MR_OK;
    if (err == MR_OK) {
        *ret_n = look.times_n < max ? look.times_n : max;
        if (*ret_n > 0)
            memcpy(ret_times_ms, look.times_ms, *ret_n * sizeof *ret_times_ms);
    }
    mr_timer_look_done(&look);
    return err;
}

/* ---- firings --------------------------------------------------------------------------------- */

size_t mr_firing_list_count(const struct mr_firing_list *list)
{
    return list->look.firings_n;
}

const struct mr_firing_info *mr_firing_list_at(const struct mr_firing_list *list, size_t i)
{
    return i < list->look.firings_n ? &list->look.firings[i] : NULL;
}

const char *mr_firing_list_next(const struct mr_firing_list *list)
{
    return list->look.next;
}

void mr_firing_list_free(struct mr_firing_list *list)
{
    if (list == NULL)
        return;
    mr_timer_look_done(&list->look);
    free(list);
}

enum mr_err mr_timer_history(struct mr_client *client,
                             const struct mr_timer_history_options *options,
                             struct mr_firing_list **ret_list)
{
    if (options->limit > MR_BATCH_MAX)
        return MR_INVALID;
    struct mr_firing_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return MR_NOMEM;
    list->look = (struct mr_timer_look){.kind = MR_LOOK_HISTORY,
                                        .app = options->app,
                                        .name = options->name,
                                        .cursor = cursor_of(options->cursor),
                                        .limit = (uint32_t)options->limit};
    enum mr_err err = look_at(client, &list->look);
    if (err != MR_OK) {
        mr_firing_list_free(list);
        return err;
    }
    *ret_list = list;
    return MR_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum mr_err mr_client_timer_status(struct mr_client *client, struct mr_timer_look *look)
{
    look->kind = MR_LOOK_STATUS;
    return look_at(client, look);
}
