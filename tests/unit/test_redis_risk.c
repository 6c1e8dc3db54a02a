/* SPDX-License-Identifier: Apache-2.0 */
/* What a Redis is said to lose, by what it says of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/redis/risk.h"
#include "support/redis_rig.h"

#define NO_REPLICA "connected_slaves:0\r\n"
#define TWO_REPLICAS                                                                               \
    "connected_slaves:2\r\nslave0:ip=a,port=1,state=online,offset=1,lag=0\r\n"                     \
    "slave1:ip=b,port=1,state=online,offset=1,lag=0\r\n"
#define NO_LIMIT "maxmemory:0\r\nmaxmemory_human:0B\r\nmaxmemory_policy:allkeys-lru\r\n"
#define SAFE     "maxmemory:1000\r\nmaxmemory_policy:noeviction\r\n"
#define APPEND   "# Persistence\r\nloading:0\r\naof_enabled:1\r\n"
#define NO_FILE  "aof_enabled:0\r\n"

static struct mr_slice text(const char *chars)
{
    return mr_slice_make(chars, strlen(chars));
}

/* save NULL: it does not tell. */
static void add(struct redis_facts *facts, const char *info, const char *fsync, const char *save)
{
    redis_facts_add(facts, &(struct redis_says){.info = text(info),
                                                .appendfsync = text(fsync),
                                                .truncated = text("no"),
                                                .save = text(save ? save : ""),
                                                .save_known = save != NULL});
}

static void says(const char *info, const char *fsync, const char *save, uint32_t wait,
                 const char *line)
{
    struct redis_facts facts = {.replicas = INT32_MAX, .wait_replicas = wait};
    struct mr_detail got;
    add(&facts, info, fsync, save);
    redis_facts_line(&facts, &got);
    assert_string_equal(got.text, line);
}

static void a_redis_that_syncs_every_write_loses_nothing(void **state)
{
    (void)state;
    says(APPEND SAFE NO_REPLICA, "always", "", 0,
         "this Redis (appendonly yes, appendfsync always, maxmemory-policy noeviction, replicas 0, "
         "wait-replicas 0) loses nothing that it has acknowledged");
    says(APPEND NO_LIMIT NO_REPLICA, "always", "", 0, /* no limit: nothing is evicted */
         "this Redis (appendonly yes, appendfsync always, maxmemory-policy allkeys-lru, replicas "
         "0, wait-replicas 0) loses nothing that it has acknowledged");
}

static void a_torn_write_and_a_second_crash_are_a_risk(void **state)
{
    struct redis_facts facts = {.replicas = INT32_MAX};
    struct redis_says says = {.info = text(APPEND SAFE NO_REPLICA),
                              .appendfsync = text("always"),
                              .truncated = text("yes")};
    struct mr_detail got;
    (void)state;
    redis_facts_add(&facts, &says);
    redis_facts_line(&facts, &got);
    assert_string_equal(got.text,
                        "this Redis (appendonly yes, appendfsync always, aof-load-truncated yes, "
                        "maxmemory-policy noeviction, replicas 0, wait-replicas 0) can lose the "
                        "places of tasks in a second crash, until fsck --repair");
    add(&facts, APPEND SAFE NO_REPLICA, "always", ""); /* another that refuses torn files */
    assert_int_equal(facts.files, REDIS_FILES_HALVES);
}

static void each_way_to_keep_files_has_its_loss(void **state)
{
    (void)state;
    says(APPEND SAFE NO_REPLICA, "everysec", "", 0,
         "this Redis (appendonly yes, appendfsync everysec, maxmemory-policy noeviction, replicas "
         "0, wait-replicas 0) can lose the last second of acknowledged work in a crash");
    says(APPEND SAFE NO_REPLICA, "no", "", 0,
         "this Redis (appendonly yes, appendfsync no, maxmemory-policy noeviction, replicas 0, "
         "wait-replicas 0) can lose half a minute of acknowledged work in a crash of its machine");
    says(NO_FILE SAFE NO_REPLICA, "everysec", "3600 1", 0,
         "this Redis (appendonly no, maxmemory-policy noeviction, replicas 0, wait-replicas 0) can "
         "lose everything since its last snapshot when it ends or crashes");
    says(NO_FILE SAFE NO_REPLICA, "everysec", "", 0,
         "this Redis (appendonly no, save \"\", maxmemory-policy noeviction, replicas 0, "
         "wait-replicas 0) can lose everything when it ends or crashes");
}

static void a_failover_loses_what_was_not_waited_for(void **state)
{
    (void)state;
    says(APPEND SAFE TWO_REPLICAS, "always", "", 1,
         "this Redis (appendonly yes, appendfsync always, maxmemory-policy noeviction, replicas 2, "
         "wait-replicas 1) can lose in a failover what the new primary had not got yet");
    says(APPEND SAFE TWO_REPLICAS, "always", "", 2,
         "this Redis (appendonly yes, appendfsync always, maxmemory-policy noeviction, replicas 2, "
         "wait-replicas 2) loses nothing that it has acknowledged");
    says(APPEND SAFE "connected_slaves:1\nslave0:ip=a,state=wait_bgsave\n", "always", "", 1,
         "this Redis (appendonly yes, appendfsync always, maxmemory-policy noeviction, replicas 0, "
         "wait-replicas 1) acknowledges nothing: it has fewer replicas than are waited for");
}

