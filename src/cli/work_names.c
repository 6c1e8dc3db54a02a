/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/work_names.h"

#include <stdlib.h>

#include "base/rand.h"
#include "cli/names.h"
#include "worker/worker.h"

enum { MS_PER_HOUR = 3600 * 1000 };

struct work_names {
    struct cli_names names;
    struct mr_worker *worker;
    struct mr_rpc *rpc;
    struct mr_names_client *client;
    /* When it registered last. */
    int64_t said_ms;
    uint64_t said_done;
};

/* Thread: the loop. */
static enum mr_err say_body(struct mr_buf *buf, void *arg)
{
    struct work_names *n = arg;
    struct mr_worker_figures figures;
    mr_worker_figures(n->worker, &figures);
    int64_t now_ms = mr_mono_now(mr_clock_system()).ns / MR_NS_PER_MS, ms = now_ms - n->said_ms;
    uint64_t more = figures.done - n->said_done;
    struct mr_names_worker_body body = {
        .busy = figures.slots[MR_SLOT_WORKING],
        .done = figures.done,
        .in_hour = ms > 0 ? (int64_t)((double)more / (double)ms * MS_PER_HOUR) : 0,
    };
    for (size_t i = 0; i < MR_SLOT_STATE_COUNT; i++)
        body.slots += figures.slots[i];
    n->said_ms = now_ms;
    n->said_done = figures.done;
    return mr_names_worker_body_encode(&body, buf);
}

/* HOST:PORT of the broker, where it is a server; "": it is none, or several. */
static struct mr_slice server_of(const struct cli *cli)
{
    const char *at = strstr(cli->broker, "://");
    bool is_server = strncmp(cli->broker, "millrace", strlen("millrace")) == 0 && at;
    struct mr_slice server = mr_slice_str(is_server ? at + 3 : "");
    return mr_name_check(server) == MR_OK ? server : MR_SLICE_LIT("");
}

static enum mr_err begin(struct work_names *n, const struct work_names_options *options,
                         struct mr_detail *detail)
{
    char name[MR_NAME_MAX + 1];
    struct mr_names_client_options client = {
        .nameservers = n->names.addresses,
        .nameservers_n = n->names.n,
        .tls = cli_names_tls(&n->names),
        .authorization = n->names.authorization,
        .entry = {.kind = MR_NAMES_WORKER,
                  .name = mr_node_name(mr_slice_str(options->node ? options->node : ""), name),
                  .app = mr_slice_str(options->app),
                  .server = server_of(options->cli),
                  .incarnation = mr_rand_next(mr_rand_of_thread()) | 1},
        .register_ms = options->every_ms,
        .is_brief = true,
        .body = say_body,
        .arg = n,
    };
    n->said_ms = mr_mono_now(mr_clock_system()).ns / MR_NS_PER_MS;
    MR_TRY(mr_rpc_new("mr-names", NULL, &n->rpc));
    client.rpc = n->rpc;
    return mr_names_client_new(&client, &n->client, detail);
}

int work_names_open(const struct work_names_options *options, struct work_names **ret_names)
{
    struct work_names *n = cli_alloc(1, sizeof *n);
    struct mr_detail detail = {0};
    n->worker = options->worker;
    int code = cli_names_read(options->cli, options->name, options->list, &n->names);
    if (code == CLI_OK)
        code = cli_names_identify(options->cli, &n->names);
    enum mr_err err = code == CLI_OK ? begin(n, options, &detail) : MR_OK;
    if (err != MR_OK)
        code = cli_fail_detail(err, "cannot use the nameservers", options->list, &detail);
    if (code == CLI_OK)
        *ret_names = n;
    else
        work_names_close(n);
    return code;
}

void work_names_close(struct work_names *names)
{
    if (names == NULL)
        return;
    mr_names_client_free(names->client);
    mr_rpc_free(names->rpc);
    cli_names_done(&names->names);
    free(names);
}
