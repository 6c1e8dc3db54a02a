/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at jobs and parts, cancelling and retrying: in this process, or through a server. Thread: any. */
#include <stdlib.h>

#include "client/job.h"
#include "millrace/v1/jobs.pb-c.h"
#include "wire/job.h"

enum { LIST_ITEMS = 1, LIST_NEXT = 2 }; /* of JobListResponse and PartListResponse */

static const char *const paths[MR_JOB_ASK_COUNT] = {
    [MR_JOB_GET] = "/millrace.v1.Jobs/Get",         [MR_JOB_LIST] = "/millrace.v1.Jobs/List",
    [MR_JOB_PARTS] = "/millrace.v1.Jobs/ListParts", [MR_JOB_CANCEL] = "/millrace.v1.Jobs/Cancel",
    [MR_JOB_RETRY] = "/millrace.v1.Jobs/Retry",
};

/* An answer, as its caller sees it: of the service here, or decoded. */
struct answer {
    struct mr_job_ask ask;
    struct mr_job_info *jobs; /* in the arena */
    size_t jobs_n;
    struct mr_part_info *parts;
    size_t parts_n;
    char next[MR_JOB_CURSOR_MAX];
    struct mr_arena arena;
};

struct mr_job_list {
    struct answer answer;
};

struct mr_part_list {
    struct answer answer;
};

static void answer_done(struct answer *answer)
{
    mr_job_ask_done(&answer->ask);
    mr_arena_done(&answer->arena);
}

/* ---- in this process -------------------------------------------------------------------------- */

static enum mr_err ask_here(struct mr_job_service *service, struct answer *answer)
{
    struct mr_job_ask *ask = &answer->ask;
    MR_TRY(mr_job_service_ask_wait(service, ask));
    answer->jobs = mr_arena_calloc(&answer->arena, ask->jobs_n + 1, sizeof *answer->jobs);
    if (answer->jobs == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < ask->jobs_n; i++)
        answer->jobs[i] = ask->jobs[i].info;
    answer->jobs_n = ask->jobs_n;
    answer->parts = ask->parts;
    answer->parts_n = ask->parts_n;
    memcpy(answer->next, ask->next, sizeof answer->next);
    return MR_OK;
}

/* ---- through a server ------------------------------------------------------------------------- */

/* The message of what is asked. */
static enum mr_err pack(const ProtobufCMessage *message, struct mr_arena *arena,
                        struct mr_slice *ret_bytes)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mr_arena_alloc(arena, size + 1);
    if (bytes == NULL)
        return MR_NOMEM;
    protobuf_c_message_pack(message, bytes);
    *ret_bytes = mr_slice_make(bytes, size);
    return MR_OK;
}

static enum mr_err text_of(struct mr_arena *arena, struct mr_slice text, char **ret_text)
{
    struct mr_slice copy;
    MR_TRY(mr_arena_copy(arena, text, &copy)); /* with a NUL behind it */
    *ret_text = (char *)(uintptr_t)copy.data;
    return MR_OK;
}

static enum mr_err write_parts(const struct mr_job_ask *ask, struct mr_arena *arena,
                               struct mr_slice *ret_bytes)
{
    Millrace__V1__PartListRequest out = MILLRACE__V1__PART_LIST_REQUEST__INIT;
    Millrace__V1__PartState states[MR_PART_STATE_COUNT];
    MR_TRY(text_of(arena, ask->id, &out.id));
    MR_TRY(text_of(arena, ask->cursor, &out.cursor));
    out.limit = ask->limit;
    out.states = states;
    for (unsigned i = 0; i < MR_PART_STATE_COUNT; i++)
        if (ask->states & 1u << i)
            states[out.n_states++] = (Millrace__V1__PartState)i;
    return pack(&out.base, arena, ret_bytes);
}

static enum mr_err write_list(const struct mr_job_ask *ask, struct mr_arena *arena,
                              struct mr_slice *ret_bytes)
{
    Millrace__V1__JobListRequest out = MILLRACE__V1__JOB_LIST_REQUEST__INIT;
    Millrace__V1__JobState states[MR_JOB_STATE_COUNT];
    MR_TRY(text_of(arena, ask->queue, &out.queue));
    MR_TRY(text_of(arena, ask->cursor, &out.cursor));
    out.limit = ask->limit;
    out.states = states;
    for (unsigned i = 1; i < MR_JOB_STATE_COUNT; i++)
        if (ask->states & 1u << i)
            states[out.n_states++] = (Millrace__V1__JobState)i;
    return pack(&out.base, arena, ret_bytes);
}

