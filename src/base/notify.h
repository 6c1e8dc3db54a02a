/* SPDX-License-Identifier: Apache-2.0 */
/* Words to the service manager that started this process: one datagram each, to the socket named by
 * NOTIFY_SOCKET (see sd_notify(3)). Without one, nothing happens. Thread: any. */
#ifndef MR_BASE_NOTIFY_H
#define MR_BASE_NOTIFY_H

#include "base/err.h"

/* "READY=1", "STOPPING=1", "WATCHDOG=1"; lines of it are separated by newlines. */
void mr_notify(const char *words);
/* Without a "WATCHDOG=1" in this time we are taken for dead; 0: nobody watches. */
int64_t mr_notify_watchdog_ms(void);

#endif
