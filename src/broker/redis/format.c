/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/redis/format.h"

#include "base/buf.h"
#include "base/chan.h"

enum { FORMAT = 1 };

struct question {
    struct mr_msg msg;
    struct mr_redis *redis;
    struct mr_slice key;
    struct mr_redis_call call;
    int64_t version;
    struct mr_event done;
};

/* Who may not ask, or gets no answer, learns of that elsewhere. */
static void said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct question *question = call->arg;
    question->version = err == MR_OK ? mr_reply_int(reply, FORMAT) : FORMAT;
    mr_event_set(&question->done);
}

/* The loop. */
static void ask(struct mr_msg *msg, void *receiver)
{
    struct question *question = mr_container(msg, struct question, msg);
    const struct mr_slice words[] = {MR_SLICE_LIT("GET"), question->key};
    (void)receiver;
    mr_redis_send(question->redis, &question->call, question->key, words, 2);
}

enum mr_err redis_format_check(struct mr_redis *redis, struct mr_slice head,
                               struct mr_detail *detail)
{
    struct mr_buf key = {0};
    enum mr_err err = mr_buf_printf(&key, "%.*smr:format", (int)head.len, (const char *)head.data);
    if (err != MR_OK) {
        mr_buf_done(&key);
        return err;
    }
    struct question question = {.msg.deliver = ask, .redis = redis, .key = mr_buf_slice(&key)};
    question.call = (struct mr_redis_call){
        .answered = said, .arg = &question, .repeatable = true, .urgent = true};
    mr_event_init(&question.done);
    mr_redis_post(redis, &question.msg);
    (void)mr_event_wait(&question.done, INT64_MAX); /* every call is answered */
    mr_buf_done(&key);
    if (question.version <= FORMAT)
        return MR_OK;
    mr_detail_set(
        detail,
        "what is kept on this Redis has format version %lld, this Millrace knows versions "
        "up to %d: use a newer one",
        (long long)question.version, FORMAT);
    return MR_VERSION;
}
