/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remove_dir.h"

#include <ftw.h>
#include <stdio.h>

#include "cli/cli.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void remove_dir(const char *dir)
{
    enum { OPEN_FOLDERS = 8 };
    if (nftw(dir, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) != 0)
        cli_fail(CLI_FAILED, "cannot remove the folder %s; remove it by hand", dir);
}
