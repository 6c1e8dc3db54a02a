/* SPDX-License-Identifier: Apache-2.0 */
/* millrace timer: what fires by itself. Creating and changing is in
 * timer_define.c. */
#include "cli/timer.h"
#include "wire/timer_json.h"

#include <stdlib.h>

#include "base/text.h"
#include "cli/listing.h"
#include "timer/def.h"

enum { NEXT_DEFAULT = 10, NEXT_SHOWN = 5 };

struct mr_slice timer_app(const struct cli_value *app)
{
    return mr_slice_str(app->given ? app->text : MR_TIMER_APP);
}

/* It may be the store of the timers that is out of reach, of a broker that is not: the latter knows why. */
static bool say_problem(const struct cli *cli, enum mr_err err)
{
    struct mr_timer_look look = {0};
    bool known = err == MR_UNAVAILABLE && mr_client_timer_status(cli->client, &look) == MR_OK &&
                 look.status.problem.len > 0;
    if (known)
        (void)cli_fail(mr_err_exit_code(err), "the store of the timers is out of reach: %.*s",
                       (int)look.status.problem.len, (const char *)look.status.problem.data);
    mr_timer_look_done(&look);
    return known;
}

int timer_look_failed(const struct cli *cli, enum mr_err err, const char *name)
{
    if (say_problem(cli, err))
        return mr_err_exit_code(err);
    if (err == MR_UNSUPPORTED)
        return cli_fail(mr_err_exit_code(err),
                        "timers of %s are known to a server: millrace serve --broker %s, then "
                        "--broker millrace://HOST:PORT",
                        cli->shown, cli->shown);
    if (name == NULL)
        return cli_fail_err(err, "cannot list timers");
    if (err == MR_NOT_FOUND) /* mostly it is of another app than the default one */
        return cli_fail(mr_err_exit_code(err),
                        "timer %s: not found; --app APP says whose, millrace timer list has those "
                        "of all apps",
                        name);
    return cli_fail_err(err, "timer %s", name);
}

int timer_report(const struct cli *cli, enum mr_err err, const struct mr_timer_result *result)
{
    const char *name = cli->words[0];
    int code = mr_err_exit_code(err);
    if (err == MR_OK)
        return CLI_OK;
    /* Another run is another firing; everything else may be repeated. */
    bool runs = strcmp(cli->verb->name, "run") == 0;
    if (result->unknown && err == MR_TIMEOUT)
        return cli_fail(code,
                        "timer %s: not applied in time; a server will, if it was accepted: see "
                        "millrace timer status. %s",
                        name,
                        runs ? "Doing it again fires once more" : "Doing it again does no harm");
    if (result->unknown)
        return cli_fail(code, "timer %s: the answer was lost, it may be done or not; %s", name,
                        runs ? "millrace timer history tells" : "do it again");
    if (err == MR_STALE)
        return cli_fail(code, "timer %s: a newer version is there", name);
    if (result->why[0] != '\0')
        return cli_fail(code, "timer %s: %s", name, result->why);
    return timer_look_failed(cli, err, name);
}

/* ---- looking --------------------------------------------------------------------------------- */

struct look_args {
    struct cli_value app, state, limit, watch;
};

static const char *const state_words[] = {"active", "paused", "finished", NULL};

static enum mr_err timer_page(struct cli *cli, const void *args_, struct listing *listing)
{
    const struct look_args *args = args_;
    struct mr_timer_list *list = NULL;
    struct mr_timer_list_options options = {
        .app = mr_slice_str(args->app.given ? args->app.text : ""),
        .state =
            args->state.given ? (enum mr_timer_state)(args->state.number + 1) : MR_TIMER_STATE_NONE,
        .cursor = listing_cursor(listing),
        .limit = listing->limit,
    };
    MR_TRY(mr_timer_list_get(cli->client, &options, &list));
    for (size_t i = 0; i < mr_timer_list_count(list); i++)
        if (listing->jw)
            jw_timer(listing->jw, mr_timer_list_at(list, i));
        else
            timer_row(listing->table, mr_timer_list_at(list, i));
    listing_turn(listing, mr_timer_list_count(list), mr_timer_list_next(list));
    mr_timer_list_free(list);
    return MR_OK;
}

static int list_once(struct cli *cli, void *args_)
{
    static const struct listing_kind timers = {timer_table, timer_page, "no timers"};
    const struct look_args *args = args_;
    enum mr_err err = listing_print(cli, &timers, args, &args->limit);
    return err == MR_OK ? CLI_OK : timer_look_failed(cli, err, NULL);
}

