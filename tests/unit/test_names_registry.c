/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of a nameserver: which copy of an entry counts, how long it does, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "names/registry.h"
#include "unit/failing_alloc.h"

enum { TTL_MS = 60 * 1000, TTL_SERVER_MS = 30 * 1000, GRAVE_MS = 600 * 1000, HOLD_MS = 20 * 1000 };

/* A registry and its clock, which begins when it is complete. */
struct rig {
    struct mr_registry *r;
    mr_mono now;
};

static struct rig rig_make(const struct mr_registry_options *options)
{
    struct rig rig = {.now = {MR_NS_PER_S}};
    assert_int_equal(mr_registry_new(options, rig.now, &rig.r), MR_OK);
    return rig;
}

/* Time passes as in a nameserver: with a tick every second. */
static void pass(struct rig *rig, int64_t ms)
{
    for (; ms > 0; ms -= 1000) {
        rig->now = mr_mono_add_ms(rig->now, ms < 1000 ? ms : 1000);
        mr_registry_tick(rig->r, rig->now);
    }
    mr_registry_validate(rig->r);
}

static struct rig rig_complete(void)
{
    struct rig rig = rig_make(NULL);
    pass(&rig, HOLD_MS);
    return rig;
}

static void rig_done(struct rig *rig)
{
    mr_registry_validate(rig->r);
    mr_registry_free(rig->r);
}

static struct mr_names_entry worker(const char *name, uint64_t incarnation, uint64_t version)
{
    return (struct mr_names_entry){.kind = MR_NAMES_WORKER,
                                   .name = mr_slice_str(name),
                                   .app = mr_slice_str("mail"),
                                   .address = mr_slice_str("10.0.0.1:4711"),
                                   .server = mr_slice_str("srv-1"),
                                   .body = mr_slice_str("busy=1"),
                                   .incarnation = incarnation,
                                   .version = version};
}

static struct mr_names_entry server(const char *name, uint64_t incarnation, uint64_t version)
{
    return (struct mr_names_entry){.kind = MR_NAMES_SERVER,
                                   .name = mr_slice_str(name),
                                   .address = mr_slice_str("10.0.0.1:7401"),
                                   .incarnation = incarnation,
                                   .version = version};
}

static struct mr_names_entry gone(struct mr_names_entry entry, enum mr_names_fate fate)
{
    entry.fate = fate;
    return entry;
}

static enum mr_names_put registers(struct rig *rig, struct mr_names_entry entry)
{
    enum mr_names_put put = MR_PUT_OLD;
    assert_int_equal(mr_registry_register(rig->r, rig->now, &entry, &put), MR_OK);
    return put;
}

static enum mr_names_put merges(struct rig *rig, struct mr_names_entry entry, int64_t age_ms)
{
    enum mr_names_put put = MR_PUT_OLD;
    entry.age_ms = age_ms;
    assert_int_equal(mr_registry_merge(rig->r, rig->now, &entry, &put), MR_OK);
    return put;
}

static size_t count(struct rig *rig, enum mr_names_kind kind, const char *app)
{
    struct mr_arena arena = {0};
    struct mr_names_entry *entries;
    size_t n;
    assert_int_equal(
        mr_registry_list(rig->r, rig->now, kind, mr_slice_str(app), &arena, &entries, &n), MR_OK);
    mr_arena_done(&arena);
    return n;
}

static struct mr_registry_figures figures(const struct rig *rig)
{
    struct mr_registry_figures f;
    mr_registry_figures(rig->r, &f);
    return f;
}

/* ---- lists ------------------------------------------------------------------------------------ */

