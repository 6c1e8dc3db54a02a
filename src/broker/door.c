/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/door.h"

void mr_door_init(struct mr_door *door)
{
    mr_event_init(&door->quiet);
    mr_lock_init(&door->lock);
    mr_detail_set(&door->why, "no answer");
}

void mr_door_done(struct mr_door *door)
{
    mr_lock_done(&door->lock);
}

void mr_door_changed(struct mr_door *door, bool up, enum mr_err err, const char *why)
{
    mr_lock_enter(&door->lock);
    door->was_up |= up;
    door->err = err;
    if (!up)
        mr_detail_set(&door->why, "%s", why != NULL && why[0] != '\0' ? why : "no answer");
    mr_lock_notify_all(&door->lock);
    mr_lock_leave(&door->lock);
}

/* A password that is refused, say, is so the next time as well. */
static bool passes(enum mr_err err)
{
    return err == MR_OK || err == MR_UNAVAILABLE || err == MR_NOMEM;
}

enum mr_err mr_door_await_up(struct mr_door *door, int64_t ms, struct mr_detail *ret_why)
{
    struct mr_clock *clock = mr_clock_system();
    mr_mono now = mr_mono_now(clock);
    mr_mono end = mr_mono_add_ms(now, ms > 0 ? ms : MR_DOOR_OPEN_MS);
    mr_lock_enter(&door->lock);
    while (!door->was_up && passes(door->err) && now.ns < end.ns) {
        (void)mr_lock_wait(&door->lock, end.ns - now.ns);
        now = mr_mono_now(clock);
    }
    enum mr_err err = door->was_up ? MR_OK : door->err;
    if (!door->was_up && err == MR_OK)
        err = MR_UNAVAILABLE;
    if (err != MR_OK)
        mr_detail_set(ret_why, "%s", door->why.text);
    mr_lock_leave(&door->lock);
    return err;
}

void mr_door_quiet(struct mr_door *door)
{
    if (!mr_event_is_set(&door->quiet))
        mr_event_set(&door->quiet);
}

void mr_door_await_quiet(struct mr_door *door)
{
    mr_event_wait(&door->quiet, INT64_MAX);
}