static enum mr_err write_request(const struct mr_job_ask *ask, struct mr_arena *arena,
                                 struct mr_slice *ret_bytes)
{
    Millrace__V1__JobRequest out = MILLRACE__V1__JOB_REQUEST__INIT;
    if (ask->kind == MR_JOB_PARTS)
        return write_parts(ask, arena, ret_bytes);
    if (ask->kind == MR_JOB_LIST)
        return write_list(ask, arena, ret_bytes);
    MR_TRY(text_of(arena, ask->id, &out.id));
    return pack(&out.base, arena, ret_bytes);
}

/* The bytes live in the arena. */
static enum mr_err read_page(struct answer *answer, struct mr_slice bytes)
{
    bool parts = answer->ask.kind == MR_JOB_PARTS;
    size_t n;
    MR_TRY(mr_flat_count(bytes, LIST_ITEMS, &n));
    answer->jobs = mr_arena_calloc(&answer->arena, n + 1, sizeof *answer->jobs);
    answer->parts = mr_arena_calloc(&answer->arena, n + 1, sizeof *answer->parts);
    if (answer->jobs == NULL || answer->parts == NULL)
        return MR_NOMEM;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == LIST_ITEMS && parts)
            MR_TRY(mr_flat_read(&mr_flat_part, item.bytes, &answer->arena,
                                &answer->parts[answer->parts_n++]));
        else if (item.number == LIST_ITEMS)
            MR_TRY(mr_job_info_decode(item.bytes, &answer->arena, &answer->jobs[answer->jobs_n++]));
        else if (item.number == LIST_NEXT && item.bytes.len < sizeof answer->next)
            memcpy(answer->next, item.bytes.data, item.bytes.len);
    }
    return MR_OK;
}

static enum mr_err read_one(struct answer *answer, struct mr_slice bytes)
{
    answer->jobs = mr_arena_calloc(&answer->arena, 1, sizeof *answer->jobs);
    if (answer->jobs == NULL)
        return MR_NOMEM;
    MR_TRY(mr_job_info_decode(bytes, &answer->arena, answer->jobs));
    answer->jobs_n = 1;
    return MR_OK;
}

static enum mr_err ask_there(struct mr_broker *broker, struct answer *answer)
{
    struct mr_job_ask *ask = &answer->ask;
    struct mr_req_call call = {.req.op = MR_OP_CALL, .path = paths[ask->kind]};
    struct mr_slice copy;
    bool pages = ask->kind == MR_JOB_LIST || ask->kind == MR_JOB_PARTS;
    enum mr_err err = write_request(ask, &answer->arena, &call.message);
    if (err == MR_OK)
        err = mr_broker_call(broker, &call.req);
    if (err != MR_OK)
        ask->detail = call.detail;
    if (err == MR_OK)
        err = mr_arena_copy(&answer->arena, call.answer, &copy);
    if (err == MR_OK)
        err = pages ? read_page(answer, copy) : read_one(answer, copy);
    mr_req_done(&call.req);
    return err == MR_INVALID && ask->detail.text[0] == '\0' ? MR_FAILED : err;
}

/* ---- asking ----------------------------------------------------------------------------------- */

static enum mr_err ask(struct mr_client *client, struct answer *answer)
{
    struct mr_job_service *service = NULL;
    bool acts = answer->ask.kind == MR_JOB_CANCEL || answer->ask.kind == MR_JOB_RETRY;
    MR_TRY(
        mr_client_jobs(client, acts ? MR_JOBS_RUN : MR_JOBS_LOOK, &service, &answer->ask.detail));
    return service != NULL ? ask_here(service, answer) : ask_there(client->broker, answer);
}

static enum mr_err get_jobs(struct mr_client *client, const struct mr_job_ask *asked,
                            struct mr_job_list **ret_list, struct mr_detail *detail)
{
    struct mr_job_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return MR_NOMEM;
    list->answer.ask = *asked;
    enum mr_err err = ask(client, &list->answer);
    if (err != MR_OK && detail != NULL)
        *detail = list->answer.ask.detail;
    if (err != MR_OK || ret_list == NULL)
        mr_job_list_free(list);
    else
        *ret_list = list;
    return err;
}

static struct mr_slice cursor_of(const char *cursor)
{
    return mr_slice_str(cursor != NULL ? cursor : "");
}