static void test_who_registers_is_listed_by_name(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    struct mr_arena arena = {0};
    struct mr_names_entry *entries;
    size_t n;
    assert_int_equal(registers(&rig, worker("b", 2, 1)), MR_PUT_NEW);
    assert_int_equal(registers(&rig, worker("a", 7, 1)), MR_PUT_NEW);
    assert_int_equal(registers(&rig, server("s", 9, 1)), MR_PUT_NEW);
    pass(&rig, 1500);
    assert_int_equal(mr_registry_list(rig.r, rig.now, MR_NAMES_WORKER, mr_slice_str("mail"), &arena,
                                      &entries, &n),
                     MR_OK);
    assert_int_equal(n, 2);
    assert_true(mr_slice_equal(entries[0].name, mr_slice_str("a")));
    assert_true(mr_slice_equal(entries[1].name, mr_slice_str("b")));
    assert_true(mr_slice_equal(entries[1].app, mr_slice_str("mail")));
    assert_true(mr_slice_equal(entries[1].address, mr_slice_str("10.0.0.1:4711")));
    assert_true(mr_slice_equal(entries[1].server, mr_slice_str("srv-1")));
    assert_true(mr_slice_equal(entries[1].body, mr_slice_str("busy=1")));
    assert_int_equal(entries[1].incarnation, 2);
    assert_int_equal(entries[1].age_ms, 1500);
    mr_arena_done(&arena);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, ""), 2);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "other"), 0);
    assert_int_equal(count(&rig, MR_NAMES_SERVER, ""), 1);
    rig_done(&rig);
}

static void test_apps_are_those_that_have_workers(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    struct mr_arena arena = {0};
    struct mr_names_app *apps;
    struct mr_names_entry other = worker("c", 3, 1);
    size_t n;
    other.app = mr_slice_str("backup");
    registers(&rig, worker("a", 1, 1));
    registers(&rig, worker("b", 2, 1));
    registers(&rig, other);
    registers(&rig, server("s", 4, 1));
    assert_int_equal(mr_registry_apps(rig.r, &arena, &apps, &n), MR_OK);
    assert_int_equal(n, 2);
    assert_true(mr_slice_equal(apps[0].name, mr_slice_str("backup")));
    assert_int_equal(apps[0].workers, 1);
    assert_int_equal(apps[1].workers, 2);
    other.version = 2; /* goes over to the other app */
    other.app = mr_slice_str("mail");
    assert_int_equal(registers(&rig, other), MR_PUT_NEWER);
    assert_int_equal(mr_registry_apps(rig.r, &arena, &apps, &n), MR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(apps[0].workers, 3);
    mr_arena_done(&arena);
    rig_done(&rig);
}

static void test_two_processes_of_one_name_are_two(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    registers(&rig, worker("a", 1, 1));
    registers(&rig, worker("a", 2, 1));
    registers(&rig, server("a", 1, 1));
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 2);
    assert_int_equal(count(&rig, MR_NAMES_SERVER, ""), 1);
    rig_done(&rig);
}

static void test_the_number_of_a_list_changes_with_who_is_in_it_only(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    struct mr_slice mail = mr_slice_str("mail");
    struct mr_names_entry a = worker("a", 1, 1), other = worker("o", 9, 1);
    assert_int_equal(mr_registry_changed(rig.r, MR_NAMES_WORKER, mail), 0);
    registers(&rig, a);
    uint64_t first = mr_registry_changed(rig.r, MR_NAMES_WORKER, mail);
    assert_int_not_equal(first, 0);
    a.version = 2;
    registers(&rig, a); /* a sign of life */
    a.version = 3;
    a.body = mr_slice_str("busy=2");
    registers(&rig, a);
    other.app = mr_slice_str("other");
    registers(&rig, other);
    assert_int_equal(mr_registry_changed(rig.r, MR_NAMES_WORKER, mail), first);
    a.version = 4;
    a.address = mr_slice_str("10.0.0.2:4711");
    registers(&rig, a);
    uint64_t moved = mr_registry_changed(rig.r, MR_NAMES_WORKER, mail);
    assert_true(moved > first);
    registers(&rig, worker("b", 2, 1));
    uint64_t joined = mr_registry_changed(rig.r, MR_NAMES_WORKER, mail);
    assert_true(joined > moved);
    registers(&rig, gone(worker("b", 2, 2), MR_NAMES_LEFT));
    uint64_t left = mr_registry_changed(rig.r, MR_NAMES_WORKER, mail);
    assert_true(left > joined);
    registers(&rig, gone(a, MR_NAMES_LEFT));
    assert_int_equal(mr_registry_changed(rig.r, MR_NAMES_WORKER, mail), 0);
    registers(&rig, worker("c", 3, 1));
    assert_true(mr_registry_changed(rig.r, MR_NAMES_WORKER, mail) > left);
    rig_done(&rig);
}

