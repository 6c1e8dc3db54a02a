/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dashboard: files made from web/ when the program was built (scripts/web.sh). They hold nothing that is secret,
 * so anybody may have them; what they show comes by the API, for those who may see it.
 */
#ifndef MR_API_HTTP_WEB_H
#define MR_API_HTTP_WEB_H

#include "http/file.h"

/* The generated file has these. The page itself is the first one, at "/". */
extern const struct mr_http_file mr_web_files[];
extern const size_t mr_web_files_n;

/* For mr_http_start: one route for each file. It lives as long as the program. */
void mr_http_web_table(struct mr_http_table *ret_table);

#endif
