/* SPDX-License-Identifier: Apache-2.0 */
/* millrace fsck: reads every byte of a store that nobody has open, or every key of a Redis. */
#include "base/text.h"
#include "broker/redis/redis.h"
#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/out.h"
#include "cli/server.h"

struct fsck_args {
    struct cli_value repair;
};

struct findings {
    struct cli *cli;
    struct mr_buf scratch;
    struct jw jw;
};

/* Findings are data: on stdout for people, in the document as JSON. */
static void on_line(const char *text, void *arg)
{
    struct findings *findings = arg;
    if (findings->cli->json)
        jw_text(&findings->jw, NULL, text);
    else
        out_printf("%s\n", out_escaped(&findings->scratch, mr_slice_str(text)));
}

static void print_json(struct findings *findings, const char *url, const struct mr_fsck_report *r)
{
    struct jw *jw = &findings->jw;
    jw_array_end(jw);
    jw_text(jw, "url", url);
    jw_bool(jw, "ok", r->damaged == 0 && r->mismatches == 0);
    jw_uint(jw, "segments", r->segments);
    jw_uint(jw, "records", r->records);
    jw_uint(jw, "tasks", r->tasks);
    jw_uint(jw, "damaged", r->damaged);
    jw_uint(jw, "repaired", r->repaired);
    jw_uint(jw, "bytes_aside", r->bytes_aside);
    jw_uint(jw, "torn_bytes", r->torn_bytes);
    jw_uint(jw, "mismatches", r->mismatches);
    jw_object_end(jw);
    jw_finish(jw);
}

static void print_text(const struct mr_fsck_report *r, bool redis)
{
    if (redis)
        out_printf("%llu keys and entries", (unsigned long long)r->records);
    else
        out_printf("%llu segment%s, %llu record%s", (unsigned long long)r->segments,
                   mr_plural(r->segments), (unsigned long long)r->records, mr_plural(r->records));
    out_printf(", %llu task%s\n", (unsigned long long)r->tasks, mr_plural(r->tasks));
    if (!redis && r->torn_bytes > 0)
        out_printf("%llu byte%s of a torn tail: never acknowledged, not an error\n",
                   (unsigned long long)r->torn_bytes, mr_plural(r->torn_bytes));
    if (!redis && r->bytes_aside > 0)
        out_printf("%llu byte%s set aside in the folder's quarantine\n",
                   (unsigned long long)r->bytes_aside, mr_plural(r->bytes_aside));
}

/* Damage that repair has dealt with is told, and is no failure any more. */
static int judge(const char *url, const struct mr_fsck_report *report, bool redis)
{
    if (report->damaged > 0 || report->mismatches > 0)
        return cli_fail(CLI_FAILED, "%s: %llu damaged place%s, %llu mismatch%s; --repair %s", url,
                        (unsigned long long)report->damaged, mr_plural(report->damaged),
                        (unsigned long long)report->mismatches, report->mismatches == 1 ? "" : "es",
                        redis ? "mends what it can" : "sets damage aside");
    if (report->repaired > 0)
        return cli_fail(CLI_OK, "%s: %llu damaged place%s repaired; the rest is served", url,
                        (unsigned long long)report->repaired, mr_plural(report->repaired));
    return CLI_OK;
}

static enum mr_err check(struct findings *findings, const char *url, enum mr_fsck_mode mode,
                         const struct cli_tls *tls, struct mr_fsck_report *ret_report,
                         struct mr_detail *detail)
{
    if (!cli_is_redis(url))
        return mr_fsck(url, mode, on_line, findings, ret_report, detail);
    struct mr_redis_check redis = {
        .url = url,
        .tls_ca = tls->ca,
        .tls_cert = tls->cert,
        .tls_key = tls->key,
        .namespace_ = mr_slice_str(findings->cli->namespace_),
        .mode = mode,
        .line = on_line,
        .arg = findings,
    };
    return mr_redis_fsck(&redis, ret_report, detail);
}

static int run(struct cli *cli, void *args_)
{
    const struct fsck_args *args = args_;
    const char *given = cli->words_n > 0 ? cli->words[0] : cli->broker;
    char url[MR_URL_SHOWN_MAX];
    struct cli_tls tls = {0};
    (void)mr_url_shown(given, url);
    bool redis = cli_is_redis(given);
    if (!redis && !cli_file_dir(given))
        return cli_usage(
            cli, "fsck checks a folder or a Redis: give file:DIR or redis://HOST:PORT, not %s",
            url);
    cli->broker = given;
    int tls_code = redis ? cli_tls(cli, &tls) : CLI_OK;
    if (tls_code != CLI_OK)
        return tls_code;
    struct findings findings = {.cli = cli};
    if (cli->json) {
        jw_object_begin(&findings.jw, NULL);
        jw_array_begin(&findings.jw, "findings");
    }
    struct mr_fsck_report report = {0};
    struct mr_detail detail = {0};
    enum mr_err err = check(&findings, given, args->repair.given ? MR_FSCK_REPAIR : MR_FSCK_CHECK,
                            &tls, &report, &detail);
    int code;
    if (err == MR_OK) {
        if (cli->json)
            print_json(&findings, url, &report);
        else
            print_text(&report, redis);
        code = judge(url, &report, redis);
    } else {
        mr_buf_done(&findings.jw.buf);
        code = cli_fail_detail(err, "cannot check", url, &detail);
    }
    mr_buf_done(&findings.scratch);
    return code;
}

static const struct cli_option options[] = {
    {.name = "repair",
     .kind = CLI_FLAG,
     .offset = offsetof(struct fsck_args, repair),
     .help = "set damage aside so that the rest can be served"},
};

static const struct cli_verb verb = {
    .synopsis = "[URL]",
    .about = "Checks every record of a store that nobody has open, or a Redis in use. Exit code 1 "
             "when it is damaged.",
    .examples =
        (const char *const[]){"millrace fsck file:./tasks", "millrace fsck --repair file:./tasks",
                              "millrace fsck redis://localhost:6379", NULL},
    .options = options,
    .options_n = CLI_LEN(options),
    .args_size = sizeof(struct fsck_args),
    .words_max = 1,
    .run = run,
};

const struct cli_command cli_fsck = {
    .name = "fsck", .about = "check a store, and repair it", .verbs = &verb, .verbs_n = 1};
