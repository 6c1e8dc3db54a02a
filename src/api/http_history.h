/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the last hour, in memory. Thread: the server's. */
#ifndef MR_API_HTTP_HISTORY_H
#define MR_API_HTTP_HISTORY_H

#include "api/http_internal.h"

struct http_history;

MR_MUST_USE enum mr_err http_history_new(struct mr_http_api *api,
                                         struct http_history **ret_history);
/* When no look is under way. NULL is fine. */
void http_history_free(struct http_history *history);
/* Every MR_HTTP_BEAT_MS: begins a look. */
void http_history_beat(struct http_history *history, struct mr_http *http);

#endif
