/* SPDX-License-Identifier: Apache-2.0 */
/* The system's files, but a rename waits until the test lets it go on, as on a disk that stalls. */
#ifndef MR_TESTS_SLOW_FS_H
#define MR_TESTS_SLOW_FS_H

#include "base/chan.h"
#include "base/fs.h"
#include "base/list.h"

struct slow_fs {
    struct mr_fs fs;
    struct mr_fs_ops ops;
    _Atomic bool stalls; /* while set, renames wait */
    struct mr_event reached, go_on;
};

static inline enum mr_err slow_fs_rename(struct mr_fs *fs, const char *from, const char *to)
{
    struct slow_fs *slow = mr_container(fs, struct slow_fs, fs);
    if (slow->stalls) {
        mr_event_set(&slow->reached);
        (void)mr_event_wait(&slow->go_on, INT64_MAX);
    }
    return mr_fs_system()->ops->rename(mr_fs_system(), from, to);
}

static inline void slow_fs_init(struct slow_fs *slow)
{
    *slow = (struct slow_fs){.ops = *mr_fs_system()->ops};
    slow->ops.rename = slow_fs_rename;
    slow->fs.ops = &slow->ops;
    mr_event_init(&slow->reached);
    mr_event_init(&slow->go_on);
}

#endif
