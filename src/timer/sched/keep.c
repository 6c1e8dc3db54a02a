/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Until when the tasks in our own broker are ours. Others leave them to us as long as our row in the store is there; when it is over,
 * they make them anew. So the broker hands out firings only until then, by our own clock, counted from before the store was
 * told. When the row was over once, nothing is handed out before it is known which of our tasks go on elsewhere, and
 * those are gone (sweep.c).
 */
#include "timer/sched/internal.h"

static void tell(struct mr_scheduler *s)
{
    if (s->gate != NULL)
        mr_gate_until(s->gate, MR_FIRING_TOPICS, (struct mr_slice){0},
                      s->row_swept ? s->row_until : (mr_mono){0});
}

void sched_keep_init(struct mr_scheduler *s)
{
    if (s->gate != NULL)
        mr_gate_guard(s->gate, MR_FIRING_TOPICS, MR_GATE_BY_TOPIC);
}

void sched_keep_beaten(struct mr_scheduler *s, mr_mono at)
{
    if (mr_mono_now(s->desk.clock).ns >= s->row_until.ns) { /* it was over, or there was none yet */
        s->row_life++;
        s->row_swept = false;
        s->sweep_due = true;
    }
    s->row_until = mr_mono_add_ms(at, s->settings.lease_ms);
    tell(s);
}

void sched_keep_swept(struct mr_scheduler *s, uint64_t life)
{
    if (life != s->row_life || s->row_swept)
        return;
    s->row_swept = true;
    tell(s);
}

void sched_keep_end(struct mr_scheduler *s)
{
    s->row_until = (mr_mono){0};
    s->row_swept = false;
    tell(s);
}
