/* SPDX-License-Identifier: Apache-2.0 */
/* What URLs say, and that no message repeats a password. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "redis/internal.h"

struct row {
    const char *text;
    enum mr_redis_kind kind;
    bool tls;
    const char *user, *password, *path, *service;
    int64_t db;
    const char *hosts; /* "name port name port" */
};

static const struct row rows[] = {
    {"redis://127.0.0.1:6379", MR_REDIS_SINGLE, false, NULL, NULL, NULL, NULL, 0, "127.0.0.1 6379"},
    {"redis://localhost", MR_REDIS_SINGLE, false, NULL, NULL, NULL, NULL, 0, "localhost 6379"},
    {"redis://localhost/", MR_REDIS_SINGLE, false, NULL, NULL, NULL, NULL, 0, "localhost 6379"},
    {"rediss://[::1]:7000/12", MR_REDIS_SINGLE, true, NULL, NULL, NULL, NULL, 12, "::1 7000"},
    {"redis://[fe80::1]/3", MR_REDIS_SINGLE, false, NULL, NULL, NULL, NULL, 3, "fe80::1 6379"},
    {"redis://me:s3cret@h:1/0", MR_REDIS_SINGLE, false, "me", "s3cret", NULL, NULL, 0, "h 1"},
    {"redis://:s3cret@h:1", MR_REDIS_SINGLE, false, NULL, "s3cret", NULL, NULL, 0, "h 1"},
    {"redis://a%3Ab:%40%2f%25%3f@h:1", MR_REDIS_SINGLE, false, "a:b", "@/%?", NULL, NULL, 0, "h 1"},
    {"redis://me:a@b@h:1", MR_REDIS_SINGLE, false, "me", "a@b", NULL, NULL, 0, "h 1"},
    {"redis+unix:/run/redis.sock", MR_REDIS_SINGLE, false, NULL, NULL, "/run/redis.sock", NULL, 0,
     " 0"},
    {"redis+unix:sock?db=4", MR_REDIS_SINGLE, false, NULL, NULL, "sock", NULL, 4, " 0"},
    {"redis+unix://:pw@/run/r.sock?db=1", MR_REDIS_SINGLE, false, NULL, "pw", "/run/r.sock", NULL,
     1, " 0"},
    {"redis+sentinel://a:1,b,[::2]:3/main", MR_REDIS_SENTINEL, false, NULL, NULL, NULL, "main", 0,
     "a 1 b 26379 ::2 3"},
    {"rediss+sentinel://u:p@a:1/main/7", MR_REDIS_SENTINEL, true, "u", "p", NULL, "main", 7, "a 1"},
    {"redis+cluster://u:p@a:1,b:2", MR_REDIS_CLUSTER, false, "u", "p", NULL, NULL, 0, "a 1 b 2"},
    {"rediss+cluster://a/", MR_REDIS_CLUSTER, true, NULL, NULL, NULL, NULL, 0, "a 6379"},
};

static void assert_text(const char *got, const char *wanted)
{
    if (wanted == NULL)
        assert_null(got);
    else
        assert_string_equal(got, wanted);
}

static void all_forms_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct redis_url url;
        struct mr_detail detail = {0};
        enum mr_redis_kind kind;
        if (redis_url_parse(rows[i].text, &url, &detail) != MR_OK)
            fail_msg("%s: %s", rows[i].text, detail.text);
        assert_int_equal(url.kind, rows[i].kind);
        assert_int_equal(url.tls, rows[i].tls);
        assert_text(url.user, rows[i].user);
        assert_text(url.password, rows[i].password);
        assert_text(url.path, rows[i].path);
        assert_text(url.service, rows[i].service);
        assert_int_equal(url.db, rows[i].db);
        char hosts[256] = "";
        for (size_t j = 0; j < url.hosts_n; j++) {
            size_t len = strlen(hosts);
            snprintf(hosts + len, sizeof hosts - len, "%s%s %u", j > 0 ? " " : "",
                     url.hosts[j].name, url.hosts[j].port);
        }
        assert_string_equal(hosts, rows[i].hosts);
        redis_url_done(&url);
        assert_int_equal(mr_redis_url_check(rows[i].text, &kind, NULL), MR_OK);
        assert_int_equal(kind, rows[i].kind);
    }
}

