/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over the limit on calls that go on without them, however the frames cut them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rpc/rpc.h"
#include "unit/rpc_raw.h"

enum { LIMIT = 50 };

/* What a call was given, as text: lengths of messages, those left out with a minus. */
struct taker {
    struct mr_rpc *rpc;
    struct mr_call *call;
    struct mr_timer timer;
    char log[256];
    bool holds; /* after each message, for a moment */
};

static void note(struct mr_call *call, const char *mark, size_t len)
{
    struct taker *taker = mr_call_data(call);
    size_t at = strlen(taker->log);
    snprintf(taker->log + at, sizeof taker->log - at, "%s%zu ", mark, len);
    if (!taker->holds)
        return;
    mr_call_hold(call, true);
    mr_rpc_timer_start(taker->rpc, &taker->timer, mr_mono_add_ms(mr_rpc_now(taker->rpc), 1));
}

static void go_on(struct mr_timer *timer, void *arg)
{
    (void)arg;
    mr_call_hold(mr_container(timer, struct taker, timer)->call, false);
}

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    note(call, "", bytes.len);
}

static void on_too_big(struct mr_call *call, size_t len)
{
    note(call, "-", len);
}

static void on_half_closed(struct mr_call *call)
{
    struct taker *taker = mr_call_data(call);
    mr_call_end(call, MR_RPC_OK, mr_slice_str(taker->log));
}

static void taker_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct taker *taker = mr_call_data(call);
    (void)status, (void)text;
    mr_rpc_timer_stop(taker->rpc, &taker->timer);
}

static void begin_call(struct mr_call *call, void *arg)
{
    static const struct mr_call_ops ops = {.message = on_message,
                                           .too_big = on_too_big,
                                           .half_closed = on_half_closed,
                                           .closed = taker_closed};
    struct taker *taker = arg;
    taker->call = call;
    taker->log[0] = '\0';
    mr_timer_init(&taker->timer, go_on);
    mr_call_set(call, &ops, taker);
}

/* ---- one call ------------------------------------------------------------------------------- */

static void add_message(struct mr_buf *body, size_t len)
{
    static const uint8_t zeroes[4 * LIMIT];
    uint8_t prefix[5] = {0, 0, 0, (uint8_t)(len >> 8), (uint8_t)len};
    assert_int_equal(mr_buf_append(body, prefix, sizeof prefix), MR_OK);
    assert_int_equal(mr_buf_append(body, zeroes, len), MR_OK);
}

/* Sends the body in frames of so many bytes, and reads the end. */
static void send_cut(struct raw *raw, int32_t stream, struct mr_slice body, size_t frame)
{
    const uint8_t *data = body.data;
    raw_request(raw, stream, "/t/Left", 0, NULL);
    for (size_t at = 0, n; at < body.len; at += n) {
        n = body.len - at < frame ? body.len - at : frame;
        raw_frame(raw, NGHTTP2_DATA, at + n == body.len ? NGHTTP2_FLAG_END_STREAM : 0, stream,
                  mr_slice_make(data + at, n));
        raw_flush(raw);
    }
    raw_until_end(raw, stream);
}

static void run(bool holds)
{
    struct taker taker = {.holds = holds};
    static const struct mr_rpc_method methods[] = {{"/t/Left", begin_call}};
    struct mr_rpc_limits limits = {.message_max = LIMIT};
    struct mr_rpc_service service = {
        .address = "127.0.0.1:0", .methods = methods, .methods_n = 1, .arg = &taker};
    static const size_t frames[] = {1, 2, 4, 5, 6, 7, 31, 55, 56, 60, 1000};
    struct mr_buf body = {0};
    struct raw raw;
    uint16_t port;
    int32_t stream = 1;
    assert_int_equal(mr_rpc_new("left-out", &limits, &taker.rpc), MR_OK);
    assert_int_equal(mr_rpc_listen(taker.rpc, &service, &port, NULL), MR_OK);
    raw_open(&raw, port);
    raw_preface(&raw);
    add_message(&body, 3);
    add_message(&body, LIMIT + 1);
    add_message(&body, 2 * LIMIT);
    add_message(&body, LIMIT);
    add_message(&body, 4 * LIMIT);
    add_message(&body, 0);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++, stream += 2) {
        send_cut(&raw, stream, mr_buf_slice(&body), frames[i]);
        assert_non_null(strstr(raw.headers, "grpc-status=0\n"));
        assert_non_null(strstr(raw.headers, "grpc-message=3 -51 -100 50 -200 0%20\n"));
    }
    mr_buf_clear(&body);
    add_message(&body, 2 * LIMIT);
    body.len--; /* it ends in the middle of what is left out */
    send_cut(&raw, stream, mr_buf_slice(&body), 30);
    assert_non_null(strstr(raw.headers, "grpc-status=13\n"));
    assert_non_null(strstr(raw.headers, "message cut short"));
    raw_close(&raw);
    mr_rpc_free(taker.rpc);
    mr_buf_done(&body);
}

static void a_call_goes_on_without_what_is_too_big(void **state)
{
    (void)state;
    run(false);
}

static void also_when_it_is_held_in_between(void **state)
{
    (void)state;
    run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_goes_on_without_what_is_too_big),
        cmocka_unit_test(also_when_it_is_held_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
