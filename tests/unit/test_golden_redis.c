/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What earlier versions left on a Redis is read as it was meant. tests/golden/redis/N.txt has the keys as commands, a line each with every
 * word in quotes, and N.said.txt all that a broker shows of them. With MR_GOLDEN=make the next pair is made from what this version
 * writes; files that are there are never written again.
 */
#include <hiredis/hiredis.h>
#include <stdlib.h>

#include "broker/redis/redis.h"
#include "broker/result.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/golden_task.h"

enum { WORDS_MAX = 512, PATH_SIZE = 1024, LINE_SIZE = 256 * 1024 };

#define FAR_MS "4102444800000" /* 2100: what has an end on a Redis has that one here */

struct fixture {
    struct redis_rig *rig;
    redisContext *conn;
    struct mr_broker *broker;
};

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->rig = redis_rig_standalone(NULL);
    f->conn = redisConnectUnix(redis_rig_server(f->rig, 0)->socket);
    assert_true(f->conn != NULL && f->conn->err == 0);
    *state = f;
    return 0;
}

static void open_broker(struct fixture *f)
{
    struct mr_redis_broker_options options = {.url = redis_rig_url(f->rig)};
    struct mr_detail detail = {.text = ""};
    if (mr_redis_broker_open(&options, &f->broker, &detail) != MR_OK)
        fail_msg("%s", detail.text);
}

static void close_broker(struct fixture *f)
{
    if (f->broker != NULL)
        mr_broker_close(f->broker);
    f->broker = NULL;
}

static int end(void **state)
{
    struct fixture *f = *state;
    close_broker(f);
    redisFree(f->conn);
    redis_rig_stop(f->rig);
    free(f);
    return 0;
}

/* ---- keys as commands ------------------------------------------------------------------------- */

static redisReply *ask(struct fixture *f, int n, const char **words, const size_t *lens)
{
    redisReply *reply = redisCommandArgv(f->conn, n, words, lens);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", words[0], reply->str);
    return reply;
}

static void put_word(struct mr_buf *buf, const char *bytes, size_t len)
{
    put_text(buf, "%s\"", buf->len > 0 && buf->data[buf->len - 1] != '\n' ? " " : "");
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        bool plain = byte >= ' ' && byte < 127 && byte != '"' && byte != '\\';
        put_text(buf, plain ? "%c" : "\\x%02x", byte);
    }
    put_text(buf, "\"");
}

static int compare_items(const void *a, const void *b)
{
    const redisReply *x = *(redisReply *const *)a, *y = *(redisReply *const *)b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->str, y->str, len);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

/* How a key of each type is asked for and written. */
static const struct {
    const char *type, *ask[4], *write;
    size_t sorted; /* so many words belong together and have no order; 0: they have one */
    bool swapped;  /* the second of two goes first */
} types[] = {
    {"string", {"GET", NULL}, "SET", 0, false},
    {"hash", {"HGETALL", NULL}, "HSET", 2, false},
    {"list", {"LRANGE", "0", "-1", NULL}, "RPUSH", 0, false},
    {"set", {"SMEMBERS", NULL}, "SADD", 1, false},
    {"zset", {"ZRANGE", "0", "-1", "WITHSCORES"}, "ZADD", 0, true},
};

static void put_items(struct mr_buf *buf, redisReply *reply, size_t type)
{
    if (reply->type == REDIS_REPLY_STRING) {
        put_word(buf, reply->str, reply->len);
        return;
    }
    size_t together = types[type].sorted;
    if (together > 0)
        qsort(reply->element, reply->elements / together, together * sizeof *reply->element,
              compare_items);
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *item = reply->element[types[type].swapped ? i ^ 1 : i];
        put_word(buf, item->str, item->len);
    }
}

