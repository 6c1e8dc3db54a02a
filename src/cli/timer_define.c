/* SPDX-License-Identifier: Apache-2.0 */
/* millrace timer create and update: from flags to a definition. What a
 * definition must be like is decided by the library, which says it in its own
 * words. */
#include <stdlib.h>

#include "base/text.h"
#include "cli/timer.h"
#include "wire/timer_json.h"

enum { CONFLICTS_MAX = 5 }; /* an update meets somebody else's so often before it gives up */
#define DELAY_MAX_MS (36525 * MR_MS_PER_DAY) /* that a rule takes */

/* ---- flags ----------------------------------------------------------------------------------- */

size_t timer_args_kinds(const struct timer_args *args)
{
    size_t n = 0;
    for (size_t i = 0; i < MR_TIMER_KIND_COUNT; i++)
        n += args->kinds[i].given;
    return n;
}

bool timer_args_define(const struct timer_args *args)
{
    const struct cli_value *const values[] = {
        &args->tz,       &args->queue,       &args->type,     &args->retry,  &args->timeout,
        &args->priority, &args->misfire,     &args->overlap,  &args->times,  &args->start,
        &args->end,      &args->max_running, &args->strategy, &args->jitter, &args->exclude,
        &args->expire,   &args->header};
    for (size_t i = 0; i < CLI_LEN(values); i++)
        if (values[i]->given)
            return true;
    return timer_args_kinds(args) > 0;
}

static int define_kind(const struct cli *cli, const struct timer_args *args,
                       struct mr_timer_options *timer)
{
    if (timer_args_kinds(args) > 1)
        return cli_usage(cli, "a timer has one of --cron, --every, --after-done, --at, --delay, "
                              "--daily and --manual");
    for (size_t i = 0; i < MR_TIMER_KIND_COUNT; i++) {
        if (!args->kinds[i].given)
            continue;
        timer->kind = (enum mr_timer_kind)i;
        timer->expression = mr_slice_str(args->kinds[i].text ? args->kinds[i].text : "");
    }
    return CLI_OK;
}

/* "any", "key:K". */
static int define_strategy(const struct cli *cli, const struct cli_value *value,
                           struct mr_timer_options *timer)
{
    if (!value->given)
        return CLI_OK;
    if (mr_timer_strategy_read(mr_slice_str(value->text), timer))
        return CLI_OK;
    return cli_usage(cli,
                     "--strategy: \"%.200s\" is none of any, round-robin, "
                     "healthiest, key:KEY, "
                     "tag:TAG and broadcast",
                     value->text);
}

static int define_headers(const struct cli *cli, const struct cli_value *value,
                          struct mr_timer_options *timer, struct mr_header headers[MR_HEADERS_MAX])
{
    if (!value->given)
        return CLI_OK;
    if (value->items_n > MR_HEADERS_MAX)
        return cli_usage(cli, "--header: %zu are over the limit of %d", value->items_n,
                         MR_HEADERS_MAX);
    for (size_t i = 0; i < value->items_n; i++) {
        const char *text = value->items[i], *equals = strchr(text, '=');
        if (!equals || equals == text)
            return cli_usage(cli, "--header: \"%.200s\" is not NAME=VALUE", text);
        headers[i] = (struct mr_header){mr_slice_make(text, (size_t)(equals - text)),
                                        mr_slice_str(equals + 1)};
    }
    timer->headers = headers;
    timer->headers_n = value->items_n;
    return CLI_OK;
}

static void define_text(const struct cli_value *value, struct mr_slice *ret_text)
{
    if (value->given)
        *ret_text = mr_slice_str(value->text);
}

/* In the C API 0 means the default for some; here it means none. */
static void define_numbers(const struct timer_args *args, struct mr_timer_options *timer)
{
    if (args->retry.given)
        timer->max_retry = args->retry.number > 0 ? (int32_t)args->retry.number : MR_NO_RETRY;
    if (args->timeout.given)
        timer->timeout_ms = args->timeout.number > 0 ? args->timeout.number : MR_NO_TIMEOUT;
    if (args->priority.given)
        timer->priority_s = args->priority.real;
    if (args->misfire.given)
        timer->misfire = (enum mr_misfire)args->misfire.number;
    if (args->overlap.given)
        timer->overlap = (enum mr_overlap)args->overlap.number;
    if (args->max_running.given)
        timer->max_running = (uint32_t)args->max_running.number;
    if (args->jitter.given)
        timer->jitter_ms = args->jitter.number;
    if (args->start.given)
        timer->start_ms = args->start.number;
    if (args->end.given)
        timer->end_ms = args->end.number;
    if (args->times.given)
        timer->times = (uint64_t)args->times.number;
    if (args->expire.given)
        timer->expire_ms = args->expire.number;
}