static int run_list(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    return watch_run(cli, &args->watch, list_once, args_);
}

static int show_once(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    struct mr_timer_list *list = NULL;
    struct mr_slice app = timer_app(&args->app), name = mr_slice_str(cli->words[0]);
    int64_t next_ms[NEXT_SHOWN];
    size_t n = 0;
    enum mr_err err = mr_timer_get(cli->client, app, name, &list);
    if (err == MR_OK && !cli->json)
        err = mr_timer_next(cli->client, app, name, next_ms, NEXT_SHOWN, &n);
    if (err != MR_OK) {
        mr_timer_list_free(list);
        return timer_look_failed(cli, err, cli->words[0]);
    }
    if (cli->json) {
        struct jw jw = {0};
        jw_timer(&jw, mr_timer_list_at(list, 0));
        jw_finish(&jw);
    } else {
        timer_text(mr_timer_list_at(list, 0), next_ms, n);
    }
    mr_timer_list_free(list);
    return CLI_OK;
}

static int run_show(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    return watch_run(cli, &args->watch, show_once, args_);
}

static int status_once(struct cli *cli, void *args)
{
    struct mr_timer_look look = {0};
    (void)args;
    enum mr_err err = mr_client_timer_status(cli->client, &look);
    if (err == MR_OK && cli->json) {
        struct jw jw = {0};
        timer_status_json(&jw, &look.status);
        jw_finish(&jw);
    } else if (err == MR_OK) {
        timer_status_text(&look.status);
    }
    mr_timer_look_done(&look);
    return err == MR_OK ? CLI_OK : timer_look_failed(cli, err, NULL);
}

static int run_status(struct cli *cli, void *args_)
{
    const struct watch_args *args = args_;
    return watch_run(cli, &args->watch, status_once, args_);
}

static enum mr_err history_page(struct cli *cli, const void *args_, struct listing *listing)
{
    const struct look_args *args = args_;
    struct mr_firing_list *list = NULL;
    struct mr_timer_history_options options = {.app = timer_app(&args->app),
                                               .name = mr_slice_str(cli->words[0]),
                                               .cursor = listing_cursor(listing),
                                               .limit = listing->limit};
    MR_TRY(mr_timer_history(cli->client, &options, &list));
    for (size_t i = 0; i < mr_firing_list_count(list); i++)
        if (listing->jw)
            jw_firing(listing->jw, mr_firing_list_at(list, i));
        else
            firing_row(listing->table, mr_firing_list_at(list, i));
    listing_turn(listing, mr_firing_list_count(list), mr_firing_list_next(list));
    mr_firing_list_free(list);
    return MR_OK;
}

static int history_once(struct cli *cli, void *args_)
{
    static const struct listing_kind firings = {firing_table, history_page, "it has not fired yet"};
    const struct look_args *args = args_;
    enum mr_err err = listing_print(cli, &firings, args, &args->limit);
    return err == MR_OK ? CLI_OK : timer_look_failed(cli, err, cli->words[0]);
}

static int run_history(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    return watch_run(cli, &args->watch, history_once, args_);
}

/* ---- next ------------------------------------------------------------------------------------ */

static void print_times(const struct cli *cli, const struct mr_zone *zone, const int64_t *times_ms,
                        size_t n)
{
    struct jw jw = {0};
    if (cli->json)
        jw_array_begin(&jw, NULL);
    for (size_t i = 0; i < n; i++) {
        char at[40], away[48];
        timer_local(zone, times_ms[i], at);
        out_relative(times_ms[i], out_now_ms(), away);
        if (cli->json)
            jw_int(&jw, NULL, times_ms[i]);
        else
            out_printf("%s  %s(%s)%s\n", at, out_colour(OUT_DIM), away, out_colour(OUT_PLAIN));
    }
    if (cli->json) {
        jw_array_end(&jw);
        jw_finish(&jw);
    } else if (n == 0) {
        cli_note(cli, "nothing is planned");
    }
}

