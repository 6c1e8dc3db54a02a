/* SPDX-License-Identifier: Apache-2.0 */
/* JSON to stdout. */
#ifndef MR_CLI_JW_H
#define MR_CLI_JW_H

#include "wire/jw.h"

/* {"code":...,"message":...} under the name error; with the state of the task that is there unless
 * NONE. */
void jw_error(struct jw *jw, enum mr_err err, const char *message, enum mr_state state);

/* Gives what has been written to stdout, and keeps on writing in the same document. */
void jw_flush(struct jw *jw);
/* Ends the document with a newline and frees. */
void jw_finish(struct jw *jw);

#endif