/* ---- which copy counts ------------------------------------------------------------------------ */

static void test_the_higher_version_counts_in_whatever_order_they_come(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    assert_int_equal(merges(&rig, worker("a", 1, 5), 0), MR_PUT_NEW);
    assert_int_equal(merges(&rig, worker("a", 1, 4), 0), MR_PUT_OLD);
    assert_int_equal(merges(&rig, worker("a", 1, 5), 0), MR_PUT_KNOWN);
    assert_int_equal(merges(&rig, worker("a", 1, 6), 0), MR_PUT_NEWER);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    rig_done(&rig);
}

static void test_of_one_version_with_two_contents_all_take_the_same(void **state)
{
    (void)state;
    struct rig x = rig_complete(), y = rig_complete();
    struct mr_names_entry one = worker("a", 1, 1), two = worker("a", 1, 1);
    struct mr_arena arena = {0};
    struct mr_names_entry *of_x, *of_y;
    size_t n;
    two.body = mr_slice_str("busy=2");
    merges(&x, one, 0);
    merges(&x, two, 0);
    merges(&y, two, 0);
    merges(&y, one, 0);
    struct mr_slice mail = mr_slice_str("mail");
    assert_int_equal(mr_registry_list(x.r, x.now, MR_NAMES_WORKER, mail, &arena, &of_x, &n), MR_OK);
    assert_int_equal(mr_registry_list(y.r, y.now, MR_NAMES_WORKER, mail, &arena, &of_y, &n), MR_OK);
    assert_true(mr_slice_equal(of_x[0].body, of_y[0].body));
    mr_arena_done(&arena);
    rig_done(&x);
    rig_done(&y);
}

static void test_who_has_left_never_comes_back(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    registers(&rig, worker("a", 1, 3));
    registers(&rig, gone(worker("a", 1, 4), MR_NAMES_LEFT));
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    assert_int_equal(registers(&rig, worker("a", 1, 9)), MR_PUT_OLD);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    /* Nor when the good-bye was faster than the greeting. */
    merges(&rig, gone(worker("b", 2, 2), MR_NAMES_LEFT), 0);
    assert_int_equal(merges(&rig, worker("b", 2, 1), 0), MR_PUT_OLD);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    assert_int_equal(figures(&rig).graves, 2);
    assert_int_equal(figures(&rig).left, 2);
    rig_done(&rig);
}

static void test_who_expired_comes_back_with_its_next_version_only(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    registers(&rig, worker("a", 1, 3));
    pass(&rig, TTL_MS - 1000);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    pass(&rig, 1000);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    assert_int_equal(figures(&rig).expired, 1);
    assert_int_equal(merges(&rig, worker("a", 1, 3), 0), MR_PUT_OLD);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    assert_int_equal(registers(&rig, worker("a", 1, 4)), MR_PUT_NEW);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    /* What another one has waited for in vain ends the version that we have, and no higher one. */
    merges(&rig, gone(worker("a", 1, 3), MR_NAMES_EXPIRED), 0);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    merges(&rig, gone(worker("a", 1, 4), MR_NAMES_EXPIRED), 0);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    rig_done(&rig);
}

/* ---- time ------------------------------------------------------------------------------------- */

