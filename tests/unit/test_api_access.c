/* SPDX-License-Identifier: Apache-2.0 */
/* Who may call what: every method with every role and every kind of token. */
#include <unistd.h>

#include "unit/api_rig.h"

static int begin(void **state)
{
    struct mr_api_options options = {.access.mode = MR_ACCESS_TOKENS};
    *state = rig_start(&options);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ---- the matrix ----------------------------------------------------------------------------- */

/* Roles that may call it: admin, producer, worker, viewer. "-": everybody. */
static const struct {
    const char *path, *roles;
} matrix[] = {
    {PATH("Tasks/Enqueue"), "ap"},
    {PATH("Tasks/EnqueueStream"), "ap"},
    {PATH("Tasks/Get"), "apv"},
    {PATH("Tasks/List"), "apv"},
    {PATH("Tasks/Wait"), "apv"},
    {PATH("Tasks/Why"), "apv"},
    {PATH("Tasks/Control"), "a"},
    {PATH("Tasks/Carry"), "a"},
    {PATH("Queues/List"), "apv"},
    {PATH("Queues/Get"), "apv"},
    {PATH("Queues/History"), "apv"},
    {PATH("Queues/Pause"), "a"},
    {PATH("Queues/Resume"), "a"},
    {PATH("Queues/SetMaxLength"), "a"},
    {PATH("Queues/SetPartitions"), "a"},
    {PATH("Queues/SetAssign"), "a"},
    {PATH("Queues/SetRate"), "a"},
    {PATH("Queues/SetConcurrency"), "a"},
    {PATH("Queues/Limits"), "apv"},
    {PATH("Queues/SetRetryMode"), "a"},
    {PATH("Queues/SetRetryWait"), "a"},
    {PATH("Queues/Remove"), "a"},
    {PATH("Nodes/List"), "apwv"},
    {PATH("Nodes/Servers"), "apwv"},
    {PATH("Nodes/Assign"), "apw"},
    {PATH("Work/Attach"), "apw"},
    {PATH("Results/Get"), "apv"},
    {PATH("Results/Commit"), "ap"},
    {PATH("Work/Finish"), "aw"},
    {PATH("Work/Gather"), "aw"},
    {PATH("Work/Gathered"), "aw"},
    {PATH("Timers/Send"), "ap"},
    {PATH("Timers/Get"), "apv"},
    {PATH("Timers/List"), "apv"},
    {PATH("Timers/Next"), "apv"},
    {PATH("Timers/History"), "apv"},
    {PATH("Timers/Status"), "apv"},
    {PATH("Timers/Keep"), "a"},
    {PATH("Jobs/Submit"), "ap"},
    {PATH("Jobs/Get"), "apv"},
    {PATH("Jobs/List"), "apv"},
    {PATH("Jobs/ListParts"), "apv"},
    {PATH("Jobs/Cancel"), "ap"},
    {PATH("Jobs/Retry"), "ap"},
    {PATH("Jobs/Watch"), "apv"},
    {PATH("Jobs/Result"), "apv"},
    {PATH("Events/Watch"), "apv"},
    {PATH("Server/Stats"), "av"},
    {PATH("Server/Backup"), "a"},
    {PATH("Tokens/Create"), "a"},
    {PATH("Tokens/List"), "a"},
    {PATH("Tokens/Revoke"), "a"},
    {"/grpc.health.v1.Health/Check", "-"},
    {"/grpc.health.v1.Health/Watch", "-"},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "apwv"},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "apwv"},
};
enum { METHODS = sizeof matrix / sizeof *matrix };

static void the_matrix_has_every_method(void **state)
{
    (void)state;
    size_t n;
    const struct mr_rpc_method *methods = mr_api_methods(&n);
    assert_int_equal(n, METHODS);
    for (size_t i = 0; i < n; i++) {
        bool there = false;
        for (size_t k = 0; k < METHODS; k++)
            there |= strcmp(methods[i].path, matrix[k].path) == 0;
        assert_true(there);
    }
}

