/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "redis/slot.h"
#include "support/redis_rig.h"

static uint16_t slot(const char *key)
{
    return redis_slot(mr_slice_str(key));
}

static void known_keys_have_their_known_slots(void **state)
{
    (void)state;
    assert_int_equal(slot("123456789"), 0x31c3); /* the check value of the CRC */
    assert_int_equal(slot("foo"), 12182);
    assert_int_equal(slot(""), 0);
    assert_int_equal(slot("asynq:{default}:pending"), slot("default"));
}

static void only_a_whole_and_filled_tag_counts(void **state)
{
    (void)state;
    assert_int_equal(slot("{user1000}.following"), slot("user1000"));
    assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
    assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
    assert_int_not_equal(slot("foo{}{bar}"), slot("bar"));
    assert_int_not_equal(slot("foo{bar"), slot("bar"));
    assert_int_equal(slot("{"), redis_slot((struct mr_slice){"{", 1}));
    assert_int_equal(redis_slot((struct mr_slice){NULL, 0}), 0);
}

static void a_redis_server_agrees_about_any_key(void **state)
{
    (void)state;
    struct redis_rig *rig =
        redis_rig_standalone(&(struct redis_rig_options){.config = "cluster-enabled yes"});
    struct mr_rand rand;
    mr_rand_seed(&rand, 4);
    for (int i = 0; i < 1000; i++) {
        char key[20];
        size_t len = mr_rand_below(&rand, sizeof key);
        for (size_t j = 0; j < len; j++)
            key[j] = mr_rand_one_in(&rand, 4) ? "{}"[mr_rand_below(&rand, 2)]
                                              : (char)(1 + mr_rand_below(&rand, 255));
        key[len] = '\0';
        assert_int_equal(RIG_INT(redis_rig_server(rig, 0), "CLUSTER", "KEYSLOT", key), slot(key));
    }
    redis_rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_keys_have_their_known_slots),
        cmocka_unit_test(only_a_whole_and_filled_tag_counts),
        cmocka_unit_test(a_redis_server_agrees_about_any_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