static void test_who_goes_on_registering_lives(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    for (uint64_t version = 1; version < 100; version++) {
        registers(&rig, worker("a", 1, version));
        if (version % 2 == 0)
            registers(&rig, server("s", 2, version));
        pass(&rig, 20 * 1000 / 2);
        assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    }
    assert_int_equal(figures(&rig).expired, 0);
    pass(&rig, TTL_SERVER_MS);
    assert_int_equal(count(&rig, MR_NAMES_SERVER, ""), 0);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    rig_done(&rig);
}

static void test_no_echo_makes_an_entry_younger(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    registers(&rig, worker("a", 1, 1));
    for (int i = 0; i < 6; i++) {
        merges(&rig, worker("a", 1, 1), 0);
        registers(&rig, worker("a", 1, 1)); /* the same message again */
        pass(&rig, TTL_MS / 6);
    }
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    rig_done(&rig);
}

static void test_a_copy_is_as_old_as_it_says(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    merges(&rig, worker("a", 1, 1), TTL_MS - 5000);
    registers(&rig, worker("b", 2, 1));
    merges(&rig, worker("b", 2, 1), TTL_MS - 5000); /* an older copy of what we have */
    assert_int_equal(merges(&rig, worker("c", 3, 1), TTL_MS), MR_PUT_OLD);
    assert_int_equal(merges(&rig, worker("d", 4, 1), INT64_MAX), MR_PUT_OLD);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 2);
    merges(&rig, worker("b", 2, 1), INT64_MAX);
    pass(&rig, 1000);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    pass(&rig, 4000);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    rig_done(&rig);
}

static void test_graves_are_forgotten(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    registers(&rig, gone(worker("a", 1, 2), MR_NAMES_LEFT));
    merges(&rig, gone(worker("b", 2, 2), MR_NAMES_EXPIRED), GRAVE_MS - 1000);
    assert_int_equal(merges(&rig, gone(worker("c", 3, 2), MR_NAMES_LEFT), GRAVE_MS), MR_PUT_OLD);
    assert_int_equal(figures(&rig).graves, 2);
    pass(&rig, 1000);
    assert_int_equal(figures(&rig).graves, 1);
    pass(&rig, GRAVE_MS - 1000);
    assert_int_equal(figures(&rig).graves, 0);
    rig_done(&rig);
}

static void test_nothing_expires_before_it_is_complete(void **state)
{
    (void)state;
    struct rig rig = rig_make(NULL);
    merges(&rig, worker("a", 1, 1), TTL_MS - 1000);
    pass(&rig, HOLD_MS - 1000);
    assert_false(mr_registry_complete(rig.r, rig.now));
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    pass(&rig, 1000);
    assert_true(mr_registry_complete(rig.r, rig.now));
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 0);
    rig_done(&rig);
}

static void test_its_own_standstill_is_not_the_silence_of_others(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    registers(&rig, worker("a", 1, 1));
    registers(&rig, worker("b", 2, 1));
    rig.now = mr_mono_add_ms(rig.now, 10 * TTL_MS);
    mr_registry_tick(rig.r, rig.now);
    assert_false(mr_registry_complete(rig.r, rig.now));
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 2);
    assert_int_equal(figures(&rig).stalls, 1);
    registers(&rig, worker("a", 1, 2));
    pass(&rig, HOLD_MS);
    assert_true(mr_registry_complete(rig.r, rig.now));
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 1);
    rig_done(&rig);
}

/* ---- limits ----------------------------------------------------------------------------------- */

static enum mr_err refuses(struct rig *rig, struct mr_names_entry entry)
{
    enum mr_names_put put;
    size_t before = figures(rig).refused;
    enum mr_err err = mr_registry_merge(rig->r, rig->now, &entry, &put);
    assert_int_equal(figures(rig).refused, before + 1);
    assert_int_equal(figures(rig).live[0] + figures(rig).live[1] + figures(rig).graves, 0);
    return err;
}

