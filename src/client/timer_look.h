/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line sees of timers beyond the public header. */
#ifndef MR_CLIENT_TIMER_LOOK_H
#define MR_CLIENT_TIMER_LOOK_H

#include "client/client.h"
#include "timer/look.h"

/* How all of it is: look->status, to be freed by mr_timer_look_done. Zero it first. Thread: any. */
MR_MUST_USE enum mr_err mr_client_timer_status(struct mr_client *client,
                                               struct mr_timer_look *look);

#endif
