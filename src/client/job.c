/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of this process, and giving one in: here, or through a server. Thread: any. */
#include "client/job.h"

#include <stdlib.h>

#include "broker/remote/stream.h"
#include "job/def.h"
#include "job/split.h"
#include "store/store.h"

enum {
    DEFINITION = 1, /* of JobSubmitRequest */
    PARTS = 2,
    BATCH_BYTES = 256 * 1024, /* parts of so many go on together, and at most MR_BATCH_MAX */
};

#define SUBMIT_PATH "/millrace.v1.Jobs/Submit"

/* ---- where jobs are --------------------------------------------------------------------------- */

/* With the lock. A folder is worked on by its owner alone, who may run what stands in it; a store that is shared has jobs of
 * others, whose commands are run where somebody has said so (serve --job-commands). */
static enum mr_err open_jobs(struct mr_client *client, struct mr_detail *detail)
{
    if (client->store == NULL)
        MR_TRY(mr_store_open_told(client->store_url, &client->store, detail));
    struct mr_job_service_options options = {.broker = client->broker,
                                             .store = client->store,
                                             .payload_max = client->payload_max,
                                             .node = "",
                                             .settings.commands = !client->is_redis,
                                             .looks = true};
    return mr_job_service_open(&options, &client->jobs, detail);
}

enum mr_err mr_client_jobs(struct mr_client *client, enum mr_jobs_for for_,
                           struct mr_job_service **ret_service, struct mr_detail *detail)
{
    enum mr_err err = MR_OK;
    if (client->is_redis && client->store_url == NULL) {
        mr_detail_set(detail,
                      "jobs on a Redis need a server (millrace://) or a store of their own");
        return MR_UNSUPPORTED;
    }
    mr_lock_enter(&client->timers_lock);
    if (client->jobs == NULL && client->store_url != NULL)
        err = open_jobs(client, detail);
    if (err == MR_OK && client->jobs != NULL && for_ == MR_JOBS_RUN)
        mr_job_service_run(client->jobs);
    if (err == MR_OK)
        *ret_service = client->jobs;
    mr_lock_leave(&client->timers_lock);
    return err;
}

/* ---- an input --------------------------------------------------------------------------------- */

/* How it comes: that is known with the first piece. */
enum coming { COMING_NOT, COMING_BYTES, COMING_PARTS };

struct mr_job_input {
    struct mr_client *client;
    struct mr_arena arena; /* the options */
    struct mr_job_options options;
    struct mr_job_service *service; /* NULL: a server has the jobs */
    enum coming coming;
    struct mr_split *split;
    struct mr_job_load *load;        /* here */
    struct mr_remote_stream *stream; /* or there */
    /* Parts that have not gone on, one behind the other in bytes. */
    struct mr_buf bytes;
    size_t ends[MR_BATCH_MAX];
    size_t n;
    uint64_t total;
    size_t part_max;
    enum mr_err err; /* it has failed */
    struct mr_detail detail;
};

static enum mr_err input_fail(struct mr_job_input *input, enum mr_err err, struct mr_detail *detail)
{
    if (input->err == MR_OK)
        input->err = err;
    if (detail != NULL)
        *detail = input->detail;
    return input->err;
}

static void input_free(struct mr_job_input *input)
{
    mr_split_free(input->split);
    mr_job_load_free(input->load);
    mr_remote_stream_free(input->stream);
    mr_buf_done(&input->bytes);
    mr_arena_done(&input->arena);
    free(input);
}

void mr_job_abandon(struct mr_job_input *input)
{
    if (input != NULL)
        input_free(input);
}

static enum mr_err copy_texts(struct mr_job_input *input, const struct mr_job_options *options)
{
    struct mr_job_options *job = &input->options;
    struct mr_slice *stages = mr_arena_calloc(&input->arena, options->stages_n + 1, sizeof *stages);
    *job = *options;
    if (stages == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < options->stages_n; i++)
        MR_TRY(mr_arena_copy(&input->arena, options->stages[i], &stages[i]));
    job->stages = stages;
    MR_TRY(mr_arena_copy(&input->arena, options->name, &job->name));
    MR_TRY(mr_arena_copy(&input->arena, options->queue, &job->queue));
    MR_TRY(mr_arena_copy(&input->arena, options->split, &job->split));
    return mr_arena_copy(&input->arena, options->reduce, &job->reduce);
}