static void test_what_cannot_be_an_entry_is_refused(void **state)
{
    (void)state;
    struct rig rig = rig_complete();
    static char big[MR_NAMES_BODY_MAX + 1];
    memset(big, 'x', sizeof big);
    const struct mr_names_entry good = worker("a", 1, 1);
    struct mr_names_entry e = good;
    enum mr_names_put put;
#define WITH(field, value) (e = good, e.field = (value), e)
    assert_int_equal(refuses(&rig, WITH(kind, MR_NAMES_KIND_COUNT)), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(fate, (enum mr_names_fate)3)), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(incarnation, 0)), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(version, 0)), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(age_ms, -1)), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(name, mr_slice_str(""))), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(name, mr_slice_str("a\nb"))), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(name, mr_slice_make(big, MR_NAME_MAX + 1))), MR_TOO_BIG);
    assert_int_equal(refuses(&rig, WITH(app, mr_slice_str(""))), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(app, mr_slice_make(big, MR_NAME_MAX + 1))), MR_TOO_BIG);
    assert_int_equal(refuses(&rig, WITH(server, mr_slice_str("\x1b"))), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(address, mr_slice_str("\x7f"))), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(address, mr_slice_str("\xff"))), MR_INVALID);
    assert_int_equal(refuses(&rig, WITH(address, mr_slice_make(big, MR_NAMES_ADDRESS_MAX + 1))),
                     MR_TOO_BIG);
    assert_int_equal(refuses(&rig, WITH(body, mr_slice_make(big, MR_NAMES_BODY_MAX + 1))),
                     MR_TOO_BIG);
    assert_int_equal(refuses(&rig, WITH(kind, MR_NAMES_SERVER)), MR_INVALID); /* it has an app */
    e = server("s", 1, 1);
    e.address = mr_slice_str("");
    assert_int_equal(refuses(&rig, e), MR_INVALID);
    e = gone(good, MR_NAMES_EXPIRED);
    assert_int_equal(mr_registry_register(rig.r, rig.now, &e, &put), MR_INVALID);
    /* What is at its limits is not. */
    e = WITH(body, mr_slice_make(big, MR_NAMES_BODY_MAX));
    e.name = e.app = e.server = mr_slice_make(big, MR_NAME_MAX);
    e.address = mr_slice_make(big, MR_NAMES_ADDRESS_MAX);
    assert_int_equal(merges(&rig, e, 0), MR_PUT_NEW);
#undef WITH
    rig_done(&rig);
}

static void test_a_full_registry_takes_a_new_one_for_the_oldest_grave_only(void **state)
{
    (void)state;
    struct mr_registry_options options = {.entries_max = 3};
    struct rig rig = rig_make(&options);
    struct mr_names_entry more = worker("d", 4, 1);
    enum mr_names_put put;
    registers(&rig, gone(worker("a", 1, 1), MR_NAMES_LEFT));
    registers(&rig, gone(worker("b", 2, 1), MR_NAMES_LEFT));
    registers(&rig, worker("c", 3, 1));
    assert_int_equal(registers(&rig, more), MR_PUT_NEW);
    assert_int_equal(figures(&rig).forgotten, 1);
    assert_int_equal(registers(&rig, worker("b", 2, 2)), MR_PUT_OLD); /* which is still known */
    registers(&rig, worker("e", 5, 1));
    more = worker("f", 6, 1);
    assert_int_equal(mr_registry_register(rig.r, rig.now, &more, &put), MR_BUSY);
    more = gone(more, MR_NAMES_LEFT);
    assert_int_equal(mr_registry_register(rig.r, rig.now, &more, &put), MR_BUSY);
    assert_int_equal(figures(&rig).refused, 2);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "mail"), 3);
    assert_int_equal(registers(&rig, worker("e", 5, 2)), MR_PUT_NEWER); /* needs no room */
    rig_done(&rig);
}

