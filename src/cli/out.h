/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people see: text made safe for a terminal, tables that fit its width, colours where wanted,
 * and stdout whose reader may go away.
 */
#ifndef MR_CLI_OUT_H
#define MR_CLI_OUT_H

#include "base/buf.h"

enum out_colour {
    OUT_PLAIN,
    OUT_BOLD,
    OUT_DIM,
    OUT_RED,
    OUT_GREEN,
    OUT_YELLOW,
    OUT_CYAN,
    OUT_REVERSE,
    OUT_COLOURS
};

enum out_colour_mode { OUT_COLOUR_AUTO, OUT_COLOUR_NEVER };

/* Looks at the terminal and the environment once. */
void out_init(enum out_colour_mode mode);
bool out_is_terminal(void);
/* Stdout is a terminal that can draw over what it has shown (TERM is not dumb). */
bool out_can_draw(void);
bool out_err_is_terminal(void);

/* Columns a line may have from now on; 0: as many as it needs. Those of the terminal at first. */
void out_set_columns(size_t columns);

/* ---- stdout --------------------------------------------------------------------------------- */

/* Both are quiet when the reader has gone (EPIPE); any other error is kept for out_finish. Thread:
 * one. */
void out_write(struct mr_slice bytes);
void out_printf(const char *fmt, ...) MR_PRINTF(1, 2);
/* What is printed from now on, and notes and errors too, go to buf instead; NULL: no more. */
void out_capture(struct mr_buf *buf);
struct mr_buf *out_captured(void);
/* The reader has gone: no use in going on. */
bool out_broken(void);
void out_flush(void);
/* Flushes; 0, or an exit code after saying that stdout could not be written. */
int out_finish(void);

/* ---- text ----------------------------------------------------------------------------------- */

/* Appends bytes as one line of printable text: control, direction-changing and broken characters as
 * \n, \t, \xNN or \u{NNNN}. For eyes, not for parsing back. */
void out_escape(struct mr_buf *buf, struct mr_slice bytes);
/* The same, as it is where nothing needs it, NUL behind it. */
const char *out_escaped(struct mr_buf *scratch, struct mr_slice bytes);
/* Columns the text takes on a terminal. */
size_t out_width(struct mr_slice text);
/* A span as people say it: no milliseconds beyond a second. */
void out_span(int64_t ms, char text[32]);
/* "0.3 ms", "12 ms", "4.1 s"; "-" for 0. */
void out_latency(uint64_t us, char text[32]);
/* "12.5 MiB". */
void out_size(uint64_t bytes, char text[32]);
/* "3m ago", "in 2h"; "-" for 0. */
void out_relative(int64_t ms, int64_t now_ms, char text[48]);
/* Start and end of a colour for stdout; empty strings when there is none. */
const char *out_colour(enum out_colour colour);
enum out_colour out_state_colour(enum mr_state state);
int64_t out_now_ms(void);

/* ---- tables --------------------------------------------------------------------------------- */

enum out_fit {
    OUT_LEFT,
    OUT_RIGHT,
    OUT_STRETCH, /* left, cut when the line is too wide */
    OUT_FITS = 3,
};
/* Beside a fit: the column is left out where a line is too wide, the highest number first. */
#define OUT_SPARE(n) ((unsigned)(n) << 2)

struct out_column {
    const char *title;
    unsigned fit;
};

struct out_table;
struct out_table *out_table_new(const struct out_column *columns, size_t n);
/* Adds the next cell; text is copied and must be escaped already. */
void out_cell(struct out_table *table, enum out_colour colour, const char *text);
void out_cellf(struct out_table *table, enum out_colour colour, const char *fmt, ...)
    MR_PRINTF(3, 4);
void out_cell_bytes(struct out_table *table, enum out_colour colour, struct mr_slice bytes);
/* Shows the row of the next cell as the chosen one. */
void out_table_choose(struct out_table *table);
/* Prints what is there, under a header the first time, and forgets it. */
void out_table_flush(struct out_table *table);
void out_table_free(struct out_table *table);

/* ---- the live line on stderr ---------------------------------------------------------------- */

/* Shows one line that the next one replaces; nothing unless stderr is a terminal. Thread: any. */
void out_status(const char *fmt, ...) MR_PRINTF(1, 2);
/* Takes it away, before something else is printed on stderr. Thread: any. */
void out_status_clear(void);

#endif