static void what_is_no_such_url_is_refused_without_the_password(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "http://h:1",
        "redis:/h:1",
        "redis://",
        "redis:///1",
        "redis://:1",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:x",
        "redis://h:1/x",
        "redis://h:1/-1",
        "redis://h:1/1/2",
        "redis://h:1/99999999999",
        "redis://h:1?db=1",
        "redis://a b:1",
        "redis:// h:1",
        "redis://h\t",
        "redis://h\x01:1",
        "redis://h\x7f:1",
        "redis://[::1 ]:1",
        "redis://h:1,i:2",
        "redis://h:1,",
        "redis://::1:6379",
        "redis://[::1:6379",
        "redis://s3cret@h:1",
        "redis://me:s3cret%@h:1",
        "redis://me:s3cret%4@h:1",
        "redis://me:s3cret%4g@h:1",
        "redis://me:s3cret%00@h:1",
        "redis://me:pre/s3cret@h:1",
        "redis://me:pre?s3cret@h:1",
        "redis://me:s3cret@",
        "redis+unix:",
        "redis+unix:?db=1",
        "redis+unix:/p?db=s3cret",
        "redis+unix://h/p",
        "redis+unix:/"
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678"
        "90123456789012345678901234567890",
        "redis+sentinel://h:1",
        "redis+sentinel://h:1/",
        "redis+sentinel://h:1/main/x",
        "redis+sentinel://me:pre/s3cret@h:1/main",
        "redis+cluster://h:1/1",
        "redis+cluster://",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct redis_url url = {.db = 77};
        struct mr_detail detail = {0};
        if (redis_url_parse(wrong[i], &url, &detail) != MR_INVALID)
            fail_msg("%s is taken", wrong[i]);
        assert_int_equal(url.db, 77);
        assert_true(detail.text[0] != '\0');
        assert_null(strstr(detail.text, "s3cret"));
        assert_null(strstr(detail.text, "pre"));
    }
}

static void who_has_not_encoded_a_password_is_told_how(void **state)
{
    (void)state;
    static const char *const urls[] = {"redis://me:pre/x@h:1", "redis://me:pre?x@h:1",
                                       "rediss://:pre#x@h:1", "redis+sentinel://me:a/x@h:1/main"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct redis_url url;
        struct mr_detail detail = {0};
        assert_int_equal(redis_url_parse(urls[i], &url, &detail), MR_INVALID);
        assert_non_null(strstr(detail.text, "%2F, %3F, %23"));
    }
}

static void a_host_too_many_is_refused(void **state)
{
    (void)state;
    char text[1024] = "redis+cluster://h:1";
    for (int i = 0; i < REDIS_HOSTS_MAX - 1; i++)
        strncat(text, ",h:1", sizeof text - strlen(text) - 1);
    struct redis_url url;
    assert_int_equal(redis_url_parse(text, &url, NULL), MR_OK);
    assert_int_equal(url.hosts_n, REDIS_HOSTS_MAX);
    redis_url_done(&url);
    strncat(text, ",h:1", sizeof text - strlen(text) - 1);
    assert_int_equal(redis_url_parse(text, &url, NULL), MR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_are_read),
        cmocka_unit_test(what_is_no_such_url_is_refused_without_the_password),
        cmocka_unit_test(who_has_not_encoded_a_password_is_told_how),
        cmocka_unit_test(a_host_too_many_is_refused),
    };
    return cmocka_run_group_tests_name("redis url", tests, NULL, NULL);
}
