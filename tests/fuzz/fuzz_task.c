/* SPDX-License-Identifier: Apache-2.0 */
/* The task message: any bytes are judged without harm; what is encoded is decoded to the same. */
#include "wire/task.h"

#include "fuzz/fuzz.h"

static void check_decode(struct mr_slice bytes)
{
    struct mr_task_msg msg;
    enum mr_err err = mr_task_msg_decode(bytes, &msg);
    mr_assert(err == MR_OK || err == MR_DAMAGED || err == MR_VERSION);
    if (err != MR_OK)
        return;
    const struct mr_slice parts[] = {msg.queue,      msg.type,  msg.id,    msg.payload,
                                     msg.unique_key, msg.group, msg.topic, msg.headers};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        mr_assert(fuzz_within(parts[i], bytes));
    /* Whoever copies a name has room for MR_NAME_MAX. */
    mr_assert(msg.queue.len <= MR_NAME_MAX && msg.type.len <= MR_NAME_MAX);
    mr_assert(msg.unique_key.len <= MR_NAME_MAX && msg.group.len <= MR_NAME_MAX);
    mr_assert(msg.topic.len <= MR_NAME_MAX && msg.id.len <= MR_ID_MAX);
    mr_assert(msg.headers_n <= MR_HEADERS_MAX);
    struct mr_header headers[MR_HEADERS_MAX];
    mr_task_msg_headers(&msg, headers);
    for (size_t i = 0; i < msg.headers_n; i++)
        mr_assert(fuzz_within(headers[i].name, msg.headers) &&
                  fuzz_within(headers[i].value, msg.headers));
}

static struct mr_slice some_name(struct fuzz_in *in)
{
    return fuzz_bytes(in, fuzz_u8(in) % (MR_NAME_MAX + 1));
}

static struct mr_slice or_default(struct mr_slice name, const char *otherwise)
{
    return name.len > 0 ? name : mr_slice_str(otherwise);
}

static void compare(const struct mr_task_options *options, struct mr_slice id,
                    const struct mr_task_msg *msg)
{
    mr_assert(mr_slice_equal(msg->queue, or_default(options->queue, "default")));
    mr_assert(mr_slice_equal(msg->type, or_default(options->type, "task")));
    mr_assert(mr_slice_equal(msg->id, id) && mr_slice_equal(msg->payload, options->payload));
    mr_assert(mr_slice_equal(msg->unique_key, options->unique_key));
    mr_assert(mr_slice_equal(msg->group, options->group));
    mr_assert(mr_slice_equal(msg->topic, options->topic));
    mr_assert(msg->deadline_ms == options->deadline_ms);
    mr_assert(msg->retention_ms == options->retention_ms);
    mr_assert(msg->unique_ms == options->unique_ms);
    mr_assert(options->max_retry <= 0 || msg->max_retry == (uint32_t)options->max_retry);
    mr_assert(options->timeout_ms <= 0 || msg->timeout_ms == options->timeout_ms);
    double ms = options->priority_s * 1000;
    mr_assert((double)msg->priority_ms > ms - 1 && (double)msg->priority_ms < ms + 1);
    struct mr_header headers[MR_HEADERS_MAX];
    mr_assert(msg->headers_n == options->headers_n);
    mr_task_msg_headers(msg, headers);
    for (size_t i = 0; i < msg->headers_n; i++) {
        mr_assert(mr_slice_equal(headers[i].name, options->headers[i].name));
        mr_assert(mr_slice_equal(headers[i].value, options->headers[i].value));
    }
}

static void check_round_trip(struct fuzz_in *in)
{
    struct mr_header headers[MR_HEADERS_MAX];
    struct mr_slice id = some_name(in);
    struct mr_task_options options = {
        .queue = some_name(in),
        .type = some_name(in),
        .unique_key = some_name(in),
        .group = some_name(in),
        .topic = some_name(in),
        .max_retry = (int32_t)(fuzz_u64(in) % (MR_RETRY_MAX + 2)) - 1,
        .timeout_ms = (int64_t)(fuzz_u64(in) >> 1),
        .deadline_ms = (int64_t)(fuzz_u64(in) >> 1),
        .retention_ms = (int64_t)(fuzz_u64(in) >> 1),
        .unique_ms = (int64_t)(fuzz_u64(in) >> 1),
        .priority_s = (double)(int32_t)fuzz_u64(in) / 1024,
        .headers = headers,
        .headers_n = fuzz_u8(in) % (MR_HEADERS_MAX + 1),
    };
    for (size_t i = 0; i < options.headers_n; i++) {
        headers[i].name = some_name(in);
        headers[i].value = fuzz_bytes(in, fuzz_u8(in));
    }
    options.payload = fuzz_bytes(in, in->left);
    struct mr_buf buf = {0};
    mr_assert(mr_buf_append(&buf, "head", 4) == MR_OK);
    mr_assert(mr_task_msg_encode(&options, id, &buf) == MR_OK);
    mr_assert(buf.len - 4 <= mr_task_msg_bound(&options, id));
    struct mr_task_msg msg;
    mr_assert(mr_task_msg_decode(mr_slice_make(buf.data + 4, buf.len - 4), &msg) == MR_OK);
    compare(&options, id, &msg);
    mr_assert(mr_task_msg_decode(mr_slice_make(buf.data + 4, buf.len - 5), &msg) != MR_OK);
    mr_buf_done(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_decode(mr_slice_make(data, size));
    struct fuzz_in in = {data, size};
    check_round_trip(&in);
    return 0;
}
