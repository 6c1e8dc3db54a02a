/* SPDX-License-Identifier: Apache-2.0 */
/* Who fires what: see share.h. */
#include "timer/share.h"

#include <string.h>

bool mr_share_may(const struct mr_share_server *server, struct mr_slice app)
{
    const char *at = server->apps.data, *end = at + server->apps.len;
    if (server->apps.len == 0)
        return true;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((line != NULL ? line : end) - at);
        if (mr_slice_equal(mr_slice_make(at, len), app))
            return true;
        at += len + 1;
    }
    return false;
}

/* Of those that may have it, the one that has least; of equals the first. */
static size_t least(const struct mr_share_server *servers, size_t n, struct mr_slice app)
{
    size_t found = MR_SHARE_NOBODY;
    for (size_t i = 0; i < n; i++) {
        bool has_less = found == MR_SHARE_NOBODY || servers[i].n < servers[found].n;
        if (has_less && mr_share_may(&servers[i], app))
            found = i;
    }
    return found;
}

static void give(struct mr_share_server *servers, struct mr_share_app *app, size_t to)
{
    if (app->owner != MR_SHARE_NOBODY)
        servers[app->owner].n--;
    if (to != MR_SHARE_NOBODY)
        servers[to].n++;
    app->owner = to;
}

/* From those that have more than so many. Each move brings two servers closer together, so there is an end to them. */
static void even_out(struct mr_share_server *servers, size_t servers_n, struct mr_share_app *apps,
                     size_t apps_n, size_t many)
{
    bool moved;
    do {
        moved = false;
        for (size_t i = 0; i < apps_n; i++) {
            size_t from = apps[i].owner;
            if (from == MR_SHARE_NOBODY || servers[from].n <= many)
                continue;
            size_t to = least(servers, servers_n, apps[i].name);
            if (servers[from].n < servers[to].n + 2)
                continue;
            give(servers, &apps[i], to);
            moved = true;
        }
    } while (moved);
}

void mr_share(struct mr_share_server *servers, size_t servers_n, struct mr_share_app *apps,
              size_t apps_n)
{
    for (size_t i = 0; i < servers_n; i++)
        servers[i].n = 0;
    for (size_t i = 0; i < apps_n; i++) {
        size_t owner = apps[i].owner;
        if (owner != MR_SHARE_NOBODY && mr_share_may(&servers[owner], apps[i].name))
            servers[owner].n++;
        else
            apps[i].owner = MR_SHARE_NOBODY;
    }
    for (size_t i = 0; i < apps_n; i++) {
        if (apps[i].owner == MR_SHARE_NOBODY)
            give(servers, &apps[i], least(servers, servers_n, apps[i].name));
    }
    if (servers_n == 0)
        return;
    /* First those give that must, then those that have a larger share: others may then have no need to. */
    even_out(servers, servers_n, apps, apps_n, (apps_n + servers_n - 1) / servers_n);
    even_out(servers, servers_n, apps, apps_n, apps_n / servers_n);
    even_out(servers, servers_n, apps, apps_n, 0);
}
