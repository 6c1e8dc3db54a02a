/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on stderr, and memory that cannot fail: what every command needs when something goes wrong.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/out.h"
#include "cli/term.h"

/* One write per line, so that lines of several threads and processes do not mix. */
static void print_line(const struct mr_buf *text)
{
    struct mr_buf line = {0};
    cli_must(mr_buf_append(&line, "millrace: ", strlen("millrace: ")));
    out_escape(&line, mr_buf_slice(text));
    cli_must(mr_buf_append(&line, "\n", 1));
    if (out_captured()) {
        out_write(mr_buf_slice(&line));
    } else {
        out_status_clear();
        fwrite(line.data, 1, line.len, stderr);
    }
    mr_buf_done(&line);
}

/* Prints what fmt makes of ap, and ending behind it. */
MR_PRINTF(1, 0) static void print_vformat(const char *fmt, va_list ap, const char *ending)
{
    char *text = NULL;
    struct mr_buf line = {0};
    if (vasprintf(&text, fmt, ap) < 0)
        cli_must(MR_NOMEM);
    cli_must(mr_buf_printf(&line, "%s%s", text, ending));
    print_line(&line);
    mr_buf_done(&line);
    free(text);
}

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_vformat(fmt, ap, "");
    va_end(ap);
    return code;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
    char ending[80];
    const char *command = cli->command ? cli->command->name : "";
    const char *verb = cli->verb && cli->verb->name ? cli->verb->name : "";
    snprintf(ending, sizeof ending, " (see millrace%s%s%s%s --help)", *command ? " " : "", command,
             *verb ? " " : "", verb);
    va_list ap;
    va_start(ap, fmt);
    print_vformat(fmt, ap, ending);
    va_end(ap);
    return CLI_USAGE;
}

/* What a server said may begin with whose it is, which the line before it says as well: "queue mail: ". */
static const char *without_subject(const char *text, const char *line)
{
    const char *end = strstr(text, ": ");
    size_t len = end != NULL ? (size_t)(end - text) : 0;
    bool same = len > 0 && strncmp(line, text, len) == 0 && (line[len] == ':' || line[len] == '\0');
    return same ? end + strlen(": ") : text;
}

int cli_fail_err(enum mr_err err, const char *fmt, ...)
{
    struct mr_detail text;
    char *line = NULL;
    cli_err_text(err, &text);
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&line, fmt, ap) < 0)
        cli_must(MR_NOMEM);
    va_end(ap);
    int code = cli_fail(mr_err_exit_code(err), "%s: %s", line, without_subject(text.text, line));
    free(line);
    return code;
}

int cli_fail_detail(enum mr_err err, const char *what, const char *subject,
                    const struct mr_detail *detail)
{
    const char *text = detail->text;
    if (!text[0])
        return cli_fail_err(err, "%s %s", what, subject);
    size_t len = strlen(subject);
    if (strncmp(text, subject, len) == 0 && text[len] == ':')
        return cli_fail(mr_err_exit_code(err), "%s %s", what, text);
    return cli_fail(mr_err_exit_code(err), "%s %s: %s", what, subject, text);
}

void cli_note(const struct cli *cli, const char *fmt, ...)
{
    if (cli->quiet)
        return;
    va_list ap;
    va_start(ap, fmt);
    print_vformat(fmt, ap, "");
    va_end(ap);
}

void *cli_alloc(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size ? size : 1);
    if (!memory)
        cli_must(MR_NOMEM);
    return memory;
}

void *cli_grow(void *memory, size_t n, size_t size)
{
    void *bigger = reallocarray(memory, n ? n : 1, size);
    if (!bigger)
        cli_must(MR_NOMEM);
    return bigger;
}

void cli_must(enum mr_err err)
{
    if (err == MR_OK)
        return;
    term_end();
    fprintf(stderr, "millrace: %s\n", mr_err_text(err));
    _exit(mr_err_exit_code(err));
}
