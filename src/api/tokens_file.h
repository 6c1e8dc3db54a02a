/* SPDX-License-Identifier: Apache-2.0 */
/* The file of tokens: text, a line each; read and written as a whole. */
#ifndef MR_API_TOKENS_FILE_H
#define MR_API_TOKENS_FILE_H

#include "api/tokens.h"

/* *ret_list is to be freed, in the order of the file. A missing file holds none. */
MR_MUST_USE enum mr_err tokens_file_read(struct mr_fs *fs, const char *dir,
                                         struct mr_token **ret_list, size_t *ret_n,
                                         struct mr_detail *detail);
/* Beside the old one, synced, then in its place. */
MR_MUST_USE enum mr_err tokens_file_write(struct mr_fs *fs, const char *dir,
                                          const struct mr_token *list, size_t n,
                                          struct mr_detail *detail);

#endif
