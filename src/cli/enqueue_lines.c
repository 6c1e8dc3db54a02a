/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enqueue --lines: standard input to tasks, many batches in flight, ids printed in the order of the
 * input as they become durable.
 *
 * A ring of batches: the main thread fills the newest, sends it, and prints the oldest once its
 * answer is there; the answer arrives on the broker's thread, which copies it and sets the batch's
 * event, nothing else. When the input pauses, what was read is sent and everything in flight is
 * printed before the next read, so a slow producer sees each id at once.
 *
 * SIGINT and SIGTERM end the reading: what was read in whole lines is sent, and how many tasks are on
 * disk is said. The second one ends the program as usual.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/text.h"
#include "cli/enqueue.h"
#include "cli/out.h"
#include "cli/progress.h"

enum {
    BATCH_LINES = 256,
    BATCH_BYTES = 4 * 1024 * 1024, /* a batch of long lines goes earlier */
    RING = 8,
    READ_BYTES = 256 * 1024,
    COMPLAINTS_MAX = 100, /* lines of errors before only their number is told */
};

struct batch {
    struct enqueue_item *items; /* BATCH_LINES */
    uint64_t *line_numbers;
    struct mr_buf bytes; /* of plain lines; items have offsets until it is sent */
    size_t *ends;
    size_t n;
    struct mr_enqueue_result *results; /* BATCH_LINES, of those sent, in order */
    enum mr_err refused;               /* could not even be sent */
    enum mr_err err;                   /* of the request; the broker's thread writes it */
    bool sent;
    struct mr_event answered;
};

struct lines {
    struct cli *cli;
    const struct enqueue_template *template_;
    struct batch ring[RING];
    uint64_t first, next; /* batches in flight: first .. next - 1; ring[next % RING] is filled */
    struct mr_task_options *tasks; /* BATCH_LINES, scratch */
    struct mr_buf input;           /* what was read and not yet taken as a line */
    bool skipping;                 /* the rest of a line that was over the limit */
    uint64_t line;                 /* number of the line being read */
    uint64_t accepted, refused;
    enum mr_err stopped; /* the broker takes nothing more */
    struct jw jw;
    uint64_t bytes_read;
    struct progress progress;
};

/* ---- answers -------------------------------------------------------------------------------- */

/* Thread: the broker's. */
static void on_answer(enum mr_err err, const struct mr_enqueue_result *results, size_t n, void *arg)
{
    struct batch *batch = arg;
    batch->err = err;
    if (err == MR_OK)
        memcpy(batch->results, results, n * sizeof *results);
    mr_event_set(&batch->answered);
}

static void complain(struct lines *lines, uint64_t line, const char *reason)
{
    lines->refused++;
    if (lines->refused <= COMPLAINTS_MAX)
        cli_fail(CLI_FAILED, "line %llu: %s", (unsigned long long)line, reason);
}

/* Whether an item's error is about that item alone, so that the next one may fare better. */
static bool concerns_item(enum mr_err err)
{
    return err == MR_INVALID || err == MR_TOO_BIG || err == MR_CONFLICT || err == MR_DUPLICATE ||
           err == MR_QUEUE_FULL;
}

static void print_item(struct lines *lines, const struct batch *batch, size_t i,
                       const struct mr_enqueue_result *result)
{
    const struct enqueue_item *item = &batch->items[i];
    char reason[600];
    if (lines->cli->json) {
        enqueue_answer_json(&lines->jw, item, result);
        cli_must(mr_buf_append(&lines->jw.buf, "\n", 1));
        lines->jw.has_items[0] = false; /* each line is a document of its own */
        jw_flush(&lines->jw);
    } else if (item->err == MR_OK && result->err == MR_OK && !lines->cli->quiet) {
        out_printf("%s\n", result->id);
    }
    if (item->err == MR_OK && result->err == MR_OK) {
        lines->accepted++;
        return;
    }
    complain(lines, batch->line_numbers[i], enqueue_reason(item, result, reason));
    if (item->err == MR_OK && !concerns_item(result->err))
        lines->stopped = result->err;
}

static void clear_batch(struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        enqueue_item_done(&batch->items[i]);
    memset(batch->items, 0, batch->n * sizeof *batch->items);
    mr_buf_clear(&batch->bytes);
    batch->n = 0;
    batch->sent = false;
    batch->err = MR_OK;
    mr_event_reset(&batch->answered);
}

