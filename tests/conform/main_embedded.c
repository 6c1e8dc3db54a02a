/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the conformance suite on the embedded engine. */
#include "conform/conform.h"
#include "conform/place.h"

static enum mr_err open_new(void *arg, struct mr_broker **ret_broker)
{
    struct place *place = arg;
    MR_TRY(place_make(place));
    return place_open(place->store, ret_broker);
}

static enum mr_err reopen(void *arg, struct mr_broker **ret_broker)
{
    struct place *place = arg;
    return place_open(place->store, ret_broker);
}

static const char *backup_dir(void *arg)
{
    struct place *place = arg;
    return place->copy;
}

static enum mr_err open_copy(void *arg, struct mr_broker **ret_broker)
{
    struct place *place = arg;
    return place_open(place->copy, ret_broker);
}

static void clean(void *arg)
{
    place_remove(arg);
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
        .has_inner = true,
        .payload_max = MR_PAYLOAD_MAX,
    };
    return conform_main(&engine, argc, argv);
}
