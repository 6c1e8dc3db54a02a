/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See term.h. Signals only note themselves and write a byte to a pipe, on whichever thread they come;
 * the main thread looks at the pipe beside the keyboard. What ends the program by force (a second
 * signal, a crash) gives the terminal back from the handler: escape sequences by write and tcsetattr,
 * both allowed there. The state is one for the process, as the terminal is.
 */
#include "cli/term.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

/* The other screen, no cursor, no line breaks of the terminal's own; and back. */
#define ENTER_SCREEN "\033[?1049h\033[?25l\033[?7l\033[H\033[2J"
#define LEAVE_SCREEN "\033[?7h\033[?25h\033[?1049l"

static struct {
    bool started, screen, keys; /* keys: stdin is a terminal */
    struct termios before;
    int wake[2]; /* a pipe: signals write, term_key reads */
    unsigned char input[64];
    size_t input_n;
    struct mr_buf frame;
} term = {.wake = {-1, -1}};

/* Written by the handlers. */
static volatile sig_atomic_t ended_by, resized, stopped;
static volatile sig_atomic_t busy; /* the main thread is elsewhere: handlers must act themselves */

static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int crash_signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static struct term_size size_of(int fd)
{
    struct winsize size;
    enum { USUAL_ROWS = 24, USUAL_COLUMNS = 80 };
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
        return (struct term_size){size.ws_row, size.ws_col};
    return (struct term_size){USUAL_ROWS, USUAL_COLUMNS};
}

struct term_size term_size(void)
{
    return size_of(STDOUT_FILENO);
}

size_t term_err_columns(void)
{
    return size_of(STDERR_FILENO).columns;
}

/* ---- taking and giving back ----------------------------------------------------------------- */

