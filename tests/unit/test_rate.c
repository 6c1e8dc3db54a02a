/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody may send in a time, and whose that is by HTTP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "api/http_rates.h"

static mr_mono ms(int64_t at)
{
    return (mr_mono){(1000 + at) * MR_NS_PER_MS};
}

static void as_much_as_in_a_second_goes_at_once_and_then_as_time_goes_by(void **state)
{
    (void)state;
    struct rate rate;
    struct mr_detail detail;
    rate_init(&rate, 10, ms(0));
    for (int i = 0; i < 10; i++)
        assert_int_equal(rate_pay(&rate, ms(0), 1, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(0), 1, &detail), MR_BUSY);
    assert_string_equal(detail.text, "over the rate of 10 a second: try again in 1 s");
    assert_int_equal(rate_pay(&rate, ms(99), 1, &detail), MR_BUSY);
    assert_int_equal(rate_pay(&rate, ms(101), 1, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(890), 8, &detail), MR_BUSY);
    assert_int_equal(rate_pay(&rate, ms(910), 8, &detail), MR_OK);
    /* What nobody sent is not saved for longer than a second. */
    assert_int_equal(rate_pay(&rate, ms(60000), 10, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(60000), 1, &detail), MR_BUSY);
}

static void what_is_more_than_ever_fits_goes_when_nothing_was_sent_and_is_owed(void **state)
{
    (void)state;
    struct rate rate;
    struct mr_detail detail;
    rate_init(&rate, 5, ms(0));
    assert_int_equal(rate_pay(&rate, ms(0), 1, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(0), 100, &detail), MR_BUSY);
    assert_int_equal(rate_wait_s(&rate, 100), 1);
    assert_int_equal(rate_pay(&rate, ms(1000), 100, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(1000), 1, &detail), MR_BUSY);
    assert_string_equal(detail.text, "over the rate of 5 a second: try again in 20 s");
    assert_int_equal(rate_wait_s(&rate, 1), 20); /* 95 are owed, and it is one */
    assert_false(rate_is_whole(&rate, ms(1000 + 19900)));
    assert_int_equal(rate_pay(&rate, ms(1000 + 19100), 1, &detail), MR_BUSY);
    assert_int_equal(rate_pay(&rate, ms(1000 + 19300), 1, &detail), MR_OK);
    assert_true(rate_is_whole(&rate, ms(1000 + 21000)));
}

static void a_call_and_what_it_brings_go_together_or_not_at_all(void **state)
{
    (void)state;
    struct rate rate;
    struct mr_detail detail;
    rate_init(&rate, 5, ms(0));
    assert_int_equal(rate_pay(&rate, ms(0), 1, &detail), MR_OK);
    assert_int_equal(rate_pay_more(&rate, ms(0), 2, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(0), 1, &detail), MR_OK);
    assert_int_equal(rate_pay_more(&rate, ms(0), 2, &detail), MR_BUSY);
    /* That call has cost nothing: two are left. */
    assert_int_equal(rate_pay(&rate, ms(0), 2, &detail), MR_OK);
    assert_int_equal(rate_pay(&rate, ms(0), 1, &detail), MR_BUSY);
    /* Nor does the call's own share keep a large one out. */
    assert_int_equal(rate_pay(&rate, ms(1000), 1, &detail), MR_OK);
    assert_int_equal(rate_pay_more(&rate, ms(1000), 999, &detail), MR_OK);
    assert_int_equal(rate_wait_s(&rate, 1), 200);
}

static void without_a_limit_all_goes(void **state)
{
    (void)state;
    struct rate rate;
    struct mr_detail detail;
    rate_init(&rate, 0, ms(0));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(rate_pay(&rate, ms(0), 1000000, &detail), MR_OK);
        assert_int_equal(rate_pay_more(&rate, ms(0), 1000000, &detail), MR_OK);
    }
}

static struct rate *of(struct http_rates *rates, const char *caller, mr_mono now)
{
    struct rate *rate;
    struct mr_detail detail;
    assert_int_equal(http_rates_of(rates, caller, now, &rate, &detail), MR_OK);
    return rate;
}

static void each_caller_has_his_own(void **state)
{
    (void)state;
    struct http_rates *rates;
    struct mr_detail detail;
    assert_int_equal(http_rates_new(3, &rates), MR_OK);
    assert_int_equal(rate_pay(of(rates, "10.0.0.1", ms(0)), ms(0), 3, &detail), MR_OK);
    assert_int_equal(rate_pay(of(rates, "10.0.0.1", ms(0)), ms(0), 1, &detail), MR_BUSY);
    assert_int_equal(rate_pay(of(rates, "0123456789ab", ms(0)), ms(0), 3, &detail), MR_OK);
    assert_int_equal(rate_pay(of(rates, "10.0.0.1", ms(400)), ms(400), 1, &detail), MR_OK);
    http_rates_free(rates);
}

/* Nobody fills the memory by coming from many addresses; those who owe something are not forgotten. */
static void so_many_callers_are_remembered_and_others_come_when_they_are_forgotten(void **state)
{
    (void)state;
    struct http_rates *rates;
    struct rate *rate;
    struct mr_detail detail;
    char name[32];
    assert_int_equal(http_rates_new(1, &rates), MR_OK);
    for (int i = 0; i < HTTP_RATES_MAX; i++) {
        (void)snprintf(name, sizeof name, "[2001:db8::%x]", i);
        assert_int_equal(rate_pay(of(rates, name, ms(0)), ms(0), i == 7 ? 9 : 1, &detail), MR_OK);
    }
    assert_int_equal(http_rates_of(rates, "new", ms(0), &rate, &detail), MR_BUSY);
    assert_string_equal(detail.text, "too many callers are held to their rate: try again");
    assert_int_equal(rate_pay(of(rates, "new", ms(2000)), ms(2000), 1, &detail), MR_OK);
    assert_int_equal(rate_pay(of(rates, "[2001:db8::7]", ms(2000)), ms(2000), 1, &detail), MR_BUSY);
    http_rates_free(rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_much_as_in_a_second_goes_at_once_and_then_as_time_goes_by),
        cmocka_unit_test(what_is_more_than_ever_fits_goes_when_nothing_was_sent_and_is_owed),
        cmocka_unit_test(a_call_and_what_it_brings_go_together_or_not_at_all),
        cmocka_unit_test(without_a_limit_all_goes),
        cmocka_unit_test(each_caller_has_his_own),
        cmocka_unit_test(so_many_callers_are_remembered_and_others_come_when_they_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
