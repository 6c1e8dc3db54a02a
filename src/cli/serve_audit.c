/* SPDX-License-Identifier: Apache-2.0 */
/* A line for every change by a person: who, what, on which, and how it ended. None is left out. */
#include <errno.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/diag.h"
#include "base/text.h"
#include "cli/serve.h"

enum { ABOUT_SHOWN = 256 }; /* bytes of what it was done to */

struct serve_audit {
    struct mr_lock lock;
    const char *path; /* NULL: standard error */
    FILE *file;
};

static FILE *open_file(const char *path)
{
    return fopen(path, "ae");
}

enum mr_err serve_audit_open(const char *path, struct serve_audit **ret_audit,
                             struct mr_detail *detail)
{
    FILE *file = path ? open_file(path) : stderr;
    if (!file) {
        enum mr_err err = mr_err_from_errno(errno);
        mr_detail_set(detail, "%s: %s", path, mr_err_text(err));
        return err;
    }
    struct serve_audit *audit = cli_alloc(1, sizeof *audit);
    mr_lock_init(&audit->lock);
    audit->path = path;
    audit->file = file;
    *ret_audit = audit;
    return MR_OK;
}

enum mr_err serve_audit_reopen(struct serve_audit *audit)
{
    if (!audit->path)
        return MR_OK;
    FILE *file = open_file(audit->path);
    if (!file)
        return mr_err_from_errno(errno);
    mr_lock_enter(&audit->lock);
    FILE *old = audit->file;
    audit->file = file;
    mr_lock_leave(&audit->lock);
    fclose(old);
    return MR_OK;
}

void serve_audit_close(struct serve_audit *audit)
{
    if (!audit)
        return;
    if (audit->path)
        fclose(audit->file);
    mr_lock_done(&audit->lock);
    free(audit);
}

void serve_audit_line(const struct mr_audit *line, void *arg)
{
    struct serve_audit *audit = arg;
    char now[32], about[ABOUT_SHOWN];
    mr_format_time_ms(mr_wall_ms(mr_wall_now(mr_clock_system())), now);
    mr_diag_escape(line->about, about, sizeof about);
    mr_lock_enter(&audit->lock);
    fprintf(audit->file, "audit time=%s token=%s peer=%s method=%s about=\"%s\" result=%s\n", now,
            *line->token ? line->token : "-", line->peer, line->method, about,
            mr_err_name(line->err));
    fflush(audit->file);
    mr_lock_leave(&audit->lock);
}
