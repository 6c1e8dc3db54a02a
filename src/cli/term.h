/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal as a screen: what is drawn replaces what was there, keys come one by one, and the
 * terminal is given back as it was however the program ends: at its end, by an error, by a signal, and
 * while it is stopped (Ctrl-Z). Also the signals of programs that run until somebody ends them.
 * Thread: the main one.
 */
#ifndef MR_CLI_TERM_H
#define MR_CLI_TERM_H

#include "base/slice.h"

struct term_size {
    size_t rows, columns;
};

/* Of the terminal behind stdout; 24 by 80 where that cannot be told. */
struct term_size term_size(void);
/* Of the one behind stderr. Thread: any. */
size_t term_err_columns(void);

enum term_use {
    TERM_LINES,  /* signals alone; the terminal, if any, stays as it is */
    TERM_SCREEN, /* and the whole terminal, and keys where stdin is one too */
};

void term_start(enum term_use use);
/* Gives everything back. Before anything is said on stderr; nothing when it was not started. */
void term_end(void);

/* What term_key answers besides bytes of text. */
enum term_key {
    TERM_NONE = 0, /* the time has passed */
    TERM_ENTER = '\n',
    TERM_ESCAPE = 27,
    TERM_BACKSPACE = 127,
    TERM_UP = 256,
    TERM_DOWN,
    TERM_PAGE_UP,
    TERM_PAGE_DOWN,
    TERM_HOME,
    TERM_LAST,
    TERM_OTHER,  /* a key that means nothing here */
    TERM_REDRAW, /* another size, or back from a stop */
    TERM_ENDED,  /* a signal, or the terminal has gone: term_signal says which */
};

/* Around what may take long, such as asking a broker: meanwhile a signal acts at once instead of waiting
 * for the next term_key. */
void term_busy(void);
void term_idle(void);

/* The next key, or what happened first, within so many ms. */
int term_key(int64_t max_ms);
/* The signal that said to end; 0: none. A second one ends the program at once. */
int term_signal(void);
/* Shows the lines of a frame in place of the last one, with one write. What does not fit is left out. */
void term_draw(struct mr_slice frame);

#endif
