/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

static _Atomic int interrupted_by;
static _Atomic int64_t interrupted_ns;

/* The first signal ends the work, which cleans up; a later one ends the program as usual. One signal
 * may come twice, to the process and to its group (timeout(1) sends both), so the later one must be
 * a while later. */
static void on_signal(int number)
{
    enum { SAME_NS = 1000 * 1000 * 1000 };
    int none = 0;
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    if (atomic_compare_exchange_strong(&interrupted_by, &none, number))
        atomic_store(&interrupted_ns, now_ns);
    else if (now_ns - atomic_load(&interrupted_ns) > SAME_NS)
        _exit(CLI_SIGNAL_BASE + number);
}

void interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int interrupt_number(void)
{
    return atomic_load(&interrupted_by);
}
