/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/past.h"

#include <inttypes.h>
#include <stdio.h>

enum { HEAD_MAX = 128, WHAT_MAX = 15 };

enum mr_err mr_past_add(struct mr_buf *buf, const struct mr_past *past)
{
    struct mr_slice text = past->text;
    text.len = mr_utf8_cut(text, MR_PAST_TEXT_MAX);
    MR_TRY(mr_buf_printf(buf, "%" PRId64 " %" PRId64 " %" PRIu32 " %.*s %zu %zu\n", past->ms,
                         past->started_ms, past->attempt, (int)past->what.len,
                         (const char *)past->what.data, past->node.len, text.len));
    MR_TRY(mr_buf_append_slice(buf, past->node));
    MR_TRY(mr_buf_append_slice(buf, text));
    return mr_buf_append(buf, "\n", 1);
}

bool mr_past_next(struct mr_slice *rest, struct mr_past *ret_past)
{
    char head[HEAD_MAX], what[WHAT_MAX + 1];
    struct mr_past past = {0};
    size_t node, text;
    int before = 0, behind = 0, end = 0;
    size_t len = rest->len < sizeof head - 1 ? rest->len : sizeof head - 1;
    if (len == 0)
        return false;
    memcpy(head, rest->data, len);
    head[len] = '\0';
    if (sscanf(head, "%" SCNd64 " %" SCNd64 " %" SCNu32 " %n%15[a-z_]%n %zu %zu%n", &past.ms,
               &past.started_ms, &past.attempt, &before, what, &behind, &node, &text, &end) != 6 ||
        head[end] != '\n')
        return false;
    const char *at = (const char *)rest->data + end + 1;
    size_t left = rest->len - (size_t)end - 1;
    if (node > left || text > left - node || left - node - text < 1 || at[node + text] != '\n')
        return false;
    past.what = mr_slice_make((const char *)rest->data + before, (size_t)(behind - before));
    past.node = mr_slice_make(at, node);
    past.text = mr_slice_make(at + node, text);
    *rest = mr_slice_make(at + node + text + 1, left - node - text - 1);
    *ret_past = past;
    return true;
}
