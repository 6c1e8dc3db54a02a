/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results. What tasks of the Redis queue Q leave for the topic T is in a place of its own, with the keys of a
 * queue behind "asynq:{Q}:mr:r:[T]:", so in the slot of Q: the end of a run and its result are one step. Takes,
 * beats and what is lost go there with the scripts of any other queue; a commit has its own.
 *
 * A master of T listens to the places of T in all queues. Which queues have tasks with topics is in the set
 * asynq:mr:results, which gets a name before the first such task goes there; new topics are told on the channel of
 * the same name, and in case that a message was lost the queues are asked for them in turn. Go programs leave no
 * results: for runs that they ended topics.lua does, while there is a master. Every process with one asks once a second
 * whether there were such runs, with one command for all queues; and one of them all looks. So it does not matter how
 * many masters, queues and tasks there are.
 *
 * As rqueues: "\1T" stands for the topic, and is never asked; "\1T\1Q" is one of its places.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/internal.h"
#include "broker/result.h"

enum {
    LOOK_MS = 1000, /* so often it is asked whether other programs ended runs */
    REST_LOOK_MS =
        5000, /* ... and for the names of all queues; in a Cluster each of many is asked so often */
    FEW = 4,  /* ... but so many every time */
    TOPICS_ASKED = 4, /* of so many queues with the names */
    SOON_MS = 20,     /* there was much to find, at least: */
    MUCH = 50,
    TOPIC_ITEMS = 1, /* of the answer of topics.lua before the topics */
    PLACE_NAME_MAX = 2 + MR_NAME_MAX + MR_TOPIC_MAX,
};

/* ---- names ---------------------------------------------------------------------------------- */

bool result_place(struct mr_slice name, struct mr_slice *ret_topic, struct mr_slice *ret_home)
{
    const char *text = name.data;
    *ret_topic = *ret_home = (struct mr_slice){0};
    if (name.len == 0 || text[0] != MR_RESULT_QUEUE_MARK)
        return false;
    const char *mark = memchr(text + 1, MR_RESULT_QUEUE_MARK, name.len - 1);
    size_t len = mark != NULL ? (size_t)(mark - text) : name.len;
    *ret_topic = mr_slice_make(text + 1, len - 1);
    if (mark != NULL)
        *ret_home = mr_slice_make(mark + 1, name.len - len - 1);
    return true;
}

static struct rqueue *topic_find(struct engine *engine, struct mr_slice topic)
{
    char name[MR_NAME_MAX + 1];
    return topic.len <= MR_TOPIC_MAX ? rqueue_find(engine, mr_result_queue(topic, name)) : NULL;
}

static bool places_room(struct rqueue *topic)
{
    if (topic->places_n < topic->places_cap)
        return true;
    uint32_t cap = topic->places_cap != 0 ? 2 * topic->places_cap : 8;
    struct rqueue **places = realloc(topic->places, cap * sizeof(*places));
    if (places == NULL)
        return false;
    topic->places = places;
    topic->places_cap = cap;
    return true;
}

/* The place of this topic in this queue, if some master wants to know of it. */
static void place_add(struct engine *engine, struct mr_slice topic, struct mr_slice home)
{
    struct rqueue *whole = topic_find(engine, topic);
    char name[PLACE_NAME_MAX + 1];
    if (whole == NULL || home.len > MR_NAME_MAX || !places_room(whole))
        return;
    int len = snprintf(name, sizeof name, "%c%.*s%c%.*s", MR_RESULT_QUEUE_MARK, (int)topic.len,
                       (const char *)topic.data, MR_RESULT_QUEUE_MARK, (int)home.len,
                       (const char *)home.data);
    struct rqueue *place = rqueue_get(engine, mr_slice_make(name, (size_t)len));
    struct rqueue *queue = rqueue_get(engine, home);
    if (place == NULL || queue == NULL || place->home != NULL)
        return; /* without memory it is found at the next look */
    place->home = queue;
    whole->places[whole->places_n++] = place;
    engine->results.wider = true;
}

static void widen(struct engine *engine)
{
    if (engine->results.wider) {
        engine->results.wider = false;
        nodes_widen(engine);
    }
}

/* ---- queues whose tasks leave results ------------------------------------------------------- */

