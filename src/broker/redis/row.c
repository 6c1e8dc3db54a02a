/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/redis/row.h"

#include <stdio.h>
#include <string.h>

bool parts_row_read(struct mr_slice text, struct parts_row *ret_row, struct mr_slice *ret_rest)
{
    unsigned n, widest, assign;
    int used = 0;
    char row[PARTS_ROW_MAX];
    size_t len = text.len < sizeof row ? text.len : sizeof row - 1;
    if (len == 0)
        return false;
    memcpy(row, text.data, len);
    row[len] = '\0';
    bool fine = sscanf(row, "%2u %2u %1u%n", &n, &widest, &assign, &used) == 3 && n >= 1 &&
                widest >= n && widest <= MR_PARTITIONS_MAX && assign < MR_ASSIGN_COUNT &&
                (ret_rest != NULL || (size_t)used == text.len);
    if (!fine)
        return false;
    *ret_row = (struct parts_row){n, widest, (enum mr_assign)assign};
    if (ret_rest != NULL)
        *ret_rest = mr_slice_make((const char *)text.data + used, text.len - (size_t)used);
    return true;
}

/* Whether it is the queue itself, its first partition, or one of the others by its name. */
static bool is_part(struct mr_slice partition, struct mr_slice queue, uint32_t widest)
{
    unsigned number;
    int used = 0;
    char tail[sizeof "~64"];
    if (mr_slice_equal(partition, queue))
        return true;
    if (!mr_slice_starts_with(partition, queue) || partition.len - queue.len >= sizeof tail)
        return false;
    size_t len = partition.len - queue.len;
    memcpy(tail, (const char *)partition.data + queue.len, len);
    tail[len] = '\0';
    return sscanf(tail, "~%2u%n", &number, &used) == 1 && (size_t)used == len && number >= 2 &&
           number <= widest;
}

bool parts_mark_read(struct mr_slice text, struct mr_slice partition, struct parts_row *ret_row,
                     struct mr_slice *ret_queue)
{
    struct mr_slice rest;
    if (!parts_row_read(text, ret_row, &rest) || rest.len < 2 || *(const char *)rest.data != ' ')
        return false;
    *ret_queue = mr_slice_make((const char *)rest.data + 1, rest.len - 1);
    return mr_name_check(*ret_queue) == MR_OK && is_part(partition, *ret_queue, ret_row->widest);
}
