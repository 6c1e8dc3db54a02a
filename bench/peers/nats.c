/* SPDX-License-Identifier: Apache-2.0 */
/* NATS JetStream by its own client for C: a stream kept in files, as a work queue, and pull consumers. */
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "client.h"

#define STREAM   "PEERS"
#define SUBJECT  "peers"
#define CONSUMER "workers"

enum {
    STALL_MS = 30 * 1000,
    FETCH_MS = 500,
    FETCHES = 4, /* threads that fetch; each asks for a batch at a time */
    ACK_PENDING = 2 * FETCHES * PEER_PREFETCH,
};

struct peer {
    natsConnection *connection;
    jsCtx *js; /* for streams and consumers */
};

static void check(natsStatus status, const char *what)
{
    if (status != NATS_OK)
        peer_die("nats: %s: %s", what, natsStatus_GetText(status));
}

static void make_stream(jsCtx *js)
{
    static const char *subjects[] = {SUBJECT};
    jsStreamConfig config;
    jsErrCode code = 0;
    check(jsStreamConfig_Init(&config), "stream");
    config.Name = STREAM;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Retention = js_WorkQueuePolicy;
    config.Storage = js_FileStorage;
    natsStatus status = js_AddStream(NULL, js, &config, NULL, &code);
    if (code != JSStreamNameExistErr)
        check(status, "stream");
}

static void make_consumer(jsCtx *js)
{
    jsConsumerConfig config;
    check(jsConsumerConfig_Init(&config), "consumer");
    config.Durable = CONSUMER;
    config.AckPolicy = js_AckExplicit;
    config.MaxAckPending = ACK_PENDING;
    check(js_AddConsumer(NULL, js, STREAM, &config, NULL, NULL), "consumer");
}

static void *peer_open(const char *address, const char *phase)
{
    (void)phase;
    struct peer *peer = peer_alloc(1, sizeof *peer);
    char url[128];
    snprintf(url, sizeof url, "nats://%s", address);
    check(natsConnection_ConnectTo(&peer->connection, url), url);
    check(natsConnection_JetStream(&peer->js, peer->connection, NULL), "JetStream");
    make_stream(peer->js);
    make_consumer(peer->js);
    return peer;
}

static void peer_close(void *arg)
{
    struct peer *peer = arg;
    jsCtx_Destroy(peer->js);
    natsConnection_Destroy(peer->connection);
    nats_Close();
}

/* ---- enqueue -------------------------------------------------------------------------------- */

static void on_error(jsCtx *js, jsPubAckErr *error, void *arg)
{
    (void)js;
    (void)arg;
    peer_die("nats: publish: %s", error->ErrText ? error->ErrText : "not acknowledged");
}

/* A publish waits while so many are not acknowledged. */
static uint64_t publish(struct peer *peer, const struct peer_phase *phase, unsigned in_flight)
{
    jsOptions options;
    jsCtx *js;
    uint64_t sent = 0;
    check(jsOptions_Init(&options), "options");
    options.PublishAsync.MaxPending = in_flight;
    options.PublishAsync.StallWait = STALL_MS;
    options.PublishAsync.ErrHandler = on_error;
    check(natsConnection_JetStream(&js, peer->connection, &options), "JetStream");
    for (; !peer_over(phase); sent++)
        check(js_PublishAsync(js, SUBJECT, peer_payload, PEER_PAYLOAD, NULL), "publish");
    check(js_PublishAsyncComplete(js, NULL), "publish");
    jsCtx_Destroy(js);
    return sent;
}

static uint64_t single(void *peer, const struct peer_phase *phase)
{
    return publish(peer, phase, PEER_SINGLE);
}

static uint64_t batch(void *peer, const struct peer_phase *phase)
{
    return publish(peer, phase, PEER_BATCH * PEER_BATCHES);
}

/* ---- take, run, finish ---------------------------------------------------------------------- */

struct crew {
    struct peer *peer;
    const struct peer_phase *phase;
    _Atomic uint64_t done;
};

static bool crew_over(struct crew *crew)
{
    return crew->done >= crew->phase->tasks || peer_over(crew->phase);
}

static void *fetch(void *arg)
{
    struct crew *crew = arg;
    natsSubscription *subscription;
    natsMsgList list;
    check(js_PullSubscribe(&subscription, crew->peer->js, SUBJECT, CONSUMER, NULL, NULL, NULL),
          "subscribe");
    while (!crew_over(crew)) {
        natsStatus status =
            natsSubscription_Fetch(&list, subscription, PEER_PREFETCH, FETCH_MS, NULL);
        if (status == NATS_TIMEOUT)
            continue;
        check(status, "fetch");
        for (int i = 0; i < list.Count; i++)
            check(natsMsg_Ack(list.Msgs[i], NULL), "ack");
        crew->done += (uint64_t)list.Count;
        natsMsgList_Destroy(&list);
    }
    natsSubscription_Destroy(subscription);
    return NULL;
}

/* No answer is given to an ack: the consumer is asked until it has all of them. */
static void await_acks(struct peer *peer)
{
    static const struct timespec LOOK = {.tv_nsec = 1000 * 1000};
    int64_t pending = 1;
    check(natsConnection_Flush(peer->connection), "flush");
    while (pending > 0) {
        jsConsumerInfo *info;
        check(js_GetConsumerInfo(&info, peer->js, STREAM, CONSUMER, NULL, NULL), "consumer");
        pending = info->NumAckPending;
        jsConsumerInfo_Destroy(info);
        if (pending > 0)
            nanosleep(&LOOK, NULL);
    }
}

static uint64_t work(void *peer, const struct peer_phase *phase)
{
    struct crew crew = {.peer = peer, .phase = phase};
    pthread_t threads[FETCHES];
    for (int i = 0; i < FETCHES; i++)
        if (pthread_create(&threads[i], NULL, fetch, &crew) != 0)
            peer_die("no thread");
    for (int i = 0; i < FETCHES; i++)
        pthread_join(threads[i], NULL);
    await_acks(peer);
    return crew.done;
}

int main(int argc, char **argv)
{
    static const struct peer_ops ops = {
        .open = peer_open, .single = single, .batch = batch, .work = work, .close = peer_close};
    return peer_main(argc, argv, &ops);
}
