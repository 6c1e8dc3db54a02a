/* SPDX-License-Identifier: Apache-2.0 */
#include "api/rate.h"

void rate_init(struct rate *rate, uint32_t a_second, mr_mono now)
{
    *rate = (struct rate){.a_second = a_second, .room = a_second, .at = now};
}

static void refill(struct rate *rate, mr_mono now)
{
    double most = rate->a_second;
    rate->room += most * (double)(now.ns - rate->at.ns) / (double)MR_NS_PER_S;
    rate->room = rate->room < most ? rate->room : most;
    rate->at = now;
}

/* What must be there for n to go: never more than can be. */
static double needed(const struct rate *rate, size_t n)
{
    return n < rate->a_second ? (double)n : rate->a_second;
}

int64_t rate_wait_s(const struct rate *rate, size_t n)
{
    double s = (needed(rate, n) - rate->room) / rate->a_second;
    int64_t whole = s > 0 ? (int64_t)s : 0;
    return whole < 1 || (double)whole < s ? whole + 1 : whole;
}

enum mr_err rate_pay(struct rate *rate, mr_mono now, size_t n, struct mr_detail *detail)
{
    if (rate->a_second == 0)
        return MR_OK;
    refill(rate, now);
    if (rate->room < needed(rate, n)) {
        mr_detail_set(detail, "over the rate of %u a second: try again in %lld s", rate->a_second,
                      (long long)rate_wait_s(rate, n));
        return MR_BUSY;
    }
    rate->room -= (double)n;
    return MR_OK;
}

enum mr_err rate_pay_more(struct rate *rate, mr_mono now, size_t n, struct mr_detail *detail)
{
    rate->room += 1; /* they go together, or not at all: what is refused has cost nothing */
    return rate_pay(rate, now, n + 1, detail);
}

bool rate_is_whole(struct rate *rate, mr_mono now)
{
    refill(rate, now);
    return rate->room >= rate->a_second;
}