void results_names_read(struct engine *engine, const struct mr_reply *reply)
{
    if (reply->kind != MR_REPLY_ARRAY)
        return;
    for (uint32_t i = 0; i < engine->queues_n; i++) { /* some went with their queues */
        engine->queues[i]->leaves.known = false;
        engine->queues[i]->leaves.registrant = NULL;
    }
    for (size_t i = 0; i < reply->n; i++) {
        struct mr_slice name = reply->items[i].text;
        struct rqueue *queue = mr_name_check(name) == MR_OK ? rqueue_get(engine, name) : NULL;
        if (queue != NULL)
            queue->leaves.known = true;
    }
}

void results_names_send(struct engine *engine, struct mr_redis_call *call)
{
    struct mr_arena arena = {0};
    struct mr_slice key = global_key(engine, "mr:results", &arena);
    struct mr_slice args[] = {MR_SLICE_LIT("SMEMBERS"), key};
    mr_redis_send(engine->redis, call, key, args, key.len > 0 ? 2 : 0);
    mr_arena_done(&arena);
}

void results_name_add(struct rqueue *queue, struct mr_redis_call *call)
{
    struct mr_arena arena = {0};
    struct mr_slice key = global_key(queue->engine, "mr:results", &arena);
    struct mr_slice args[] = {MR_SLICE_LIT("SADD"), key, queue->name};
    mr_redis_send(queue->engine->redis, call, key, args, key.len > 0 ? 3 : 0);
    mr_arena_done(&arena);
}

struct small_call {
    struct mr_redis_call call;
};

static void name_added(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    (void)reply;
    queue->leaves.known |= err == MR_OK;
    free(mr_container(call, struct small_call, call));
}

void results_name_again(struct rqueue *queue)
{
    struct small_call *small = calloc(1, sizeof *small);
    if (small == NULL)
        return;
    small->call = (struct mr_redis_call){
        .answered = name_added, .arg = queue, .repeatable = true, .urgent = true};
    results_name_add(queue, &small->call);
}

/* ---- topics --------------------------------------------------------------------------------- */

static void topics_read(struct rqueue *queue, const struct mr_reply *reply, size_t from)
{
    for (size_t i = from; reply->kind == MR_REPLY_ARRAY && i < reply->n; i++)
        place_add(queue->engine, reply->items[i].text, queue->name);
}

static void topics_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    struct engine *engine = queue->engine;
    if (err == MR_OK && !engine->closing && engine->results.masters > 0) {
        topics_read(queue, reply, 0);
        widen(engine);
    }
    free(mr_container(call, struct small_call, call));
}

static void ask_topics_of(struct rqueue *queue)
{
    char key[ID_KEY_MAX];
    struct small_call *small = calloc(1, sizeof *small);
    if (small == NULL)
        return;
    int len = snprintf(key, sizeof key, "%smr:topics", (const char *)queue->prefix.data);
    struct mr_slice args[] = {MR_SLICE_LIT("SMEMBERS"), mr_slice_make(key, (size_t)len)};
    small->call = (struct mr_redis_call){.answered = topics_came, .arg = queue, .urgent = true};
    mr_redis_send(queue->engine->redis, &small->call, args[1], args, 2);
}

/* New ones are told, unless somebody may not: a few in turn, or all. */
static void ask_topics(struct engine *engine)
{
    struct results *results = &engine->results;
    uint32_t n = engine->queues_n, next = results->topics_next;
    uint32_t most = results->unsure || engine->unheard ? n : TOPICS_ASKED;
    results->unsure = false;
    for (uint32_t i = 0; i < n && most > 0; i++) {
        struct rqueue *queue = engine->queues[(next + i) % n];
        if (!queue->leaves.known)
            continue;
        most--;
        results->topics_next = queue->handle + 1;
        ask_topics_of(queue);
    }
}

/* ---- ends of other programs' runs ----------------------------------------------------------- */

/* In some queues, whether there is anything to find. */
struct question {
    struct mr_redis_call call;
    struct engine *engine;
    uint32_t n;
    struct rqueue *queues[];
};

