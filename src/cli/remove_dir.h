/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_REMOVE_DIR_H
#define MR_CLI_REMOVE_DIR_H

/* Removes a folder of ours and all in it; says so when it cannot. */
void remove_dir(const char *dir);

#endif
