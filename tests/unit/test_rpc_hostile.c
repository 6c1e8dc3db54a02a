/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that speak badly. Each is dropped or refused, and while that goes on a good client of the same
 * server is served.
 */
#include <zlib.h>

#include "base/rand.h"
#include "rpc/rpc.h"
#include "unit/rpc_raw.h"
#include "unit/rpc_rig.h"

/* ---- bytes that are no HTTP/2 --------------------------------------------------------------- */

static void garbage_is_dropped(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "hello, is anybody there? I would like to talk about tasks.",
    };
    struct rig *rig = rig_start(NULL, NULL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct raw raw;
        raw_open(&raw, rig->port);
        raw_bytes(&raw, texts[i], strlen(texts[i]));
        shutdown(raw.fd, SHUT_WR);
        (void)raw_until_closed(&raw);
        raw_close(&raw);
    }
    assert_served(rig);
    rig_stop(rig);
}

static void random_frames_are_dropped(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct mr_rand rand;
    mr_rand_seed(&rand, 7);
    for (int i = 0; i < 300; i++) {
        struct raw raw;
        raw_open(&raw, rig->port);
        raw_preface(&raw);
        for (int j = 0; j < 20; j++) {
            uint8_t payload[64];
            size_t len = mr_rand_below(&rand, sizeof payload);
            mr_rand_bytes(&rand, payload, len);
            raw_frame(&raw, (uint8_t)mr_rand_below(&rand, 12), (uint8_t)mr_rand_next(&rand),
                      (int32_t)mr_rand_below(&rand, 9), mr_slice_make(payload, len));
        }
        raw_flush(&raw);
        shutdown(raw.fd, SHUT_WR);
        char byte;
        while (recv(raw.fd, &byte, 1, 0) > 0)
            continue;
        raw_close(&raw);
    }
    assert_served(rig);
    rig_stop(rig);
}

static void connections_cut_at_every_byte_leave_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct raw whole = {0};
    raw_preface(&whole);
    raw_request(&whole, 1, "/t/Echo", 0, NULL);
    raw_message(&whole, 1, 0, MR_SLICE_LIT("cut me"), NGHTTP2_FLAG_END_STREAM);
    for (size_t len = 0; len < whole.out.len; len++) {
        struct raw raw;
        raw_open(&raw, rig->port);
        raw_bytes(&raw, whole.out.data, len);
        raw_close(&raw);
    }
    mr_buf_done(&whole.out);
    assert_served(rig);
    rig_stop(rig);
}

/* ---- calls that are not good gRPC ----------------------------------------------------------- */

static void heads_of_calls_are_judged(void **state)
{
    (void)state;
    static const struct {
        const char *header, *value, *answer; /* of the answer */
    } rows[] = {
        {":method", "GET", ":status=405\n"},
        {"content-type", "text/plain", ":status=415\n"},
        {"content-type", "application/grpc-web", ":status=415\n"},
        {"content-type", "application/grpc+proto", "grpc-status=0\n"},
        {"content-type", "application/grpc;x=y", "grpc-status=0\n"},
        {":path", "/t/Nothing", "grpc-status=12\n"},
        {":path", "/t/", "grpc-status=12\n"},
        {"grpc-encoding", "identity", "grpc-status=0\n"},
        {"grpc-encoding", "snappy", "grpc-status=12\n"},
        {"grpc-encoding", "snappy", "grpc-accept-encoding=identity,gzip\n"},
        {"grpc-timeout", "10S", "grpc-status=0\n"},
        {"grpc-timeout", "99999999H", "grpc-status=0\n"},
        {"grpc-timeout", "S", "grpc-status=3\n"},
        {"grpc-timeout", "999999999S", "grpc-status=3\n"},
        {"grpc-timeout", "1x", "grpc-status=3\n"},
        {"grpc-timeout", "-1S", "grpc-status=3\n"},
        {"grpc-status", "7", "grpc-status=0\n"},
        {"x-data-bin", "AAECAw==", "grpc-status=0\n"},
    };
    struct rig *rig = rig_start(NULL, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *more[] = {rows[i].header, rows[i].value, NULL};
        int32_t stream = (int32_t)(2 * i + 1);
        raw_request(&raw, stream, "/t/Echo", NGHTTP2_FLAG_END_STREAM, more);
        raw_flush(&raw);
        raw_until_end(&raw, stream);
        if (strstr(raw.headers, rows[i].answer) == NULL)
            fail_msg("%s: %s answers\n%s", rows[i].header, rows[i].value, raw.headers);
    }
    raw_close(&raw);
    rig_stop(rig);
}