int timer_define(const struct cli *cli, const struct timer_args *args,
                 struct mr_timer_options *timer, struct mr_header headers[MR_HEADERS_MAX])
{
    define_text(&args->tz, &timer->tz);
    define_text(&args->exclude, &timer->exclude);
    define_text(&args->queue, &timer->queue);
    define_text(&args->type, &timer->type);
    define_numbers(args, timer);
    int code = define_kind(cli, args, timer);
    if (code == CLI_OK)
        code = define_strategy(cli, &args->strategy, timer);
    return code == CLI_OK ? define_headers(cli, &args->header, timer, headers) : code;
}

/* ---- the payload ----------------------------------------------------------------------------- */

static int read_payload(const struct cli *cli, struct mr_buf *buf, struct mr_slice *ret_payload)
{
    if (cli->words_n < 2)
        return CLI_OK;
    *ret_payload = mr_slice_str(cli->words[1]);
    if (strcmp(cli->words[1], "-") != 0)
        return CLI_OK;
    enum mr_err err = cli_read_stdin(buf, MR_PAYLOAD_MAX);
    if (err == MR_TOO_BIG)
        return cli_fail(mr_err_exit_code(err),
                        "the payload on standard input is over the limit of %d bytes",
                        MR_PAYLOAD_MAX);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot read standard input");
    *ret_payload = mr_buf_slice(buf);
    return CLI_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

static enum mr_err put(struct cli *cli, const struct timer_args *args, const struct mr_timer_op *op,
                       struct mr_timer_result *result)
{
    enum mr_err err = mr_timer_send(
        cli->client, op, 1, args->no_wait.given ? MR_TIMER_DURABLE : MR_TIMER_APPLIED, result);
    return err != MR_OK ? err : result->err;
}

/* With --json the timer as it is now, where one can look. */
static int say_timer(struct cli *cli, const struct timer_args *args, const char *did,
                     const struct mr_timer_result *result)
{
    struct mr_timer_list *list = NULL;
    enum mr_err err = MR_UNSUPPORTED;
    if (cli->json && !args->no_wait.given)
        err = mr_timer_get(cli->client, timer_app(&args->app), mr_slice_str(cli->words[0]), &list);
    struct jw jw = {0};
    if (err == MR_OK) {
        jw_timer(&jw, mr_timer_list_at(list, 0));
        jw_finish(&jw);
    } else if (cli->json) {
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "name", cli->words[0]);
        jw_text(&jw, "id", result->id);
        jw_bytes(&jw, "app", timer_app(&args->app));
        jw_uint(&jw, "version", result->version);
        jw_text(&jw, "operation", result->operation);
        jw_object_end(&jw);
        jw_finish(&jw);
    } else {
        out_printf("%s\n", result->id);
        cli_note(cli, "timer %s is %s%s", cli->words[0], did,
                 args->no_wait.given ? " as soon as this is applied" : "");
    }
    mr_timer_list_free(list);
    return CLI_OK;
}

static int create(struct cli *cli, const struct timer_args *args, struct mr_timer_options *timer)
{
    struct mr_timer_result result = {0};
    struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = timer, .if_version = MR_TIMER_NEW};
    int code = cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    if (code != CLI_OK)
        return code;
    enum mr_err err = put(cli, args, &op, &result);
    if (err == MR_CONFLICT)
        return cli_fail(mr_err_exit_code(err), "timer %s is there already; see millrace timer %s",
                        cli->words[0], "update");
    return err == MR_OK ? say_timer(cli, args, "created", &result)
                        : timer_report(cli, err, &result);
}

int timer_run_create(struct cli *cli, void *args_)
{
    const struct timer_args *args = args_;
    struct mr_timer_options timer = {.app = timer_app(&args->app),
                                     .name = mr_slice_str(cli->words[0])};
    struct mr_header *headers = cli_alloc(MR_HEADERS_MAX, sizeof *headers);
    struct mr_buf payload = {0};
    int code = CLI_OK;
    if (timer_args_kinds(args) == 0)
        code = cli_usage(cli, "say when it fires: --cron EXPR, --every D, --after-done D, --at T, "
                              "--delay D, --daily FROM-TO/D or --manual");
    if (code == CLI_OK)
        code = timer_define(cli, args, &timer, headers);
    if (code == CLI_OK)
        code = read_payload(cli, &payload, &timer.payload);
    if (code == CLI_OK)
        code = create(cli, args, &timer);
    mr_buf_done(&payload);
    free(headers);
    return code;
}

/* ---- update ---------------------------------------------------------------------------------- */

struct update {
    const struct timer_args *args;
    struct mr_header *headers;
    struct mr_slice payload;
    bool payload_given;
    char at[40]; /* --delay: the time that it comes to; or "" */
};