/* Of a definition that nobody has stored: no broker is asked. */
static int next_of_flags(const struct cli *cli, const struct timer_args *args, int64_t *times_ms,
                         size_t max)
{
    struct mr_timer_options timer = {0};
    struct mr_zones *zones;
    struct mr_rule *rule = NULL;
    struct mr_detail detail = {0};
    int code = timer_define(cli, args, &timer, NULL);
    if (code != CLI_OK)
        return code;
    cli_must(mr_zones_new(mr_fs_system(), NULL, &zones));
    struct mr_rule_options options = {.kind = timer.kind,
                                      .expression = timer.expression,
                                      .tz = timer.tz,
                                      .exclude = timer.exclude,
                                      .created_ms = out_now_ms(),
                                      .start_ms = timer.start_ms,
                                      .end_ms = timer.end_ms,
                                      .jitter_ms = timer.jitter_ms,
                                      .times = timer.times};
    enum mr_err err = mr_rule_new(zones, &options, &rule, &detail);
    if (err == MR_OK) {
        size_t n = 0;
        int64_t at_ms = options.created_ms;
        while (n < max && (at_ms = mr_rule_next(rule, n, at_ms)) != MR_NEVER_MS)
            times_ms[n++] = at_ms;
        print_times(cli, mr_rule_zone(rule), times_ms, n);
    } else {
        code =
            cli_fail(mr_err_exit_code(err), "%s", detail.text[0] ? detail.text : mr_err_text(err));
    }
    mr_rule_free(rule);
    mr_zones_free(zones);
    return code;
}

static int next_of_stored(struct cli *cli, const struct timer_args *args, int64_t *times_ms,
                          size_t max)
{
    struct mr_slice app = timer_app(&args->app), name = mr_slice_str(cli->words[0]);
    struct mr_timer_list *list = NULL;
    size_t n = 0;
    int code = cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    if (code != CLI_OK)
        return code;
    enum mr_err err = mr_timer_get(cli->client, app, name, &list);
    if (err == MR_OK)
        err = mr_timer_next(cli->client, app, name, times_ms, max, &n);
    if (err == MR_OK) {
        print_times(cli, timer_zone(mr_timer_list_at(list, 0)->timer.tz), times_ms, n);
        if (mr_timer_list_at(list, 0)->state == MR_TIMER_PAUSED)
            cli_note(cli, "timer %s is paused, so it fires at none of them before it is resumed",
                     cli->words[0]);
    }
    mr_timer_list_free(list);
    return err == MR_OK ? CLI_OK : timer_look_failed(cli, err, cli->words[0]);
}

static int run_next(struct cli *cli, void *args_)
{
    const struct timer_args *args = args_;
    size_t max = args->count.given ? (size_t)args->count.number : NEXT_DEFAULT;
    bool flags = timer_args_define(args);
    if (flags && cli->words_n > 0)
        return cli_usage(cli, "give a NAME, or what to try out (--cron EXPR), not both");
    if (!flags && cli->words_n == 0)
        return cli_usage(cli, "give the NAME of a timer, or what to try out: --cron EXPR");
    if (flags && timer_args_kinds(args) == 0)
        return cli_usage(cli, "say when it fires, such as --cron EXPR");
    int64_t *times_ms = cli_alloc(max, sizeof *times_ms);
    int code =
        flags ? next_of_flags(cli, args, times_ms, max) : next_of_stored(cli, args, times_ms, max);
    free(times_ms);
    return code;
}

/* ---- acting ---------------------------------------------------------------------------------- */

struct act_args {
    struct cli_value app, planned;
};

/* The answer of a verb that was carried out. */
static int acted(struct cli *cli, const struct act_args *args, enum mr_err err,
                 const struct mr_timer_result *result, const char *did)
{
    if (err != MR_OK)
        return timer_report(cli, err, result);
    if (cli->json) {
        struct jw jw = {0};
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "name", cli->words[0]);
        jw_bytes(&jw, "app", timer_app(&args->app));
        jw_uint(&jw, "version", result->version);
        jw_text(&jw, "operation", result->operation);
        jw_object_end(&jw);
        jw_finish(&jw);
    } else {
        cli_note(cli, "timer %s %s", cli->words[0], did);
    }
    return CLI_OK;
}

typedef enum mr_err act_call(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                             struct mr_timer_result *ret_result);

static int run_act(struct cli *cli, const struct act_args *args, act_call *act, const char *did)
{
    struct mr_timer_result result = {0};
    enum mr_err err = act(cli->client, timer_app(&args->app), mr_slice_str(cli->words[0]), &result);
    return acted(cli, args, err, &result, did);
}

static int run_pause(struct cli *cli, void *args)
{
    return run_act(cli, args, mr_timer_pause, "is paused");
}

static int run_resume(struct cli *cli, void *args)
{
    return run_act(cli, args, mr_timer_resume, "goes on");
}

static int run_run(struct cli *cli, void *args)
{
    return run_act(cli, args, mr_timer_run, "fires now");
}

static int run_rm(struct cli *cli, void *args)
{
    return run_act(cli, args, mr_timer_delete, "is removed");
}