/* Waits for the oldest batch and prints it. */
static void finish_oldest(struct lines *lines)
{
    struct batch *batch = &lines->ring[lines->first++ % RING];
    if (batch->sent)
        mr_event_wait(&batch->answered, INT64_MAX);
    enum mr_err err = batch->sent ? batch->err : batch->refused;
    size_t sent = 0;
    for (size_t i = 0; err == MR_OK && i < batch->n; i++)
        print_item(lines, batch, i,
                   batch->items[i].err == MR_OK ? &batch->results[sent++] : &batch->results[0]);
    if (err != MR_OK)
        lines->stopped = err;
    clear_batch(batch);
    progress_at(&lines->progress, lines->accepted, lines->bytes_read);
}

static void finish_all(struct lines *lines)
{
    while (lines->first < lines->next)
        finish_oldest(lines);
    out_flush();
}

/* ---- sending -------------------------------------------------------------------------------- */

/* The payloads of plain lines, now that their bytes no longer move. */
static void settle_payloads(struct lines *lines, struct batch *batch)
{
    size_t begin = 0;
    for (size_t i = 0; i < batch->n && !lines->cli->json; i++) {
        batch->items[i].task.payload =
            mr_slice_make((const char *)batch->bytes.data + begin, batch->ends[i] - begin);
        begin = batch->ends[i];
        if (batch->items[i].err == MR_OK)
            enqueue_item_check(&batch->items[i]);
    }
}

static void send_batch(struct lines *lines)
{
    struct batch *batch = &lines->ring[lines->next % RING];
    if (batch->n == 0)
        return;
    settle_payloads(lines, batch);
    size_t n = 0;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->items[i].err == MR_OK)
            lines->tasks[n++] = batch->items[i].task;
    enum mr_err err = MR_OK;
    if (n > 0)
        err = mr_enqueue_async(lines->cli->client, lines->tasks, n, on_answer, batch);
    while (err == MR_BUSY && lines->first < lines->next) {
        finish_oldest(lines);
        err = mr_enqueue_async(lines->cli->client, lines->tasks, n, on_answer, batch);
    }
    batch->sent = n > 0 && err == MR_OK;
    batch->refused = err;
    lines->next++;
    if (lines->next - lines->first == RING)
        finish_oldest(lines);
}

static size_t line_max(const struct lines *lines)
{
    /* JSON may write one byte as six characters, and has other fields. */
    return lines->cli->json ? (size_t)MR_PAYLOAD_MAX * 6 + 64 * 1024 : (size_t)MR_PAYLOAD_MAX;
}

static void add_item(struct lines *lines, struct mr_slice text, enum mr_err err)
{
    struct batch *batch = &lines->ring[lines->next % RING];
    struct enqueue_item *item = &batch->items[batch->n];
    batch->line_numbers[batch->n] = lines->line;
    if (err != MR_OK) {
        item->task = lines->template_->task;
        enqueue_item_refuse(item, err, "is over the limit of %zu bytes", line_max(lines));
    } else if (lines->cli->json) {
        enqueue_item_from_json_text(item, lines->template_, text);
    } else {
        item->task = lines->template_->task;
        cli_must(mr_buf_append_slice(&batch->bytes, text));
    }
    batch->ends[batch->n++] = batch->bytes.len;
    if (batch->n == BATCH_LINES || batch->bytes.len >= BATCH_BYTES)
        send_batch(lines);
}

/* ---- reading -------------------------------------------------------------------------------- */

static void take_line(struct lines *lines, struct mr_slice text)
{
    lines->line++;
    if (lines->skipping || text.len > line_max(lines))
        add_item(lines, (struct mr_slice){"", 0}, MR_TOO_BIG);
    else if (text.len > 0 || !lines->cli->json)
        add_item(lines, text, MR_OK);
    lines->skipping = false;
}

/* Takes the complete lines out of the input; keeps the start of the last one. */
static void take_lines(struct lines *lines)
{
    struct mr_buf *input = &lines->input;
    size_t begin = 0;
    while (begin < input->len && lines->stopped == MR_OK) {
        const uint8_t *end = memchr(input->data + begin, '\n', input->len - begin);
        if (!end)
            break;
        size_t len = (size_t)(end - input->data) - begin;
        take_line(lines, mr_slice_make(input->data + begin, len));
        begin += len + 1;
    }
    if (begin > 0)
        memmove(input->data, input->data + begin, input->len - begin);
    input->len -= begin;
    if (input->len > line_max(lines)) {
        lines->skipping = true;
        input->len = 0;
    }
}

static volatile sig_atomic_t interrupted_by;

