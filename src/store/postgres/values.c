/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in the binary forms of PostgreSQL: numbers with their highest byte first, texts and bytes as
 * they are. An array is a head (dimensions, whether there are NULLs, the type, how many, from which
 * number on) and its elements, each with its length before it.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <limits.h>

#include "store/postgres/internal.h"

/* Numbers of types; they are fixed in PostgreSQL's catalog. */
static const struct {
    char letter;
    Oid one, many;
} types[] = {
    {'i', 20, 1016}, /* bigint */
    {'I', 20, 20},   /* one for all items */
    {'t', 25, 1009}, /* text */
    {'b', 17, 1001}, /* bytea */
};

static size_t type_of(char letter)
{
    size_t i = 0;
    while (types[i].letter != letter)
        i++;
    return i;
}

int pg_types(const struct statement *statement, Oid ret_types[DB_PARAMS_MAX])
{
    int n = 0;
    for (; statement->params[n]; n++) {
        size_t type = type_of(statement->params[n]);
        ret_types[n] = statement->many ? types[type].many : types[type].one;
    }
    return n;
}

void pg_params_done(struct pg_params *params)
{
    for (size_t i = 0; i < DB_PARAMS_MAX; i++)
        mr_buf_done(&params->bytes[i]);
}

static enum mr_err append32(struct mr_buf *buf, uint32_t number)
{
    number = htonl(number);
    return mr_buf_append(buf, &number, sizeof number);
}

static enum mr_err append_value(struct mr_buf *buf, char letter, const struct db_value *value)
{
    if (letter == 'i' || letter == 'I') {
        uint64_t number = htobe64((uint64_t)value->number);
        return mr_buf_append(buf, &number, sizeof number);
    }
    return mr_buf_append_slice(buf, value->bytes);
}

static enum mr_err append_element(struct mr_buf *buf, char letter, const struct db_value *value)
{
    size_t len = letter == 'i' ? sizeof(uint64_t) : value->bytes.len;
    MR_TRY(append32(buf, (uint32_t)len));
    return append_value(buf, letter, value);
}

static enum mr_err append_array(struct mr_buf *buf, char letter, const struct db_value *values,
                                size_t width, size_t n)
{
    uint32_t head[] = {1, 0, types[type_of(letter)].one, (uint32_t)n, 1};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        MR_TRY(append32(buf, head[i]));
    for (size_t i = 0; i < n; i++)
        MR_TRY(append_element(buf, letter, &values[i * width]));
    return MR_OK;
}

enum mr_err pg_params_set(struct pg_params *params, const struct statement *statement,
                          const struct db_value *values, size_t n)
{
    size_t width = strlen(statement->params);
    params->n = (int)width;
    for (size_t i = 0; i < width; i++) {
        struct mr_buf *buf = &params->bytes[i];
        char letter = statement->params[i];
        mr_buf_clear(buf);
        MR_TRY(statement->many && letter != 'I' ? append_array(buf, letter, values + i, width, n)
                                                : append_value(buf, letter, values + i));
        if (buf->len > INT_MAX)
            return MR_TOO_BIG;
        /* No address would be NULL. */
        params->values[i] = buf->len > 0 ? (const char *)buf->data : "";
        params->lengths[i] = (int)buf->len;
        params->formats[i] = 1;
    }
    return MR_OK;
}

int64_t pg_number(const PGresult *result, int row, int column)
{
    const char *bytes = PQgetvalue(result, row, column);
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (PQgetlength(result, row, column)) {
    case sizeof two:
        memcpy(&two, bytes, sizeof two);
        return (int16_t)be16toh(two);
    case sizeof four:
        memcpy(&four, bytes, sizeof four);
        return (int32_t)be32toh(four);
    case sizeof eight:
        memcpy(&eight, bytes, sizeof eight);
        return (int64_t)be64toh(eight);
    default:
        return 0;
    }
}

static void read_row(const PGresult *result, int row, int first, const char *columns,
                     struct db_value *values)
{
    for (int i = 0; columns[i]; i++) {
        int column = first + i;
        if (columns[i] == 'i')
            values[i] = db_number(pg_number(result, row, column));
        else
            values[i] = db_bytes(mr_slice_make(PQgetvalue(result, row, column),
                                               (size_t)PQgetlength(result, row, column)));
    }
}

enum mr_err pg_rows(const PGresult *result, const struct statement *statement, size_t n,
                    db_row *take, void *arg)
{
    int first = statement->many ? 1 : 0;
    if (!take)
        return MR_OK;
    if (PQntuples(result) > 0 && PQnfields(result) != first + (int)strlen(statement->columns))
        return MR_DAMAGED;
    for (int row = 0; row < PQntuples(result); row++) {
        int64_t item = first > 0 ? pg_number(result, row, 0) : 1;
        if (item < 1 || (uint64_t)item > n)
            return MR_DAMAGED;
        struct db_value values[DB_COLUMNS_MAX];
        read_row(result, row, first, statement->columns, values);
        MR_TRY(take((size_t)item - 1, values, arg));
    }
    return MR_OK;
}
