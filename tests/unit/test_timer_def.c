/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of timers and their encodings: against protobuf-c, and into their one form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "millrace/v1/timer.pb-c.h"
#include "timer/def.h"
#include "wire/timer.h"

static struct mr_zones *zones;
static struct mr_arena arena;

static int begin(void **state)
{
    (void)state;
    return mr_zones_new(mr_fs_system(), NULL, &zones) != MR_OK;
}

static int end(void **state)
{
    (void)state;
    mr_zones_free(zones);
    mr_arena_done(&arena);
    return 0;
}

static void assert_text(struct mr_slice slice, const char *text)
{
    assert_int_equal(slice.len, strlen(text));
    assert_memory_equal(slice.data, text, slice.len);
}

static const struct mr_header headers[] = {{{"trace", 5}, {"a\0b", 3}}, {{"x", 1}, {"y", 1}}};

static struct mr_timer_options full(void)
{
    return (struct mr_timer_options){
        .app = MR_SLICE_LIT("shop"),
        .name = MR_SLICE_LIT("nightly"),
        .kind = MR_TIMER_DAILY,
        .expression = MR_SLICE_LIT("09:00-18:00/10m@mon-fri"),
        .tz = MR_SLICE_LIT("Europe/Berlin"),
        .exclude = MR_SLICE_LIT("12-25"),
        .start_ms = 1,
        .end_ms = INT64_MAX,
        .jitter_ms = 300,
        .times = UINT64_MAX,
        .paused = true,
        .misfire = MR_MISFIRE_ALL,
        .overlap = MR_OVERLAP_CANCEL,
        .max_running = 7,
        .strategy = MR_STRATEGY_TAG,
        .target = MR_SLICE_LIT("gpu"),
        .expire_ms = 128,
        .queue = MR_SLICE_LIT("q"),
        .type = MR_SLICE_LIT("report"),
        .payload = MR_SLICE_LIT("pay\0load"),
        .max_retry = -1,
        .timeout_ms = -1,
        .priority_s = -2.5,
        .headers = headers,
        .headers_n = 2,
    };
}

static void definitions_are_read_by_others_as_they_were_written(void **state)
{
    struct mr_timer_options options = full(), again;
    struct mr_buf buf = {0};
    (void)state;
    assert_int_equal(mr_timer_encode(&options, &buf), MR_OK);
    Millrace__V1__TimerDefinition *pb =
        millrace__v1__timer_definition__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_string_equal(pb->app, "shop");
    assert_string_equal(pb->name, "nightly");
    assert_int_equal(pb->kind, MILLRACE__V1__TIMER_KIND__TIMER_DAILY);
    assert_string_equal(pb->expression, "09:00-18:00/10m@mon-fri");
    assert_string_equal(pb->tz, "Europe/Berlin");
    assert_string_equal(pb->exclude, "12-25");
    assert_int_equal(pb->start_ms, 1);
    assert_true(pb->end_ms == INT64_MAX && pb->times == UINT64_MAX);
    assert_int_equal(pb->jitter_ms, 300);
    assert_true(pb->paused);
    assert_int_equal(pb->misfire, MILLRACE__V1__MISFIRE__MISFIRE_ALL);
    assert_int_equal(pb->overlap, MILLRACE__V1__OVERLAP__OVERLAP_CANCEL);
    assert_int_equal(pb->max_running, 7);
    assert_int_equal(pb->strategy, MILLRACE__V1__STRATEGY__STRATEGY_TAG);
    assert_string_equal(pb->target, "gpu");
    assert_int_equal(pb->expire_ms, 128);
    assert_string_equal(pb->queue, "q");
    assert_string_equal(pb->type, "report");
    assert_int_equal(pb->payload.len, 8);
    assert_true(pb->max_retry == -1 && pb->timeout_ms == -1 && pb->priority == -2.5);
    assert_int_equal(pb->n_headers, 2);
    /* And the other way. */
    struct mr_buf packed = {0};
    assert_int_equal(mr_buf_reserve(&packed, buf.len), MR_OK);
    packed.len = millrace__v1__timer_definition__pack(pb, packed.data);
    assert_int_equal(mr_timer_decode(mr_buf_slice(&packed), &arena, &again), MR_OK);
    assert_text(again.expression, "09:00-18:00/10m@mon-fri");
    assert_int_equal(again.headers_n, 2);
    assert_true(mr_timer_same_rule(&options, &again));
    millrace__v1__timer_definition__free_unpacked(pb, NULL);
    mr_buf_done(&packed);
    mr_buf_done(&buf);
}