/* A call with an empty message; how it ended. */
static int knock(struct client *client, const char *path, struct talk *talk)
{
    *talk = (struct talk){0};
    talk_begin(talk, client, path);
    talk_send_bytes(talk, (struct mr_slice){0});
    talk_half_close(talk);
    bool watch = strstr(path, "Watch") != NULL;
    if (watch)
        talk_next(talk, &grpc__health__v1__health_check_response__descriptor);
    else
        talk_end(talk);
    talk_done(talk);
    return watch && talk->status == MR_RPC_CANCELLED ? MR_RPC_OK : talk->status;
}

static void check_row(struct client *client, size_t row, enum mr_role role)
{
    static const char letters[] = {0, 'a', 'p', 'w', 'v'};
    const char *roles = matrix[row].roles;
    bool allowed = roles[0] == '-' || strchr(roles, letters[role]) != NULL;
    struct talk talk;
    int status = knock(client, matrix[row].path, &talk);
    if (allowed) {
        assert_int_not_equal(status, MR_RPC_DENIED);
        assert_int_not_equal(status, MR_RPC_UNAUTHENTICATED);
    } else {
        assert_int_equal(status, MR_RPC_DENIED);
        assert_string_equal(talk.code, "DENIED");
        assert_non_null(strstr(talk.text, mr_role_name(role)));
        assert_non_null(strstr(talk.text, "this call is for admin"));
    }
}

static void who_may_use_a_queue_may_use_its_addresses(void **state)
{
    (void)state;
    static const struct mr_token token = {.role = MR_ROLE_WORKER, .queue = "mail*"};
    static const struct mr_token exact = {.role = MR_ROLE_WORKER, .queue = "mail"};
    static const struct {
        const char *queue;
        bool pattern, exact;
    } rows[] = {{"mail", true, true},           {"mail@n", true, true},
                {"mail@root@host", true, true}, {"mailbox@n", true, false},
                {"x@mail", false, false},       {"@mail", false, false},
                {"mail@", true, false},         {"", false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mr_access_queue(&token, mr_slice_str(rows[i].queue)), rows[i].pattern);
        assert_int_equal(mr_access_queue(&exact, mr_slice_str(rows[i].queue)), rows[i].exact);
    }
}

static void every_role_may_call_what_it_should(void **state)
{
    struct rig *rig = *state;
    for (enum mr_role role = MR_ROLE_ADMIN; role < MR_ROLE_COUNT; role++) {
        struct client client;
        client_open(rig, &client, make_token(rig, role, "", NULL));
        for (size_t row = 0; row < METHODS; row++)
            check_row(&client, row, role);
        client_close(&client);
    }
}

static void check_unknown(struct client *client, const char *text)
{
    for (size_t row = 0; row < METHODS; row++) {
        struct talk talk;
        int status = knock(client, matrix[row].path, &talk);
        if (matrix[row].roles[0] == '-') {
            assert_int_not_equal(status, MR_RPC_UNAUTHENTICATED);
            continue;
        }
        assert_int_equal(status, MR_RPC_UNAUTHENTICATED);
        assert_string_equal(talk.code, "DENIED");
        assert_non_null(strstr(talk.text, text));
    }
}

static void without_a_good_token_nothing_is_allowed(void **state)
{
    struct rig *rig = *state;
    struct client client;
    struct mr_token token;
    struct mr_detail detail;
    const char *text = make_token(rig, MR_ROLE_ADMIN, "", &token);
    char *wrong = mr_arena_alloc(&rig->arena, MR_TOKEN_TEXT_LEN + 1);
    memcpy(wrong, text, MR_TOKEN_TEXT_LEN + 1);
    wrong[MR_TOKEN_TEXT_LEN - 1] ^= 1;
    check_unknown(&rig->client, "no token");
    client_open(rig, &client, "sesame");
    check_unknown(&client, "not a token");
    client_close(&client);
    client_open(rig, &client, wrong);
    check_unknown(&client, "unknown token");
    client_close(&client);
    assert_int_equal(mr_tokens_revoke(rig->tokens, token.id, &detail), MR_OK);
    client_open(rig, &client, text);
    check_unknown(&client, "was revoked");
    client_close(&client);
}

