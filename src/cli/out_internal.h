/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of out.h alone. */
#ifndef MR_CLI_OUT_INTERNAL_H
#define MR_CLI_OUT_INTERNAL_H

#include <stddef.h>

/* Width of the terminal behind stdout; 0 when it is none. */
size_t out_columns(void);

#endif