static void operations_are_read_by_others_as_they_were_written(void **state)
{
    struct mr_timer_operation op = {.operation = MR_SLICE_LIT("o"),
                                    .verb = MR_TIMER_RERUN,
                                    .app = MR_SLICE_LIT("a"),
                                    .name = MR_SLICE_LIT("n"),
                                    .id = MR_SLICE_LIT("i"),
                                    .version = 5,
                                    .if_version = MR_TIMER_NEW,
                                    .created_ms = 6,
                                    .planned_ms = 7};
    struct mr_timer_result result = {
        .err = MR_STALE, .operation = "o", .id = "i", .version = 9, .why = "so", .unknown = true};
    struct mr_buf buf = {0};
    (void)state;
    assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op, &buf), MR_OK);
    Millrace__V1__TimerOperation *pb =
        millrace__v1__timer_operation__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_int_equal(pb->verb, MILLRACE__V1__TIMER_VERB__TIMER_RERUN);
    assert_true(pb->if_version == UINT64_MAX && pb->version == 5);
    assert_true(pb->created_ms == 6 && pb->planned_ms == 7);
    assert_string_equal(pb->operation, "o");
    millrace__v1__timer_operation__free_unpacked(pb, NULL);
    mr_buf_clear(&buf);
    assert_int_equal(mr_flat_append(&mr_flat_timer_result, &result, &buf), MR_OK);
    Millrace__V1__TimerResult *told = millrace__v1__timer_result__unpack(NULL, buf.len, buf.data);
    assert_non_null(told);
    assert_int_equal(told->code, MILLRACE__V1__CODE__STALE);
    assert_true(told->version == 9 && told->unknown);
    assert_string_equal(told->why, "so");
    millrace__v1__timer_result__free_unpacked(told, NULL);
    mr_buf_done(&buf);
}

static void what_is_left_out_is_filled_in_and_the_rule_gets_its_own_text(void **state)
{
    struct mr_timer_options options = {.name = MR_SLICE_LIT("n"),
                                       .kind = MR_TIMER_CRON,
                                       .expression = MR_SLICE_LIT("0/15 0-23 * JAN-DEC ?")};
    struct mr_detail detail;
    (void)state;
    assert_int_equal(
        mr_timer_canonical(zones, &options, 1000, MR_PAYLOAD_MAX, &arena, &options, &detail),
        MR_OK);
    assert_text(options.app, "default");
    assert_text(options.queue, "default");
    assert_text(options.type, "task");
    assert_text(options.tz, "UTC");
    assert_text(options.expression, "*/15 * * * *");
    options.expression = MR_SLICE_LIT("@every 10m");
    options.app = options.queue = MR_SLICE_LIT("shop");
    assert_int_equal(
        mr_timer_canonical(zones, &options, 1000, MR_PAYLOAD_MAX, &arena, &options, &detail),
        MR_OK);
    assert_int_equal(options.kind, MR_TIMER_EVERY);
    assert_text(options.expression, "10m");
    assert_text(options.queue, "shop");
}

static void versions_rise_also_when_the_clock_does_not(void **state)
{
    _Atomic uint64_t last = 0;
    (void)state;
    uint64_t a = mr_timer_version(&last, (mr_wall){1000}, 0);
    uint64_t b = mr_timer_version(&last, (mr_wall){1000}, 0);
    uint64_t c = mr_timer_version(&last, (mr_wall){1}, 0);
    uint64_t d = mr_timer_version(&last, (mr_wall){5000}, 0);
    assert_true(a == 1000 && b == 1001 && c == 1002 && d == 5000);
    /* Above what was seen of a timer; others go by the clock. */
    assert_true(mr_timer_version(&last, (mr_wall){5100}, 7000) == 7001);
    assert_true(mr_timer_version(&last, (mr_wall){5200}, 0) == 5200);
    assert_true(mr_timer_version(&last, (mr_wall){5300}, MR_TIMER_NEW) == 5300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(definitions_are_read_by_others_as_they_were_written),
        cmocka_unit_test(operations_are_read_by_others_as_they_were_written),
        cmocka_unit_test(what_is_left_out_is_filled_in_and_the_rule_gets_its_own_text),
        cmocka_unit_test(versions_rise_also_when_the_clock_does_not),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
