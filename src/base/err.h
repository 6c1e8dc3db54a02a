/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors inside the program: the public list of millrace.h, plus assertions, text for humans and
 * the translation of errno, which is done at the system call and nowhere else.
 */
#ifndef MR_BASE_ERR_H
#define MR_BASE_ERR_H

#include <millrace.h>

#define MR_TRY(expr)                                                                               \
    do {                                                                                           \
        enum mr_err mr_try_ = (expr);                                                              \
        if (mr_try_ != MR_OK)                                                                      \
            return mr_try_;                                                                        \
    } while (0)

/* Assertions are for our own mistakes only and stay on in release builds. No side effects inside.
 */
#define mr_assert(cond)                                                                            \
    (__builtin_expect(!!(cond), 1) ? (void)0 : mr_assert_fail(#cond, __FILE__, __LINE__, __func__))

_Noreturn void mr_assert_fail(const char *cond, const char *file, int line, const char *func);

/* The error that stands for an errno value of a file or memory call. */
enum mr_err mr_err_from_errno(int errnum);

/* Writes text for humans; detail may be NULL. */
void mr_detail_set(struct mr_detail *detail, const char *fmt, ...) MR_PRINTF(2, 3);

int mr_err_grpc_status(enum mr_err err);
int mr_err_http_status(enum mr_err err);

#endif
