/* SPDX-License-Identifier: Apache-2.0 */
#include "api/http_internal.h"

void http_takes_end(struct mr_http_api *api)
{
    (void)api;
}
