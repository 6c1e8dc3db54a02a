/* SPDX-License-Identifier: Apache-2.0 */
/* One task to send: from JSON, or from what else there is; and its answer. */
#include <stdarg.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "cli/enqueue.h"

void enqueue_item_refuse(struct enqueue_item *item, enum mr_err err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    free(item->why);
    if (vasprintf(&item->why, fmt, ap) < 0)
        cli_must(MR_NOMEM);
    va_end(ap);
    item->err = err;
}

void enqueue_item_from_json(struct enqueue_item *item, const struct enqueue_template *template_,
                            json_t *json)
{
    struct mr_detail detail;
    item->task = template_->task;
    item->json = json_incref(json);
    enum mr_err err = mr_task_from_json(json, &item->arena, &item->task, &detail);
    if (err == MR_OK) /* its headers may be its own */
        err = mr_trace_add(&template_->trace, &item->arena, &item->task);
    if (err == MR_NOMEM)
        cli_must(err);
    if (err != MR_OK)
        enqueue_item_refuse(item, err, "%s", detail.text);
    else
        enqueue_item_check(item);
}

void enqueue_item_from_json_text(struct enqueue_item *item,
                                 const struct enqueue_template *template_, struct mr_slice text)
{
    json_error_t error;
    json_t *json = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json) {
        item->task = template_->task;
        enqueue_item_refuse(item, MR_INVALID, "not JSON: %s at byte %d", error.text,
                            error.position);
        return;
    }
    enqueue_item_from_json(item, template_, json);
    json_decref(json);
}

void enqueue_item_check(struct enqueue_item *item)
{
    struct mr_detail detail = {0};
    enum mr_err err = mr_task_options_check(&item->task, MR_PAYLOAD_MAX, &detail);
    if (err != MR_OK)
        enqueue_item_refuse(item, err, "%s", detail.text[0] ? detail.text : mr_err_text(err));
}

void enqueue_item_done(struct enqueue_item *item)
{
    json_decref(item->json);
    mr_buf_done(&item->payload);
    mr_arena_done(&item->arena);
    free(item->why);
}

/* ---- answers -------------------------------------------------------------------------------- */

const char *enqueue_reason(const struct enqueue_item *item, const struct mr_enqueue_result *result,
                           char text[600])
{
    enum { SIZE = 600 };
    struct mr_detail said;
    if (item->err != MR_OK) {
        snprintf(text, SIZE, "%s", item->why);
        return text;
    }
    if (!mr_task_refusal(&item->task, result, &said))
        cli_err_text(result->err, &said);
    snprintf(text, SIZE, "%s", said.text);
    return text;
}

int enqueue_fail(const struct cli *cli, enum mr_err err, const struct mr_enqueue_result *first)
{
    if (!first->unknown)
        return cli_fail_err(err, "cannot enqueue on %s", cli->shown);
    return cli_fail(mr_err_exit_code(err),
                    "the answer of %s was lost: task %s may be there or not; millrace task show %s "
                    "tells",
                    cli->shown, first->id, first->id);
}

void enqueue_answer_json(struct jw *jw, const struct enqueue_item *item,
                         const struct mr_enqueue_result *result)
{
    char reason[600];
    struct mr_enqueue_result whole = *result;
    if (item->err != MR_OK)
        whole.err = item->err;
    mr_task_answer_json(jw, item->task.id, &whole,
                        whole.err != MR_OK ? enqueue_reason(item, result, reason) : "");
}
