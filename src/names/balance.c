/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Balance: see balance.h. Loads are compared as fractions, load / weight, without dividing: all products fit, since a load
 * is at most MR_LOAD_MAX and a weight at most MR_WEIGHT_MAX.
 */
#include "names/balance.h"

#include <assert.h>

enum { RATIO_MAX = 1000 }; /* percent */
static_assert(MR_LOAD_MAX <= INT64_MAX / MR_WEIGHT_MAX / RATIO_MAX / 4, "products fit");

/* ---- the window ------------------------------------------------------------------------------- */

enum { STEP_MS = MR_BALANCE_WINDOW_MS / MR_BALANCE_WINDOW_STEPS };

static int64_t step_of(mr_mono now)
{
    return now.ns / (STEP_MS * MR_NS_PER_MS);
}

void mr_balance_count(struct mr_balance_window *window, mr_mono now, uint64_t n)
{
    int64_t step = step_of(now);
    int64_t passed = step - window->step;
    for (int64_t i = 1; i <= passed && i <= MR_BALANCE_WINDOW_STEPS; i++)
        window->n[(window->step + i) % MR_BALANCE_WINDOW_STEPS] = 0;
    window->step = passed > 0 ? step : window->step;
    uint64_t *count = &window->n[window->step % MR_BALANCE_WINDOW_STEPS];
    *count = n < MR_LOAD_MAX - *count ? *count + n : MR_LOAD_MAX;
}

int64_t mr_balance_load(const struct mr_balance_window *window, mr_mono now)
{
    int64_t step = step_of(now), sum = 0;
    for (int64_t i = 0; i < MR_BALANCE_WINDOW_STEPS; i++) {
        int64_t of = window->step - i;
        if (of >= 0 && of > step - MR_BALANCE_WINDOW_STEPS)
            sum += (int64_t)window->n[of % MR_BALANCE_WINDOW_STEPS];
    }
    return sum < MR_LOAD_MAX ? sum : MR_LOAD_MAX;
}

/* ---- a move ----------------------------------------------------------------------------------- */

static const char *const verdict_names[] = {
    [MR_BALANCE_EVEN] = "even",
    [MR_BALANCE_MOVE] = "move",
    [MR_BALANCE_INCOMPLETE] = "registry incomplete",
    [MR_BALANCE_MOVING] = "a move is on its way",
    [MR_BALANCE_COOLING] = "cooling down",
    [MR_BALANCE_IDLE] = "below the floor",
    [MR_BALANCE_STUCK] = "no subApp would make it better",
};

const char *mr_balance_verdict_name(enum mr_balance_verdict verdict)
{
    return (unsigned)verdict < MR_BALANCE_VERDICT_COUNT ? verdict_names[verdict] : NULL;
}

/* A look at the servers, with the options made out. */
struct weighing {
    const struct mr_balance_seen *seen;
    struct mr_balance_options options;
    mr_mono now;
};

static int64_t or_default(int64_t value, int64_t standard)
{
    return value > 0 ? value : standard;
}

static struct mr_balance_options options_of(const struct mr_balance_options *given)
{
    struct mr_balance_options o = given != NULL ? *given : (struct mr_balance_options){0};
    o.ratio = o.ratio > 100 ? o.ratio : MR_BALANCE_RATIO;
    o.ratio = o.ratio < RATIO_MAX ? o.ratio : RATIO_MAX;
    o.floor = or_default(o.floor, MR_BALANCE_FLOOR);
    o.cool_ms = or_default(o.cool_ms, MR_BALANCE_COOL_MS);
    o.stay_ms = or_default(o.stay_ms, MR_BALANCE_STAY_MS);
    return o;
}

static int64_t limited(int64_t load)
{
    return load < 0 ? 0 : load < MR_LOAD_MAX ? load : MR_LOAD_MAX;
}

static int64_t weight_of(const struct mr_balance_server *server)
{
    uint32_t weight = server->weight == 0 ? MR_WEIGHT : server->weight;
    return weight < MR_WEIGHT_MAX ? weight : MR_WEIGHT_MAX;
}

static void add_loads(const struct mr_balance_seen *seen)
{
    for (size_t i = 0; i < seen->servers_n; i++)
        seen->servers[i].load = limited(seen->servers[i].other);
    for (size_t i = 0; i < seen->parts_n; i++) {
        size_t owner = seen->parts[i].owner;
        if (owner < seen->servers_n)
            seen->servers[owner].load =
                limited(seen->servers[owner].load + limited(seen->parts[i].load));
    }
}

/* Whether a has more than b, for its weight. */
static bool has_more(const struct mr_balance_server *a, const struct mr_balance_server *b)
{
    return a->load * weight_of(b) > b->load * weight_of(a);
}

/* The least loaded one that may have it. */
static size_t receiver_of(const struct weighing *w, size_t part)
{
    const struct mr_balance_seen *seen = w->seen;
    size_t from = seen->parts[part].owner, found = MR_BALANCE_NOBODY;
    for (size_t i = 0; i < seen->servers_n; i++) {
        if (i == from || (seen->may != NULL && !seen->may(i, part, seen->arg)))
            continue;
        if (found == MR_BALANCE_NOBODY || has_more(&seen->servers[found], &seen->servers[i]))
            found = i;
    }
    return found;
}

