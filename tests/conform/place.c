/* SPDX-License-Identifier: Apache-2.0 */
#include "conform/place.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "conform/conform.h"

enum { SEGMENT_BYTES = 4 * 1024 * 1024 };

enum mr_err place_make(struct place *place)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(place->base, sizeof place->base, "%s/millrace-conform-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(place->base) == NULL)
        return MR_IO;
    MR_TRY(mr_path_join(place->store, place->base, "store"));
    return mr_path_join(place->copy, place->base, "copy");
}

/* Removes a folder and the folders in it. */
static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char child[MR_PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            mr_path_join(child, path, entry->d_name) != MR_OK)
            continue;
        if (entry->d_type == DT_DIR)
            remove_tree(child);
        else
            (void)unlink(child);
    }
    (void)closedir(dir);
    (void)rmdir(path);
}

void place_remove(struct place *place)
{
    remove_tree(place->base);
}

enum mr_err place_open(const char *dir, struct mr_broker **ret_broker)
{
    struct mr_embedded_options options = {.dir = dir, .segment_bytes = SEGMENT_BYTES};
    struct mr_detail detail = {.text = ""};
    enum mr_err err = mr_embedded_open(&options, ret_broker, &detail);
    if (err != MR_OK)
        print_error("%s: %s: %s\n", dir, mr_err_name(err), detail.text);
    return err;
}
