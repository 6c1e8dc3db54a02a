/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the conformance suite on the engine of several servers. MR_SERVERS says which:
 *
 * one      one server: it must do all that the remote engine does.
 * beside   two, and the second has no room for tasks: so what a server promises for what it has is promised, while every
 *          node, take, look and change concerns both. What is left out has its reason below.
 *
 * With tasks at both, each server has its own order, limits, unique keys and results, and a take that waits may get a task from each
 * for a moment: the suite is about one of them. What is promised then is in tests/unit/test_many*.c.
 */
#include "broker/many/many.h"
#include "conform/far.h"

static enum mr_err open_many(const char *const *addresses, size_t n, struct mr_broker **ret_broker,
                             struct mr_detail *detail)
{
    /* No server of a test hangs, but the machine may be busy: none is passed over. */
    struct mr_many_options options = {
        .servers = addresses, .servers_n = n, .ask_ms = CONFORM_WAIT_MS / 2};
    MR_TRY(mr_many_open(&options, ret_broker, detail));
    return mr_many_await_up(*ret_broker, 0);
}

#define WAITERS "each server has a line of takes that wait, and they come there in different orders"
#define LATER                                                                                      \
    "what one server has no room for comes to the next one behind what was sent there first"
#define LEADERS "each server has its own leader; a node is a candidate at one of its servers"

static const struct conform_left_out beside_out[] = {
    {"waiters_are_served_in_the_order_they_came", WAITERS},
    {"requests_of_one_thread_are_carried_out_in_order", LATER},
    {"a_look_behind_an_enqueue_finds_the_task", LATER},
    {"a_batch_answers_per_item", LATER}, /* which of two with one unique key is first */
    {"more_seconds_ahead_go_first", LATER},
    {"thousands_that_are_passed_over_keep_their_order", LATER},
    {"a_dead_node_is_told_and_can_change_nothing",
     "each server finds out by itself that a node is dead, and it is opened there again"},
    {"leader", LEADERS},
    {"backup", "a copy is of one server"},
    {NULL, NULL},
};

static const struct far_options modes[] = {
    {.name = "one", .connect = open_many},
    {.name = "beside",
     .connect = open_many,
     .servers = 2,
     .room = FAR_ROOM_AT_FIRST,
     .left_out = beside_out},
};

int main(int argc, char **argv)
{
    const char *mode = getenv("MR_SERVERS");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (mode == NULL || strcmp(mode, modes[i].name) == 0)
            return far_main(&modes[i], argc, argv);
    print_error("MR_SERVERS=%s: must be one or beside\n", mode);
    return 2;
}