static const char *const counts[] = {"processed", "mr:ran", "mr:looked"};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static void look_send(struct rqueue *queue, struct mr_redis_call *call, bool at_once)
{
    struct mr_slice args[] = {at_once ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0")};
    rqueue_eval(queue, call, SCRIPT_TOPICS, args, 1);
}

static void timer_in(struct engine *engine, int64_t ms)
{
    mr_mono at = mr_mono_add_ms(mr_redis_now(engine->redis), ms);
    mr_redis_timer_start(engine->redis, &engine->results.timer, at);
}

static void looked(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    struct engine *engine = queue->engine;
    queue->leaves.looking = false;
    if (engine->closing || engine->results.masters == 0)
        return;
    bool broken = err == MR_FAILED && !queue->leaves.refused;
    if (broken)
        (void)rqueue_refused(queue, err, reply); /* once: it is asked again and again */
    queue->leaves.refused = err == MR_FAILED;
    queue->leaves.at = mr_mono_add_ms(mr_redis_now(engine->redis), err == MR_OK ? 0 : REST_LOOK_MS);
    if (err == MR_OK) {
        topics_read(queue, reply, TOPIC_ITEMS);
        if (mr_reply_int(mr_reply_at(reply, 0), 0) >= MUCH)
            timer_in(engine, SOON_MS);
    }
    widen(engine);
}

/* Others ended runs since the last look, or that one was not the last: see topics.lua. */
static bool is_something(const struct mr_reply *processed, const struct mr_reply *ran,
                         const struct mr_reply *said)
{
    int64_t ends = mr_reply_int(processed, 0) - mr_reply_int(ran, 0);
    char text[2 * NUMBER_MAX] = "0 0";
    if (said->kind == MR_REPLY_TEXT)
        (void)snprintf(text, sizeof text, "%.*s", (int)said->text.len,
                       (const char *)said->text.data);
    char *rest;
    return strtoll(text, &rest, 10) != ends || strtoll(rest, NULL, 10) != 0;
}

static void question_answered(struct mr_redis_call *call, enum mr_err err,
                              const struct mr_reply *reply)
{
    struct question *question = mr_container(call, struct question, call);
    struct engine *engine = question->engine;
    bool wanted = !engine->closing && engine->results.masters > 0;
    for (uint32_t i = 0; i < question->n; i++) {
        struct rqueue *queue = question->queues[i];
        const struct mr_reply *items[COUNTS];
        for (size_t k = 0; k < COUNTS; k++)
            items[k] = mr_reply_at(reply, COUNTS * i + k);
        bool look = err == MR_OK ? is_something(items[0], items[1], items[2]) : err == MR_DENIED;
        queue->leaves.looking = look && wanted;
        if (!queue->leaves.looking)
            continue;
        queue->leaves.call = (struct mr_redis_call){.answered = looked, .arg = queue};
        look_send(queue, &queue->leaves.call, false);
    }
    free(question);
}

static void question_send(struct question *question)
{
    struct engine *engine = question->engine;
    size_t n = 1;
    mr_arena_reset(&engine->scratch);
    struct mr_slice *args =
        mr_arena_calloc(&engine->scratch, 1 + (size_t)question->n * COUNTS, sizeof *args);
    bool room = args != NULL;
    for (size_t i = 0; room && i < (size_t)question->n * COUNTS; i++) {
        char key[ID_KEY_MAX];
        int len =
            snprintf(key, sizeof key, "%s%s",
                     (const char *)question->queues[i / COUNTS]->prefix.data, counts[i % COUNTS]);
        room =
            mr_arena_copy(&engine->scratch, mr_slice_make(key, (size_t)len), &args[n++]) == MR_OK;
    }
    if (!room || question->n == 0) { /* it is asked again soon */
        free(question);
        return;
    }
    for (uint32_t i = 0; i < question->n; i++)
        question->queues[i]->leaves.looking = true;
    args[0] = MR_SLICE_LIT("MGET");
    question->call = (struct mr_redis_call){.answered = question_answered, .urgent = true};
    mr_redis_send(engine->redis, &question->call, args[1], args, n);
}

/* The next queues that may be asked, as many as go into one command. NULL: none, or no memory. */
static struct question *question_next(struct engine *engine, uint32_t most, uint32_t *left)
{
    mr_mono now = mr_redis_now(engine->redis);
    struct question *question = calloc(1, sizeof *question + most * sizeof(struct rqueue *));
    if (question == NULL)
        return NULL;
    question->engine = engine;
    for (; *left > 0 && question->n < most; --*left) {
        struct rqueue *queue = engine->queues[engine->results.ends_next++ % engine->queues_n];
        const struct leaves *leaves = &queue->leaves;
        if (leaves->known && !leaves->looking && leaves->at.ns <= now.ns)
            question->queues[question->n++] = queue;
    }
    return question;
}

/* All queues with one command; a Cluster takes none for several slots, so many are asked by and by. */
static void ask_ends(struct engine *engine)
{
    bool cluster = mr_redis_kind(engine->redis) == MR_REDIS_CLUSTER;
    uint32_t known = 0, left = engine->queues_n;
    for (uint32_t i = 0; i < engine->queues_n; i++)
        known += engine->queues[i]->leaves.known;
    uint32_t part = known / (REST_LOOK_MS / LOOK_MS) + 1;
    uint32_t questions = !cluster ? UINT32_MAX : part > FEW ? part : FEW;
    for (; known > 0 && left > 0 && questions > 0; questions--) {
        struct question *question = question_next(engine, cluster ? 1 : IDLE_QUEUES, &left);
        if (question == NULL)
            return;
        question_send(question);
    }
}

/* ---- the round ------------------------------------------------------------------------------ */

static void names_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct engine *engine = call->arg;
    engine->results.asking = false;
    if (err != MR_OK || engine->closing || engine->results.masters == 0)
        return;
    results_names_read(engine, reply);
    ask_topics(engine);
}

