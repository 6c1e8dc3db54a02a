/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
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

/* ---- last words ----------------------------------------------------------------------------- */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

static char last_words[320]; /* written while nobody handles a signal */

/* The handler is gone when this runs, so that the raised signal ends the program as usual. */
static void on_end(int number)
{
    int at_errno = errno;
    ssize_t n = write(STDERR_FILENO, last_words, strlen(last_words));
    (void)n; /* there is nobody left to tell */
    errno = at_errno;
    raise(number);
}

void interrupt_say(const char *line)
{
    struct sigaction action = {.sa_handler = line ? on_end : SIG_DFL,
                               .sa_flags = line ? (int)SA_RESETHAND : 0};
    if (line)
        snprintf(last_words, sizeof last_words, "%smillrace: %s\n",
                 isatty(STDERR_FILENO) ? "\r\033[K" : "", line);
    for (size_t i = 0; i < CLI_LEN(ending_signals); i++) {
        struct sigaction before;
        sigaction(ending_signals[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) /* nohup, and what a shell put into the background */
            sigaction(ending_signals[i], &action, NULL);
    }
}
