/* SPDX-License-Identifier: Apache-2.0 */
/* Dates of the Gregorian calendar as days since the Unix epoch (day 0 is 1970-01-01, a Thursday). */
#ifndef MR_BASE_DATE_H
#define MR_BASE_DATE_H

#include <stdint.h>

struct mr_date {
    int year, month, day; /* month and day from 1 */
};

/* Any year >= 0. */
int64_t mr_date_to_days(int64_t year, int month, int day);
struct mr_date mr_date_from_days(int64_t days);
int mr_date_days_in_month(int64_t year, int month);
/* 0 is Sunday. */
int mr_date_weekday(int64_t days);

#endif
