/* SPDX-License-Identifier: Apache-2.0 */
/* The dashboard's files, each at its path. */
#include "api/http_web.h"

enum { FILES_MAX = 16 };

static void reply(struct mr_http_request *request, void *arg)
{
    (void)arg;
    mr_http_reply_file(request, mr_http_route_data(request));
}

void mr_http_web_table(struct mr_http_table *ret_table)
{
    static struct mr_http_route routes[FILES_MAX];
    mr_assert(mr_web_files_n <= FILES_MAX);
    for (size_t i = 0; i < mr_web_files_n; i++)
        routes[i] = (struct mr_http_route){
            .method = "GET",
            .path = mr_web_files[i].path,
            .handle = reply,
            .data = &mr_web_files[i],
        };
    *ret_table = (struct mr_http_table){.routes = routes, .routes_n = mr_web_files_n};
}
