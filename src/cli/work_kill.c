/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending at once: the commands under way are killed, so that their handlers return now. The library
 * lends no list of its processes; the kernel has one. Each command leads a process group of its
 * own.
 */
#include "cli/work.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The parent and the process group of a process; false when it is gone. */
static bool read_parent(const char *pid, int *ret_parent, int *ret_group)
{
    char path[300], text[512];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    const char *behind_name = strrchr(text, ')'); /* the name may hold anything */
    return behind_name && sscanf(behind_name + 1, " %*c %d %d", ret_parent, ret_group) == 2;
}

void work_kill_children(void)
{
    DIR *dir = opendir("/proc");
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        int parent = 0, group = 0;
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !read_parent(entry->d_name, &parent, &group) || parent != getpid())
            continue;
        if (group != getpgrp())
            kill(-group, SIGKILL);
    }
    closedir(dir);
}
