/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite on engines that talk to servers: each test has its own on free ports, with an embedded engine behind
 * each of them.
 */
#ifndef MR_TESTS_CONFORM_FAR_H
#define MR_TESTS_CONFORM_FAR_H

#include "conform/conform.h"

enum { FAR_SERVERS_MAX = 2 };

typedef enum mr_err far_connect(const char *const *addresses, size_t n,
                                struct mr_broker **ret_broker, struct mr_detail *detail);

/* Which servers have room for tasks. The others do everything else: nodes, takes, looking. */
enum far_room { FAR_ROOM_EVERYWHERE, FAR_ROOM_AT_FIRST };

struct far_options {
    const char *name;
    far_connect *connect;
    size_t servers; /* 0: one */
    enum far_room room;
    const struct conform_left_out *left_out; /* see struct conform_engine */
};

/* For main. */
int far_main(const struct far_options *options, int argc, char **argv);

#endif