static void dump_key(struct fixture *f, struct mr_buf *buf, const redisReply *key)
{
    redisReply *type = redisCommand(f->conn, "TYPE %b", key->str, key->len);
    redisReply *left = redisCommand(f->conn, "PTTL %b", key->str, key->len);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(type->str, types[i].type) != 0)
            continue;
        const char *words[6] = {types[i].ask[0], key->str};
        size_t lens[6] = {strlen(words[0]), key->len};
        int n = 2;
        for (size_t k = 1; k < 4 && types[i].ask[k] != NULL; k++, n++) {
            words[n] = types[i].ask[k];
            lens[n] = strlen(words[n]);
        }
        redisReply *reply = ask(f, n, words, lens);
        put_word(buf, types[i].write, strlen(types[i].write));
        put_word(buf, key->str, key->len);
        put_items(buf, reply, i);
        put_text(buf, "\n");
        freeReplyObject(reply);
    }
    if (left->integer > 0) {
        put_word(buf, "PEXPIREAT", 9);
        put_word(buf, key->str, key->len);
        put_word(buf, FAR_MS, strlen(FAR_MS));
        put_text(buf, "\n");
    }
    freeReplyObject(type);
    freeReplyObject(left);
}

static void dump(struct fixture *f, struct mr_buf *buf)
{
    redisReply *keys = redisCommand(f->conn, "KEYS *");
    qsort(keys->element, keys->elements, sizeof *keys->element, compare_items);
    put_text(buf, "# SPDX-License-Identifier: Apache-2.0\n");
    for (size_t i = 0; i < keys->elements; i++)
        dump_key(f, buf, keys->element[i]);
    freeReplyObject(keys);
}

static char unquoted(const char **at)
{
    unsigned byte = 0;
    if (**at != '\\')
        return *(*at)++;
    assert_int_equal(sscanf(*at, "\\x%2x", &byte), 1);
    *at += 4;
    return (char)byte;
}

/* The words of a line, in place. */
static int split(char *line, const char **words, size_t *lens)
{
    int n = 0;
    char *out = line;
    for (const char *at = line; *at == '"'; n++) {
        assert_true(n < WORDS_MAX);
        words[n] = out;
        at++;
        while (*at != '"')
            *out++ = unquoted(&at);
        lens[n] = (size_t)(out - words[n]);
        at += at[1] == ' ' ? 2 : 1;
    }
    return n;
}

static void load(struct fixture *f, FILE *file)
{
    static char line[LINE_SIZE];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *words[WORDS_MAX];
        size_t lens[WORDS_MAX];
        int n = line[0] == '#' ? 0 : split(line, words, lens);
        if (n > 0)
            freeReplyObject(ask(f, n, words, lens));
    }
}

/* ---- what is written -------------------------------------------------------------------------- */

static void act(struct mr_broker *broker, enum mr_verb verb, const char *id)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id)};
    enum mr_err err = MR_FAILED;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
}

static void set(struct mr_broker *broker, const char *queue, enum mr_queue_setting setting,
                uint64_t value)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(queue),
                                   .setting = setting,
                                   .value = value,
                                   .rate_ms = setting == MR_QUEUE_RATE ? 60000 : 0,
                                   .scope = MR_LIMIT_QUEUE};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

/* The only one that waits in "default" is run. */
static void run(struct mr_broker *broker, const char *id, struct mr_finish finish)
{
    struct mr_lease *lease = take_one(broker);
    assert_true(mr_slice_equal(lease->task.id, mr_slice_str(id)));
    enum mr_err err = MR_FAILED;
    finish.id = lease->task.id;
    finish.epoch = lease->epoch;
    finish.ref = lease->ref;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &finish, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
    mr_lease_free(lease);
}

static void write_ended(struct mr_broker *broker)
{
    const int64_t later_ms = 1LL << 38; /* some years */
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("kept"), .retention_ms = later_ms});
    run(broker, "kept", (struct mr_finish){.outcome = MR_DONE, .result = MR_SLICE_LIT("42")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("told"),
                                         .topic = MR_SLICE_LIT("answers"),
                                         .type = MR_SLICE_LIT("sum")});
    run(broker, "told", (struct mr_finish){.outcome = MR_DONE, .result = MR_SLICE_LIT("of told")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("archived")});
    run(broker, "archived",
        (struct mr_finish){.outcome = MR_FAIL_FOR_GOOD, .error = MR_SLICE_LIT("gave up")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("retry"), .max_retry = 9});
    run(broker, "retry",
        (struct mr_finish){
            .outcome = MR_FAIL, .error = MR_SLICE_LIT("no luck"), .delay_ms = later_ms});
}

