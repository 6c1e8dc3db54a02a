/* SPDX-License-Identifier: Apache-2.0 */
/* See watch.h. What the command prints is caught and drawn as a frame, its notes among it; the last
 * frame stays on the terminal when all is over. */
#include "cli/watch.h"

#include "base/text.h"
#include "cli/out.h"
#include "cli/term.h"

enum { EVERY_MS = 2000 };

/* A server that is away may come back. */
static bool may_pass(int code)
{
    return code == CLI_UNREACHABLE || code == CLI_TIMED_OUT;
}

static int ended_code(void)
{
    return term_signal() ? CLI_SIGNAL_BASE + term_signal() : CLI_OK;
}

static void put_head(int64_t every_ms)
{
    char every[32], at[32];
    mr_format_duration_ms(every_ms, every);
    mr_format_time_ms(out_now_ms(), at);
    out_printf("%s%.8sZ, every %s; q ends%s\n\n", out_colour(OUT_DIM), strchr(at, 'T') + 1, every,
               out_colour(OUT_PLAIN));
}

/* Whether to go on after waiting; keys that mean nothing here begin the wait anew. */
static bool wait_for_next(int64_t every_ms)
{
    for (;;) {
        int key = term_key(every_ms);
        if (key == TERM_NONE || key == TERM_REDRAW)
            return true;
        if (key == TERM_ENDED || key == TERM_ESCAPE || key == 'q')
            return false;
    }
}

static int watch_screen(struct cli *cli, int64_t every_ms, cli_run *show, void *args)
{
    struct mr_buf frame = {0};
    size_t head = 0;
    int code;
    bool first = true, failed;
    term_start(TERM_SCREEN);
    do {
        mr_buf_clear(&frame);
        out_set_columns(term_size().columns);
        out_capture(&frame);
        put_head(every_ms);
        head = frame.len;
        term_busy();
        code = show(cli, args);
        term_idle();
        out_capture(NULL);
        failed = code != CLI_OK && (first || !may_pass(code));
        first = false;
        if (!failed)
            term_draw(mr_buf_slice(&frame));
    } while (!failed && wait_for_next(every_ms));
    int signal_code = ended_code();
    term_end();
    fwrite(frame.data + head, 1, frame.len - head, failed ? stderr : stdout);
    mr_buf_done(&frame);
    return failed ? code : signal_code;
}

static int watch_lines(struct cli *cli, int64_t every_ms, cli_run *show, void *args)
{
    term_start(TERM_LINES);
    int code = show(cli, args);
    out_flush();
    while (code == CLI_OK && !out_broken() && term_key(every_ms) == TERM_NONE) {
        if (!cli->json)
            out_printf("\n");
        code = show(cli, args);
        out_flush();
    }
    int signal_code = ended_code();
    term_end();
    return code != CLI_OK ? code : signal_code;
}

int watch_run(struct cli *cli, const struct cli_value *watch, cli_run *show, void *args)
{
    if (!watch->given)
        return show(cli, args);
    int64_t every_ms = watch->text ? watch->number : EVERY_MS;
    return out_can_draw() && !cli->json ? watch_screen(cli, every_ms, show, args)
                                        : watch_lines(cli, every_ms, show, args);
}