static void eviction_is_named(void **state)
{
    (void)state;
    says(APPEND "maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n" NO_REPLICA, "always", "", 0,
         "this Redis (appendonly yes, appendfsync always, maxmemory-policy allkeys-lru, replicas "
         "0, wait-replicas 0) can lose any task when its memory is full");
    says(APPEND "maxmemory:9\r\nmaxmemory_policy:volatile-ttl\r\n" NO_REPLICA, "everysec", "", 0,
         "this Redis (appendonly yes, appendfsync everysec, maxmemory-policy volatile-ttl, "
         "replicas 0, wait-replicas 0) can lose the last second of acknowledged work in a crash; "
         "unique locks and the figures of a day when its memory is full");
}

static void what_it_may_not_say_is_unknown(void **state)
{
    (void)state;
    says("", "", NULL, 0,
         "this Redis (appendonly unknown, maxmemory-policy unknown, replicas unknown, "
         "wait-replicas 0) can lose an unknown part of acknowledged work in a crash; in a failover "
         "what its replicas have not got yet, if it has any");
    says(APPEND SAFE NO_REPLICA, "", NULL, 0,
         "this Redis (appendonly yes, appendfsync unknown, maxmemory-policy noeviction, replicas "
         "0, wait-replicas 0) can lose an unknown part of acknowledged work in a crash");
    says(NO_FILE SAFE NO_REPLICA, "", NULL, 0,
         "this Redis (appendonly no, maxmemory-policy noeviction, replicas 0, wait-replicas 0) can "
         "lose everything since its last snapshot when it ends or crashes");
}

static void of_several_primaries_the_worst_counts(void **state)
{
    struct redis_facts facts = {.replicas = INT32_MAX};
    struct mr_detail line;
    (void)state;
    add(&facts, APPEND SAFE TWO_REPLICAS, "always", "");
    add(&facts, APPEND "maxmemory:9\r\nmaxmemory_policy:allkeys-lfu\r\n" NO_REPLICA, "everysec",
        "");
    add(&facts, APPEND SAFE TWO_REPLICAS, "always", "");
    redis_facts_line(&facts, &line);
    assert_string_equal(line.text,
                        "this Redis (appendonly yes, appendfsync everysec, maxmemory-policy "
                        "allkeys-lfu, replicas 0, wait-replicas 0) can lose the last second of "
                        "acknowledged work in a crash; any task when its memory is full");
}

/* ---- asked of a real one -------------------------------------------------------------------- */

static void ask(const char *url, struct mr_detail *ret_line)
{
    struct mr_redis_options options = {.url = url};
    struct mr_redis *redis;
    struct mr_detail detail;
    assert_int_equal(mr_redis_new("risk", &options, &redis, &detail), MR_OK);
    enum mr_err err = MR_UNAVAILABLE;
    for (int i = 0; err == MR_UNAVAILABLE && i < 10000; i++) { /* until it is connected */
        err = redis_risk(redis, 0, ret_line);
        (void)usleep(1000);
    }
    assert_int_equal(err, MR_OK);
    mr_redis_free(redis);
}

static void a_real_one_tells_its_settings(void **state)
{
    struct redis_rig_options options = {
        .config = "appendonly yes\nappendfsync everysec\nmaxmemory 100mb\n"
                  "maxmemory-policy allkeys-lru\n"};
    struct redis_rig *rig = redis_rig_standalone(&options);
    struct mr_detail line;
    (void)state;
    ask(redis_rig_url(rig), &line);
    assert_string_equal(line.text,
                        "this Redis (appendonly yes, appendfsync everysec, maxmemory-policy "
                        "allkeys-lru, replicas 0, wait-replicas 0) can lose the last second of "
                        "acknowledged work in a crash; any task when its memory is full");
    redis_rig_stop(rig);
}

static void a_user_who_may_not_ask_is_told_that_it_is_unknown(void **state)
{
    struct redis_rig_options options = {.config =
                                            "user default on nopass ~* &* +@all -config -info\n"};
    struct redis_rig *rig = redis_rig_standalone(&options);
    struct mr_detail line;
    (void)state;
    ask(redis_rig_url(rig), &line);
    assert_non_null(strstr(line.text, "appendonly unknown"));
    redis_rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_redis_that_syncs_every_write_loses_nothing),
        cmocka_unit_test(a_torn_write_and_a_second_crash_are_a_risk),
        cmocka_unit_test(each_way_to_keep_files_has_its_loss),
        cmocka_unit_test(a_failover_loses_what_was_not_waited_for),
        cmocka_unit_test(eviction_is_named),
        cmocka_unit_test(what_it_may_not_say_is_unknown),
        cmocka_unit_test(of_several_primaries_the_worst_counts),
        cmocka_unit_test(a_real_one_tells_its_settings),
        cmocka_unit_test(a_user_who_may_not_ask_is_told_that_it_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