static void on_signal(int number)
{
    interrupted_by = number;
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Whether there is something to read, after at most so long; a signal that came before ends the wait
 * as well. */
static bool input_is_ready(const struct timespec *wait)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t stops, before;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops, &before);
    bool ready = !interrupted_by && ppoll(&fd, 1, wait, &before) > 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready;
}

static enum mr_err read_all(struct lines *lines)
{
    for (;;) {
        if (lines->stopped != MR_OK || interrupted_by)
            return MR_OK;
        if (!input_is_ready(&(struct timespec){0})) {
            send_batch(lines);
            finish_all(lines);
            if (!input_is_ready(NULL))
                continue;
        }
        cli_must(mr_buf_reserve(&lines->input, READ_BYTES));
        ssize_t n = read(STDIN_FILENO, lines->input.data + lines->input.len, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mr_err_from_errno(errno);
        if (n == 0)
            break;
        lines->input.len += (size_t)n;
        lines->bytes_read += (uint64_t)n;
        take_lines(lines);
    }
    if (lines->input.len > 0 || lines->skipping)
        take_line(lines, mr_buf_slice(&lines->input));
    return MR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* What is left to read of a file; 0 where nobody knows. */
static uint64_t input_bytes(void)
{
    struct stat st;
    off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (fstat(STDIN_FILENO, &st) != 0 || !S_ISREG(st.st_mode) || at < 0 || at > st.st_size)
        return 0;
    return (uint64_t)(st.st_size - at);
}

static struct lines *lines_new(struct cli *cli, const struct enqueue_template *template_)
{
    struct lines *lines = cli_alloc(1, sizeof *lines);
    lines->cli = cli;
    lines->template_ = template_;
    lines->tasks = cli_alloc(BATCH_LINES, sizeof *lines->tasks);
    for (size_t i = 0; i < RING; i++) {
        struct batch *batch = &lines->ring[i];
        batch->items = cli_alloc(BATCH_LINES, sizeof *batch->items);
        batch->line_numbers = cli_alloc(BATCH_LINES, sizeof *batch->line_numbers);
        batch->ends = cli_alloc(BATCH_LINES, sizeof *batch->ends);
        batch->results = cli_alloc(BATCH_LINES, sizeof *batch->results);
        mr_event_init(&batch->answered);
    }
    progress_start(&lines->progress, cli, "enqueue", input_bytes());
    if (out_is_terminal()) /* the ids are enough to look at */
        lines->progress.shown = false;
    return lines;
}

static void lines_free(struct lines *lines)
{
    for (size_t i = 0; i < RING; i++) {
        struct batch *batch = &lines->ring[i];
        clear_batch(batch);
        free(batch->items);
        free(batch->line_numbers);
        free(batch->ends);
        free(batch->results);
        mr_buf_done(&batch->bytes);
    }
    mr_buf_done(&lines->input);
    mr_buf_done(&lines->jw.buf);
    free(lines->tasks);
    free(lines);
}

/* What is said at the end; the exit code. */
static int conclude(struct lines *lines, enum mr_err read_err)
{
    const struct cli *cli = lines->cli;
    progress_end(&lines->progress);
    int code = CLI_OK;
    if (lines->refused > 0)
        code = CLI_FAILED;
    if (lines->refused > COMPLAINTS_MAX)
        cli_fail(code, "%llu lines were refused in all", (unsigned long long)lines->refused);
    if (lines->stopped != MR_OK)
        code = cli_fail_err(lines->stopped, "stopped after %llu task%s on %s",
                            (unsigned long long)lines->accepted, mr_plural(lines->accepted),
                            cli->shown);
    if (read_err != MR_OK)
        code = cli_fail_err(read_err, "cannot read standard input");
    if (interrupted_by)
        code =
            cli_fail(CLI_SIGNAL_BASE + interrupted_by, "interrupted: %llu task%s on disk",
                     (unsigned long long)lines->accepted, lines->accepted == 1 ? " is" : "s are");
    if (cli->quiet)
        fprintf(stderr, "%llu\n", (unsigned long long)lines->accepted);
    return code;
}

int enqueue_lines(struct cli *cli, const struct enqueue_template *template_)
{
    int code = cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    if (code != CLI_OK)
        return code;
    watch_signals();
    struct lines *lines = lines_new(cli, template_);
    enum mr_err read_err = read_all(lines);
    if (lines->stopped == MR_OK)
        send_batch(lines);
    finish_all(lines);
    code = conclude(lines, read_err);
    lines_free(lines);
    return code;
}
