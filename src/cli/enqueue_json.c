/* SPDX-License-Identifier: Apache-2.0 */
/* enqueue --json: one object or an array of them, sent in batches, an answer for each in order. */
#include <stdlib.h>

#include "cli/enqueue.h"
#include "cli/out.h"

enum { INPUT_MAX = 256 * 1024 * 1024 };

/* The document, from the argument or from standard input; NULL after saying what is wrong. */
static json_t *read_document(struct cli *cli, int *ret_code)
{
    struct mr_buf buf = {0};
    struct mr_slice text = {0};
    json_t *json = NULL;
    json_error_t error;
    if (cli->words_n > 0 && strcmp(cli->words[0], "-") != 0) {
        text = mr_slice_str(cli->words[0]);
    } else {
        enum mr_err err = cli_read_stdin(&buf, INPUT_MAX);
        if (err != MR_OK) {
            *ret_code = cli_fail_err(err, "cannot read JSON from standard input");
            goto done;
        }
        text = mr_buf_slice(&buf);
    }
    json = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json)
        *ret_code = cli_usage(cli,
                              "--json takes tasks as JSON, such as '{\"payload\":\"hello\"}': %s "
                              "at line %d, column %d",
                              error.text, error.line, error.column);
done:
    mr_buf_done(&buf);
    return json;
}

struct batch {
    struct enqueue_item *items; /* MR_BATCH_MAX */
    struct mr_task_options *tasks;
    struct mr_enqueue_result *results; /* of the items, where they were sent */
    struct mr_enqueue_result *sent;    /* of the tasks */
    size_t n;
};

static void batch_init(struct batch *batch)
{
    batch->items = cli_alloc(MR_BATCH_MAX, sizeof *batch->items);
    batch->tasks = cli_alloc(MR_BATCH_MAX, sizeof *batch->tasks);
    batch->results = cli_alloc(MR_BATCH_MAX, sizeof *batch->results);
    batch->sent = cli_alloc(MR_BATCH_MAX, sizeof *batch->sent);
}

static void batch_clear(struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        enqueue_item_done(&batch->items[i]);
    memset(batch->items, 0, batch->n * sizeof *batch->items);
    batch->n = 0;
}

static void batch_done(struct batch *batch)
{
    batch_clear(batch);
    free(batch->items);
    free(batch->tasks);
    free(batch->results);
    free(batch->sent);
}

/* Sends what is fit to be sent; opens the store for the first such task and not before. 0 or the
 * exit code after saying what is wrong. */
static int batch_send(struct cli *cli, struct batch *batch)
{
    size_t n = 0;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->items[i].err == MR_OK)
            batch->tasks[n++] = batch->items[i].task;
    if (n == 0)
        return CLI_OK;
    int code = cli->client ? CLI_OK : cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    if (code != CLI_OK)
        return code;
    batch->sent[0] = (struct mr_enqueue_result){.err = MR_OK};
    enum mr_err err = mr_enqueue(cli->client, batch->tasks, n, batch->sent);
    if (err != MR_OK)
        return enqueue_fail(cli, err, &batch->sent[0]);
    for (size_t i = 0, k = 0; i < batch->n; i++)
        if (batch->items[i].err == MR_OK)
            batch->results[i] = batch->sent[k++];
    return CLI_OK;
}

/* Answers for a batch; the number of items that were refused. */
static size_t batch_answer(const struct batch *batch, struct jw *jw)
{
    size_t refused = 0;
    for (size_t i = 0; i < batch->n; i++) {
        const struct enqueue_item *item = &batch->items[i];
        enqueue_answer_json(jw, item, &batch->results[i]);
        refused += item->err != MR_OK || batch->results[i].err != MR_OK;
    }
    return refused;
}

static int send_single(struct cli *cli, struct batch *batch, json_t *json,
                       const struct enqueue_template *template_)
{
    struct jw jw = {0};
    struct enqueue_item *item = &batch->items[batch->n++];
    enqueue_item_from_json(item, template_, json);
    int code = batch_send(cli, batch);
    if (code != CLI_OK)
        return code;
    size_t refused = batch_answer(batch, &jw);
    if (refused == 0 && template_->wait) {
        mr_buf_done(&jw.buf);
        return enqueue_wait(cli, batch->results[0].id, template_->wait_ms);
    }
    jw_finish(&jw);
    if (refused == 0)
        return CLI_OK;
    char reason[600];
    enum mr_err err = item->err != MR_OK ? item->err : batch->results[0].err;
    return cli_fail(mr_err_exit_code(err), "%s", enqueue_reason(item, &batch->results[0], reason));
}

static int send_array(struct cli *cli, struct batch *batch, json_t *json,
                      const struct enqueue_template *template_)
{
    struct jw jw = {0};
    size_t total = json_array_size(json), refused = 0;
    int code = CLI_OK;
    jw_array_begin(&jw, NULL);
    for (size_t i = 0; code == CLI_OK && i < total;) {
        while (batch->n < MR_BATCH_MAX && i < total)
            enqueue_item_from_json(&batch->items[batch->n++], template_, json_array_get(json, i++));
        code = batch_send(cli, batch);
        if (code == CLI_OK)
            refused += batch_answer(batch, &jw);
        if (code == CLI_OK)
            jw_flush(&jw);
        batch_clear(batch);
    }
    jw_array_end(&jw);
    /* After a failure the answers so far stand; without any there is no document. */
    if (code == CLI_OK || jw.buf.len < strlen("[]"))
        jw_finish(&jw);
    mr_buf_done(&jw.buf);
    if (code == CLI_OK && refused > 0)
        code =
            cli_fail(CLI_FAILED, "%zu of %zu tasks were refused; see their error", refused, total);
    return code;
}

int enqueue_json(struct cli *cli, const struct enqueue_template *template_)
{
    int code = CLI_FAILED;
    json_t *json = read_document(cli, &code);
    if (!json)
        return code;
    if (template_->wait && json_is_array(json)) {
        json_decref(json);
        return cli_usage(cli, "--wait is for one task, not for an array of them");
    }
    struct batch batch = {0};
    batch_init(&batch);
    code = json_is_array(json) ? send_array(cli, &batch, json, template_)
                               : send_single(cli, &batch, json, template_);
    batch_done(&batch);
    json_decref(json);
    return code;
}
