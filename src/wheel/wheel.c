/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tick is read as eleven digits of six bits. A timer that is not yet due stands on the level of
 * the highest digit in which its due tick differs from the wheel's, in the slot of its own digit
 * there. So, with the wheel at tick T:
 *
 *   - a timer's place follows from (T, due) alone: start and stop compute it, nothing is searched;
 *   - on each level only slots after T's own digit are taken: no slot wraps round, and the first
 *     taken slot of the lowest taken level holds the earliest timers of all;
 *   - T may move on freely up to the first tick of that slot without any timer changing its place.
 *     There the slot is opened: its timers are due, or go to lower levels. Each timer is moved at
 *     most once per level, and empty time costs nothing, however long.
 *
 * Timers of one tick fire in the order in which they were started: whoever starts later stands on
 * the same level or on a lower one, and the higher level was opened before a later start could use
 * the lower one.
 *
 * Timers whose tick has come stand in `late` (started so) or in `firing` (being fired), never in a
 * slot.
 */
#include "wheel/wheel.h"

#include <assert.h>
#include <stdlib.h>

enum {
    DIGIT_BITS = 6,
    SLOTS = 1 << DIGIT_BITS,
    LEVELS = (64 + DIGIT_BITS - 1) / DIGIT_BITS,
    SORT_BINS = 48, /* bin i holds a run of 2^i timers: more than fit into any memory */
};

struct mr_wheel {
    uint64_t now;                        /* the tick up to which everything fired */
    size_t count;                        /* running timers */
    uint64_t taken[LEVELS];              /* bit s: slot s has timers */
    struct mr_link slots[LEVELS][SLOTS]; /* by due tick, see above */
    struct mr_link late;                 /* due when started; they fire at the next advance */
    struct mr_link firing;               /* what the current advance fires now */
    bool advancing;
};

static_assert(sizeof(struct mr_timer) == 32, "the price of a timer, as the header promises");

struct place {
    unsigned level, slot;
};

static struct mr_timer *timer_of(struct mr_link *link)
{
    return mr_container(link, struct mr_timer, link);
}

/* Where a timer due after now stands. */
static struct place place_of(uint64_t now, uint64_t due)
{
    mr_assert(due > now);
    unsigned level = (63 - (unsigned)__builtin_clzll(now ^ due)) / DIGIT_BITS;
    return (struct place){level, (due >> (level * DIGIT_BITS)) % SLOTS};
}

/* The first tick of a slot. */
static uint64_t slot_tick(uint64_t now, struct place at)
{
    unsigned low = at.level * DIGIT_BITS, high = low + DIGIT_BITS;
    uint64_t prefix = high < 64 ? now >> high << high : 0;
    return prefix | (uint64_t)at.slot << low;
}

/* The slot that is opened next. False when no slot has timers. */
static bool first_slot(const struct mr_wheel *wheel, struct place *ret_at)
{
    for (unsigned level = 0; level < LEVELS; level++) {
        if (wheel->taken[level] != 0) {
            *ret_at = (struct place){level, (unsigned)__builtin_ctzll(wheel->taken[level])};
            return true;
        }
    }
    return false;
}

static void insert(struct mr_wheel *wheel, struct mr_timer *timer, struct mr_link *when_due)
{
    if (timer->due <= wheel->now) {
        mr_list_push_back(when_due, &timer->link);
        return;
    }
    struct place at = place_of(wheel->now, timer->due);
    mr_list_push_back(&wheel->slots[at.level][at.slot], &timer->link);
    wheel->taken[at.level] |= UINT64_C(1) << at.slot;
}

enum mr_err mr_wheel_new(uint64_t now, struct mr_wheel **ret_wheel)
{
    struct mr_wheel *wheel = calloc(1, sizeof *wheel);
    if (wheel == NULL)
        return MR_NOMEM;
    wheel->now = now;
    for (unsigned level = 0; level < LEVELS; level++) {
        for (unsigned slot = 0; slot < SLOTS; slot++)
            mr_list_init(&wheel->slots[level][slot]);
    }
    mr_list_init(&wheel->late);
    mr_list_init(&wheel->firing);
    *ret_wheel = wheel;
    return MR_OK;
}

void mr_wheel_free(struct mr_wheel *wheel)
{
    mr_assert(wheel == NULL || !wheel->advancing);
    free(wheel);
}

void mr_timer_init(struct mr_timer *timer, void (*fire)(struct mr_timer *timer, void *arg))
{
    mr_list_init(&timer->link);
    timer->due = 0;
    timer->fire = fire;
}

void mr_wheel_start(struct mr_wheel *wheel, struct mr_timer *timer, uint64_t due)
{
    mr_wheel_stop(wheel, timer);
    timer->due = due;
    insert(wheel, timer, &wheel->late);
    wheel->count++;
}

void mr_wheel_stop(struct mr_wheel *wheel, struct mr_timer *timer)
{
    if (!mr_timer_running(timer))
        return;
    mr_assert(wheel->count > 0);
    wheel->count--;
    mr_list_remove(&timer->link);
    if (timer->due > wheel->now) {
        struct place at = place_of(wheel->now, timer->due);
        if (mr_list_empty(&wheel->slots[at.level][at.slot]))
            wheel->taken[at.level] &= ~(UINT64_C(1) << at.slot);
    }
}

bool mr_timer_running(const struct mr_timer *timer)
{
    return !mr_list_empty(&timer->link);
}