static void ask_names(struct engine *engine)
{
    struct results *results = &engine->results;
    if (results->asking)
        return;
    results->asking = true;
    results->names_at = mr_mono_add_ms(mr_redis_now(engine->redis), REST_LOOK_MS);
    results->names = (struct mr_redis_call){.answered = names_came, .arg = engine};
    results_names_send(engine, &results->names);
}

static void fire(struct mr_timer *timer, void *arg)
{
    struct engine *engine = mr_container(timer, struct engine, results.timer);
    (void)arg;
    if (engine->closing || engine->results.masters == 0)
        return;
    if (mr_redis_now(engine->redis).ns >= engine->results.names_at.ns)
        ask_names(engine);
    ask_ends(engine);
    timer_in(engine, LOOK_MS);
}

/* A topic has its first result in some queue; or messages may be missing. */
static void told(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    struct engine *engine = channel->arg;
    struct mr_slice topic, home;
    if (bytes.data == NULL) {
        engine->results.unsure = true;
        ask_names(engine);
    } else if (result_place(bytes, &topic, &home) && mr_name_check(home) == MR_OK) {
        place_add(engine, topic, home);
        widen(engine);
    }
}

/* ---- masters -------------------------------------------------------------------------------- */

void results_init(struct engine *engine)
{
    mr_timer_init(&engine->results.timer, fire);
}

void results_start(struct engine *engine)
{
    struct results *results = &engine->results;
    struct mr_arena arena = {0};
    if (results->masters++ > 0)
        return;
    struct mr_slice name = global_key(engine, "mr:results", &arena);
    results->channel_name = name.len > 0 ? strndup(name.data, name.len) : NULL;
    mr_arena_done(&arena);
    if (results->channel_name != NULL) { /* else new places are found by looking */
        results->channel = (struct mr_redis_channel){
            .name = mr_slice_str(results->channel_name), .message = told, .arg = engine};
        mr_redis_subscribe(engine->redis, &results->channel);
    }
    timer_in(engine, LOOK_MS);
}

void results_stop(struct engine *engine)
{
    struct results *results = &engine->results;
    if (--results->masters > 0)
        return;
    mr_redis_timer_stop(engine->redis, &results->timer);
    if (results->channel_name != NULL)
        mr_redis_unsubscribe(engine->redis, &results->channel);
    free(results->channel_name);
    results->channel_name = NULL;
}

/* ---- before a master opens --------------------------------------------------------------------
 * It finds out what there is, what Go programs ended, and, since nobody may have listened for a while, what was
 * in the hands of masters that are gone: so its first take has all of it. */

struct opening {
    struct mr_redis_call names;
    struct ticket *ticket;
    void (*then)(struct ticket *ticket);
    size_t left;
    bool looked;           /* at queues; places come next */
    struct mr_timer timer; /* ... when it is no longer too early */
};