static void on_this_machine_no_token_is_needed_unless_told(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL);
    struct client client;
    struct talk talk;
    assert_int_equal(knock(&rig->client, PATH("Server/Stats"), &talk), MR_RPC_OK);
    client_open(rig, &client, "sesame"); /* a token that is given counts */
    assert_int_equal(knock(&client, PATH("Server/Stats"), &talk), MR_RPC_UNAUTHENTICATED);
    client_close(&client);
    rig_stop(rig);
}

/* ---- queues --------------------------------------------------------------------------------- */

static void patterns_match_as_people_expect(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool matches;
    } rows[] = {
        {"*", "", true},
        {"*", "x", true},
        {"mail", "mail", true},
        {"mail", "mails", false},
        {"mail*", "mail", true},
        {"mail*", "mail-in", true},
        {"*-in", "mail-in", true},
        {"*-in", "mail-i", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "acb", false},
        {"", "", true},
        {"", "x", false},
        {"**", "xy", true},
        {"a**", "a", true},
        {"*a*", "bab", true},
        {"?", "x", false},
        {"a*a", "a", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(mr_glob_match(mr_slice_str(rows[i].pattern), mr_slice_str(rows[i].text)),
                         rows[i].matches);
}

static void why_a_token_may_not_is_said_in_one_way(void **state)
{
    (void)state;
    struct mr_token token = {.id = "0123456789ab", .queue = "mail-*"};
    struct mr_detail detail;
    char name[300];
    mr_access_not_covered(&token, MR_SLICE_LIT("bank"), &detail);
    assert_string_equal(detail.text, "token 0123456789ab is for queues mail-*, not for bank");
    mr_access_not_covered(&token, (struct mr_slice){0}, &detail);
    assert_string_equal(detail.text, "token 0123456789ab is for queues mail-*, not for default");
    memset(name, 'x', sizeof name);
    mr_access_not_covered(&token, mr_slice_make(name, sizeof name), &detail);
    assert_int_equal(strlen(strstr(detail.text, "not for ")), strlen("not for ") + MR_NAME_MAX);
    mr_access_not_all(&token, ": it does not lead", &detail);
    assert_string_equal(detail.text, "token 0123456789ab is for queues mail-*: it does not lead");
}

static int put_status(struct client *client, const char *queue, double priority, struct talk *talk)
{
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task};
    *talk = (struct talk){0};
    task.queue = (char *)(uintptr_t)queue;
    task.priority = priority;
    request.tasks = tasks;
    request.n_tasks = 1;
    call_unary(talk, client, PATH("Tasks/Enqueue"), &request.base,
               &millrace__v1__enqueue_response__descriptor);
    return talk->status;
}

static void a_producer_of_some_queues_is_kept_to_them(void **state)
{
    struct rig *rig = *state;
    struct client admin, mail;
    struct talk talk = {0};
    client_open(rig, &admin, make_token(rig, MR_ROLE_ADMIN, "", NULL));
    client_open(rig, &mail, make_token(rig, MR_ROLE_PRODUCER, "mail-*", NULL));
    put(&admin, "mail-in", "seen");
    put(&admin, "bank", "hidden");
    assert_int_equal(put_status(&mail, "mail-out", 0, &talk), MR_RPC_OK);
    assert_int_equal(put_status(&mail, "bank", 0, &talk), MR_RPC_DENIED);
    assert_non_null(strstr(talk.text, "is for queues mail-*, not for bank"));
    assert_int_equal(put_status(&mail, "", 0, &talk), MR_RPC_DENIED);
    assert_non_null(strstr(talk.text, "not for default"));
    assert_non_null(look(&mail, "seen"));
    assert_null(look(&mail, "hidden"));
    Millrace__V1__ListRequest list = MILLRACE__V1__LIST_REQUEST__INIT;
    const Millrace__V1__ListResponse *page = (const void *)call_unary(
        &talk, &mail, PATH("Tasks/List"), &list.base, &millrace__v1__list_response__descriptor);
    assert_int_equal(page->n_tasks, 2);
    list.queue = (char *)(uintptr_t) "bank";
    assert_null(call_unary(&talk, &mail, PATH("Tasks/List"), &list.base,
                           &millrace__v1__list_response__descriptor));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    Millrace__V1__QueueListRequest all = MILLRACE__V1__QUEUE_LIST_REQUEST__INIT;
    const Millrace__V1__QueueListResponse *queues =
        (const void *)call_unary(&talk, &mail, PATH("Queues/List"), &all.base,
                                 &millrace__v1__queue_list_response__descriptor);
    assert_int_equal(queues->n_queues, 2);
    client_close(&admin);
    client_close(&mail);
}

