/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stdout and the terminal. The settings below are written once by out_init and only read
 * afterwards; whether a status line is shown is the one thing threads share, and an atomic.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/out_internal.h"
#include "cli/term.h"

static const char *const colour_codes[OUT_COLOURS] = {
    [OUT_PLAIN] = "\033[0m", [OUT_BOLD] = "\033[1m",    [OUT_DIM] = "\033[2m",
    [OUT_RED] = "\033[31m",  [OUT_GREEN] = "\033[32m",  [OUT_YELLOW] = "\033[33m",
    [OUT_CYAN] = "\033[36m", [OUT_REVERSE] = "\033[7m",
};

static const enum out_colour state_colours[MR_STATE_COUNT] = {
    [MR_SCHEDULED] = OUT_DIM,   [MR_PENDING] = OUT_PLAIN, [MR_ACTIVE] = OUT_CYAN,
    [MR_RETRY] = OUT_YELLOW,    [MR_ARCHIVED] = OUT_RED,  [MR_COMPLETED] = OUT_GREEN,
    [MR_AGGREGATING] = OUT_DIM,
};

static struct {
    bool out_tty, err_tty, colour;
    bool draws;     /* the terminal knows escape sequences */
    size_t columns; /* 0: as wide as it gets */
    int write_errno;
    struct mr_buf *capture; /* where output goes instead */
    _Atomic bool status_shown;
} screen;

void out_init(enum out_colour_mode mode)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    screen.out_tty = isatty(STDOUT_FILENO) == 1;
    screen.err_tty = isatty(STDERR_FILENO) == 1;
    screen.draws = term && *term && strcmp(term, "dumb") != 0;
    screen.colour =
        mode == OUT_COLOUR_AUTO && screen.out_tty && !(no_color && *no_color) && screen.draws;
    screen.columns = screen.out_tty ? term_size().columns : 0;
}

bool out_is_terminal(void)
{
    return screen.out_tty;
}

bool out_can_draw(void)
{
    return screen.out_tty && screen.draws;
}

bool out_err_is_terminal(void)
{
    return screen.err_tty;
}

void out_set_columns(size_t columns)
{
    screen.columns = columns;
}

size_t out_columns(void)
{
    return screen.columns;
}

/* ---- stdout --------------------------------------------------------------------------------- */

static void keep_error(void)
{
    if (screen.write_errno == 0)
        screen.write_errno = errno ? errno : EIO;
}

void out_capture(struct mr_buf *buf)
{
    screen.capture = buf;
}

struct mr_buf *out_captured(void)
{
    return screen.capture;
}

void out_write(struct mr_slice bytes)
{
    if (screen.capture)
        cli_must(mr_buf_append_slice(screen.capture, bytes));
    else if (screen.write_errno == 0 && bytes.len > 0 &&
             fwrite(bytes.data, 1, bytes.len, stdout) != bytes.len)
        keep_error();
}

void out_printf(const char *fmt, ...)
{
    if (screen.write_errno != 0)
        return;
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int len = screen.capture ? vasprintf(&text, fmt, ap) : vprintf(fmt, ap);
    va_end(ap);
    if (!screen.capture && len < 0)
        keep_error();
    if (screen.capture)
        cli_must(len < 0 ? MR_NOMEM : mr_buf_append(screen.capture, text, (size_t)len));
    free(text);
}

bool out_broken(void)
{
    return screen.write_errno != 0;
}

void out_flush(void)
{
    if (screen.write_errno == 0 && fflush(stdout) != 0)
        keep_error();
}

int out_finish(void)
{
    out_flush();
    if (screen.write_errno == 0 || screen.write_errno == EPIPE)
        return CLI_OK;
    return cli_fail(CLI_FAILED, "cannot write to standard output: %s",
                    strerror(screen.write_errno));
}

/* ---- small texts ---------------------------------------------------------------------------- */

const char *out_colour(enum out_colour colour)
{
    return screen.colour ? colour_codes[colour] : "";
}

enum out_colour out_state_colour(enum mr_state state)
{
    return state < MR_STATE_COUNT ? state_colours[state] : OUT_PLAIN;
}

int64_t out_now_ms(void)
{
    return mr_wall_ms(mr_wall_now(mr_clock_system()));
}

void out_span(int64_t ms, char text[32])
{
    mr_format_duration_ms(ms < MR_MS_PER_S ? ms : ms - ms % MR_MS_PER_S, text);
}

void out_latency(uint64_t us, char text[32])
{
    double ms = (double)us / 1000;
    if (us == 0)
        snprintf(text, 32, "-");
    else if (ms < 10)
        snprintf(text, 32, "%.*f ms", ms < 1 ? 2 : 1, ms);
    else if (ms < MR_MS_PER_S)
        snprintf(text, 32, "%.0f ms", ms);
    else
        snprintf(text, 32, "%.*f s", ms < 100 * MR_MS_PER_S ? 1 : 0, ms / MR_MS_PER_S);
}

void out_size(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < CLI_LEN(units); unit++)
        value /= 1024;
    snprintf(text, 32, "%.*f %s", unit > 0 && value < 100 ? 1 : 0, value, units[unit]);
}

void out_relative(int64_t ms, int64_t now_ms, char text[48])
{
    char span[32];
    if (ms == 0) {
        snprintf(text, 48, "-");
        return;
    }
    out_span(llabs(ms - now_ms), span);
    snprintf(text, 48, ms <= now_ms ? "%s ago" : "in %s", span);
}

/* ---- the live line -------------------------------------------------------------------------- */

void out_status(const char *fmt, ...)
{
    if (!screen.err_tty || !screen.draws)
        return;
    char line[160];
    size_t columns = term_err_columns();
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, columns < sizeof line ? columns : sizeof line, fmt,
              ap); /* the last stays free */
    va_end(ap);
    atomic_store(&screen.status_shown, true);
    fprintf(stderr, "\r\033[K%s", line);
}

void out_status_clear(void)
{
    if (atomic_exchange(&screen.status_shown, false))
        fputs("\r\033[K", stderr);
}