/* A delay is counted from the creation, which may be long ago; who changes one means from now. What is no
 * duration stays, and is refused in the words of the rule. */
static void delay_from_now(struct update *update)
{
    const struct cli_value *delay = &update->args->kinds[MR_TIMER_DELAY];
    int64_t ms;
    if (delay->given && mr_parse_duration_ms(delay->text, &ms) == MR_OK && ms <= DELAY_MAX_MS)
        timer_local(timer_zone(mr_slice_str("")), out_now_ms() + ms, update->at);
}

/* Once: what is there now, with what was given. MR_CONFLICT: somebody else was
 * faster. */
static enum mr_err update_once(struct cli *cli, const struct update *update, int *ret_code,
                               struct mr_timer_result *result)
{
    const struct timer_args *args = update->args;
    struct mr_timer_list *list = NULL;
    enum mr_err err =
        mr_timer_get(cli->client, timer_app(&args->app), mr_slice_str(cli->words[0]), &list);
    if (err != MR_OK) {
        *ret_code = timer_look_failed(cli, err, cli->words[0]);
        return err;
    }
    const struct mr_timer_info *info = mr_timer_list_at(list, 0);
    struct mr_timer_options timer = info->timer;
    *ret_code = timer_define(cli, args, &timer, update->headers);
    if (update->payload_given)
        timer.payload = update->payload;
    if (update->at[0] != '\0') {
        timer.kind = MR_TIMER_AT;
        timer.expression = mr_slice_str(update->at);
    }
    struct mr_timer_op op = {
        .verb = MR_TIMER_PUT,
        .timer = &timer,
        .id = info->id,
        .created_ms = info->created_ms,
        .if_version = args->if_version.given ? (uint64_t)args->if_version.number : info->version,
    };
    if (*ret_code == CLI_OK)
        err = put(cli, args, &op, result);
    mr_timer_list_free(list);
    return err;
}

static int update_until_done(struct cli *cli, const struct update *update)
{
    const struct timer_args *args = update->args;
    struct mr_timer_result result = {0};
    enum mr_err err = MR_CONFLICT;
    int code = CLI_OK;
    for (size_t i = 0; err == MR_CONFLICT && code == CLI_OK && i < CONFLICTS_MAX; i++) {
        err = update_once(cli, update, &code, &result);
        if (args->if_version.given)
            break;
    }
    if (code != CLI_OK)
        return code;
    if (err == MR_CONFLICT && args->if_version.given)
        return cli_fail(mr_err_exit_code(err), "timer %s has version %llu, not %lld", cli->words[0],
                        (unsigned long long)result.version, (long long)args->if_version.number);
    if (err == MR_CONFLICT)
        return cli_fail(mr_err_exit_code(err), "timer %s is changed by others all the time",
                        cli->words[0]);
    return err == MR_OK ? say_timer(cli, args, "changed", &result)
                        : timer_report(cli, err, &result);
}