/* On a stream those of one request may come from many threads: each has its own answer. */
static void a_stream_refuses_what_its_token_may_not_and_takes_the_rest(void **state)
{
    struct rig *rig = *state;
    struct mr_token wanted = {.role = MR_ROLE_PRODUCER, .queue = "mail-*", .quota = 2}, made;
    struct mr_detail detail;
    struct client mail;
    struct talk talk = {0};
    char text[MR_TOKEN_TEXT_LEN + 1];
    static const char *const queues[] = {"mail-in", "bank", "mail-out", "mail-in"};
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask rows[4], *tasks[4];
    for (size_t i = 0; i < 4; i++) {
        millrace__v1__new_task__init(&rows[i]);
        rows[i].queue = (char *)(uintptr_t)queues[i];
        tasks[i] = &rows[i];
    }
    rows[1].id = (char *)(uintptr_t) "mine";
    request.tasks = tasks;
    request.n_tasks = 4;
    assert_int_equal(mr_tokens_create(rig->tokens, &wanted, &made, text, &detail), MR_OK);
    client_open(rig, &mail, text);
    talk_begin(&talk, &mail, PATH("Tasks/EnqueueStream"));
    talk_send(&talk, &request.base);
    const Millrace__V1__EnqueueResponse *reply =
        (const void *)talk_next(&talk, &millrace__v1__enqueue_response__descriptor);
    assert_int_equal(reply->code, MR_OK);
    assert_int_equal(reply->n_results, 4);
    assert_int_equal(reply->results[0]->code, MR_OK);
    assert_int_equal(reply->results[1]->code, MR_DENIED);
    assert_string_equal(reply->results[1]->id, "mine");
    assert_non_null(strstr(reply->results[1]->message, "is for queues mail-*, not for bank"));
    assert_int_equal(reply->results[2]->code, MR_OK);
    assert_int_equal(reply->results[3]->code, MR_DENIED);
    assert_non_null(strstr(reply->results[3]->message, "quota of 2"));
    talk_done(&talk);
    client_close(&mail);
}

static void an_admin_of_some_queues_is_kept_to_them(void **state)
{
    struct rig *rig = *state;
    struct client admin, mail;
    struct talk talk = {0};
    client_open(rig, &admin, make_token(rig, MR_ROLE_ADMIN, "", NULL));
    client_open(rig, &mail, make_token(rig, MR_ROLE_ADMIN, "mail", NULL));
    put(&admin, "mail", "seen");
    put(&admin, "bank", "hidden");
    assert_int_equal(control(&mail, MILLRACE__V1__VERB__CANCEL, "hidden"), -MR_RPC_DENIED);
    assert_int_equal(state_of(&admin, "hidden"), MR_PENDING);
    assert_int_equal(control(&mail, MILLRACE__V1__VERB__CANCEL, "nowhere"), MR_NOT_FOUND);
    assert_int_equal(control(&mail, MILLRACE__V1__VERB__CANCEL, "seen"), MR_OK);
    assert_int_equal(state_of(&admin, "seen"), MR_ARCHIVED);
    Millrace__V1__QueueRequest pause = MILLRACE__V1__QUEUE_REQUEST__INIT;
    pause.queue = (char *)(uintptr_t) "bank";
    assert_null(call_unary(&talk, &mail, PATH("Queues/Pause"), &pause.base,
                           &millrace__v1__empty__descriptor));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    Millrace__V1__TokenCreateRequest token = MILLRACE__V1__TOKEN_CREATE_REQUEST__INIT;
    token.role = MILLRACE__V1__ROLE__ADMIN;
    assert_null(call_unary(&talk, &mail, PATH("Tokens/Create"), &token.base,
                           &millrace__v1__token_create_response__descriptor));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    client_close(&admin);
    client_close(&mail);
}

