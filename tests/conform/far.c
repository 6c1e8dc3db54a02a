/* SPDX-License-Identifier: Apache-2.0 */
/* See far.h. */
#include "conform/far.h"

#include "api/api.h"
#include "conform/place.h"
#include "support/server_rig.h"

enum { STOP_MS = 2000 };

struct far {
    far_connect *connect;
    struct place place;
    struct mr_broker *store; /* behind the server */
    struct server_rig server;
    /* On the copy of a backup. Its client is closed by the suite, so it goes with the next one. */
    struct mr_broker *copy_store;
    struct server_rig copy_server;
};

static enum mr_err serve(const struct far *far, const char *dir, struct server_rig *rig,
                         struct mr_broker **ret_store, struct mr_broker **ret_broker)
{
    struct mr_detail detail = {.text = ""};
    MR_TRY(place_open(dir, ret_store));
    MR_TRY(server_rig_start(rig, *ret_store));
    enum mr_err err = far->connect(rig->address, ret_broker, &detail);
    if (err != MR_OK)
        print_error("%s: %s: %s\n", rig->address, mr_err_name(err), detail.text);
    return err;
}

static void shut(struct server_rig *rig, struct mr_broker **store)
{
    server_rig_stop(rig, STOP_MS);
    mr_broker_close(*store);
    *store = NULL;
}

static enum mr_err open_new(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    *far = (struct far){.connect = far->connect};
    MR_TRY(place_make(&far->place));
    return serve(far, far->place.store, &far->server, &far->store, ret_broker);
}

/* The server is started again, too: what it knew and did not write down is gone. */
static enum mr_err reopen(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    shut(&far->server, &far->store);
    return serve(far, far->place.store, &far->server, &far->store, ret_broker);
}

static const char *backup_dir(void *arg)
{
    struct far *far = arg;
    return far->place.copy;
}

static enum mr_err open_copy(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    return serve(far, far->place.copy, &far->copy_server, &far->copy_store, ret_broker);
}

static void clean(void *arg)
{
    struct far *far = arg;
    shut(&far->copy_server, &far->copy_store);
    shut(&far->server, &far->store);
    place_remove(&far->place);
}

int far_main(const char *name, far_connect *connect, int argc, char **argv)
{
    struct far far = {.connect = connect};
    const struct conform_engine engine = {
        .name = name,
        .arg = &far,
        .open = open_new,
        .reopen = reopen,
        .backup_dir = backup_dir,
        .open_copy = open_copy,
        .clean = clean,
        .can_reopen = true,
        .can_backup = true,
        .payload_max = MR_PAYLOAD_MAX,
    };
    return conform_main(&engine, argc, argv);
}
