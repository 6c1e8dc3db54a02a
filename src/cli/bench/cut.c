/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that carries bytes between pairs of sockets. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/net.h"
#include "cli/bench/names.h"

enum { PAIRS_MAX = 64, CHUNK = 64 * 1024, WAIT_MS = 20 };

/* What was read of one socket and is to go to the other. */
struct way {
    int fd;
    size_t len, at;
    uint8_t bytes[CHUNK];
};

struct pair {
    struct way ways[2];
    bool is_used;
};

struct link {
    int fd;
    char address[MR_ADDR_TEXT_MAX];
    struct mr_addr target;
    _Atomic bool has_target;
};

struct bench_cut {
    struct link links[BENCH_CUT_LINKS];
    size_t links_n;
    struct pair pairs[PAIRS_MAX];
    _Atomic bool is_cut, is_over;
    bool is_running;
    pthread_t thread;
};

static void pair_close(struct pair *pair)
{
    if (!pair->is_used)
        return;
    mr_net_close(pair->ways[0].fd);
    mr_net_close(pair->ways[1].fd);
    pair->is_used = false;
}

static void take_in(struct bench_cut *cut, struct link *link)
{
    int fd, other;
    struct mr_addr peer;
    struct pair *pair = NULL;
    if (mr_net_accept(link->fd, &fd, &peer) != MR_OK)
        return;
    for (size_t i = 0; pair == NULL && i < PAIRS_MAX; i++)
        if (!cut->pairs[i].is_used)
            pair = &cut->pairs[i];
    if (atomic_load(&cut->is_cut) || !atomic_load(&link->has_target) || pair == NULL ||
        mr_net_connect(&link->target, &other) != MR_OK) {
        mr_net_close(fd);
        return;
    }
    pair->is_used = true;
    pair->ways[0].fd = fd;
    pair->ways[1].fd = other;
    for (size_t i = 0; i < 2; i++)
        pair->ways[i].len = pair->ways[i].at = 0;
}

/* False: one of the two is gone. */
static bool carry(struct way *from, int to)
{
    enum mr_err err = MR_OK;
    size_t n = 0;
    if (from->at == from->len) {
        err = mr_net_read(from->fd, from->bytes, CHUNK, &n);
        if (err != MR_OK)
            return err == MR_EMPTY;
        from->at = 0;
        from->len = n;
    }
    err = mr_net_write(to, from->bytes + from->at, from->len - from->at, &n);
    if (err == MR_OK)
        from->at += n;
    return err == MR_OK || err == MR_EMPTY;
}

static void carry_all(struct bench_cut *cut)
{
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        struct pair *pair = &cut->pairs[i];
        if (!pair->is_used)
            continue;
        bool fine =
            carry(&pair->ways[0], pair->ways[1].fd) && carry(&pair->ways[1], pair->ways[0].fd);
        if (!fine || atomic_load(&cut->is_cut))
            pair_close(pair);
    }
}

static size_t wait_set(const struct bench_cut *cut, struct pollfd *fds)
{
    size_t n = 0;
    for (size_t i = 0; i < cut->links_n; i++)
        fds[n++] = (struct pollfd){.fd = cut->links[i].fd, .events = POLLIN};
    for (size_t i = 0; i < PAIRS_MAX; i++)
        for (size_t k = 0; cut->pairs[i].is_used && k < 2; k++) {
            const struct way *in = &cut->pairs[i].ways[k], *out = &cut->pairs[i].ways[1 - k];
            short events = in->at == in->len ? POLLIN : 0;
            events |= out->at < out->len ? POLLOUT : 0;
            fds[n++] = (struct pollfd){.fd = in->fd, .events = events};
        }
    return n;
}

static void *cut_main(void *arg)
{
    struct bench_cut *cut = arg;
    struct pollfd fds[BENCH_CUT_LINKS + 2 * PAIRS_MAX];
    while (!atomic_load(&cut->is_over)) {
        size_t n = wait_set(cut, fds);
        if (poll(fds, n, WAIT_MS) < 0 && errno != EINTR)
            break;
        for (size_t i = 0; i < cut->links_n; i++)
            if (fds[i].revents != 0)
                take_in(cut, &cut->links[i]);
        carry_all(cut);
    }
    return NULL;
}

static enum mr_err link_open(struct link *link)
{
    struct mr_addr any, bound;
    size_t n;
    MR_TRY(mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &any, 1, &n, NULL));
    MR_TRY(mr_net_listen(&any, &link->fd, &bound));
    mr_addr_text(&bound, link->address);
    return MR_OK;
}

enum mr_err bench_cut_open(size_t links, struct bench_cut **ret_cut)
{
    mr_assert(links <= BENCH_CUT_LINKS);
    struct bench_cut *cut = cli_alloc(1, sizeof *cut);
    *ret_cut = cut;
    while (cut->links_n < links) {
        MR_TRY(link_open(&cut->links[cut->links_n]));
        cut->links_n++;
    }
    MR_TRY(mr_thread_start(&cut->thread, "mr-cut", cut_main, cut));
    cut->is_running = true;
    return MR_OK;
}

const char *bench_cut_address(const struct bench_cut *cut, size_t link)
{
    return cut->links[link].address;
}

enum mr_err bench_cut_target(struct bench_cut *cut, size_t link, const char *address)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    size_t n;
    MR_TRY(mr_host_parse(address, host, &port));
    MR_TRY(mr_host_resolve(host, port, MR_RESOLVE_NUMBERS, &cut->links[link].target, 1, &n, NULL));
    atomic_store(&cut->links[link].has_target, true);
    return MR_OK;
}

void bench_cut_set(struct bench_cut *cut, bool is_cut)
{
    atomic_store(&cut->is_cut, is_cut);
}

void bench_cut_close(struct bench_cut *cut)
{
    if (cut == NULL)
        return;
    atomic_store(&cut->is_over, true);
    if (cut->is_running)
        mr_thread_join(cut->thread);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        pair_close(&cut->pairs[i]);
    for (size_t i = 0; i < cut->links_n; i++)
        mr_net_close(cut->links[i].fd);
    free(cut);
}
