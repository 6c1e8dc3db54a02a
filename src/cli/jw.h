/* SPDX-License-Identifier: Apache-2.0 */
/* JSON to stdout. */
#ifndef MR_CLI_JW_H
#define MR_CLI_JW_H

#include "broker/json.h"

/* Gives what has been written to stdout, and keeps on writing in the same document. */
void jw_flush(struct jw *jw);
/* Ends the document with a newline and frees. */
void jw_finish(struct jw *jw);

#endif