/* Without --planned, where one can look: the firing that is not over. Several: the person has to say. */
static int find_open(struct cli *cli, struct mr_timer_op *op)
{
    struct mr_firing_list *list = NULL;
    struct mr_timer_history_options options = {
        .app = op->app, .name = op->name, .limit = LISTING_LIMIT};
    size_t open = 0;
    if (mr_timer_history(cli->client, &options, &list) != MR_OK)
        return CLI_OK;
    for (size_t i = 0; i < mr_firing_list_count(list); i++) {
        const struct mr_firing_info *firing = mr_firing_list_at(list, i);
        if (firing->state < MR_FIRING_WAITING || firing->state > MR_FIRING_RUNNING)
            continue;
        op->planned_ms = firing->planned_ms;
        open++;
    }
    mr_firing_list_free(list);
    if (open <= 1)
        return CLI_OK;
    return cli_usage(cli,
                     "%zu firings of %s are not over; --planned T says which, see timer history",
                     open, cli->words[0]);
}

/* On one firing of it. */
static int run_on_firing(struct cli *cli, const struct act_args *args, enum mr_timer_verb verb,
                         const char *did)
{
    struct mr_timer_result result = {0};
    struct mr_timer_op op = {.verb = verb,
                             .app = timer_app(&args->app),
                             .name = mr_slice_str(cli->words[0]),
                             .planned_ms = args->planned.number};
    int64_t ms;
    /* Also as --json has it, in milliseconds. */
    if (args->planned.given && mr_parse_int64(args->planned.text, &ms) == MR_OK)
        op.planned_ms = ms;
    else if (args->planned.given && mr_parse_time_ms(args->planned.text, &op.planned_ms) != MR_OK)
        return cli_usage(cli,
                         "--planned: \"%.200s\" is neither a time as timer history shows it nor "
                         "one in milliseconds",
                         args->planned.text);
    int code = cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    if (code == CLI_OK && !args->planned.given)
        code = find_open(cli, &op);
    if (code != CLI_OK)
        return code;
    enum mr_err err = mr_timer_send(cli->client, &op, 1, MR_TIMER_APPLIED, &result);
    if (err == MR_OK)
        err = result.err;
    if (err == MR_NOT_FOUND && result.why[0] == '\0')
        return cli_fail(mr_err_exit_code(err), "timer %s has no such firing", cli->words[0]);
    return acted(cli, args, err, &result, did);
}

static int run_stop(struct cli *cli, void *args)
{
    return run_on_firing(cli, args, MR_TIMER_STOP, "is told to stop that firing");
}

static int run_rerun(struct cli *cli, void *args_)
{
    const struct act_args *args = args_;
    if (!args->planned.given)
        return cli_usage(cli, "--planned T says which firing; timer history shows them");
    return run_on_firing(cli, args, MR_TIMER_RERUN, "runs that firing again");
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define APP_ROW(args, help_)                                                                       \
    {                                                                                              \
        .name = "app", .kind = CLI_NAME, .offset = offsetof(struct args, app), .value = "APP",     \
        .help = help_                                                                              \
    }
#define LIMIT_ROW                                                                                  \
    {                                                                                              \
        .name = "limit", .kind = CLI_COUNT, .offset = offsetof(struct look_args, limit),           \
        .value = "N", .help = "at most so many (default 50)", .min = 1                             \
    }

static const struct cli_option list_options[] = {
    APP_ROW(look_args, "only timers of this app"),
    {.name = "state",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct look_args, state),
     .value = "STATE",
     .help = "active, paused or finished",
     .choices = state_words},
    LIMIT_ROW,
    WATCH_OPTION(struct look_args, watch),
};

static const struct cli_option show_options[] = {
    APP_ROW(look_args, "app that it belongs to (default: default)"),
    WATCH_OPTION(struct look_args, watch),
};

static const struct cli_option history_options[] = {
    APP_ROW(look_args, "app that it belongs to (default: default)"),
    LIMIT_ROW,
    WATCH_OPTION(struct look_args, watch),
};

static const struct cli_option status_options[] = {
    WATCH_OPTION(struct watch_args, watch),
};

static const struct cli_option act_options[] = {
    APP_ROW(act_args, "app that it belongs to (default: default)"),
};

static const struct cli_option firing_options[] = {
    APP_ROW(act_args, "app that it belongs to (default: default)"),
    {.name = "planned",
     .kind = CLI_TEXT,
     .offset = offsetof(struct act_args, planned),
     .value = "T",
     .help = "the firing planned for this time, as timer history shows it "
             "(stop: else the one that is not over, or the next)"},
};

