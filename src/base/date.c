/* SPDX-License-Identifier: Apache-2.0 */
/* Dates. Years are counted from March, so that the leap day is the last one; 400 years have 146097
 * days. */
#include "base/date.h"

#include <stdbool.h>

enum {
    DAYS_PER_ERA = 146097, /* 400 years */
    EPOCH_DAYS = 719468,   /* 1970-01-01, from 1 March of the year 0 */
};

int64_t mr_date_to_days(int64_t year, int month, int day)
{
    int64_t y = year - (month <= 2) + 400; /* never negative below */
    int64_t from_march = (month + 9) % 12;
    int64_t day_of_year = (153 * from_march + 2) / 5 + day - 1;
    return y * 365 + y / 4 - y / 100 + y / 400 + day_of_year - EPOCH_DAYS - DAYS_PER_ERA;
}

struct mr_date mr_date_from_days(int64_t days)
{
    int64_t n = days + EPOCH_DAYS + DAYS_PER_ERA; /* since 1 March of the year -400 */
    int64_t era = n / DAYS_PER_ERA;
    int64_t of_era = n % DAYS_PER_ERA;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t from_march = (5 * of_year + 2) / 153;
    struct mr_date date;
    date.day = (int)(of_year - (153 * from_march + 2) / 5 + 1);
    date.month = (int)(from_march < 10 ? from_march + 3 : from_march - 9);
    date.year = (int)(year_of_era + era * 400 - 400 + (date.month <= 2));
    return date;
}

int mr_date_days_in_month(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

int mr_date_weekday(int64_t days)
{
    int64_t of_week = (days + 4) % 7;
    return (int)(of_week < 0 ? of_week + 7 : of_week);
}