/* Merges two sorted lists; of equal dues those of first go first. */
static void merge(struct mr_link *first, struct mr_link *second)
{
    struct mr_link merged;
    mr_list_init(&merged);
    while (!mr_list_empty(first) && !mr_list_empty(second)) {
        bool swap = timer_of(second->next)->due < timer_of(first->next)->due;
        mr_list_push_back(&merged, mr_list_pop_front(swap ? second : first));
    }
    mr_list_splice_back(&merged, first);
    mr_list_splice_back(&merged, second);
    mr_list_splice_back(first, &merged);
}

/* Stable merge sort by due tick, O(n) when the list is sorted already. */
static void sort_by_due(struct mr_link *list)
{
    struct mr_link *link = list->next;
    while (link != list && link->next != list && timer_of(link)->due <= timer_of(link->next)->due)
        link = link->next;
    if (link->next == list || link == list)
        return;

    struct mr_link bins[SORT_BINS];
    for (unsigned i = 0; i < SORT_BINS; i++)
        mr_list_init(&bins[i]);
    while (!mr_list_empty(list)) {
        struct mr_link run;
        mr_list_init(&run);
        mr_list_push_back(&run, mr_list_pop_front(list));
        unsigned i = 0;
        for (; !mr_list_empty(&bins[i]); i++) {
            merge(&bins[i], &run);
            mr_list_splice_back(&run, &bins[i]);
        }
        mr_list_splice_back(&bins[i], &run);
    }
    /* Higher bins hold earlier starts. */
    for (unsigned i = 0; i < SORT_BINS; i++) {
        merge(&bins[i], list);
        mr_list_splice_back(list, &bins[i]);
    }
}

/* What a fire function starts with a due that has come goes to late: it cannot keep us here. */
static size_t fire_all(struct mr_wheel *wheel, void *arg)
{
    size_t fired = 0;
    struct mr_link *link;
    while ((link = mr_list_pop_front(&wheel->firing)) != NULL) {
        struct mr_timer *timer = timer_of(link);
        mr_assert(timer->due <= wheel->now);
        wheel->count--;
        fired++;
        timer->fire(timer, arg); /* may free the timer */
    }
    return fired;
}

/* Moves the wheel to the first tick of a slot and spreads its timers. */
static void open_slot(struct mr_wheel *wheel, struct place at)
{
    struct mr_link opened;
    mr_list_init(&opened);
    mr_list_splice_back(&opened, &wheel->slots[at.level][at.slot]);
    wheel->taken[at.level] &= ~(UINT64_C(1) << at.slot);
    wheel->now = slot_tick(wheel->now, at);
    if (at.level == 0) {
        mr_list_splice_back(&wheel->firing, &opened);
        return;
    }
    struct mr_link *link;
    while ((link = mr_list_pop_front(&opened)) != NULL)
        insert(wheel, timer_of(link), &wheel->firing);
}

size_t mr_wheel_advance(struct mr_wheel *wheel, uint64_t now, void *arg)
{
    mr_assert(now >= wheel->now);
    mr_assert(!wheel->advancing);
    wheel->advancing = true;
    sort_by_due(&wheel->late);
    mr_list_splice_back(&wheel->firing, &wheel->late);
    size_t fired = fire_all(wheel, arg);
    struct place at;
    uint64_t until = now;
#ifdef MR_PLANT_WHEEL_EARLY
    until += until < MR_TICK_NEVER;
#endif
    while (first_slot(wheel, &at) && slot_tick(wheel->now, at) <= until) {
        open_slot(wheel, at);
        fired += fire_all(wheel, arg);
    }
    wheel->now = now;
    wheel->advancing = false;
    return fired;
}

uint64_t mr_wheel_next(const struct mr_wheel *wheel)
{
    if (!mr_list_empty(&wheel->late) || !mr_list_empty(&wheel->firing))
        return wheel->now < MR_TICK_NEVER ? wheel->now + 1 : MR_TICK_NEVER;
    struct place at;
    return first_slot(wheel, &at) ? slot_tick(wheel->now, at) : MR_TICK_NEVER;
}

static size_t validate_due(const struct mr_wheel *wheel, const struct mr_link *list)
{
    size_t n = 0;
    for (const struct mr_link *link = list->next; link != list; link = link->next, n++) {
        mr_assert(link->next->prev == link);
        mr_assert(mr_container(link, const struct mr_timer, link)->due <= wheel->now);
    }
    return n;
}

static size_t validate_slot(const struct mr_wheel *wheel, struct place at)
{
    const struct mr_link *list = &wheel->slots[at.level][at.slot];
    bool taken = wheel->taken[at.level] >> at.slot & 1;
    mr_assert(taken == !mr_list_empty(list));
    size_t n = 0;
    for (const struct mr_link *link = list->next; link != list; link = link->next, n++) {
        mr_assert(link->next->prev == link);
        struct place right =
            place_of(wheel->now, mr_container(link, const struct mr_timer, link)->due);
        mr_assert(right.level == at.level && right.slot == at.slot);
    }
    return n;
}

void mr_wheel_validate(const struct mr_wheel *wheel)
{
    size_t n = validate_due(wheel, &wheel->late) + validate_due(wheel, &wheel->firing);
    mr_assert(wheel->advancing || mr_list_empty(&wheel->firing));
    for (unsigned level = 0; level < LEVELS; level++) {
        for (unsigned slot = 0; slot < SLOTS; slot++)
            n += validate_slot(wheel, (struct place){level, slot});
    }
    mr_assert(n == wheel->count);
}
