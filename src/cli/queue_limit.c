/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/queue_limit.h"

#include <stdlib.h>

#include "base/text.h"
#include "cli/out.h"

/* ---- setting -------------------------------------------------------------------------------- */

/* "100/s", "5/1m30s", "0". */
static bool parse_rate(const char *text, struct mr_limit *limit)
{
    char number[16], span[40];
    const char *slash = strchr(text, '/');
    size_t len = slash != NULL ? (size_t)(slash - text) : strlen(text);
    int64_t n;
    if (len == 0 || len >= sizeof number)
        return false;
    memcpy(number, text, len);
    number[len] = '\0';
    if (mr_parse_int64(number, &n) != MR_OK || n < 0 || n > MR_LIMIT_RATE_MAX ||
        (slash == NULL && n > 0))
        return false;
    limit->rate = (uint32_t)n;
    limit->rate_ms = 0;
    if (slash == NULL)
        return true;
    bool bare = slash[1] < '0' || slash[1] > '9'; /* "/s": one of them */
    int wrote = snprintf(span, sizeof span, "%s%s", bare ? "1" : "", slash + 1);
    if (wrote < 0 || (size_t)wrote >= sizeof span ||
        mr_parse_duration_ms(span, &limit->rate_ms) != MR_OK)
        return false;
    return n == 0 || (limit->rate_ms >= 1 && limit->rate_ms <= MR_LIMIT_MS_MAX);
}

bool limit_given(const struct limit_args *args)
{
    return args->rate.given || args->concurrency.given || args->type.given || args->key.given;
}

int limit_check(struct cli *cli, const struct limit_args *args)
{
    struct mr_limit limit;
    if (!args->rate.given && !args->concurrency.given && limit_given(args))
        return cli_usage(cli, "--limit-%s: give --rate or --concurrency with it",
                         args->type.given ? "type" : "key");
    if (args->rate.given && !parse_rate(args->rate.text, &limit))
        return cli_usage(cli,
                         "--rate: \"%s\" is not a rate such as 100/s, 5/250ms or 1000/1h: at most "
                         "%d within a day; 0 lifts it",
                         args->rate.text, MR_LIMIT_RATE_MAX);
    return CLI_OK;
}

static enum mr_err set_one(struct cli *cli, struct mr_slice queue, const struct limit_args *args,
                           enum mr_limit_scope scope, const char *name)
{
    struct mr_limit limit = {.scope = scope, .concurrency = (uint32_t)args->concurrency.number};
    snprintf(limit.name, sizeof limit.name, "%s", name);
    if (args->rate.given && parse_rate(args->rate.text, &limit))
        MR_TRY(mr_queue_set_rate(cli->client, queue, &limit));
    return args->concurrency.given ? mr_queue_set_concurrency(cli->client, queue, &limit) : MR_OK;
}

enum mr_err limit_set(struct cli *cli, struct mr_slice queue, const struct limit_args *args)
{
    for (size_t i = 0; i < args->type.items_n; i++)
        MR_TRY(set_one(cli, queue, args, MR_LIMIT_TYPE, args->type.items[i]));
    for (size_t i = 0; i < args->key.items_n; i++)
        MR_TRY(set_one(cli, queue, args, MR_LIMIT_KEY, args->key.items[i]));
    bool whole = args->type.items_n == 0 && args->key.items_n == 0;
    return whole ? set_one(cli, queue, args, MR_LIMIT_QUEUE, "") : MR_OK;
}

/* ---- looking -------------------------------------------------------------------------------- */

void limit_text(uint32_t rate, int64_t rate_ms, uint32_t concurrency, char text[LIMIT_TEXT_MAX])
{
    char span[32];
    size_t used = 0;
    text[0] = '\0';
    mr_format_duration_ms(rate_ms, span);
    if (rate > 0)
        used = (size_t)snprintf(text, LIMIT_TEXT_MAX, "%u/%s", rate, span);
    if (concurrency > 0)
        snprintf(text + used, LIMIT_TEXT_MAX - used, "%s%u at once", used > 0 ? ", " : "",
                 concurrency);
}

static void print_one(const struct mr_limit *limit, struct mr_buf *scratch)
{
    char text[LIMIT_TEXT_MAX], left[32];
    bool each = strcmp(limit->name, MR_LIMIT_EACH) == 0;
    int64_t left_ms = limit->rate_until_ms - out_now_ms();
    limit_text(limit->rate, limit->rate_ms, limit->concurrency, text);
    out_printf("%s%s", each ? "each " : "", mr_limit_scope_name(limit->scope));
    if (!each && limit->scope != MR_LIMIT_QUEUE)
        out_printf(" %s", out_escaped(scratch, mr_slice_str(limit->name)));
    out_printf(": %s", text);
    if (!each)
        out_printf("; %u in hand", limit->active);
    mr_format_duration_ms(left_ms, left);
    if (limit->rate_until_ms > 0 && left_ms > 0)
        out_printf(", the next in %s", left);
    out_printf("\n");
}

static enum mr_err get_all(struct cli *cli, struct mr_slice queue, struct mr_limit **ret_limits,
                           size_t *ret_n)
{
    struct mr_limit *limits = cli_alloc(MR_LIMITS_MAX, sizeof *limits);
    *ret_n = 0;
    enum mr_err err = mr_queue_limits(cli->client, queue, limits, ret_n);
    if (err != MR_OK && err != MR_UNSUPPORTED) {
        free(limits);
        return err;
    }
    *ret_limits = limits;
    return MR_OK;
}

enum mr_err limit_print_all(struct cli *cli, struct mr_slice queue)
{
    struct mr_buf scratch = {0};
    struct mr_limit *limits;
    size_t n;
    MR_TRY(get_all(cli, queue, &limits, &n));
    for (size_t i = 0; i < n; i++)
        print_one(&limits[i], &scratch);
    mr_buf_done(&scratch);
    free(limits);
    return MR_OK;
}

enum mr_err limit_json_all(struct cli *cli, struct mr_slice queue, struct jw *jw, const char *name)
{
    struct mr_limit *limits;
    size_t n;
    MR_TRY(get_all(cli, queue, &limits, &n));
    jw_array_begin(jw, name);
    for (size_t i = 0; i < n; i++) {
        jw_object_begin(jw, NULL);
        jw_text(jw, "scope", mr_limit_scope_name(limits[i].scope));
        jw_text(jw, "name", limits[i].name);
        jw_uint(jw, "rate", limits[i].rate);
        jw_int(jw, "rate_ms", limits[i].rate_ms);
        jw_uint(jw, "concurrency", limits[i].concurrency);
        jw_uint(jw, "active", limits[i].active);
        jw_int(jw, "rate_until_ms", limits[i].rate_until_ms);
        jw_object_end(jw);
    }
    jw_array_end(jw);
    free(limits);
    return MR_OK;
}
