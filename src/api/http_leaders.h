/* SPDX-License-Identifier: Apache-2.0 */
/* Who has led, as far as this server has seen. Thread: the server's. */
#ifndef MR_API_HTTP_LEADERS_H
#define MR_API_HTTP_LEADERS_H

#include "api/http_internal.h"

struct http_leaders;

MR_MUST_USE enum mr_err http_leaders_new(struct mr_http_api *api,
                                         struct http_leaders **ret_leaders);
/* When no look is under way. NULL is fine. */
void http_leaders_free(struct http_leaders *leaders);
/* Every MR_HTTP_BEAT_MS: begins a look. */
void http_leaders_beat(struct http_leaders *leaders, struct mr_http *http);

#endif
