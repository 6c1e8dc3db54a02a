/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the server: the table itself, who wins, and what is said of a wrong file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/settings.h"
#include "job/service.h"
#include "log/log.h"
#include "names/subapp.h"
#include "store/jobs.h"
#include "timer/service.h"

static char file_path[] = P_tmpdir "/millrace-settings-XXXXXX";
static char said_path[] = P_tmpdir "/millrace-said-XXXXXX";
static int real_stderr;

static void write_file(const char *text)
{
    FILE *file = fopen(file_path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void forget_environment(void)
{
    for (size_t i = 0; i < SETTINGS_N; i++) {
        char name[64];
        settings_variable(&SETTINGS_ROWS[i], name);
        unsetenv(name);
    }
}

static int setup(void **state)
{
    (void)state;
    forget_environment();
    write_file("");
    return 0;
}

static int group_setup(void **state)
{
    (void)state;
    close(mkstemp(file_path));
    int fd = mkstemp(said_path);
    real_stderr = dup(STDERR_FILENO);
    bool good = fd >= 0 && real_stderr >= 0 && dup2(fd, STDERR_FILENO) >= 0;
    close(fd);
    return good ? 0 : -1;
}

static int group_teardown(void **state)
{
    (void)state;
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    return remove(file_path) == 0 && remove(said_path) == 0 ? 0 : -1;
}

/* The line of the last complaint. */
static const char *said(void)
{
    static char text[1024];
    fflush(stderr);
    FILE *file = fopen(said_path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    assert_int_equal(ftruncate(STDERR_FILENO, 0), 0);
    lseek(STDERR_FILENO, 0, SEEK_SET);
    return text;
}

static int load(struct settings *settings)
{
    struct cli cli = {.command = &cli_config, .verb = &cli_config.verbs[0]};
    return settings_load(&cli, settings);
}

static struct settings with_file(void)
{
    return (struct settings){.config = {.given = true, .text = file_path}};
}

static void expect_refusal(const char *text, const char *complaint)
{
    struct settings settings = with_file();
    write_file(text);
    assert_int_equal(load(&settings), CLI_USAGE);
    const char *line = said();
    if (!strstr(line, complaint))
        fail_msg("said: %s\nnot: %s", line, complaint);
    assert_non_null(strstr(line, file_path));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    settings_done(&settings);
}

static void every_row_has_a_name_a_value_and_a_default_of_its_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct cli_option *row = &SETTINGS_ROWS[i];
        char name[64];
        settings_variable(row, name);
        assert_int_equal(strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), strlen(name));
        assert_true(row->help && *row->help);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(SETTINGS_ROWS[k].name, row->name);
            if (row->note != CLI_NOT_HERE)
                assert_int_not_equal(SETTINGS_ROWS[k].offset, row->offset);
        }
        struct cli_value value = {.text = row->fallback};
        if (row->fallback)
            assert_int_equal(cli_value_parse(row, &value, NULL), MR_OK);
    }
}

static void without_anything_the_defaults_hold(void **state)
{
    (void)state;
    struct settings settings = {0};
    assert_int_equal(load(&settings), CLI_OK);
    assert_string_equal(settings.data.text, "./millrace-data");
    assert_string_equal(settings.listen.text, "127.0.0.1:7400");
    assert_string_equal(settings.grpc.text, "127.0.0.1:7401");
    assert_int_equal(settings.grace.number, 5000);
    assert_int_equal(settings.payload_max.number, MR_PAYLOAD_MAX);
    assert_false(settings.insecure.given);
    assert_false(settings.tls_cert.given);
    settings_done(&settings);
}

/* They stand in the rows as people write them. */
static void the_defaults_are_those_of_the_services(void **state)
{
    (void)state;
    struct settings s = {0};
    assert_int_equal(load(&s), CLI_OK);
    assert_int_equal(s.timer_lease.number, MR_TIMER_LEASE_MS);
    assert_int_equal(s.timer_misfire.number, MR_TIMER_MISFIRE_MS);
    assert_int_equal(s.timer_catch_up.number, MR_TIMER_CATCH_UP_MS);
    assert_int_equal(s.timer_history.number, MR_TIMER_HISTORY_MS);
    assert_int_equal(s.subapp_merge_after.number, MR_SUBAPP_MERGE_MS);
    assert_int_equal(s.job_window.number, MR_JOB_WINDOW);
    assert_int_equal(s.job_segment.number, MR_STORE_SEGMENT_PARTS);
    assert_int_equal(s.job_retention.number, MR_JOB_RETENTION_MS);
    assert_int_equal(s.log_segment.number, MR_SEGMENT_BYTES_DEFAULT);
    settings_done(&s);
}

static void flag_beats_environment_beats_file_beats_default(void **state)
{
    (void)state;
    struct settings settings = with_file();
    write_file("grace: 1s\ndrain-timeout: 2s\nrate: 3\n");
    setenv("MILLRACE_GRACE", "10s", 1);
    setenv("MILLRACE_DRAIN_TIMEOUT", "20s", 1);
    settings.grace = (struct cli_value){.given = true, .text = "100s", .number = 100000};
    assert_int_equal(load(&settings), CLI_OK);
    assert_int_equal(settings.grace.number, 100000);
    assert_int_equal(settings.drain_timeout.number, 20000);
    assert_int_equal(settings.rate.number, 3);
    assert_int_equal(settings.calls_max.number, 1000);
    static const struct {
        const char *name;
        enum settings_source source;
        unsigned line;
    } origins[] = {{"grace", SETTINGS_FLAG, 0},
                   {"drain-timeout", SETTINGS_ENVIRONMENT, 0},
                   {"rate", SETTINGS_FILE, 3},
                   {"calls-max", SETTINGS_DEFAULT, 0},
                   {"tls-cert", SETTINGS_NONE, 0}};
    for (size_t i = 0; i < CLI_LEN(origins); i++)
        for (size_t k = 0; k < SETTINGS_N; k++)
            if (strcmp(SETTINGS_ROWS[k].name, origins[i].name) == 0) {
                assert_int_equal(settings.origins[k].source, origins[i].source);
                assert_int_equal(settings.origins[k].line, origins[i].line);
            }
    settings_done(&settings);
}