enum mr_err mr_job_list_get(struct mr_client *client, const struct mr_job_list_options *options,
                            struct mr_job_list **ret_list)
{
    static const struct mr_job_list_options defaults;
    options = options != NULL ? options : &defaults;
    if (options->limit > MR_BATCH_MAX || (unsigned)options->state >= MR_JOB_STATE_COUNT)
        return MR_INVALID;
    struct mr_job_ask asked = {.kind = MR_JOB_LIST,
                               .queue = options->queue,
                               .states =
                                   options->state != MR_JOB_STATE_NONE ? 1u << options->state : 0,
                               .cursor = cursor_of(options->cursor),
                               .limit = (uint32_t)options->limit};
    return get_jobs(client, &asked, ret_list, NULL);
}

enum mr_err mr_job_list_live(struct mr_client *client, struct mr_slice queue, const char *cursor,
                             struct mr_job_list **ret_list)
{
    struct mr_job_ask asked = {.kind = MR_JOB_LIST,
                               .queue = queue,
                               .states = 1u << MR_JOB_CREATED | 1u << MR_JOB_RUNNING,
                               .cursor = cursor_of(cursor),
                               .limit = MR_JOB_LIMIT};
    return get_jobs(client, &asked, ret_list, NULL);
}

enum mr_err mr_job_get(struct mr_client *client, struct mr_slice id, struct mr_job_list **ret_list)
{
    struct mr_job_ask asked = {.kind = MR_JOB_GET, .id = id};
    return get_jobs(client, &asked, ret_list, NULL);
}

enum mr_err mr_job_cancel(struct mr_client *client, struct mr_slice id,
                          struct mr_job_list **ret_list, struct mr_detail *detail)
{
    struct mr_job_ask asked = {.kind = MR_JOB_CANCEL, .id = id};
    return get_jobs(client, &asked, ret_list, detail);
}

enum mr_err mr_job_retry(struct mr_client *client, struct mr_slice id,
                         struct mr_job_list **ret_list, struct mr_detail *detail)
{
    struct mr_job_ask asked = {.kind = MR_JOB_RETRY, .id = id};
    return get_jobs(client, &asked, ret_list, detail);
}

enum mr_err mr_part_list_get(struct mr_client *client, const struct mr_part_list_options *options,
                             struct mr_part_list **ret_list)
{
    if (options->limit > MR_BATCH_MAX)
        return MR_INVALID;
    struct mr_part_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return MR_NOMEM;
    list->answer.ask = (struct mr_job_ask){.kind = MR_JOB_PARTS,
                                           .id = options->id,
                                           .states = options->states,
                                           .cursor = cursor_of(options->cursor),
                                           .limit = (uint32_t)options->limit};
    enum mr_err err = ask(client, &list->answer);
    if (err != MR_OK)
        mr_part_list_free(list);
    else
        *ret_list = list;
    return err;
}

/* ---- lists ------------------------------------------------------------------------------------ */

enum mr_err mr_job_list_read(struct mr_slice bytes, struct mr_job_list **ret_list)
{
    struct mr_slice copy;
    struct mr_job_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return MR_NOMEM;
    enum mr_err err = mr_arena_copy(&list->answer.arena, bytes, &copy);
    if (err == MR_OK)
        err = read_one(&list->answer, copy);
    if (err != MR_OK)
        mr_job_list_free(list);
    else
        *ret_list = list;
    return err == MR_INVALID ? MR_FAILED : err;
}

enum mr_err mr_job_list_of(const struct mr_job_info *info, struct mr_slice definition,
                           struct mr_job_list **ret_list)
{
    struct mr_buf bytes = {0};
    enum mr_err err = mr_job_info_encode(info, definition, &bytes);
    if (err == MR_OK)
        err = mr_job_list_read(mr_buf_slice(&bytes), ret_list);
    mr_buf_done(&bytes);
    return err;
}

size_t mr_job_list_count(const struct mr_job_list *list)
{
    return list->answer.jobs_n;
}

const struct mr_job_info *mr_job_list_at(const struct mr_job_list *list, size_t i)
{
    return i < list->answer.jobs_n ? &list->answer.jobs[i] : NULL;
}

const char *mr_job_list_next(const struct mr_job_list *list)
{
    return list->answer.next;
}

void mr_job_list_free(struct mr_job_list *list)
{
    if (list == NULL)
        return;
    answer_done(&list->answer);
    free(list);
}

size_t mr_part_list_count(const struct mr_part_list *list)
{
    return list->answer.parts_n;
}

const struct mr_part_info *mr_part_list_at(const struct mr_part_list *list, size_t i)
{
    return i < list->answer.parts_n ? &list->answer.parts[i] : NULL;
}

const char *mr_part_list_next(const struct mr_part_list *list)
{
    return list->answer.next;
}

void mr_part_list_free(struct mr_part_list *list)
{
    if (list == NULL)
        return;
    answer_done(&list->answer);
    free(list);
}
