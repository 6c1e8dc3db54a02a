/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are part of the program: packed when it was built, sent as they are to everybody who takes gzip. They
 * carry the rules a browser holds their pages to: nothing from elsewhere, no frame, no guess at a type.
 */
#ifndef MR_HTTP_FILE_H
#define MR_HTTP_FILE_H

#include "http/http.h"

/* Lives as long as the program. */
struct mr_http_file {
    const char *path; /* "/assets/app-1F2E3D.js" */
    const char *type;
    const char *etag; /* with its quotes */
    const unsigned char *packed;
    size_t packed_n;
    size_t plain_n; /* bytes that it unpacks to */
    bool fixed;     /* the name goes with the content: may be kept for ever */
};

/* Answers with the file, or that the client has it already. Thread: the server's own. */
void mr_http_reply_file(struct mr_http_request *request, const struct mr_http_file *file);

#endif