static void what_is_of_every_queue_is_not_for_tokens_of_some(void **state)
{
    struct rig *rig = *state;
    struct client admin, mail, viewer;
    struct talk talk = {0};
    char dir[128];
    client_open(rig, &admin, make_token(rig, MR_ROLE_ADMIN, "", NULL));
    client_open(rig, &mail, make_token(rig, MR_ROLE_ADMIN, "mail", NULL));
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "mail", NULL));
    put(&admin, "bank", "hidden");
    Millrace__V1__BackupRequest backup = MILLRACE__V1__BACKUP_REQUEST__INIT;
    snprintf(dir, sizeof dir, "%s-backup", rig->dir);
    backup.dir = dir;
    assert_null(call_unary(&talk, &mail, PATH("Server/Backup"), &backup.base,
                           &millrace__v1__empty__descriptor));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    assert_non_null(strstr(talk.text, "is for queues mail, and a backup is of every queue"));
    assert_int_not_equal(access(dir, F_OK), 0);
    Millrace__V1__StatsRequest ask = MILLRACE__V1__STATS_REQUEST__INIT;
    const Millrace__V1__StatsResponse *stats = (const void *)call_unary(
        &talk, &admin, PATH("Server/Stats"), &ask.base, &millrace__v1__stats_response__descriptor);
    assert_int_equal(stats->tasks, 1);
    assert_true(stats->disk_bytes > 0);
    stats = (const void *)call_unary(&talk, &viewer, PATH("Server/Stats"), &ask.base,
                                     &millrace__v1__stats_response__descriptor);
    assert_int_equal(stats->tasks, 0);
    assert_int_equal(stats->disk_bytes, 0);
    client_close(&admin);
    client_close(&mail);
    client_close(&viewer);
}

static void limits_of_a_token_hold(void **state)
{
    struct rig *rig = *state;
    struct mr_token wanted = {
        .role = MR_ROLE_PRODUCER, .priority_limited = true, .priority_max_s = 10, .quota = 2};
    struct mr_token made;
    struct mr_detail detail;
    struct client client;
    struct talk talk;
    char text[MR_TOKEN_TEXT_LEN + 1];
    assert_int_equal(mr_tokens_create(rig->tokens, &wanted, &made, text, &detail), MR_OK);
    client_open(rig, &client, text);
    assert_int_equal(put_status(&client, "q", 11, &talk), MR_RPC_DENIED);
    assert_non_null(strstr(talk.text, "at most 10 s"));
    assert_int_equal(put_status(&client, "q", 10, &talk), MR_RPC_OK);
    assert_int_equal(put_status(&client, "bad{name", 0, &talk),
                     MR_RPC_OK); /* refused, given back */
    assert_int_equal(put_status(&client, "q", 0, &talk), MR_RPC_OK);
    assert_int_equal(put_status(&client, "q", 0, &talk), MR_RPC_DENIED);
    assert_non_null(strstr(talk.text, "quota of 2"));
    client_close(&client);
}

/* ---- tokens over the wire ------------------------------------------------------------------- */