int timer_run_update(struct cli *cli, void *args_)
{
    const struct timer_args *args = args_;
    struct mr_buf payload = {0};
    struct update update = {.args = args, .payload_given = cli->words_n > 1};
    if (!timer_args_define(args) && !update.payload_given)
        return cli_usage(cli, "nothing to change; give what is to be different, such as --every D");
    update.headers = cli_alloc(MR_HEADERS_MAX, sizeof *update.headers);
    struct mr_timer_options tried = {0};
    int code = timer_define(cli, args, &tried, update.headers); /* before anything is opened */
    if (code == CLI_OK)
        code = read_payload(cli, &payload, &update.payload);
    delay_from_now(&update);
    if (code == CLI_OK)
        code = cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    if (code == CLI_OK)
        code = update_until_done(cli, &update);
    mr_buf_done(&payload);
    free(update.headers);
    return code;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* In the order of the enums. */
static const char *const misfire_words[] = {"once", "skip", "all", NULL};
static const char *const overlap_words[] = {"allow", "skip", "queue", "cancel", NULL};

#define OPT(field, kind_, value_, help_)                                                           \
    .kind = kind_, .offset = offsetof(struct timer_args, field), .value = value_, .help = help_

#define APP_ROW                                                                                    \
    {                                                                                              \
        .name = "app", OPT(app, CLI_NAME, "APP", "app that it belongs to (default: default)")      \
    }
#define WHEN_ROWS                                                                                  \
    {.name = "cron",                                                                               \
     OPT(kinds[MR_TIMER_CRON], CLI_TEXT, "EXPR", "5 fields, 6 with seconds, 7 with a year")},      \
        {.name = "every",                                                                          \
         OPT(kinds[MR_TIMER_EVERY], CLI_TEXT, "D", "again and again, whatever runs take")},        \
        {.name = "after-done",                                                                     \
         OPT(kinds[MR_TIMER_AFTER_DONE], CLI_TEXT, "D", "so long after the end of the last run")}, \
        {.name = "at",                                                                             \
         OPT(kinds[MR_TIMER_AT], CLI_TEXT, "T", "once, at this time: RFC 3339 or Unix seconds")},  \
        {.name = "delay", OPT(kinds[MR_TIMER_DELAY], CLI_TEXT, "D", "once, so long from now")},    \
        {.name = "daily",                                                                          \
         OPT(kinds[MR_TIMER_DAILY], CLI_TEXT, "FROM-TO/D[@DAYS]",                                  \
             "such as "                                                                            \
             "09:00-18:00/10m@mon-fri")},                                                          \
        {.name = "manual",                                                                         \
         OPT(kinds[MR_TIMER_MANUAL], CLI_FLAG, NULL, "only when somebody runs it")},               \
        {.name = "tz", OPT(tz, CLI_TEXT, "ZONE", "such as Europe/Berlin (default UTC)")},          \
        {.name = "exclude",                                                                        \
         OPT(exclude, CLI_TEXT, "CALENDAR", "days without firings, such as sat,sun,12-25")},       \
        {.name = "start", OPT(start, CLI_TIME, "T", "nothing is planned before")},                 \
        {.name = "end", OPT(end, CLI_TIME, "T", "nothing is planned after this")},                 \
        {.name = "times", OPT(times, CLI_COUNT, "N", "so many firings, then it is finished")},     \
    {                                                                                              \
        .name = "jitter", OPT(jitter, CLI_DURATION, "D", "fires up to so much later than planned") \
    }
#define DEFINITION_ROWS                                                                            \
    APP_ROW, WHEN_ROWS,                                                                            \
        {.name = "queue",                                                                          \
         .letter = 'q',                                                                            \
         OPT(queue, CLI_NAME, "QUEUE", "queue of its tasks (default: the name of the app)")},      \
        {.name = "type",                                                                           \
         .letter = 't',                                                                            \
         OPT(type, CLI_NAME, "TYPE", "type of its tasks (default: task)")},                        \
        {.name = "retry",                                                                          \
         OPT(retry, CLI_COUNT, "N",                                                                \
             "failures of a task before its firing has failed (default 25)"),                      \
         .max = MR_RETRY_MAX},                                                                     \
        {.name = "timeout",                                                                        \
         OPT(timeout, CLI_DURATION, "D", "one run may last this long (default 30m)")},             \
        {.name = "priority",                                                                       \
         OPT(priority, CLI_REAL, "SECONDS", "seconds ahead; positive is earlier")},                \
        {.name = "misfire",                                                                        \
         OPT(misfire, CLI_CHOICE, "HOW",                                                           \
             "planned times that nobody was there for: skip, once (default) or "                   \
             "all"),                                                                               \
         .choices = misfire_words},                                                                \
        {.name = "overlap",                                                                        \
         OPT(overlap, CLI_CHOICE, "HOW",                                                           \
             "while the last run is not over: allow (default), skip, queue "                       \
             "one, or cancel it"),                                                                 \
         .choices = overlap_words},                                                                \
        {.name = "max-running",                                                                    \
         OPT(max_running, CLI_COUNT, "N", "runs at once (default 1; with allow: no limit)"),       \
         .max = UINT32_MAX},                                                                       \
        {.name = "strategy",                                                                       \
         OPT(strategy, CLI_TEXT, "HOW",                                                            \
             "which worker: any (default), round-robin, healthiest, key:K, "                       \
             "tag:T or broadcast")},                                                               \
        {.name = "expire",                                                                         \
         OPT(expire, CLI_DURATION, "D",                                                            \
             "a firing that has not run so long after its time fails")},                           \
        {.name = "header",                                                                         \
         .note = CLI_REPEATS,                                                                      \
         OPT(header, CLI_TEXT, "K=V", "a header of its tasks")},                                   \
    {                                                                                              \
        .name = "no-wait",                                                                         \
        OPT(no_wait, CLI_FLAG, NULL, "until it is durable, not until it is applied")               \
    }

const struct cli_option timer_create_options[TIMER_CREATE_OPTIONS_N] = {DEFINITION_ROWS};

const struct cli_option timer_update_options[TIMER_UPDATE_OPTIONS_N] = {
    DEFINITION_ROWS,
    {.name = "if-version",
     OPT(if_version, CLI_COUNT, "V", "only if it has this version (else exit code 4)"),
     .min = 1},
};

const struct cli_option timer_next_options[TIMER_NEXT_OPTIONS_N] = {
    APP_ROW,
    WHEN_ROWS,
    {.name = "count",
     .letter = 'n',
     OPT(count, CLI_COUNT, "N", "so many (default 10)"),
     .min = 1,
     .max = MR_BATCH_MAX},
};
