/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the conformance suite on the engine of several servers. MR_SERVERS says which:
 *
 * one      one server: it must do all that the remote engine does.
 * beside   two, and the second has no room for tasks: so all promises hold, also those that a server makes only for what it has,
 *          while every node, take, look and change concerns both.
 * spread   two, with tasks at both. What is left out then has its reason in the table.
 *
 * What several do beyond the suite is in tests/unit/test_many*.c.
 */
#include "broker/many/many.h"
#include "conform/far.h"

static enum mr_err open_many(const char *const *addresses, size_t n, struct mr_broker **ret_broker,
                             struct mr_detail *detail)
{
    struct mr_many_options options = {.servers = addresses, .servers_n = n};
    MR_TRY(mr_many_open(&options, ret_broker, detail));
    return mr_many_await_up(*ret_broker, 0);
}

static const struct conform_left_out spread_out[] = {
    {NULL, NULL},
};

static const struct far_options modes[] = {
    {.name = "one", .connect = open_many, .servers = 1},
    {.name = "beside", .connect = open_many, .servers = 2, .room = FAR_ROOM_AT_FIRST},
    {.name = "spread", .connect = open_many, .servers = 2, .left_out = spread_out},
};

int main(int argc, char **argv)
{
    const char *mode = getenv("MR_SERVERS");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (mode == NULL || strcmp(mode, modes[i].name) == 0)
            return far_main(&modes[i], argc, argv);
    print_error("MR_SERVERS=%s: must be one, beside or spread\n", mode);
    return 2;
}
