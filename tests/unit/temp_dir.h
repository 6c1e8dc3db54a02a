/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of real files for one test, and everything in it gone at its end. */
#ifndef MR_TESTS_TEMP_DIR_H
#define MR_TESTS_TEMP_DIR_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEMP_DIR_MAX = 64 };

static inline void temp_dir_make(char path[TEMP_DIR_MAX])
{
    snprintf(path, TEMP_DIR_MAX, "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(path));
}

/* With the files in it, and the folders in it with theirs. Fine when it is not there. */
static inline void temp_dir_remove(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char inner[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%.250s/%.250s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            temp_dir_remove(inner);
        else
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(path), 0);
}

#endif