/* At a queue, or at a place. */
struct first_look {
    struct mr_redis_call call;
    struct opening *opening;
    struct rqueue *queue;
};

static void opening_done(struct opening *opening);

static void first_looked(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct first_look *look = call->arg;
    if (err == MR_OK && look->queue->home == NULL) /* else it is asked again soon */
        topics_read(look->queue, reply, TOPIC_ITEMS);
    opening_done(look->opening);
}

static void first_look(struct opening *opening, struct rqueue *queue)
{
    struct first_look *look = mr_arena_calloc(&opening->ticket->req->arena, 1, sizeof *look);
    if (look == NULL)
        return;
    *look = (struct first_look){.opening = opening, .queue = queue};
    look->call = (struct mr_redis_call){.answered = first_looked, .arg = look, .urgent = true};
    opening->left++;
    if (queue->home != NULL)
        recover_send(queue, &look->call);
    else
        look_send(queue, &look->call, true);
}

static void first_places(struct opening *opening)
{
    struct engine *engine = opening->ticket->engine;
    const struct mr_req_node_open *req =
        mr_container(opening->ticket->req, struct mr_req_node_open, req);
    for (size_t i = 0; i < req->queues_n; i++) {
        const struct rqueue *topic = rqueue_find(engine, req->queues[i].name);
        for (uint32_t k = 0; topic != NULL && k < topic->places_n; k++)
            first_look(opening, topic->places[k]);
    }
}

static bool has_places(const struct opening *opening)
{
    const struct mr_req_node_open *req =
        mr_container(opening->ticket->req, struct mr_req_node_open, req);
    uint32_t n = 0;
    for (size_t i = 0; i < req->queues_n; i++) {
        const struct rqueue *topic = rqueue_find(opening->ticket->engine, req->queues[i].name);
        n += topic != NULL ? topic->places_n : 0;
    }
    return n > 0;
}

static void no_longer_early(struct mr_timer *timer, void *arg)
{
    struct opening *opening = mr_container(timer, struct opening, timer);
    (void)arg;
    first_places(opening);
    opening_done(opening);
}

static void opening_done(struct opening *opening)
{
    if (--opening->left > 0)
        return;
    if (opening->ticket->engine->closing) {
        ticket_done(opening->ticket, MR_CLOSED);
    } else if (opening->looked) {
        opening->then(opening->ticket);
    } else {
        struct mr_redis *redis = opening->ticket->engine->redis;
        int64_t early_ms = recover_early_ms(opening->ticket->engine);
        opening->looked = true;
        opening->left = 1;
        mr_timer_init(&opening->timer, no_longer_early);
        if (early_ms > 0 && has_places(opening))
            mr_redis_timer_start(redis, &opening->timer,
                                 mr_mono_add_ms(mr_redis_now(redis), early_ms));
        else
            no_longer_early(&opening->timer, NULL);
    }
}

static void first_names(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct opening *opening = call->arg;
    struct ticket *ticket = opening->ticket;
    struct engine *engine = ticket->engine;
    if (err != MR_OK) {
        ticket_done(ticket, engine_refused(engine, err, reply));
        return;
    }
    results_names_read(engine, reply);
    opening->left = 1;
    uint32_t n = engine->queues_n;
    for (uint32_t i = 0; i < n; i++)
        if (engine->queues[i]->leaves.known)
            first_look(opening, engine->queues[i]);
    opening_done(opening);
}

void results_open(struct ticket *ticket, void (*then)(struct ticket *ticket))
{
    const struct mr_req_node_open *req = mr_container(ticket->req, struct mr_req_node_open, req);
    struct opening *opening = mr_arena_calloc(&ticket->req->arena, 1, sizeof *opening);
    bool room = opening != NULL;
    for (size_t i = 0; room && i < req->queues_n; i++)
        room = rqueue_get(ticket->engine, req->queues[i].name) != NULL;
    if (!room) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    *opening = (struct opening){.ticket = ticket, .then = then};
    opening->names = (struct mr_redis_call){
        .answered = first_names, .arg = opening, .repeatable = true, .urgent = true};
    results_names_send(ticket->engine, &opening->names);
}
