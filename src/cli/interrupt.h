/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C for commands that work long and have something to clean up. */
#ifndef MR_CLI_INTERRUPT_H
#define MR_CLI_INTERRUPT_H

/* From now on SIGINT, SIGTERM and SIGHUP are noted; a second one, a while later, ends the program. */
void interrupt_watch(void);
/* The number of the signal that came, 0: none. Thread: any. */
int interrupt_number(void);
/* From now on a signal that ends the program says this line on stderr first; NULL: no longer. For a
 * command that only waits, and would take with it what nobody can find again. */
void interrupt_say(const char *line);

#endif
