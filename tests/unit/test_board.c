/* SPDX-License-Identifier: Apache-2.0 */
/* The board of begun runs of an engine that talks to a server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "broker/board.h"

static int setup(void **state)
{
    struct mr_board *board = calloc(1, sizeof *board);
    assert_non_null(board);
    assert_int_equal(mr_board_init(board), MR_OK);
    *state = board;
    return 0;
}

static int teardown(void **state)
{
    mr_board_done(*state);
    free(*state);
    return 0;
}

/* As the loop does it when what it said has left. */
static void say(struct mr_board *board)
{
    struct mr_msg *left = mr_board_said(board);
    if (left != NULL)
        left->deliver(left, NULL);
}

/* Begins a run; whoever has to wait is told at once. Answers whether it had to. */
static bool begin(struct mr_board *board, uint32_t slot, uint64_t epoch)
{
    uint32_t said;
    bool waits = mr_board_write(board, slot, epoch, &said);
    say(board);
    if (waits)
        mr_board_await(board, said);
    return waits;
}

static void a_node_has_words_of_its_own(void **state)
{
    struct mr_board *board = *state;
    uint32_t one, two, three;
    assert_int_equal(mr_board_take(board, 1, &one), MR_OK);
    assert_int_equal(mr_board_take(board, MR_BOARD_WORD + 1, &two), MR_OK);
    assert_int_equal(mr_board_take(board, 1, &three), MR_OK);
    assert_int_equal(two, one + MR_BOARD_WORD);
    assert_int_equal(three, two + 2 * MR_BOARD_WORD);
    begin(board, two + MR_BOARD_WORD, 7);
    assert_true(mr_board_has(board, two, MR_BOARD_WORD + 1, 7));
    assert_false(mr_board_has(board, two, MR_BOARD_WORD, 7));
    mr_board_give(board, two, MR_BOARD_WORD + 1);
    assert_int_equal(mr_board_epoch(board, two + MR_BOARD_WORD), 0);
    assert_int_equal(mr_board_changes(board, two + MR_BOARD_WORD), 0);
    assert_int_equal(mr_board_take(board, 1, &three), MR_OK);
    assert_int_equal(three, two); /* there is room again */
}

static void there_are_only_so_many_slots(void **state)
{
    struct mr_board *board = *state;
    uint32_t first, more;
    assert_int_equal(mr_board_take(board, MR_BOARD_SLOTS - MR_BOARD_WORD, &first), MR_OK);
    assert_int_equal(mr_board_take(board, MR_BOARD_WORD + 1, &more), MR_BUSY);
    assert_int_equal(mr_board_take(board, MR_BOARD_WORD, &more), MR_OK);
    assert_int_equal(mr_board_take(board, 1, &more), MR_BUSY);
}

static void a_change_is_told_once(void **state)
{
    struct mr_board *board = *state;
    begin(board, 3, 10);
    begin(board, MR_BOARD_WORD - 1, 11);
    begin(board, MR_BOARD_WORD, 12);
    assert_true(mr_board_changes(board, 0) == (1ULL << 3 | 1ULL << (MR_BOARD_WORD - 1)));
    assert_true(mr_board_changes(board, 0) == 0);
    assert_true(mr_board_changes(board, MR_BOARD_WORD) == 1);
    mr_board_unsay(board, 3); /* that was lost on its way */
    assert_true(mr_board_changes(board, 0) == 1ULL << 3);
    begin(board, 3, 0);
    assert_true(mr_board_changes(board, 0) == 1ULL << 3);
    assert_int_equal(mr_board_epoch(board, 3), 0);
}

static void a_run_after_a_pause_waits_until_it_is_said(void **state)
{
    struct mr_board *board = *state;
    uint32_t said;
    assert_null(mr_board_said(board)); /* nobody waits */
    assert_true(mr_board_write(board, 0, 1, &said));
    struct mr_msg *left = mr_board_said(board);
    assert_non_null(left);
    assert_null(mr_board_said(board)); /* it is under way */
    left->deliver(left, NULL);
    mr_board_await(board, said);
    assert_null(mr_board_said(board));
}

static void nobody_waits_for_a_slot_that_is_free(void **state)
{
    assert_false(begin(*state, 0, 0));
}

static void a_wait_ends_by_itself_when_nothing_can_be_said(void **state)
{
    struct mr_board *board = *state;
    uint32_t said;
    assert_true(mr_board_write(board, 0, 1, &said));
    mr_board_await(board, said);
    assert_null(mr_board_said(board));
}

static void runs_that_come_close_behind_each_other_do_not_wait(void **state)
{
    enum { RUNS = 10000 };
    unsigned waited = 0;
    for (uint64_t epoch = 1; epoch <= RUNS; epoch++)
        waited += begin(*state, 0, epoch);
    assert_true(waited < RUNS / 2); /* the machine may have been busy in between */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_has_words_of_its_own),
        TEST(there_are_only_so_many_slots),
        TEST(a_change_is_told_once),
        TEST(a_run_after_a_pause_waits_until_it_is_said),
        TEST(nobody_waits_for_a_slot_that_is_free),
        TEST(a_wait_ends_by_itself_when_nothing_can_be_said),
        TEST(runs_that_come_close_behind_each_other_do_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
