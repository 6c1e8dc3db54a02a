/* SPDX-License-Identifier: Apache-2.0 */
/* The main of a program of tests that are many: what each of them begins with, and which of them it runs. */
#ifndef MR_TESTS_SUPPORT_THEMES_H
#define MR_TESTS_SUPPORT_THEMES_H

#include <stdbool.h>
#include <stddef.h>

/* A peer that is gone is an error and no signal, what was said last is known even if we die, and what is said of things
 * that go wrong is not heard, since many tests are about that: MR_LOUD to hear it. */
void themes_prepare(void);
/* With MR_SHARE="2/3" the second of three shares, which can run beside each other. Ends the program if it says something
 * else. */
bool themes_in_share(size_t theme);

#endif
