/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the conformance suite on the remote engine. */
#include "broker/remote/remote.h"
#include "conform/far.h"

static enum mr_err open_remote(const char *const *addresses, size_t n,
                               struct mr_broker **ret_broker, struct mr_detail *detail)
{
    struct mr_remote_options options = {.address = addresses[0]};
    (void)n;
    return mr_remote_open(&options, ret_broker, detail);
}

int main(int argc, char **argv)
{
    struct far_options options = {.name = "remote", .connect = open_remote};
    return far_main(&options, argc, argv);
}
