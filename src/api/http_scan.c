/* SPDX-License-Identifier: Apache-2.0 */
/* Walking over tasks page by page, for what the broker has no index of: texts and errors. See http_scan.h. */
#include "api/http_scan.h"

#include "broker/hidden.h"

enum { PAGE = MR_BATCH_MAX, PIECE_BYTES = 16 * 1024 };

/* ---- what fits ------------------------------------------------------------------------------ */

static void make_small(unsigned char *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] >= 'A' && from[i] <= 'Z' ? (unsigned char)(from[i] | 0x20) : from[i];
}

/* Piece by piece, by something whose time grows with the length alone: whoever chooses both texts must not hold up a thread
 * that answers everybody. */
static bool contains(struct mr_slice whole, struct mr_slice text)
{
    const unsigned char *in = whole.data;
    unsigned char want[MR_NAME_MAX], piece[PIECE_BYTES];
    mr_assert(text.len <= sizeof want);
    make_small(want, text.data, text.len);
    for (size_t at = 0; at + text.len <= whole.len; at += PIECE_BYTES + 1 - text.len) {
        size_t n = whole.len - at < PIECE_BYTES ? whole.len - at : PIECE_BYTES;
        make_small(piece, in + at, n);
        if (memmem(piece, n, want, text.len) != NULL)
            return true;
    }
    return false;
}

bool http_task_has_text(const struct mr_task *task, struct mr_slice text)
{
    return contains(task->id, text) || contains(task->type, text) ||
           contains(task->payload, text) || contains(task->last_error, text);
}

struct mr_slice http_error_line(const struct mr_task *task)
{
    struct mr_slice error = task->last_error;
    const unsigned char *bytes = error.data;
    size_t n = 0;
    while (n < error.len && n < HTTP_ERROR_LINE_MAX && bytes[n] != '\n')
        n++;
    while (n < error.len && n > 0 && (bytes[n] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    return mr_slice_make(error.data, n);
}

static bool fits(const struct http_call *call, const struct http_scan *scan,
                 const struct mr_task *task)
{
    if (!mr_access_queue(&call->token, task->queue))
        return false;
    if (scan->text.len > 0 && !http_task_has_text(task, scan->text))
        return false;
    return !scan->by_error || mr_slice_equal(scan->error, http_error_line(task));
}

/* ---- pages ---------------------------------------------------------------------------------- */

static void ask(struct http_call *call, struct http_scan *scan);

/* Behind the tasks of people come the operations on timers that could not be applied, where they are wanted. */
static bool turns_to_operations(struct http_scan *scan)
{
    if (!scan->operations || mr_queue_is_inner(scan->options.queue))
        return false;
    scan->options.queue = mr_slice_str(MR_TIMERS_QUEUE);
    scan->cursor[0] = '\0';
    return true;
}

static void page_back(struct http_call *call)
{
    struct http_scan *scan = call->scan;
    const struct mr_req_list *req = &call->req.list;
    bool none = req->req.err == MR_NOT_FOUND && mr_queue_is_inner(req->options.queue);
    bool goes_on = true;
    if (req->req.err != MR_OK && !none) {
        http_call_fail(call, req->req.err, "%s: %s", call->detail.text, mr_err_text(req->req.err));
        return;
    }
    for (size_t i = 0; !none && goes_on && i < req->n; i++) {
        scan->seen++;
        if (fits(call, scan, &req->tasks[i]))
            goes_on = scan->found(call, &req->tasks[i]);
    }
    memcpy(scan->cursor, none ? "" : req->next, none ? 1 : sizeof req->next);
    http_call_clear(call);
    bool more = scan->cursor[0] != '\0';
    if (goes_on && (more || turns_to_operations(scan)) && scan->seen < scan->seen_max) {
        ask(call, scan);
        return;
    }
    scan->more = !goes_on || more;
    scan->over(call);
}

static void ask(struct http_call *call, struct http_scan *scan)
{
    call->req.list.options = scan->options;
    call->req.list.options.limit = PAGE;
    call->req.list.options.cursor = scan->cursor[0] != '\0' ? scan->cursor : NULL;
    call->req.list.options.with_payload = scan->text.len > 0;
    http_call_submit_any(call, MR_OP_LIST, page_back);
}

void http_scan(struct http_call *call, struct http_scan *scan)
{
    struct mr_slice queue = scan->options.queue;
    call->scan = scan;
    mr_detail_set(&call->detail, "%s%.*s", queue.len > 0 ? "queue " : "this list", (int)queue.len,
                  queue.len > 0 ? (const char *)queue.data : "");
    ask(call, scan);
}