static void the_file_may_be_named_by_the_environment(void **state)
{
    (void)state;
    struct settings settings = {0};
    write_file("data: somewhere\ninsecure: true\nbroker: file:x\n");
    setenv("MILLRACE_CONFIG", file_path, 1);
    assert_int_equal(load(&settings), CLI_OK);
    assert_string_equal(settings.data.text, "somewhere");
    assert_string_equal(settings.broker.text, "file:x");
    assert_true(settings.insecure.given);
    settings_done(&settings);
}

static void a_switch_can_be_turned_off_again(void **state)
{
    (void)state;
    struct settings settings = with_file();
    write_file("insecure: true\n");
    setenv("MILLRACE_INSECURE", "false", 1);
    assert_int_equal(load(&settings), CLI_OK);
    assert_false(settings.insecure.given);
    settings_done(&settings);
}

static void where_clients_find_the_server_is_not_its_broker(void **state)
{
    (void)state;
    struct settings settings = {0};
    setenv("MILLRACE_BROKER", "millrace://127.0.0.1:7401", 1);
    assert_int_equal(load(&settings), CLI_OK);
    assert_false(settings.broker.given);
    settings_done(&settings);
}

static void an_unknown_key_is_named_with_its_line_and_the_nearest_one(void **state)
{
    (void)state;
    expect_refusal("# first\n\nlisen: 127.0.0.1:1\n",
                   ":3: unknown key lisen; did you mean listen?");
    expect_refusal("tls_cert: x\n", ":1: unknown key tls_cert; did you mean tls-cert?");
    expect_refusal("zzzzzzz: x\n", ":1: unknown key zzzzzzz; ");
    expect_refusal("config: x\n", ":1: unknown key config");
}

static void a_bad_value_is_named_with_its_line(void **state)
{
    (void)state;
    expect_refusal("rate: 1\ngrace: soon\n", ":2: grace: \"soon\" is not a duration");
    expect_refusal("listen: nowhere\n", ":1: listen: \"nowhere\" is not an address");
    expect_refusal("payload-max: 1TB\n", ":1: payload-max: \"1TB\" is not a size");
    expect_refusal("payload-max: 1GiB\n",
                   ":1: payload-max: \"1GiB\" is over the limit of 16777216");
    expect_refusal("rate: -1\n", ":1: rate: \"-1\" must not be negative");
    expect_refusal("insecure: maybe\n", ":1: insecure: \"maybe\" is neither true nor false");
    expect_refusal("log-level: loud\n", ":1: log-level: \"loud\" is none of debug, info");
    expect_refusal("weight: 1001\n", ":1: weight: \"1001\" is over the limit of 1000");
    expect_refusal("rate: 1\nrate: 2\n", ":2: rate: set before, in line 1");
    expect_refusal("listen: \"a\\0b\"\n", ":1: listen: has a NUL in it");
}

static void a_bad_value_counts_even_where_a_flag_would_win(void **state)
{
    (void)state;
    setenv("MILLRACE_GRACE", "1s", 1);
    expect_refusal("grace: soon\n", ":1: grace: \"soon\" is not a duration");
}

static void what_is_not_a_mapping_of_plain_values_is_refused(void **state)
{
    (void)state;
    expect_refusal("- listen\n", ":1: expected lines of the form KEY: VALUE");
    expect_refusal("just text\n", ":1: expected lines");
    expect_refusal("listen:\n  - a\n", ":2: listen: must be one plain value");
    expect_refusal("listen: {a: b}\n", ":1: listen: must be one plain value");
    expect_refusal("? [a]\n: b\n", ":1: a key must be plain text");
    expect_refusal("listen: 'open\n", ":");
    expect_refusal("\tlisten: x\n", ":1: ");
}

static void a_bad_variable_is_named(void **state)
{
    (void)state;
    struct settings settings = {0};
    setenv("MILLRACE_PAYLOAD_MAX", "much", 1);
    assert_int_equal(load(&settings), CLI_USAGE);
    assert_non_null(strstr(said(), "MILLRACE_PAYLOAD_MAX: \"much\" is not a size"));
    settings_done(&settings);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_row_has_a_name_a_value_and_a_default_of_its_kind),
        TEST(without_anything_the_defaults_hold),
        TEST(the_defaults_are_those_of_the_services),
        TEST(flag_beats_environment_beats_file_beats_default),
        TEST(the_file_may_be_named_by_the_environment),
        TEST(a_switch_can_be_turned_off_again),
        TEST(where_clients_find_the_server_is_not_its_broker),
        TEST(an_unknown_key_is_named_with_its_line_and_the_nearest_one),
        TEST(a_bad_value_is_named_with_its_line),
        TEST(a_bad_value_counts_even_where_a_flag_would_win),
        TEST(what_is_not_a_mapping_of_plain_values_is_refused),
        TEST(a_bad_variable_is_named),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
