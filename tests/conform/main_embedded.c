/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the conformance suite on the embedded engine, in a new folder per test below TMPDIR.
 * An argument is a pattern of test names to run instead of all ("*waiter*").
 */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "conform/conform.h"

enum { SEGMENT_BYTES = 4 * 1024 * 1024 };

/* Folders of the test that runs. */
struct place {
    char base[MR_PATH_MAX];
    char store[MR_PATH_MAX];
    char copy[MR_PATH_MAX];
};

static enum mr_err open_dir(const char *dir, struct mr_broker **ret_broker)
{
    struct mr_embedded_options options = {.dir = dir, .segment_bytes = SEGMENT_BYTES};
    struct mr_detail detail = {.text = ""};
    enum mr_err err = mr_embedded_open(&options, ret_broker, &detail);
    if (err != MR_OK)
        print_error("%s: %s: %s\n", dir, mr_err_name(err), detail.text);
    return err;
}

static enum mr_err open_new(void *arg, struct mr_broker **ret_broker)
{
    struct place *place = arg;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(place->base, sizeof place->base, "%s/millrace-conform-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(place->base) == NULL)
        return MR_IO;
    MR_TRY(mr_path_join(place->store, place->base, "store"));
    MR_TRY(mr_path_join(place->copy, place->base, "copy"));
    return open_dir(place->store, ret_broker);
}

static enum mr_err reopen(void *arg, struct mr_broker **ret_broker)
{
    struct place *place = arg;
    return open_dir(place->store, ret_broker);
}

static const char *backup_dir(void *arg)
{
    struct place *place = arg;
    return place->copy;
}

static enum mr_err open_copy(void *arg, struct mr_broker **ret_broker)
{
    struct place *place = arg;
    return open_dir(place->copy, ret_broker);
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

static void clean(void *arg)
{
    struct place *place = arg;
    remove_tree(place->base);
}

int main(int argc, char **argv)
{
    static struct place place;
    static const struct conform_engine engine = {
        .name = "embedded",
        .arg = &place,
        .open = open_new,
        .reopen = reopen,
        .backup_dir = backup_dir,
        .open_copy = open_copy,
        .clean = clean,
        .can_reopen = true,
        .can_backup = true,
        .payload_max = MR_PAYLOAD_MAX,
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return conform_run(&engine) == 0 ? 0 : 1;
}