enum mr_err mr_job_begin(struct mr_client *client, const struct mr_job_options *options,
                         struct mr_job_input **ret_input, struct mr_detail *detail)
{
    static const struct mr_job_options defaults;
    struct mr_job_options canonical;
    struct mr_job_service *service = NULL;
    options = options != NULL ? options : &defaults;
    MR_TRY(mr_client_jobs(client, MR_JOBS_RUN, &service, detail));
    struct mr_job_input *input = calloc(1, sizeof *input);
    if (input == NULL)
        return MR_NOMEM;
    input->client = client;
    input->service = service;
    input->part_max = client->payload_max > 0 ? client->payload_max : MR_PAYLOAD_MAX;
    enum mr_err err = mr_job_canonical(options, &input->arena, &canonical, detail);
    if (err == MR_OK)
        err = copy_texts(input, options);
    if (err != MR_OK) {
        input_free(input);
        return err;
    }
    *ret_input = input;
    return MR_OK;
}

/* ---- where it goes ---------------------------------------------------------------------------- */

/* What the server has said; it ended the stream. */
static enum mr_err server_said(struct mr_job_input *input)
{
    struct mr_slice bytes;
    enum mr_err err;
    do {
        err = mr_remote_stream_next(input->stream, INT64_MAX, &bytes, &input->detail);
    } while (err == MR_OK);
    return err == MR_EMPTY ? MR_FAILED : err;
}

static enum mr_err send_message(struct mr_job_input *input, struct mr_buf *message)
{
    enum mr_err err = mr_remote_stream_send(input->stream, mr_buf_slice(message));
    return err == MR_CLOSED ? server_said(input) : err;
}

static enum mr_err put_field(struct mr_buf *message, unsigned number, struct mr_slice bytes)
{
    uint8_t head[16];
    size_t len = (size_t)(mr_flat_put_head(head, number, bytes.len) - head);
    MR_TRY(mr_buf_append(message, head, len));
    return mr_buf_append_slice(message, bytes);
}

static enum mr_err begin_there(struct mr_job_input *input, struct mr_slice definition)
{
    struct mr_buf message = {0};
    struct mr_broker *server = mr_client_server(input->client);
    if (server == NULL)
        return MR_UNAVAILABLE;
    MR_TRY(mr_remote_stream_open(server, SUBMIT_PATH, &input->stream));
    enum mr_err err = put_field(&message, DEFINITION, definition);
    if (err == MR_OK)
        err = send_message(input, &message);
    mr_buf_done(&message);
    return err;
}

/* The load begins with the first piece, since only then it is known whether the job is split. */
static enum mr_err begin(struct mr_job_input *input, enum coming coming)
{
    struct mr_buf definition = {0};
    if (input->coming != COMING_NOT)
        return input->coming == coming ? MR_OK : MR_WRONG_STATE;
    struct mr_job_options job = input->options;
    if (coming == COMING_PARTS)
        job.split = (struct mr_slice){0};
    else if (job.split.len == 0)
        job.split = MR_SLICE_LIT("lines");
    MR_TRY(mr_job_encode(&job, &definition));
    struct mr_job_load_options options = {.definition = mr_buf_slice(&definition)};
    enum mr_err err = input->service != NULL
                          ? mr_job_load_new(input->service, &options, &input->load, &input->detail)
                          : begin_there(input, mr_buf_slice(&definition));
    mr_buf_done(&definition);
    if (err == MR_OK)
        input->coming = coming;
    return err;
}

static struct mr_slice part_at(const struct mr_job_input *input, size_t i)
{
    size_t start = i > 0 ? input->ends[i - 1] : 0;
    return mr_slice_make(input->bytes.data + start, input->ends[i] - start);
}

static enum mr_err flush_here(struct mr_job_input *input)
{
    struct mr_slice parts[MR_BATCH_MAX];
    for (size_t i = 0; i < input->n; i++)
        parts[i] = part_at(input, i);
    return mr_job_load_add_wait(input->load, parts, input->n, &input->detail);
}

static enum mr_err flush_there(struct mr_job_input *input)
{
    struct mr_buf message = {0};
    enum mr_err err = MR_OK;
    for (size_t i = 0; err == MR_OK && i < input->n; i++)
        err = put_field(&message, PARTS, part_at(input, i));
    if (err == MR_OK)
        err = send_message(input, &message);
    mr_buf_done(&message);
    return err;
}