static void tokens_are_made_listed_and_revoked_with_their_streams(void **state)
{
    struct rig *rig = *state;
    struct client admin, made;
    struct talk talk = {0}, stream = {0};
    client_open(rig, &admin, make_token(rig, MR_ROLE_ADMIN, "", NULL));
    Millrace__V1__TokenCreateRequest create = MILLRACE__V1__TOKEN_CREATE_REQUEST__INIT;
    create.role = MILLRACE__V1__ROLE__PRODUCER;
    create.queue = (char *)(uintptr_t) "mail";
    const Millrace__V1__TokenCreateResponse *token =
        (const void *)call_unary(&talk, &admin, PATH("Tokens/Create"), &create.base,
                                 &millrace__v1__token_create_response__descriptor);
    assert_int_equal(talk.status, MR_RPC_OK);
    assert_string_equal(token->token->queue, "mail");
    client_open(rig, &made, token->text);
    assert_int_equal(put_status(&made, "mail", 0, &talk), MR_RPC_OK);
    talk_begin(&stream, &made, PATH("Tasks/EnqueueStream"));
    Millrace__V1__TokenListRequest list = MILLRACE__V1__TOKEN_LIST_REQUEST__INIT;
    const Millrace__V1__TokenListResponse *tokens =
        (const void *)call_unary(&talk, &admin, PATH("Tokens/List"), &list.base,
                                 &millrace__v1__token_list_response__descriptor);
    assert_int_equal(tokens->n_tokens, 2);
    Millrace__V1__TokenRevokeRequest revoke = MILLRACE__V1__TOKEN_REVOKE_REQUEST__INIT;
    revoke.id = token->token->id;
    int64_t before = mr_mono_now(mr_clock_system()).ns;
    assert_non_null(call_unary(&talk, &admin, PATH("Tokens/Revoke"), &revoke.base,
                               &millrace__v1__empty__descriptor));
    assert_int_equal(put_status(&made, "mail", 0, &talk), MR_RPC_UNAUTHENTICATED);
    assert_int_equal(talk_end(&stream), MR_RPC_UNAUTHENTICATED);
    assert_non_null(strstr(stream.text, "was revoked"));
    assert_true(mr_mono_now(mr_clock_system()).ns - before < MR_NS_PER_S);
    talk_done(&stream);
    client_close(&admin);
    client_close(&made);
}

/* Each kind of stream that a token may open. */
static void a_revoked_token_loses_its_streams_within_a_second(void **state)
{
    struct rig *rig = *state;
    static const char *const paths[] = {
        PATH("Tasks/EnqueueStream"),
        PATH("Work/Attach"),
        PATH("Events/Watch"),
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    };
    enum { STREAMS = sizeof paths / sizeof *paths };
    struct talk streams[STREAMS] = {0}, talk = {0};
    struct client client;
    struct mr_token token;
    client_open(rig, &client, make_token(rig, MR_ROLE_ADMIN, "", &token));
    for (size_t i = 0; i < STREAMS; i++)
        talk_begin(&streams[i], &client, paths[i]);
    assert_int_equal(put_status(&client, "q", 0, &talk), MR_RPC_OK); /* behind them */
    assert_int_equal(mr_tokens_revoke(rig->tokens, token.id, NULL), MR_OK);
    int64_t before = mr_mono_now(mr_clock_system()).ns;
    for (size_t i = 0; i < STREAMS; i++) {
        assert_int_equal(talk_end(&streams[i]), MR_RPC_UNAUTHENTICATED);
        talk_done(&streams[i]);
    }
    assert_true(mr_mono_now(mr_clock_system()).ns - before < MR_NS_PER_S);
    client_close(&client);
}

static int hello_status(struct rig *rig, enum mr_role role, const char *pattern, const char *queue,
                        const char *topic)
{
    struct client client;
    struct talk talk = {0};
    struct mr_token token;
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello hello = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight weight = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&weight};
    char *topics[] = {(char *)(uintptr_t)topic};
    weight.name = (char *)(uintptr_t)queue;
    hello.node = (char *)(uintptr_t) "node";
    hello.incarnation = 7;
    hello.lease_ms = 60000;
    hello.slots = queue != NULL;
    hello.queues = queues;
    hello.n_queues = queue != NULL;
    hello.topics = topics;
    hello.n_topics = topic != NULL;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    client_open(rig, &client, make_token(rig, role, pattern, &token));
    talk_begin(&talk, &client, PATH("Work/Attach"));
    talk_send(&talk, &message.base);
    talk_half_close(&talk);
    int status = talk_end(&talk);
    talk_done(&talk);
    client_close(&client);
    return status;
}

