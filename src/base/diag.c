/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is "time=… level=… event=… " and the caller's pairs. One lock serialises everything, so
 * lines never mix and the counts are exact; this is for messages to people, not for a hot path.
 *
 * Repeats: each event may write LINES_PER_WINDOW lines in a window of one second that starts with
 * its first line. What goes beyond is counted, and the first line of any event after the window
 * brings a line that says how many were left out. The table of events is bounded: when it is full,
 * the event that has been quiet longest gives its place.
 */
#include "base/diag.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    LINE_BYTES_MAX = 4096, /* with the NUL; longer lines are cut */
    PAIRS_BYTES_MAX = 3072,
    EVENT_BYTES_MAX = 48,
    EVENTS_MAX = 64,
    LINES_PER_WINDOW = 10,
};
#define WINDOW_NS MR_NS_PER_S

struct event {
    char name[EVENT_BYTES_MAX]; /* cut; empty: the place is free */
    enum mr_diag_level level;   /* of the last line */
    mr_mono since;              /* start of the window */
    uint32_t lines;             /* in the window, left out ones too */
    uint64_t left_out;          /* not yet told */
};

static const char *const level_names[] = {
    [MR_DIAG_DEBUG] = "debug",
    [MR_DIAG_INFO] = "info",
    [MR_DIAG_WARN] = "warn",
    [MR_DIAG_ERROR] = "error",
};

/* All below belongs to whoever holds the lock. Process-wide on purpose: there is one stderr. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mr_diag_sink *sink;
static void *sink_arg;
static struct mr_clock *clock_used;
static struct event events[EVENTS_MAX];

static struct mr_clock *current_clock(void)
{
    return clock_used != NULL ? clock_used : mr_clock_system();
}

static void write_stderr(const char *line)
{
    char text[LINE_BYTES_MAX + 1];
    size_t len = strlen(line);
    mr_assert(len < LINE_BYTES_MAX);
    memcpy(text, line, len);
    text[len++] = '\n';
    /* One write per line, so that lines of several processes on one pipe stay whole. */
    for (size_t at = 0; at < len;) {
        ssize_t n = write(STDERR_FILENO, text + at, len - at);
        if (n < 0 && errno != EINTR)
            return; /* nobody listens */
        if (n > 0)
            at += (size_t)n;
    }
}

/* pairs has no control characters. */
static void emit(enum mr_diag_level level, const char *event, const char *pairs)
{
    char time[32], line[LINE_BYTES_MAX];
    mr_format_time_ms(mr_wall_ms(mr_wall_now(current_clock())), time);
    snprintf(line, sizeof line, "time=%s level=%s event=%.*s%s%s", time, level_names[level],
             EVENT_BYTES_MAX - 1, event, pairs[0] != '\0' ? " " : "", pairs);
    if (sink != NULL)
        sink(level, line, sink_arg);
    else
        write_stderr(line);
}

/* ---- repeats -------------------------------------------------------------------------------- */

static void tell_left_out(struct event *event)
{
    if (event->left_out == 0)
        return;
    char pairs[EVENT_BYTES_MAX + 64];
    snprintf(pairs, sizeof pairs, "of=%.*s left_out=%llu", EVENT_BYTES_MAX, event->name,
             (unsigned long long)event->left_out);
    event->left_out = 0;
    emit(event->level, "diag.repeated", pairs);
}

static void close_windows(mr_mono now)
{
    for (size_t i = 0; i < EVENTS_MAX; i++) {
        if (events[i].name[0] != '\0' && now.ns - events[i].since.ns >= WINDOW_NS) {
            tell_left_out(&events[i]);
            events[i].lines = 0;
        }
    }
}

static struct event *find_event(const char *name, mr_mono now)
{
    struct event *victim = &events[0];
    for (size_t i = 0; i < EVENTS_MAX; i++) {
        if (strcmp(events[i].name, name) == 0)
            return &events[i];
        bool free_place = events[i].name[0] == '\0' && victim->name[0] != '\0';
        bool older = victim->name[0] != '\0' && events[i].since.ns < victim->since.ns;
        if (free_place || older)
            victim = &events[i];
    }
    tell_left_out(victim);
    *victim = (struct event){.since = now};
    memcpy(victim->name, name, strlen(name) + 1); /* fits: see may_write */
    return victim;
}