#define DEFINES(rows)                                                                              \
    .options = (rows), .options_n = CLI_LEN(rows), .args_size = sizeof(struct timer_args)

static const struct cli_verb verbs[] = {
    {.name = "create",
     .synopsis = "NAME [PAYLOAD|-]",
     .about = "Makes a timer, each firing of which is a task with this "
              "payload; prints its id.",
     .examples =
         CLI_EXAMPLES("millrace timer create nightly --cron '30 2 * * *' --tz Europe/Berlin "
                      "-q backup 'all'",
                      "millrace timer create poll --every 10s --overlap skip -q poll",
                      "millrace timer create office --daily 09:00-18:00/10m@mon-fri -q "
                      "checks",
                      "millrace timer create reminder --delay 2h -q mail 'call back'"),
     DEFINES(timer_create_options),
     .words_min = 1,
     .words_max = 2,
     .run = timer_run_create},
    {.name = "update",
     .synopsis = "NAME [PAYLOAD|-]",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Changes a timer: what is given replaces, the rest stays.",
     .examples = CLI_EXAMPLES("millrace timer update poll --every 1m",
                              "millrace timer update poll --if-version 1785000000000000 'new'"),
     DEFINES(timer_update_options),
     .words_min = 1,
     .words_max = 2,
     .run = timer_run_update},
    {.name = "list",
     .synopsis = "",
     .about = "Lists timers, by app and name.",
     .examples = CLI_EXAMPLES("millrace timer list", "millrace timer list --app shop --json",
                              "millrace timer list --state paused --watch"),
     CLI_OPTIONS(list_options, struct look_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_list},
    {.name = "show",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Shows a timer and when it fires next.",
     .examples = CLI_EXAMPLES("millrace timer show nightly"),
     CLI_OPTIONS(show_options, struct look_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_show},
    {.name = "next",
     .synopsis = "[NAME]",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Tells when a timer fires next, or one would that nobody has "
              "made yet.",
     .examples = CLI_EXAMPLES("millrace timer next nightly -n 10",
                              "millrace timer next --cron '0 9 L * *' --tz Asia/Tokyo -n 3"),
     DEFINES(timer_next_options),
     .words_max = 1,
     .run = run_next},
    {.name = "history",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Lists what a timer has fired, newest first, and what became of it.",
     .examples = CLI_EXAMPLES("millrace timer history nightly",
                              "millrace timer history nightly --limit 1000 --json"),
     CLI_OPTIONS(history_options, struct look_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_history},
    {.name = "status",
     .synopsis = "",
     .about = "Shows how the timers are: store, operations, lateness, who fires which apps.",
     .examples = CLI_EXAMPLES("millrace timer status", "millrace timer status --watch"),
     CLI_OPTIONS(status_options, struct watch_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_status},
    {.name = "pause",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Fires nothing more until it is resumed.",
     .examples = CLI_EXAMPLES("millrace timer pause nightly"),
     CLI_OPTIONS(act_options, struct act_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_pause},
    {.name = "resume",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Ends a pause; what was planned meanwhile is not made up for.",
     .examples = CLI_EXAMPLES("millrace timer resume nightly"),
     CLI_OPTIONS(act_options, struct act_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_resume},
    {.name = "run",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Fires now, beside what is planned.",
     .examples = CLI_EXAMPLES("millrace timer run nightly"),
     CLI_OPTIONS(act_options, struct act_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_run},
    {.name = "stop",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Stops a firing that runs; cancels one that waits, or has not "
              "come yet.",
     .examples = CLI_EXAMPLES("millrace timer stop nightly --planned 2026-12-24T02:30:00Z",
                              "millrace timer stop nightly"),
     CLI_OPTIONS(firing_options, struct act_args),
     CLI_ONE_WORD,
     .run = run_stop},
    {.name = "rerun",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Runs a firing again that failed or was stopped.",
     .examples = CLI_EXAMPLES("millrace timer rerun nightly --planned 2026-12-24T02:30:00Z"),
     CLI_OPTIONS(firing_options, struct act_args),
     CLI_ONE_WORD,
     .run = run_rerun},
    {.name = "rm",
     .synopsis = "NAME",
     .words = CLI_FIRST_IS_TIMER,
     .about = "Removes a timer; tasks that it has fired stay.",
     .examples = CLI_EXAMPLES("millrace timer rm nightly"),
     CLI_OPTIONS(act_options, struct act_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_rm},
};

const struct cli_command cli_timer = {.name = "timer",
                                      .about = "what fires by itself: make, look, run, change",
                                      .verbs = verbs,
                                      .verbs_n = CLI_LEN(verbs)};
