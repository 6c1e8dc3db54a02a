/* SPDX-License-Identifier: Apache-2.0 */
/* Nameservers on ports that the kernel chose. Include it in one file of a test program, behind cmocka.h. */
#ifndef MR_TESTS_NAMES_RIG_H
#define MR_TESTS_NAMES_RIG_H

#include <stdio.h>

#include "names/service.h"
#include "support/look.h"

enum { INTERVAL_MS = 100 };

struct node {
    struct mr_rpc *rpc;
    struct mr_names *names;
    char address[32];
};

/* With an address it was there before. */
static inline void node_start(struct node *node, const struct mr_names_options *given)
{
    struct mr_names_options options = *given;
    struct mr_detail detail = {""};
    struct mr_rpc_service service = {.address =
                                         node->address[0] != '\0' ? node->address : "127.0.0.1:0"};
    uint16_t port;
    assert_int_equal(mr_rpc_new("names", NULL, &node->rpc), MR_OK);
    options.rpc = node->rpc;
    options.interval_ms = INTERVAL_MS;
    options.push_ms = 10;
    if (mr_names_new(&options, &node->names, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    service.arg = node->names;
    service.methods = mr_names_methods(&service.methods_n);
    enum mr_err err;
    mr_mono since = mr_mono_now(mr_clock_system());
    do /* between its two lives another program may have got the port for a connection */
        err = mr_rpc_listen(node->rpc, &service, &port, &detail);
    while (err == MR_IN_USE && look_again(since, 10000));
    if (err != MR_OK)
        fail_msg("%s", detail.text);
    (void)snprintf(node->address, sizeof node->address, "127.0.0.1:%u", (unsigned)port);
}

static inline void node_stop(struct node *node)
{
    if (node->names == NULL)
        return;
    mr_names_stop(node->names);
    mr_rpc_free(node->rpc);
    mr_names_free(node->names);
    node->names = NULL;
}

#endif