static void test_ten_thousand_workers(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct rig rig = rig_complete();
    for (uint64_t version = 1; version <= 3; version++) {
        for (uint64_t i = 0; i < N; i++) {
            char name[32], app[32];
            (void)snprintf(name, sizeof name, "worker-%llu", (unsigned long long)i);
            (void)snprintf(app, sizeof app, "app-%llu", (unsigned long long)(i % 100));
            struct mr_names_entry entry = worker(name, i + 1, version);
            entry.app = mr_slice_str(app);
            registers(&rig, entry);
        }
    }
    assert_int_equal(count(&rig, MR_NAMES_WORKER, ""), N);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, "app-42"), N / 100);
    assert_int_equal(figures(&rig).apps, 100);
    pass(&rig, TTL_MS);
    assert_int_equal(count(&rig, MR_NAMES_WORKER, ""), 0);
    assert_int_equal(figures(&rig).graves, N);
    assert_int_equal(figures(&rig).apps, 0);
    pass(&rig, GRAVE_MS);
    assert_int_equal(figures(&rig).graves, 0);
    rig_done(&rig);
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* All that allocates; how much of it failed for want of memory. */
static long use(struct rig *rig)
{
    long refused = 0;
    for (uint64_t i = 1; i <= 40; i++) {
        enum mr_names_put put;
        struct mr_names_entry e = worker("a", i, 1);
        e.app = i % 3 == 0 ? mr_slice_str("other") : e.app;
        refused += mr_registry_register(rig->r, rig->now, &e, &put) == MR_NOMEM;
        e.version = 2;
        e.body = mr_slice_str("busy=2, and more of it");
        refused += mr_registry_merge(rig->r, rig->now, &e, &put) == MR_NOMEM;
        e.version = 3;
        e.app = mr_slice_str(i % 2 == 0 ? "third" : "fourth");
        refused += mr_registry_merge(rig->r, rig->now, &e, &put) == MR_NOMEM;
        if (i % 5 == 0) {
            e = gone(e, MR_NAMES_LEFT);
            refused += mr_registry_register(rig->r, rig->now, &e, &put) == MR_NOMEM;
        }
    }
    return refused;
}

static void test_without_memory_nothing_is_half_done(void **state)
{
    (void)state;
    for (long steps = 0;; steps++) {
        struct rig rig = {.now = {MR_NS_PER_S}};
        fail_alloc_after(steps);
        enum mr_err err = mr_registry_new(NULL, rig.now, &rig.r);
        if (err == MR_OK)
            (void)use(&rig);
        else
            assert_int_equal(err, MR_NOMEM);
        long failed = fail_alloc_stop();
        if (rig.r != NULL) {
            mr_registry_validate(rig.r);
            assert_int_equal(use(&rig), 0); /* and all is well when there is memory again */
            mr_registry_validate(rig.r);
        }
        mr_registry_free(rig.r);
        if (failed == 0)
            break;
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_registers_is_listed_by_name),
        cmocka_unit_test(test_apps_are_those_that_have_workers),
        cmocka_unit_test(test_two_processes_of_one_name_are_two),
        cmocka_unit_test(test_the_number_of_a_list_changes_with_who_is_in_it_only),
        cmocka_unit_test(test_the_higher_version_counts_in_whatever_order_they_come),
        cmocka_unit_test(test_of_one_version_with_two_contents_all_take_the_same),
        cmocka_unit_test(test_who_has_left_never_comes_back),
        cmocka_unit_test(test_who_expired_comes_back_with_its_next_version_only),
        cmocka_unit_test(test_who_goes_on_registering_lives),
        cmocka_unit_test(test_no_echo_makes_an_entry_younger),
        cmocka_unit_test(test_a_copy_is_as_old_as_it_says),
        cmocka_unit_test(test_graves_are_forgotten),
        cmocka_unit_test(test_nothing_expires_before_it_is_complete),
        cmocka_unit_test(test_its_own_standstill_is_not_the_silence_of_others),
        cmocka_unit_test(test_what_cannot_be_an_entry_is_refused),
        cmocka_unit_test(test_a_full_registry_takes_a_new_one_for_the_oldest_grave_only),
        cmocka_unit_test(test_ten_thousand_workers),
        cmocka_unit_test(test_without_memory_nothing_is_half_done),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