/* Also from signal handlers. */
static void put(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, len);
        if (n < 0 && errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, -1);
        else if (n < 0 && errno != EINTR)
            return;
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void take_screen(void)
{
    if (term.keys) {
        struct termios raw = term.before; /* Ctrl-C and Ctrl-Z stay signals */
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    put(ENTER_SCREEN, strlen(ENTER_SCREEN));
    term.screen = true;
}

static void give_screen(void)
{
    if (!term.screen)
        return;
    term.screen = false;
    put(LEAVE_SCREEN, strlen(LEAVE_SCREEN));
    if (term.keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &term.before);
}

/* ---- signals -------------------------------------------------------------------------------- */

static void wake(void)
{
    int before = errno;
    ssize_t n = write(term.wake[1], "", 1);
    (void)n; /* a full pipe wakes as well */
    errno = before;
}

/* Ends the program as the signal would have. */
static void end_by(int number)
{
    give_screen();
    signal(number, SIG_DFL);
    raise(number);
}

static void on_end(int number)
{
    if (ended_by || busy)
        end_by(number);
    ended_by = number;
    wake();
}

static void on_crash(int number)
{
    end_by(number);
}

static void on_resize(int number)
{
    (void)number;
    resized = 1;
    wake();
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(number, &action, NULL);
}

static void handle_all(const int *numbers, size_t n, void (*handler)(int))
{
    for (size_t i = 0; i < n; i++)
        handle(numbers[i], handler);
}

/* Until somebody continues us. */
static void stop_here(void)
{
    bool screen = term.screen;
    give_screen();
    raise(SIGSTOP);
    if (screen)
        take_screen();
}

static void on_stop(int number)
{
    (void)number;
    if (busy)
        stop_here();
    stopped = !busy;
    resized = 1; /* what was on the screen is gone */
    wake();
}

/* ---- start and end -------------------------------------------------------------------------- */

void term_start(enum term_use use)
{
    if (pipe2(term.wake, O_CLOEXEC | O_NONBLOCK) != 0)
        cli_must(mr_err_from_errno(errno));
    term.started = true;
    ended_by = resized = stopped = 0;
    handle_all(end_signals, CLI_LEN(end_signals), on_end);
    if (use != TERM_SCREEN)
        return;
    term.keys = tcgetattr(STDIN_FILENO, &term.before) == 0;
    handle_all(crash_signals, CLI_LEN(crash_signals), on_crash);
    handle(SIGWINCH, on_resize);
    handle(SIGTSTP, on_stop);
    take_screen();
}

void term_end(void)
{
    if (!term.started)
        return;
    term.started = false;
    give_screen();
    handle_all(end_signals, CLI_LEN(end_signals), SIG_DFL);
    handle_all(crash_signals, CLI_LEN(crash_signals), SIG_DFL);
    handle(SIGWINCH, SIG_DFL);
    handle(SIGTSTP, SIG_DFL);
    close(term.wake[0]);
    close(term.wake[1]);
    mr_buf_done(&term.frame);
}

void term_busy(void)
{
    busy = 1;
}

void term_idle(void)
{
    busy = 0;
}

int term_signal(void)
{
    return ended_by;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* What terminals send for keys that are no text. */
static const struct {
    const char *bytes;
    int key;
} sequences[] = {
    {"\033[A", TERM_UP},   {"\033OA", TERM_UP},       {"\033[B", TERM_DOWN},
    {"\033OB", TERM_DOWN}, {"\033[5~", TERM_PAGE_UP}, {"\033[6~", TERM_PAGE_DOWN},
    {"\033[H", TERM_HOME}, {"\033OH", TERM_HOME},     {"\033[1~", TERM_HOME},
    {"\033[F", TERM_LAST}, {"\033OF", TERM_LAST},     {"\033[4~", TERM_LAST},
};

static int take_input(size_t n, int key)
{
    term.input_n -= n;
    memmove(term.input, term.input + n, term.input_n);
    return key;
}

/* Length of the escape sequence at the start of the input, at least 1. */
static size_t sequence_len(void)
{
    size_t n = 1;
    if (n < term.input_n && (term.input[n] == '[' || term.input[n] == 'O'))
        n++;
    while (n > 1 && n < term.input_n && term.input[n] < 0x40)
        n++;
    return n > 1 && n < term.input_n ? n + 1 : n;
}

/* The key at the start of the input. */
static int next_key(void)
{
    if (term.input[0] == '\r')
        return take_input(1, TERM_ENTER);
    if (term.input[0] == '\b')
        return take_input(1, TERM_BACKSPACE);
    if (term.input[0] != TERM_ESCAPE)
        return take_input(1, term.input[0]);
    size_t len = sequence_len();
    for (size_t i = 0; i < CLI_LEN(sequences); i++)
        if (len == strlen(sequences[i].bytes) && memcmp(term.input, sequences[i].bytes, len) == 0)
            return take_input(len, sequences[i].key);
    return take_input(len, len == 1 ? TERM_ESCAPE : TERM_OTHER);
}

/* What signals said. */
static int noted(void)
{
    char bytes[64];
    while (read(term.wake[0], bytes, sizeof bytes) > 0)
        ;
    if (ended_by)
        return TERM_ENDED;
    if (stopped) {
        stopped = 0;
        stop_here();
    }
    if (resized) {
        resized = 0;
        return TERM_REDRAW;
    }
    return TERM_NONE;
}

/* Whether the input ends within what may become an escape sequence. */
static bool is_cut(void)
{
    size_t n = term.input_n;
    return n > 0 && term.input[0] == TERM_ESCAPE && sequence_len() == n && n < sizeof term.input &&
           (n < 3 || term.input[n - 1] < 0x40);
}

/* The rest of a sequence follows at once, also from afar; the key Escape stands alone. */
static void read_rest(void)
{
    enum { REST_MS = 30 };
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    while (is_cut() && poll(&fd, 1, REST_MS) > 0) {
        ssize_t n = read(STDIN_FILENO, term.input + term.input_n, sizeof term.input - term.input_n);
        if (n <= 0)
            return;
        term.input_n += (size_t)n;
    }
}

static int read_keys(short events)
{
    ssize_t n = read(STDIN_FILENO, term.input, sizeof term.input);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return TERM_ENDED;
    if (n <= 0)
        return events & POLLHUP ? TERM_ENDED : TERM_NONE;
    term.input_n = (size_t)n;
    read_rest();
    return next_key();
}

int term_key(int64_t max_ms)
{
    mr_mono now = mr_mono_now(mr_clock_system()), end = mr_mono_add_ms(now, max_ms);
    if (term.input_n > 0)
        return next_key();
    for (;;) {
        struct pollfd fds[] = {
            {.fd = term.wake[0], .events = POLLIN},
            {.fd = term.screen && term.keys ? STDIN_FILENO : -1, .events = POLLIN},
        };
        int64_t left_ms = (end.ns - now.ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS;
        int n = poll(fds, CLI_LEN(fds), left_ms > 0 ? (int)left_ms : 0);
        int key = noted();
        if (key == TERM_NONE && n > 0 && fds[1].revents)
            key = read_keys(fds[1].revents);
        now = mr_mono_now(mr_clock_system());
        if (key != TERM_NONE || now.ns >= end.ns)
            return key;
    }
}

/* ---- drawing -------------------------------------------------------------------------------- */

void term_draw(struct mr_slice frame)
{
    static const char home[] = "\033[H", line_end[] = "\033[K\r\n", below[] = "\033[J";
    const char *at = frame.data, *end = at + frame.len;
    size_t rows = term_size().rows;
    mr_buf_clear(&term.frame);
    cli_must(mr_buf_append(&term.frame, home, strlen(home)));
    for (size_t row = 1; at < end && row <= rows; row++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t len = line ? (size_t)(line - at) : (size_t)(end - at);
        bool last = row == rows || at + len + 1 >= end; /* a line end there would scroll */
        cli_must(mr_buf_append(&term.frame, at, len));
        cli_must(mr_buf_append(&term.frame, line_end, last ? strlen("\033[K") : strlen(line_end)));
        at += len + 1;
    }
    cli_must(mr_buf_append(&term.frame, below, strlen(below)));
    put((const char *)term.frame.data, term.frame.len);
}
