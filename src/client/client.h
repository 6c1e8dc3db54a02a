/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the client share: a broker opened by URL, and what is under way to it. */
#ifndef MR_CLIENT_CLIENT_H
#define MR_CLIENT_CLIENT_H

#include <stdatomic.h>

#include "base/fs.h"
#include "base/net.h"
#include "broker/broker.h"

enum {
    MR_IN_FLIGHT_TASKS_MAX = 1000 * 1000, /* of mr_enqueue_async, not answered yet */
    MR_IN_FLIGHT_BYTES_MAX = 256 * 1024 * 1024,
};

struct mr_client {
    struct mr_broker *broker;
    _Atomic size_t tasks, bytes; /* in flight */
};

#define MR_FILE_SCHEME "file:"

/* The folder of a "file:" URL, with the namespace's own folder when it has a name. MR_UNSUPPORTED
 * for other engines, MR_INVALID, MR_TOO_BIG; all with detail (may be NULL). */
MR_MUST_USE enum mr_err mr_url_dir(const char *url, struct mr_slice namespace_,
                                   char ret_dir[MR_PATH_MAX], struct mr_detail *detail);

bool mr_url_is_redis(const char *url);

/* For people: a URL without the user and the password in it. Answers text. */
enum { MR_URL_SHOWN_MAX = MR_PATH_MAX + 256 };
const char *mr_url_shown(const char *url, char text[MR_URL_SHOWN_MAX]);

enum { MR_SERVER_MAX = MR_HOST_MAX + sizeof "[]:65535" };

/* HOST:PORT of what stands behind "millrace://" or "millraces://" in a URL; the port may be left
 * out there. MR_INVALID with detail (may be NULL). */
MR_MUST_USE enum mr_err mr_url_server(const char *url, const char *rest,
                                      char address[MR_SERVER_MAX], struct mr_detail *detail);

#endif