static void write_waiting(struct mr_broker *broker)
{
    static const struct mr_header headers[] = {{{"trace", 5}, {"00-ab", 5}}};
    put(broker,
        (struct mr_task_options){.id = MR_SLICE_LIT("plain"), .payload = {"\0bytes\xff", 7}});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("ahead"), .priority_s = 12.5});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("later"), .at_ms = 4000000000000});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("cancelled"), .delay_ms = 100000});
    act(broker, MR_VERB_CANCEL, "cancelled");
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("member"),
                                         .queue = MR_SLICE_LIT("groups"),
                                         .group = MR_SLICE_LIT("pages")});
    put(broker, (struct mr_task_options){.queue = MR_SLICE_LIT("mail"),
                                         .type = MR_SLICE_LIT("mail:send"),
                                         .id = MR_SLICE_LIT("full"),
                                         .payload = MR_SLICE_LIT("{\"to\":\"you\"}"),
                                         .priority_s = -3,
                                         .max_retry = 7,
                                         .timeout_ms = 90000,
                                         .deadline_ms = 4000000000000,
                                         .retention_ms = 86400000,
                                         .unique_ms = 3600000,
                                         .unique_key = MR_SLICE_LIT("key"),
                                         .topic = MR_SLICE_LIT("topic"),
                                         .headers = headers,
                                         .headers_n = 1});
    set(broker, "mail", MR_QUEUE_PAUSED, 1);
    set(broker, "mail", MR_QUEUE_MAX_LENGTH, 100);
    set(broker, "mail", MR_QUEUE_RATE, 5);
    set(broker, "mail", MR_QUEUE_CONCURRENCY, 2);
    set(broker, "parts", MR_QUEUE_PARTITIONS, 3);
    for (uint32_t i = 1; i <= 3; i++)
        put(broker, (struct mr_task_options){.queue = MR_SLICE_LIT("parts"),
                                             .id = mr_slice_make(&"123"[i - 1], 1),
                                             .partition = i});
}

/* A run that had begun, and its worker went. */
static void write_lost(struct mr_broker *broker)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_WORKER,
                                    .name = MR_SLICE_LIT("lost"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 10000,
                                    .events.stop = ignore_stop};
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("crashed")});
    assert_int_equal(mr_broker_call(broker, &open.req), MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 1, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    mr_broker_begun(broker, open.first_slot, take.leases->epoch);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = open.node};
    assert_int_equal(mr_broker_call(broker, &close.req), MR_OK);
    assert_int_equal(state_of(broker, "crashed"), MR_PENDING);
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
    mr_req_done(&close.req);
    mr_req_done(&open.req);
}

