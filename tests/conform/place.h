/* SPDX-License-Identifier: Apache-2.0 */
/* Where the store of a test lives: a new folder below TMPDIR, and one for a copy beside it. */
#ifndef MR_TESTS_CONFORM_PLACE_H
#define MR_TESTS_CONFORM_PLACE_H

#include "broker/embedded/embedded.h"

struct place {
    char base[MR_PATH_MAX];
    char store[MR_PATH_MAX];
    char copy[MR_PATH_MAX];
};

enum mr_err place_make(struct place *place);
void place_remove(struct place *place);
/* The embedded engine on a folder, with small segments; says why not. */
enum mr_err place_open(const char *dir, struct mr_broker **ret_broker);

#endif
