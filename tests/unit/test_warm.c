/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/mem.h"
#include "base/warm.h"

enum { BYTES = 8 * MR_MEM_HUGE };

static bool all_resident(void *memory, size_t bytes)
{
    static unsigned char pages[BYTES / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(mincore(memory, bytes, pages), 0);
    for (size_t i = 0; i < bytes / page; i++)
        if (!(pages[i] & 1))
            return false;
    return true;
}

static void await_resident(void *memory, size_t bytes)
{
    enum { TRIES = 10000 };
    struct mr_event never;
    mr_event_init(&never);
    for (int i = 0; i < TRIES && !all_resident(memory, bytes); i++)
        mr_event_wait(&never, MR_NS_PER_MS);
    assert_true(all_resident(memory, bytes));
}

static void memory_asked_for_is_touched_and_keeps_what_it_holds(void **state)
{
    (void)state;
    struct mr_warm *warm = NULL;
    assert_int_equal(mr_warm_new(&warm), MR_OK);
    char *memory = mr_mem_map(BYTES);
    assert_non_null(memory);
    memory[BYTES - 1] = 'x';
    mr_warm_ask(warm, memory, BYTES);
    await_resident(memory, BYTES);
    assert_int_equal(memory[0], 0);
    assert_int_equal(memory[BYTES - 1], 'x');
    mr_warm_free(warm);
    mr_mem_unmap(memory, BYTES);
}

static void memory_that_is_gone_and_too_many_wishes_do_no_harm(void **state)
{
    (void)state;
    struct mr_warm *warm = NULL;
    assert_int_equal(mr_warm_new(&warm), MR_OK);
    for (int i = 0; i < 200; i++) {
        char *memory = mr_mem_map(MR_MEM_HUGE);
        assert_non_null(memory);
        mr_warm_ask(warm, memory, MR_MEM_HUGE);
        mr_mem_unmap(memory, MR_MEM_HUGE);
    }
    mr_warm_free(warm);
    mr_warm_ask(NULL, NULL, 1);
    mr_warm_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_asked_for_is_touched_and_keeps_what_it_holds),
        cmocka_unit_test(memory_that_is_gone_and_too_many_wishes_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
