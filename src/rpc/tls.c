/* SPDX-License-Identifier: Apache-2.0 */
/* TLS as HTTP/2 wants it. */
#include "rpc/internal.h"

enum mr_err rpc_tls_new(const struct mr_rpc_tls *options, enum mr_tls_side side,
                        struct mr_tls **ret_tls, struct mr_detail *detail)
{
    struct mr_tls_options tls = {
        .side = side,
        .cert_file = options->cert_file,
        .key_file = options->key_file,
        .ca_file = options->ca_file,
        .protocol = "h2",
    };
    return mr_tls_new(&tls, ret_tls, detail);
}

enum mr_err mr_rpc_tls_check(const struct mr_rpc_tls *options, struct mr_detail *detail)
{
    struct mr_tls *tls;
    MR_TRY(rpc_tls_new(options, MR_TLS_SERVER, &tls, detail));
    mr_tls_free(tls);
    return MR_OK;
}
