/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the rows of MR_ERR_MAP as a table, the translation of errno, and the end on an assertion.
 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

struct err_row {
    const char *name;
    const char *text;
    bool retriable;
    int exit_code;
    int grpc_status;
    int http_status;
};

static const struct err_row err_rows[] = {
#define ERR_ROW(name, text, retriable, exit, grpc, http) {#name, text, retriable, exit, grpc, http},
    MR_ERR_MAP(ERR_ROW)
#undef ERR_ROW
};

_Static_assert(sizeof err_rows / sizeof err_rows[0] == MR_ERR_COUNT, "one row per error");

/* A value from a newer library or a peer may be outside the list; it reads as a plain failure. */
static const struct err_row unknown_row = {"UNKNOWN", "unknown error", false, 1, 2, 500};

static const struct err_row *row_of(enum mr_err err)
{
    return (unsigned)err < MR_ERR_COUNT ? &err_rows[err] : &unknown_row;
}

const char *mr_err_name(enum mr_err err)
{
    return row_of(err)->name;
}

const char *mr_err_text(enum mr_err err)
{
    return row_of(err)->text;
}

bool mr_err_retriable(enum mr_err err)
{
    return row_of(err)->retriable;
}

int mr_err_exit_code(enum mr_err err)
{
    return row_of(err)->exit_code;
}

_Noreturn void mr_assert_fail(const char *cond, const char *file, int line, const char *func)
{
    fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, func, cond);
    abort();
}

struct errno_row {
    int errnum;
    enum mr_err err;
};

static const struct errno_row errno_rows[] = {
    {ENOMEM, MR_NOMEM},
    {ENOENT, MR_NOT_FOUND},
    {EEXIST, MR_CONFLICT},
    {ENOTEMPTY, MR_CONFLICT},
    {EACCES, MR_DENIED},
    {EPERM, MR_DENIED},
    {EROFS, MR_DENIED},
    {ENOSPC, MR_DISK_FULL},
    {EDQUOT, MR_DISK_FULL},
    {EFBIG,
     MR_DISK_FULL}, /* of a file, not of what somebody gave us: RLIMIT_FSIZE is a quota, too */
    {EINVAL, MR_INVALID},
    {ENOTDIR, MR_INVALID},
    {EISDIR, MR_INVALID},
    {ELOOP, MR_INVALID},
    {ENAMETOOLONG, MR_TOO_BIG},
    {EAGAIN, MR_IN_USE},
    {EBUSY, MR_IN_USE},
    {ETXTBSY, MR_IN_USE},
    {EADDRINUSE, MR_IN_USE},
    {EMFILE, MR_BUSY},
    {ENFILE, MR_BUSY},
    {ETIMEDOUT, MR_TIMEOUT},
    {ECONNREFUSED, MR_UNAVAILABLE},
    {ECONNRESET, MR_UNAVAILABLE},
    {EPIPE, MR_UNAVAILABLE},
    {EHOSTUNREACH, MR_UNAVAILABLE},
    {ENETUNREACH, MR_UNAVAILABLE},
    {ENOSYS, MR_UNSUPPORTED},
    {EOPNOTSUPP, MR_UNSUPPORTED},
    {ECANCELED, MR_CANCELLED},
};

/* Never MR_OK, also for 0: whoever asks had a call that failed. */
enum mr_err mr_err_from_errno(int errnum)
{
    for (size_t i = 0; i < sizeof errno_rows / sizeof errno_rows[0]; i++) {
        if (errno_rows[i].errnum == errnum)
            return errno_rows[i].err;
    }
    return MR_IO;
}

void mr_detail_set(struct mr_detail *detail, const char *fmt, ...)
{
    if (detail == NULL)
        return;
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(detail->text, sizeof detail->text, fmt, args) < 0)
        detail->text[0] = '\0';
    va_end(args);
}

int mr_err_grpc_status(enum mr_err err)
{
    return row_of(err)->grpc_status;
}

int mr_err_http_status(enum mr_err err)
{
    return row_of(err)->http_status;
}
