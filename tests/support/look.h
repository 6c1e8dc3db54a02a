/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for what can only be looked at.
 */
#ifndef MR_TESTS_SUPPORT_LOOK_H
#define MR_TESTS_SUPPORT_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

int64_t look_waited_ms(mr_mono since);
/* So long is waited at most: longer where MR_PATIENCE says how many times, since much else runs on this machine. */
int64_t look_most_ms(int64_t ms);
/* Sleeps until the next look: soon at first, then ever less often, so that looking is not what the machine is busy with.
 * False: it has been waited for longer than that. */
bool look_again(mr_mono since, int64_t most_ms);

#endif