static bool is_over(const struct weighing *w, const struct mr_balance_server *from,
                    const struct mr_balance_server *to)
{
    return from->load * weight_of(to) * 100 > to->load * weight_of(from) * w->options.ratio;
}

static bool rests(const struct weighing *w, const struct mr_balance_part *part)
{
    return part->has_moved && w->now.ns < mr_mono_add_ms(part->moved, w->options.stay_ms).ns;
}

/*
 * How far apart the two are afterwards, times both weights; negative: there is no use in it. A receiver that becomes the
 * greater one must be nearer by a quarter, since loads are never quite what they were; and no reason to give anything back.
 */
static int64_t gap_after(const struct weighing *w, const struct mr_balance_server *from,
                         const struct mr_balance_server *to, int64_t load)
{
    int64_t a = weight_of(from), b = weight_of(to);
    int64_t gap = from->load * b - to->load * a, left = gap - load * (a + b);
    if (load <= 0)
        return -1;
    if (left >= 0)
        return left;
    struct mr_balance_server giver = {.weight = from->weight, .load = from->load - load};
    struct mr_balance_server taker = {.weight = to->weight, .load = to->load + load};
    bool is_near = -left <= gap / 4 * 3;
    return is_near && !is_over(w, &taker, &giver) ? -left : -1;
}

/* Of the subApps of a server, the one that brings two servers closest. */
static enum mr_balance_verdict choose(const struct weighing *w, size_t from,
                                      struct mr_balance_move *ret)
{
    const struct mr_balance_seen *seen = w->seen;
    enum mr_balance_verdict verdict = MR_BALANCE_EVEN;
    int64_t best = 0, best_weight = 1;
    for (size_t i = 0; i < seen->parts_n; i++) {
        size_t to = seen->parts[i].owner == from ? receiver_of(w, i) : MR_BALANCE_NOBODY;
        if (to == MR_BALANCE_NOBODY || !is_over(w, &seen->servers[from], &seen->servers[to]))
            continue;
        int64_t load = limited(seen->parts[i].load), weight = weight_of(&seen->servers[to]);
        int64_t gap = gap_after(w, &seen->servers[from], &seen->servers[to], load);
        if (verdict == MR_BALANCE_EVEN)
            verdict = MR_BALANCE_STUCK;
        if (gap < 0 || rests(w, &seen->parts[i]))
            continue;
        if (verdict == MR_BALANCE_MOVE && gap * best_weight >= best * weight)
            continue;
        verdict = MR_BALANCE_MOVE;
        best = gap;
        best_weight = weight;
        *ret = (struct mr_balance_move){.part = i,
                                        .from = from,
                                        .to = to,
                                        .from_load = seen->servers[from].load,
                                        .to_load = seen->servers[to].load,
                                        .load = load};
    }
    return verdict;
}

/* The next one in the order of load, the greatest first; of equals the first. */
static size_t next_giver(const struct mr_balance_seen *seen, size_t last)
{
    size_t found = MR_BALANCE_NOBODY;
    for (size_t i = 0; i < seen->servers_n; i++) {
        const struct mr_balance_server *server = &seen->servers[i];
        bool is_behind = last == MR_BALANCE_NOBODY || has_more(&seen->servers[last], server) ||
                         (!has_more(server, &seen->servers[last]) && i > last);
        if (is_behind && (found == MR_BALANCE_NOBODY || has_more(server, &seen->servers[found])))
            found = i;
    }
    return found;
}

static enum mr_balance_verdict weigh(const struct weighing *w, struct mr_balance_move *ret)
{
    const struct mr_balance_seen *seen = w->seen;
    enum mr_balance_verdict verdict = MR_BALANCE_EVEN;
    size_t from = MR_BALANCE_NOBODY;
    for (size_t i = 0; i < seen->servers_n; i++) {
        from = next_giver(seen, from);
        enum mr_balance_verdict one = choose(w, from, ret);
        if (one != MR_BALANCE_EVEN && seen->servers[from].load < w->options.floor)
            one = MR_BALANCE_IDLE;
        if (one == MR_BALANCE_MOVE)
            return one;
        verdict = verdict == MR_BALANCE_EVEN ? one : verdict;
    }
    return verdict;
}

enum mr_balance_verdict mr_balance(const struct mr_balance_seen *seen, mr_mono now,
                                   struct mr_balance_move *ret_move)
{
    struct weighing w = {.seen = seen, .options = options_of(seen->options), .now = now};
    struct mr_balance_move move;
    add_loads(seen);
    if (!seen->complete)
        return MR_BALANCE_INCOMPLETE;
    if (seen->is_moving)
        return MR_BALANCE_MOVING;
    if (seen->has_moved && now.ns < mr_mono_add_ms(seen->moved, w.options.cool_ms).ns)
        return MR_BALANCE_COOLING;
    enum mr_balance_verdict verdict = weigh(&w, &move);
    if (verdict == MR_BALANCE_MOVE)
        *ret_move = move;
    return verdict;
}