/* As it stood at another broker. It is held. */
static void carry(struct mr_broker *broker, struct mr_task task)
{
    struct mr_enqueue_result result;
    task.queue = MR_SLICE_LIT("carried");
    task.type = MR_SLICE_LIT("moved");
    task.created_ms = task.order_time_ms = 1780000000000;
    task.max_retry = 25;
    task.timeout_ms = 1800000;
    struct mr_task_options options = mr_carried_options(&task);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .carried = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static void write_carried(struct mr_broker *broker)
{
    const uint64_t ahead = 4102444800000000; /* microseconds: of 2100 */
    carry(broker, (struct mr_task){.id = MR_SLICE_LIT("c-held"),
                                   .state = MR_PENDING,
                                   .retried = 2,
                                   .crashes = 1,
                                   .last_failed_ms = 1780000001000,
                                   .last_error = MR_SLICE_LIT("failed there"),
                                   .epoch = 1780000000500000});
    carry(broker,
          (struct mr_task){.id = MR_SLICE_LIT("c-ran"), .state = MR_PENDING, .epoch = ahead});
    act(broker, MR_VERB_RELEASE, "c-ran");
    carry(broker, (struct mr_task){.id = MR_SLICE_LIT("c-ended"),
                                   .state = MR_COMPLETED,
                                   .epoch = ahead - 1,
                                   .started_ms = 1780000002000,
                                   .finished_ms = 1780000003000,
                                   .retention_ms = 1LL << 40,
                                   .result = MR_SLICE_LIT("it ran there")});
    act(broker, MR_VERB_RELEASE, "c-ended");
}

/* ---- what is shown ---------------------------------------------------------------------------- */

static void show_tasks(struct mr_broker *broker, struct mr_buf *buf)
{
    struct mr_req_list list = {.req.op = MR_OP_LIST, .options.limit = 100};
    assert_int_equal(mr_broker_call(broker, &list.req), MR_OK);
    for (size_t i = 0; i < list.n; i++) {
        struct mr_req_get get = {.req.op = MR_OP_GET, .id = list.tasks[i].id};
        assert_int_equal(mr_broker_call(broker, &get.req), MR_OK);
        /* Of what waits for another run they said when its last one began, as mr:e has it: its epoch is that. */
        if (get.task.started_ms == 0)
            get.task.started_ms = (int64_t)(get.task.epoch / MR_US_PER_MS);
        put_task(buf, &get.task);
        put_bytes(buf, "past", get.task.past);
        put_text(buf, "\n");
        mr_req_done(&get.req);
    }
    mr_req_done(&list.req);
}

/* Those that came from another broker, and the epochs that they brought. */
static void show_carried(struct mr_broker *broker, struct mr_buf *buf)
{
    static const char *const ids[] = {"c-held", "c-ran", "c-ended"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct mr_req_get get = {.req.op = MR_OP_GET, .id = mr_slice_str(ids[i])};
        enum mr_err err = mr_broker_call(broker, &get.req);
        if (err == MR_OK) {
            put_task(buf, &get.task);
            put_number(buf, "held", get.task.held);
            put_number(buf, "epoch", (int64_t)get.task.epoch);
            put_text(buf, "\n");
        } else {
            assert_int_equal(err, MR_NOT_FOUND);
        }
        mr_req_done(&get.req);
    }
}

static void show_queues(struct mr_broker *broker, struct mr_buf *buf)
{
    struct mr_queue_info infos[8];
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 8};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    for (size_t i = 0; i < req.n; i++) {
        put_text(buf, "queue %s:", infos[i].name);
        for (enum mr_state state = 1; state < MR_STATE_COUNT; state++)
            put_number(buf, mr_state_name(state), (int64_t)infos[i].counts[state]);
        put_number(buf, "paused", infos[i].paused);
        put_number(buf, "max_length", (int64_t)infos[i].max_length);
        put_number(buf, "partitions", infos[i].partitions);
        put_number(buf, "rate", (int64_t)infos[i].rate);
        put_number(buf, "rate_ms", infos[i].rate_ms);
        put_number(buf, "concurrency", (int64_t)infos[i].concurrency);
        put_number(buf, "processed", (int64_t)infos[i].processed_total);
        put_number(buf, "failed", (int64_t)infos[i].failed_total);
        put_text(buf, "\n");
    }
    mr_req_done(&req.req);
}

static void show_result(struct mr_broker *broker, struct mr_buf *buf)
{
    char name[MR_NAME_MAX + 1];
    struct mr_worker_queue queue = {.name = mr_result_queue(MR_SLICE_LIT("answers"), name)};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_MASTER,
                                    .name = MR_SLICE_LIT("master"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .lease_ms = 10000,
                                    .events.stop = ignore_stop};
    assert_int_equal(mr_broker_call(broker, &open.req), MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 1, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    assert_int_equal(take.n, 1);
    struct mr_result result;
    assert_int_equal(mr_broker_lease_open(broker, take.leases), MR_OK);
    assert_int_equal(mr_result_decode(take.leases->task.payload, &result), MR_OK);
    put_text(buf, "result:");
    put_bytes(buf, "task", result.task_id);
    put_bytes(buf, "type", result.type);
    put_bytes(buf, "result", result.result);
    put_number(buf, "finished", result.finished_ms);
    put_number(buf, "final", result.final);
    put_text(buf, "\n");
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
    mr_req_done(&open.req);
}

static void check_lock(struct mr_broker *broker)
{
    struct mr_task_options task = {
        .queue = MR_SLICE_LIT("mail"), .unique_key = MR_SLICE_LIT("key"), .unique_ms = 1000};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_DUPLICATE);
    assert_string_equal(result.id, "full");
    mr_req_done(&req.req);
}