/* A stream that is welcome ends well when its client has nothing more to say. */
static void producers_take_results_and_workers_take_tasks(void **state)
{
    struct rig *rig = *state;
    static const struct {
        enum mr_role role;
        const char *pattern, *queue, *topic;
        int status;
    } rows[] = {
        {MR_ROLE_ADMIN, "", "q", NULL, MR_RPC_OK},
        {MR_ROLE_ADMIN, "", NULL, "t", MR_RPC_OK},
        {MR_ROLE_WORKER, "", "q", NULL, MR_RPC_OK},
        {MR_ROLE_WORKER, "", NULL, "t", MR_RPC_DENIED},
        {MR_ROLE_PRODUCER, "", "q", NULL, MR_RPC_DENIED},
        {MR_ROLE_PRODUCER, "", NULL, "t", MR_RPC_OK},
        {MR_ROLE_PRODUCER, "mail-*", NULL, "t", MR_RPC_DENIED},
        {MR_ROLE_PRODUCER, "mail-*", NULL, "mail-t", MR_RPC_OK},
        {MR_ROLE_ADMIN, "", "q", "t", MR_RPC_INVALID},
        {MR_ROLE_ADMIN, "", NULL, "", MR_RPC_INVALID},
        {MR_ROLE_ADMIN, "", NULL, "a{b", MR_RPC_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(
            hello_status(rig, rows[i].role, rows[i].pattern, rows[i].queue, rows[i].topic),
            rows[i].status);
}

static void a_token_waits_for_the_disk_and_nobody_waits_for_it(void **state)
{
    struct rig *rig = *state;
    struct client admin;
    struct talk talk = {0}, slow = {0}, given_up = {0};
    struct mr_token token;
    client_open(rig, &admin, make_token(rig, MR_ROLE_ADMIN, "", &token));
    Millrace__V1__TokenCreateRequest create = MILLRACE__V1__TOKEN_CREATE_REQUEST__INIT;
    create.role = MILLRACE__V1__ROLE__PRODUCER;
    Millrace__V1__TokenRevokeRequest revoke = MILLRACE__V1__TOKEN_REVOKE_REQUEST__INIT;
    revoke.id = token.id;
    rig->disk.stalls = true;
    talk_begin(&slow, &admin, PATH("Tokens/Create"));
    talk_send(&slow, &create.base);
    talk_begin(&given_up, &admin, PATH("Tokens/Revoke"));
    talk_send(&given_up, &revoke.base);
    assert_true(mr_event_wait(&rig->disk.reached, patience_ns));
    assert_int_equal(put_status(&admin, "q", 0, &talk), MR_RPC_OK);
    on_loop(rig->loop, do_cancel, &given_up); /* carried out all the same */
    talk_end(&given_up);
    rig->disk.stalls = false;
    mr_event_set(&rig->disk.go_on);
    assert_non_null(talk_next(&slow, &millrace__v1__token_create_response__descriptor));
    WAIT_UNTIL(!mr_tokens_valid(rig->tokens, token.id));
    assert_int_equal(put_status(&admin, "q", 0, &talk), MR_RPC_UNAUTHENTICATED);
    talk_done(&slow);
    talk_done(&given_up);
    client_close(&admin);
}

static void changes_by_people_leave_a_line(void **state)
{
    struct rig *rig = *state;
    struct client admin;
    struct talk talk = {0};
    struct mr_token token;
    char line[256];
    client_open(rig, &admin, make_token(rig, MR_ROLE_ADMIN, "", &token));
    put(&admin, "mail", "m1");
    assert_int_equal(control(&admin, MILLRACE__V1__VERB__DELETE, "m1"), MR_OK);
    Millrace__V1__QueueRequest pause = MILLRACE__V1__QUEUE_REQUEST__INIT;
    pause.queue = (char *)(uintptr_t) "mail";
    call_unary(&talk, &admin, PATH("Queues/Pause"), &pause.base, &millrace__v1__empty__descriptor);
    pause.queue = (char *)(uintptr_t) "nowhere";
    call_unary(&talk, &admin, PATH("Queues/Pause"), &pause.base, &millrace__v1__empty__descriptor);
    struct client viewer;
    struct mr_token other;
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "", &other));
    call_unary(&talk, &viewer, PATH("Queues/Pause"), &pause.base, &millrace__v1__empty__descriptor);
    client_close(&viewer);
    call_unary(&talk, &rig->client, PATH("Queues/Pause"), &pause.base,
               &millrace__v1__empty__descriptor); /* by nobody: no line */
    mr_lock_enter(&rig->lock);
    assert_int_equal(rig->audit_n, 4);
    snprintf(line, sizeof line, "%s Queues/Pause nowhere DENIED", other.id);
    assert_string_equal(rig->audit[3], line);
    snprintf(line, sizeof line, "%s Tasks/Control m1 OK", token.id);
    assert_string_equal(rig->audit[0], line);
    snprintf(line, sizeof line, "%s Queues/Pause mail OK", token.id);
    assert_string_equal(rig->audit[1], line);
    snprintf(line, sizeof line, "%s Queues/Pause nowhere NOT_FOUND", token.id);
    assert_string_equal(rig->audit[2], line);
    mr_lock_leave(&rig->lock);
    client_close(&admin);
}

