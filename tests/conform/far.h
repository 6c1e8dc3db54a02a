/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite on engines that talk to a server: each test has one of its own on a free port, with the
 * embedded engine behind it.
 */
#ifndef MR_TESTS_CONFORM_FAR_H
#define MR_TESTS_CONFORM_FAR_H

#include "conform/conform.h"

typedef enum mr_err far_connect(const char *address, struct mr_broker **ret_broker,
                                struct mr_detail *detail);

/* For main. */
int far_main(const char *name, far_connect *connect, int argc, char **argv);

#endif
