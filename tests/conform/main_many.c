/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the conformance suite on the engine of several servers, which has one here: it must do all that the remote engine
 * does. What several do is in tests/unit/test_many*.c.
 */
#include "broker/many/many.h"
#include "conform/far.h"

static enum mr_err open_many(const char *address, struct mr_broker **ret_broker,
                             struct mr_detail *detail)
{
    struct mr_many_options options = {.servers = &address, .servers_n = 1};
    MR_TRY(mr_many_open(&options, ret_broker, detail));
    return mr_many_await_up(*ret_broker, 0);
}

int main(int argc, char **argv)
{
    return far_main("many", open_many, argc, argv);
}