static void a_refused_change_says_what_was_tried(void **state)
{
    struct rig *rig = *state;
    struct client viewer, mail;
    struct talk talk = {0};
    struct mr_token roles[2];
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "", &roles[0]));
    client_open(rig, &mail, make_token(rig, MR_ROLE_ADMIN, "mail", &roles[1]));
    Millrace__V1__TokenCreateRequest create = MILLRACE__V1__TOKEN_CREATE_REQUEST__INIT;
    create.role = MILLRACE__V1__ROLE__ADMIN;
    Millrace__V1__TokenRevokeRequest revoke = MILLRACE__V1__TOKEN_REVOKE_REQUEST__INIT;
    revoke.id = (char *)(uintptr_t) "0123456789ab";
    Millrace__V1__BackupRequest backup = MILLRACE__V1__BACKUP_REQUEST__INIT;
    backup.dir = (char *)(uintptr_t) "/nowhere";
    struct client *const callers[] = {&viewer, &mail};
    const char *const about[] = {"Tokens/Create admin for *", "Tokens/Revoke 0123456789ab",
                                 "Server/Backup /nowhere", "Tasks/Control m1"};
    for (size_t i = 0; i < 2; i++) {
        call_unary(&talk, callers[i], PATH("Tokens/Create"), &create.base,
                   &millrace__v1__token_create_response__descriptor);
        assert_int_equal(talk.status, MR_RPC_DENIED);
        call_unary(&talk, callers[i], PATH("Tokens/Revoke"), &revoke.base,
                   &millrace__v1__empty__descriptor);
        call_unary(&talk, callers[i], PATH("Server/Backup"), &backup.base,
                   &millrace__v1__empty__descriptor);
    }
    assert_int_equal(control(&viewer, MILLRACE__V1__VERB__DELETE, "m1"), -MR_RPC_DENIED);
    knock(&viewer, PATH("Queues/Pause"), &talk);
    assert_int_equal(talk.status, MR_RPC_DENIED);
    mr_lock_enter(&rig->lock);
    assert_int_equal(rig->audit_n, 8);
    for (size_t i = 0; i < 7; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s %s DENIED", roles[i / 3 % 2].id,
                 i < 6 ? about[i % 3] : about[3]);
        assert_string_equal(rig->audit[i], line);
    }
    mr_lock_leave(&rig->lock);
    client_close(&viewer);
    client_close(&mail);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        cmocka_unit_test(patterns_match_as_people_expect),
        cmocka_unit_test(why_a_token_may_not_is_said_in_one_way),
        cmocka_unit_test(the_matrix_has_every_method),
        cmocka_unit_test(on_this_machine_no_token_is_needed_unless_told),
        cmocka_unit_test(who_may_use_a_queue_may_use_its_addresses),
        TEST(every_role_may_call_what_it_should),
        TEST(without_a_good_token_nothing_is_allowed),
        TEST(a_producer_of_some_queues_is_kept_to_them),
        TEST(a_stream_refuses_what_its_token_may_not_and_takes_the_rest),
        TEST(an_admin_of_some_queues_is_kept_to_them),
        TEST(what_is_of_every_queue_is_not_for_tokens_of_some),
        TEST(limits_of_a_token_hold),
        TEST(tokens_are_made_listed_and_revoked_with_their_streams),
        TEST(producers_take_results_and_workers_take_tasks),
        TEST(a_revoked_token_loses_its_streams_within_a_second),
        TEST(a_token_waits_for_the_disk_and_nobody_waits_for_it),
        TEST(changes_by_people_leave_a_line),
        TEST(a_refused_change_says_what_was_tried),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