static enum mr_err flush(struct mr_job_input *input)
{
    if (input->n == 0)
        return MR_OK;
    MR_TRY(input->service != NULL ? flush_here(input) : flush_there(input));
    mr_buf_clear(&input->bytes);
    input->n = 0;
    return MR_OK;
}

static enum mr_err add_part(struct mr_slice part, uint64_t index, void *arg)
{
    struct mr_job_input *input = arg;
    (void)index;
    if (input->n == MR_BATCH_MAX || (input->n > 0 && input->bytes.len + part.len > BATCH_BYTES))
        MR_TRY(flush(input));
    MR_TRY(mr_buf_append_slice(&input->bytes, part));
    input->ends[input->n++] = input->bytes.len;
    input->total++;
    return MR_OK;
}

/* ---- what comes in ---------------------------------------------------------------------------- */

static enum mr_err make_split(struct mr_job_input *input)
{
    struct mr_split_options options = {.part_max = input->part_max, .part = add_part, .arg = input};
    if (input->split != NULL)
        return MR_OK;
    MR_TRY(mr_split_parse(input->options.split, &options.spec, &input->detail));
    return mr_split_new(&options, &input->split);
}

/* A callback that failed has said why itself; else the splitter says it. */
static enum mr_err write_some(struct mr_job_input *input, struct mr_slice bytes)
{
    struct mr_detail detail = {.text = ""};
    MR_TRY(begin(input, COMING_BYTES));
    MR_TRY(make_split(input));
    enum mr_err err = mr_split_write(input->split, bytes, &detail);
    if (err != MR_OK && detail.text[0] != '\0')
        input->detail = detail;
    return err;
}

enum mr_err mr_job_write(struct mr_job_input *input, struct mr_slice bytes,
                         struct mr_detail *detail)
{
    enum mr_err err = input->err != MR_OK ? input->err : write_some(input, bytes);
    return err == MR_OK ? MR_OK : input_fail(input, err, detail);
}

enum mr_err mr_job_part(struct mr_job_input *input, struct mr_slice part, struct mr_detail *detail)
{
    enum mr_err err = input->err;
    if (err == MR_OK)
        err = begin(input, COMING_PARTS);
    if (err == MR_OK && part.len > input->part_max) {
        mr_detail_set(&input->detail, "part %llu: %zu bytes, the limit is %zu",
                      (unsigned long long)input->total, part.len, input->part_max);
        err = MR_TOO_BIG;
    }
    if (err == MR_OK)
        err = add_part(part, input->total, input);
    return err == MR_OK ? MR_OK : input_fail(input, err, detail);
}

/* ---- the end ---------------------------------------------------------------------------------- */

static enum mr_err commit_here(struct mr_job_input *input, struct mr_job_list **ret_list)
{
    const struct mr_job_shown *job = NULL;
    MR_TRY(mr_job_load_commit_wait(input->load, &job, &input->detail));
    return ret_list != NULL ? mr_job_list_of(&job->info, job->definition, ret_list) : MR_OK;
}

static enum mr_err commit_there(struct mr_job_input *input, struct mr_job_list **ret_list)
{
    struct mr_slice bytes;
    mr_remote_stream_half_close(input->stream);
    enum mr_err err = mr_remote_stream_next(input->stream, INT64_MAX, &bytes, &input->detail);
    if (err == MR_EMPTY)
        return MR_FAILED;
    if (err == MR_OK && ret_list != NULL)
        err = mr_job_list_read(bytes, ret_list);
    return err;
}

static enum mr_err finish(struct mr_job_input *input)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = input->err;
    if (err == MR_OK && input->coming == COMING_NOT) {
        mr_detail_set(&input->detail, "the input is empty: a job has one part at least");
        return MR_INVALID;
    }
    if (err == MR_OK && input->split != NULL)
        err = mr_split_end(input->split, &detail);
    if (err != MR_OK && detail.text[0] != '\0')
        input->detail = detail;
    return err == MR_OK ? flush(input) : err;
}

enum mr_err mr_job_submit(struct mr_job_input *input, struct mr_job_list **ret_list,
                          struct mr_detail *detail)
{
    enum mr_err err = finish(input);
    if (err == MR_OK)
        err = input->service != NULL ? commit_here(input, ret_list) : commit_there(input, ret_list);
    if (err != MR_OK && detail != NULL)
        *detail = input->detail;
    input_free(input);
    return err;
}
