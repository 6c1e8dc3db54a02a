/* SPDX-License-Identifier: Apache-2.0 */
/* JSON to stdout. */
#include "cli/jw.h"

#include "cli/cli.h"
#include "cli/out.h"

void jw_flush(struct jw *jw)
{
    cli_must(jw->err);
    out_write(mr_buf_slice(&jw->buf));
    mr_buf_clear(&jw->buf);
}

void jw_finish(struct jw *jw)
{
    cli_must(mr_buf_append(&jw->buf, "\n", 1));
    jw_flush(jw);
    mr_buf_done(&jw->buf);
}
