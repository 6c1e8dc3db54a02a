/* SPDX-License-Identifier: Apache-2.0 */
#include "api/http_rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/net.h"
#include "base/slice.h"

enum { BUCKETS = 1024, SWEEP_MS = 1000 };

struct caller {
    struct mr_link link; /* in its bucket */
    struct rate rate;
    char name[MR_ADDR_TEXT_MAX]; /* a token's id is shorter */
};

struct http_rates {
    uint32_t a_second;
    size_t n;
    mr_mono swept;
    struct mr_link buckets[BUCKETS];
};

enum mr_err http_rates_new(uint32_t a_second, struct http_rates **ret_rates)
{
    struct http_rates *rates = calloc(1, sizeof *rates);
    if (rates == NULL)
        return MR_NOMEM;
    rates->a_second = a_second;
    for (size_t i = 0; i < BUCKETS; i++)
        mr_list_init(&rates->buckets[i]);
    *ret_rates = rates;
    return MR_OK;
}

static void forget(struct http_rates *rates, struct caller *caller)
{
    mr_list_remove(&caller->link);
    rates->n--;
    free(caller);
}

void http_rates_free(struct http_rates *rates)
{
    if (rates == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (!mr_list_empty(&rates->buckets[i]))
            forget(rates, mr_container(rates->buckets[i].next, struct caller, link));
    free(rates);
}

/* One that may send as much as a new one is the same as none. */
static void sweep(struct http_rates *rates, mr_mono now)
{
    rates->swept = now;
    for (size_t i = 0; i < BUCKETS; i++) {
        struct mr_link *bucket = &rates->buckets[i];
        for (struct mr_link *link = bucket->next, *next; link != bucket; link = next) {
            struct caller *caller = mr_container(link, struct caller, link);
            next = link->next;
            if (rate_is_whole(&caller->rate, now))
                forget(rates, caller);
        }
    }
}

static enum mr_err caller_new(struct http_rates *rates, const char *name, struct mr_link *bucket,
                              mr_mono now, struct rate **ret_rate, struct mr_detail *detail)
{
    struct caller *caller;
    if (now.ns >= mr_mono_add_ms(rates->swept, SWEEP_MS).ns)
        sweep(rates, now);
    if (rates->n >= HTTP_RATES_MAX) {
        mr_detail_set(detail, "too many callers are held to their rate: try again");
        return MR_BUSY;
    }
    caller = calloc(1, sizeof *caller);
    if (caller == NULL) {
        mr_detail_set(detail, "%s", mr_err_text(MR_NOMEM));
        return MR_NOMEM;
    }
    rate_init(&caller->rate, rates->a_second, now);
    (void)snprintf(caller->name, sizeof caller->name, "%s", name);
    mr_list_push_front(bucket, &caller->link);
    rates->n++;
    *ret_rate = &caller->rate;
    return MR_OK;
}

enum mr_err http_rates_of(struct http_rates *rates, const char *caller, mr_mono now,
                          struct rate **ret_rate, struct mr_detail *detail)
{
    struct mr_link *bucket =
        &rates->buckets[mr_fnv64(MR_FNV64_SEED, mr_slice_str(caller)) % BUCKETS];
    for (struct mr_link *link = bucket->next; link != bucket; link = link->next) {
        struct caller *known = mr_container(link, struct caller, link);
        if (strcmp(known->name, caller) == 0) {
            *ret_rate = &known->rate;
            return MR_OK;
        }
    }
    return caller_new(rates, caller, bucket, now, ret_rate, detail);
}