/* Counts the line; false when it is one too many. */
static bool may_write(enum mr_diag_level level, const char *name, mr_mono now)
{
    char cut[EVENT_BYTES_MAX];
    snprintf(cut, sizeof cut, "%s", name);
    close_windows(now);
    struct event *event = find_event(cut, now);
    if (event->lines == 0)
        event->since = now;
    event->level = level;
    if (event->lines < LINES_PER_WINDOW) {
        event->lines++;
        return true;
    }
    event->left_out++;
    return false;
}

void mr_diag_set_sink(mr_diag_sink *new_sink, void *arg)
{
    pthread_mutex_lock(&lock);
    /* The counts belong to whoever got the lines. */
    for (size_t i = 0; i < EVENTS_MAX; i++)
        tell_left_out(&events[i]);
    memset(events, 0, sizeof events);
    sink = new_sink;
    sink_arg = arg;
    pthread_mutex_unlock(&lock);
}

void mr_diag_set_clock(struct mr_clock *clock)
{
    pthread_mutex_lock(&lock);
    memset(events, 0, sizeof events);
    clock_used = clock;
    pthread_mutex_unlock(&lock);
}

/* ---- escaping ------------------------------------------------------------------------------- */

enum quoting { QUOTES_PLAIN, QUOTES_ESCAPED };

/* Bytes of the printable UTF-8 character at text, 0 when there is none. */
static size_t printable_len(const uint8_t *text, size_t len)
{
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f ? 1 : 0;
    size_t n = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (n > len || !mr_utf8_valid(mr_slice_make(text, n)))
        return 0;
    /* U+0080 to U+009F are control characters too; terminals obey them. */
    return text[0] == 0xc2 && text[1] < 0xa0 ? 0 : n;
}

/* Writes one character of text, escaped where needed, to piece; returns how many bytes it was. */
static size_t escape_one(const uint8_t *text, size_t len, enum quoting quoting, char piece[8])
{
    static const char special[] = "\n\r\t\"\\", letters[] = "nrt\"\\";
    const char *found = text[0] != '\0' ? strchr(special, text[0]) : NULL;
    bool quote = text[0] == '"' || text[0] == '\\';
    if (found != NULL && (!quote || quoting == QUOTES_ESCAPED)) {
        snprintf(piece, 8, "\\%c", letters[found - special]);
        return 1;
    }
    size_t n = printable_len(text, len);
    if (n == 0) {
        snprintf(piece, 8, "\\x%02x", text[0]);
        return 1;
    }
    memcpy(piece, text, n);
    piece[n] = '\0';
    return n;
}

/* Whole characters only, as many as fit. */
static void escape(struct mr_slice bytes, enum quoting quoting, char *text, size_t cap)
{
    const uint8_t *from = bytes.data;
    size_t at = 0;
    for (size_t done = 0; done < bytes.len;) {
        char piece[8];
        done += escape_one(from + done, bytes.len - done, quoting, piece);
        size_t n = strlen(piece);
        if (at + n + 1 > cap)
            break;
        memcpy(text + at, piece, n);
        at += n;
    }
    text[at] = '\0';
}

void mr_diag(enum mr_diag_level level, const char *event, const char *fmt, ...)
{
    if (level < MR_DIAG_INFO)
        return;
    char raw[PAIRS_BYTES_MAX], pairs[PAIRS_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    /* Quotes stay: they are the caller's, around values that went through mr_diag_escape. */
    escape(mr_slice_make(raw, len < 0 ? 0 : strlen(raw)), QUOTES_PLAIN, pairs, sizeof pairs);

    pthread_mutex_lock(&lock);
    if (may_write(level, event, mr_mono_now(current_clock())))
        emit(level, event, pairs);
    pthread_mutex_unlock(&lock);
}

const char *mr_diag_escape(struct mr_slice bytes, char *text, size_t cap)
{
    if (cap == 0)
        return "";
    escape(bytes, QUOTES_ESCAPED, text, cap);
    return text;
}
