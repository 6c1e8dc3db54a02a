/* SPDX-License-Identifier: Apache-2.0 */
/* See far.h. */
#include "conform/far.h"

#include <stdio.h>

#include "api/api.h"
#include "conform/place.h"
#include "support/full_broker.h"
#include "support/server_rig.h"

enum { STOP_MS = 2000 };

/* One server. */
struct site {
    struct full_broker full;
    struct mr_broker *store; /* behind the server */
    struct server_rig server;
};

struct far {
    struct far_options options;
    struct place place;
    struct site sites[FAR_SERVERS_MAX];
    /* On the copy of a backup. Its client is closed by the suite, so it goes with the next one. */
    struct site copy;
};

/* ---- servers ----------------------------------------------------------------------------------- */

static enum mr_err site_up(struct site *site, const char *dir, bool has_room)
{
    MR_TRY(place_open(dir, &site->store));
    site->full = (struct full_broker){{&full_broker_ops}, site->store};
    return server_rig_start(&site->server, has_room ? site->store : &site->full.broker);
}

static void site_down(struct site *site)
{
    server_rig_stop(&site->server, STOP_MS);
    mr_broker_close(site->store);
    site->store = NULL;
}

static enum mr_err connect(const struct far *far, const struct site *sites, size_t n,
                           struct mr_broker **ret_broker)
{
    struct mr_detail detail = {.text = ""};
    const char *addresses[FAR_SERVERS_MAX];
    for (size_t i = 0; i < n; i++)
        addresses[i] = sites[i].server.address;
    enum mr_err err = far->options.connect(addresses, n, ret_broker, &detail);
    if (err != MR_OK)
        print_error("%s: %s: %s\n", addresses[0], mr_err_name(err), detail.text);
    return err;
}

static enum mr_err open_all(struct far *far, struct mr_broker **ret_broker)
{
    for (size_t i = 0; i < far->options.servers; i++) {
        char dir[MR_PATH_MAX], name[32];
        (void)snprintf(name, sizeof name, "store-%zu", i);
        MR_TRY(mr_path_join(dir, far->place.base, name));
        MR_TRY(site_up(&far->sites[i], i == 0 ? far->place.store : dir,
                       i == 0 || far->options.room == FAR_ROOM_EVERYWHERE));
    }
    return connect(far, far->sites, far->options.servers, ret_broker);
}

static enum mr_err open_new(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    *far = (struct far){.options = far->options};
    MR_TRY(place_make(&far->place));
    return open_all(far, ret_broker);
}

/* The servers are started again, too: what they knew and did not write down is gone. */
static enum mr_err reopen(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    for (size_t i = 0; i < far->options.servers; i++)
        site_down(&far->sites[i]);
    return open_all(far, ret_broker);
}

static const char *backup_dir(void *arg)
{
    struct far *far = arg;
    return far->place.copy;
}

static enum mr_err open_copy(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    MR_TRY(site_up(&far->copy, far->place.copy, true));
    return connect(far, &far->copy, 1, ret_broker);
}

static void clean(void *arg)
{
    struct far *far = arg;
    site_down(&far->copy);
    for (size_t i = 0; i < far->options.servers; i++)
        site_down(&far->sites[i]);
    place_remove(&far->place);
}

int far_main(const struct far_options *options, int argc, char **argv)
{
    struct far far = {.options = *options};
    far.options.servers = options->servers > 0 ? options->servers : 1;
    const struct conform_engine engine = {
        .name = options->name,
        .arg = &far,
        .open = open_new,
        .reopen = reopen,
        .backup_dir = backup_dir,
        .open_copy = open_copy,
        .clean = clean,
        .can_reopen = true,
        .can_backup = true,
        .payload_max = MR_PAYLOAD_MAX,
        .splits_batches = far.options.servers > 1,
        .left_out = options->left_out,
    };
    return conform_main(&engine, argc, argv);
}