static void the_server_itself_ends_a_call_at_its_deadline(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    const char *more[] = {"grpc-timeout", "20m", NULL};
    raw_request(&raw, 1, "/t/Hang", 0, more);
    const char *now[] = {"grpc-timeout", "0n", NULL};
    raw_request(&raw, 3, "/t/Hang", 0, now);
    raw_flush(&raw);
    raw_until_end(&raw, 3);
    assert_non_null(strstr(raw.headers, "grpc-status=4\n"));
    raw_until_end(&raw, 1);
    assert_non_null(strstr(raw.headers, "grpc-status=4\n"));
    /* And says that the rest of the request is not wanted. */
    raw_until(&raw, NGHTTP2_RST_STREAM);
    assert_int_equal(raw.payload[3], NGHTTP2_NO_ERROR);
    wait_count(&rig->closed, 2);
    assert_int_equal(atomic_load(&rig->last_status), MR_RPC_DEADLINE);
    raw_close(&raw);
    rig_stop(rig);
}

/* What a client gets whose body is these bytes. */
static void assert_body(struct rig *rig, struct mr_slice body, const char *encoding,
                        const char *answer)
{
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    const char *more[] = {"grpc-encoding", encoding, NULL};
    raw_request(&raw, 1, "/t/Sum", 0, more);
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, body);
    raw_flush(&raw);
    raw_until_end(&raw, 1);
    if (strstr(raw.headers, answer) == NULL)
        fail_msg("expected %s, got\n%s", answer, raw.headers);
    raw_close(&raw);
}

static void bodies_that_are_no_messages_are_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    assert_body(rig, mr_slice_make("\0\0\0\0\2ab", 7), "identity", "grpc-status=0\n");
    assert_body(rig, mr_slice_make("\0\0\0\0\3ab", 7), "identity", "grpc-status=13\n");
    assert_body(rig, mr_slice_make("\0\0\0", 3), "identity", "grpc-status=13\n");
    assert_body(rig, mr_slice_make("\2\0\0\0\2ab", 7), "identity", "grpc-status=13\n");
    assert_body(rig, mr_slice_make("\0\xff\xff\xff\xff", 5), "identity", "grpc-status=8\n");
    assert_body(rig, mr_slice_make("\1\0\0\0\2ab", 7), "identity", "grpc-status=13\n");
    assert_body(rig, mr_slice_make("\1\0\0\0\2ab", 7), "gzip", "grpc-status=13\n");
    assert_served(rig);
    rig_stop(rig);
}

/* ---- packed messages ------------------------------------------------------------------------ */

static struct mr_buf pack(size_t len)
{
    struct mr_buf packed = {0};
    uint8_t *plain = calloc(1, len + 1);
    assert_non_null(plain);
    assert_int_equal(mr_buf_reserve(&packed, compressBound(len) + 64), MR_OK);
    z_stream z = {.next_in = plain, .avail_in = (uInt)len};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = packed.data;
    z.avail_out = (uInt)packed.cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    packed.len = z.total_out;
    deflateEnd(&z);
    free(plain);
    return packed;
}

/* One packed message of len zeros. */
static struct mr_buf packed_body(size_t len)
{
    struct mr_buf packed = pack(len), body = {0};
    uint8_t prefix[5] = {1, 0, 0, (uint8_t)(packed.len >> 8), (uint8_t)packed.len};
    assert_true(packed.len < 16000);
    assert_int_equal(mr_buf_append(&body, prefix, sizeof prefix), MR_OK);
    assert_int_equal(mr_buf_append_slice(&body, mr_buf_slice(&packed)), MR_OK);
    mr_buf_done(&packed);
    return body;
}

static void packed_messages_are_unpacked_up_to_the_limit(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.message_max = 1000000};
    struct rig *rig = rig_start(&limits, NULL);
    static const struct {
        size_t len;
        const char *answer;
    } rows[] = {
        {0, "grpc-status=0\n"},       {100, "grpc-status=0\n"},      {1000000, "grpc-status=0\n"},
        {1000001, "grpc-status=8\n"}, {10000000, "grpc-status=8\n"},
    };
    size_t good = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_buf body = packed_body(rows[i].len);
        assert_body(rig, mr_buf_slice(&body), "gzip", rows[i].answer);
        good += rows[i].len <= 1000000 ? rows[i].len : 0;
        mr_buf_done(&body);
    }
    assert_int_equal(atomic_load(&rig->received_bytes), good);
    /* Cut short, and with something behind it. */
    struct mr_buf body = packed_body(100);
    body.data[4]--;
    assert_body(rig, mr_slice_make(body.data, body.len - 1), "gzip", "grpc-status=13\n");
    body.data[4] += 2;
    assert_int_equal(mr_buf_append(&body, "x", 1), MR_OK);
    assert_body(rig, mr_buf_slice(&body), "gzip", "grpc-status=13\n");
    mr_buf_done(&body);
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_dropped),
        cmocka_unit_test(random_frames_are_dropped),
        cmocka_unit_test(connections_cut_at_every_byte_leave_nothing),
        cmocka_unit_test(heads_of_calls_are_judged),
        cmocka_unit_test(the_server_itself_ends_a_call_at_its_deadline),
        cmocka_unit_test(bodies_that_are_no_messages_are_refused),
        cmocka_unit_test(packed_messages_are_unpacked_up_to_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