static void show(struct mr_broker *broker, struct mr_buf *buf)
{
    put_text(buf, "# SPDX-License-Identifier: Apache-2.0\n");
    show_tasks(broker, buf);
    show_carried(broker, buf);
    show_queues(broker, buf);
    show_result(broker, buf);
    check_lock(broker);
}

/* ---- the files -------------------------------------------------------------------------------- */

static FILE *open_file(unsigned number, const char *ending, const char *mode)
{
    char path[PATH_SIZE];
    const char *source = getenv("MR_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/tests/golden/redis/%u%s", source != NULL ? source : ".",
                   number, ending);
    return fopen(path, mode);
}

static void write_file(unsigned number, const char *ending, const struct mr_buf *buf)
{
    FILE *file = open_file(number, ending, "wxe");
    assert_non_null(file);
    assert_int_equal(fwrite(buf->data, 1, buf->len, file), buf->len);
    assert_int_equal(fclose(file), 0);
}

static void flush(struct fixture *f)
{
    close_broker(f);
    freeReplyObject(redisCommand(f->conn, "FLUSHALL"));
}

static void show_file(struct fixture *f, FILE *file, struct mr_buf *ret_said)
{
    flush(f);
    load(f, file);
    (void)fclose(file);
    open_broker(f);
    show(f->broker, ret_said);
}

static void make(struct fixture *f, unsigned number)
{
    struct mr_buf keys = {0}, said = {0};
    open_broker(f);
    write_ended(f->broker);
    write_lost(f->broker);
    write_waiting(f->broker);
    write_carried(f->broker);
    close_broker(f);
    dump(f, &keys);
    write_file(number, ".txt", &keys);
    show_file(f, open_file(number, ".txt", "re"), &said);
    write_file(number, ".said.txt", &said);
    mr_buf_done(&keys);
    mr_buf_done(&said);
}

static void check(struct fixture *f, unsigned number, FILE *file)
{
    static char wanted[LINE_SIZE];
    struct mr_buf said = {0};
    show_file(f, file, &said);
    FILE *text = open_file(number, ".said.txt", "re");
    assert_non_null(text);
    size_t len = fread(wanted, 1, sizeof wanted, text);
    (void)fclose(text);
    if (said.len != len || memcmp(said.data, wanted, len) != 0)
        fail_msg("of %u.txt is said:\n%.*s", number, (int)said.len, (const char *)said.data);
    mr_buf_done(&said);
}

static void what_earlier_versions_left_on_a_redis_is_read_as_it_was_meant(void **state)
{
    struct fixture *f = *state;
    unsigned number = 1;
    for (FILE *file; (file = open_file(number, ".txt", "re")) != NULL; number++)
        check(f, number, file);
    const char *wish = getenv("MR_GOLDEN");
    if (wish != NULL && strcmp(wish, "make") == 0) {
        flush(f);
        make(f, number++);
    }
    assert_true(number > 1);
}

static void what_a_newer_version_keeps_on_a_redis_is_left_alone(void **state)
{
    struct fixture *f = *state;
    struct mr_redis_broker_options options = {.url = redis_rig_url(f->rig)};
    struct mr_detail detail = {.text = ""};
    freeReplyObject(redisCommand(f->conn, "SET asynq:mr:format 1"));
    open_broker(f);
    flush(f);
    freeReplyObject(redisCommand(f->conn, "SET asynq:mr:format 2"));
    assert_int_equal(mr_redis_broker_open(&options, &f->broker, &detail), MR_VERSION);
    assert_non_null(strstr(detail.text, "format version 2"));
    assert_int_equal(RIG_INT(redis_rig_server(f->rig, 0), "DBSIZE"), 1);
    /* Another namespace is another place. */
    options.namespace_ = MR_SLICE_LIT("other");
    assert_int_equal(mr_redis_broker_open(&options, &f->broker, &detail), MR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_earlier_versions_left_on_a_redis_is_read_as_it_was_meant, begin, end),
        cmocka_unit_test_setup_teardown(what_a_newer_version_keeps_on_a_redis_is_left_alone, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
