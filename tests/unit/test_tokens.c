/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens: made, checked, revoked, kept across crashes, and files that cannot be read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "api/tokens.h"
#include "sim/simfs.h"
#include "support/slow_fs.h"
#include "unit/temp_dir.h"

#define DIR_NAME "data"

static struct simfs *sim;
static struct mr_tokens *tokens;

static struct mr_tokens *open_tokens(void)
{
    struct mr_tokens *opened;
    struct mr_detail detail;
    assert_int_equal(mr_tokens_open(DIR_NAME, simfs_fs(sim), &opened, &detail), MR_OK);
    return opened;
}

static int setup(void **state)
{
    (void)state;
    sim = simfs_new(1);
    tokens = open_tokens();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mr_tokens_free(tokens);
    simfs_free(sim);
    return 0;
}

static void reopen(void)
{
    mr_tokens_free(tokens);
    tokens = open_tokens();
}

struct made {
    struct mr_token token;
    char text[MR_TOKEN_TEXT_LEN + 1];
};

static struct made make(enum mr_role role, const char *queue)
{
    struct made made;
    struct mr_token wanted = {.role = role};
    snprintf(wanted.queue, sizeof wanted.queue, "%s", queue);
    assert_int_equal(mr_tokens_create(tokens, &wanted, &made.token, made.text, NULL), MR_OK);
    return made;
}

static enum mr_err check(const char *text, struct mr_token *ret_token)
{
    struct mr_detail detail = {0};
    enum mr_err err = mr_tokens_check(tokens, mr_slice_str(text), ret_token, &detail);
    if (err != MR_OK)
        assert_true(detail.text[0]);
    return err;
}

/* Index of a file in the simulated folder. */
static size_t file_at(const char *path)
{
    for (size_t i = 0; i < simfs_file_count(sim); i++)
        if (strcmp(simfs_file_path(sim, i), path) == 0)
            return i;
    fail_msg("no file %s", path);
    return 0;
}

static void a_token_is_known_by_its_text_alone(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, ""), b = make(MR_ROLE_WORKER, "mail-*");
    struct mr_token found;
    assert_int_equal(strlen(a.text), MR_TOKEN_TEXT_LEN);
    assert_string_not_equal(a.text, b.text);
    assert_int_equal(check(a.text, &found), MR_OK);
    assert_int_equal(found.role, MR_ROLE_ADMIN);
    assert_string_equal(found.queue, "*");
    assert_int_equal(check(b.text, &found), MR_OK);
    assert_int_equal(found.role, MR_ROLE_WORKER);
    assert_string_equal(found.queue, "mail-*");
    assert_string_equal(found.id, b.token.id);
}

static void a_wrong_text_is_refused(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, "");
    struct mr_token found;
    static const char *const wrong[] = {"", "mr_", "secret", "mr_000000000000_0000"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(check(wrong[i], &found), MR_DENIED);
    for (size_t i = 0; i < MR_TOKEN_TEXT_LEN; i++) { /* each character counts */
        char text[MR_TOKEN_TEXT_LEN + 1];
        memcpy(text, a.text, sizeof text);
        text[i] = text[i] == '0' ? '1' : '0';
        assert_int_equal(check(text, &found), MR_DENIED);
    }
    char holed[MR_TOKEN_TEXT_LEN];
    memcpy(holed, a.text, sizeof holed);
    holed[5] = '\0';
    struct mr_slice text = mr_slice_make(holed, sizeof holed);
    assert_int_equal(mr_tokens_check(tokens, text, &found, NULL), MR_DENIED);
}

static void the_secret_is_not_in_the_file(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, "");
    size_t i = file_at(DIR_NAME "/tokens");
    const char *secret = a.text + MR_TOKEN_TEXT_LEN - MR_TOKEN_SECRET_LEN;
    assert_null(memmem(simfs_file_data(sim, i), simfs_file_size(sim, i), secret, 16));
    assert_non_null(
        memmem(simfs_file_data(sim, i), simfs_file_size(sim, i), a.token.id, MR_TOKEN_ID_LEN));
}

static void the_file_is_for_its_owner_alone(void **state)
{
    (void)state;
    char dir[] = P_tmpdir "/millrace-tokens-XXXXXX", path[64];
    struct mr_tokens *real;
    struct mr_token made;
    struct stat st;
    char text[MR_TOKEN_TEXT_LEN + 1];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(mr_tokens_open(dir, NULL, &real, NULL), MR_OK);
    assert_int_equal(
        mr_tokens_create(real, &(struct mr_token){.role = MR_ROLE_VIEWER}, &made, text, NULL),
        MR_OK);
    snprintf(path, sizeof path, "%s/tokens", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    mr_tokens_free(real);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(dir), 0);
}

static void everything_is_there_after_opening_again(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_PRODUCER, "a queue with spaces *");
    struct mr_token wanted = {
        .role = MR_ROLE_PRODUCER, .priority_limited = true, .priority_max_s = -0.1, .quota = 5};
    struct made b;
    assert_int_equal(mr_tokens_create(tokens, &wanted, &b.token, b.text, NULL), MR_OK);
    assert_int_equal(mr_tokens_revoke(tokens, a.token.id, NULL), MR_OK);
    reopen();
    struct mr_token *list;
    size_t n;
    assert_int_equal(mr_tokens_list(tokens, &list, &n), MR_OK);
    assert_int_equal(n, 2);
    const struct mr_token *x = strcmp(list[0].id, a.token.id) == 0 ? &list[0] : &list[1];
    const struct mr_token *y = x == &list[0] ? &list[1] : &list[0];
    assert_string_equal(x->queue, "a queue with spaces *");
    assert_true(x->revoked_ms > 0);
    assert_false(x->priority_limited);
    assert_true(y->priority_limited && y->priority_max_s == -0.1);
    assert_int_equal(y->quota, 5);
    assert_int_equal(y->created_ms, b.token.created_ms);
    free(list);
    assert_int_equal(check(a.text, &b.token), MR_DENIED);
    assert_int_equal(check(b.text, &b.token), MR_OK);
}

static void a_revoked_token_is_refused_at_once_and_told_so(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, ""), b = make(MR_ROLE_ADMIN, "");
    struct mr_token found;
    struct mr_detail detail;
    uint64_t before = mr_tokens_generation(tokens);
    assert_int_equal(mr_tokens_live(tokens), 2);
    assert_int_equal(mr_tokens_revoke(tokens, a.token.id, NULL), MR_OK);
    assert_int_not_equal(mr_tokens_generation(tokens), before);
    assert_int_equal(mr_tokens_live(tokens), 1);
    assert_false(mr_tokens_valid(tokens, a.token.id));
    assert_true(mr_tokens_valid(tokens, b.token.id));
    assert_int_equal(mr_tokens_check(tokens, mr_slice_str(a.text), &found, &detail), MR_DENIED);
    assert_non_null(strstr(detail.text, "revoked"));
    assert_int_equal(check(b.text, &found), MR_OK);
    assert_int_equal(mr_tokens_revoke(tokens, a.token.id, NULL), MR_OK);
    assert_int_equal(mr_tokens_revoke(tokens, "000000000000", &detail), MR_NOT_FOUND);
    assert_int_equal(mr_tokens_revoke(tokens, "", &detail), MR_NOT_FOUND);
}

static void what_cannot_be_meant_is_refused(void **state)
{
    (void)state;
    struct made out;
    static const struct mr_token wrong[] = {
        {.role = MR_ROLE_NONE},
        {.role = MR_ROLE_COUNT},
        {.role = MR_ROLE_ADMIN, .queue = "a{b}"},
        {.role = MR_ROLE_ADMIN, .queue = "a\nb"},
        {.role = MR_ROLE_ADMIN, .priority_limited = true, .priority_max_s = NAN},
        {.role = MR_ROLE_ADMIN, .quota = UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mr_detail detail = {0};
        assert_int_equal(mr_tokens_create(tokens, &wrong[i], &out.token, out.text, &detail),
                         MR_INVALID);
        assert_true(detail.text[0]);
    }
    assert_int_equal(mr_tokens_live(tokens), 0);
    assert_int_equal(mr_role_parse(mr_slice_str("none")), MR_ROLE_NONE);
    assert_int_equal(mr_role_parse(mr_slice_str("viewer")), MR_ROLE_VIEWER);
}

static void a_change_that_cannot_be_written_does_not_happen(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, ""), b;
    static const enum simfs_op ops[] = {SIMFS_CREATE, SIMFS_WRITE, SIMFS_SYNC, SIMFS_RENAME};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct mr_detail detail = {0};
        simfs_fail(sim, ops[i], 0, SIMFS_FOR_EVER, MR_DISK_FULL);
        assert_int_equal(mr_tokens_revoke(tokens, a.token.id, &detail), MR_DISK_FULL);
        assert_non_null(strstr(detail.text, "disk full"));
        struct mr_token wanted = {.role = MR_ROLE_ADMIN};
        assert_int_equal(mr_tokens_create(tokens, &wanted, &b.token, b.text, &detail),
                         MR_DISK_FULL);
        simfs_heal(sim);
        assert_int_equal(check(a.text, &b.token), MR_OK);
        assert_int_equal(mr_tokens_live(tokens), 1);
    }
    reopen();
    assert_int_equal(check(a.text, &b.token), MR_OK);
}

/* One change with a crash at each of its points: afterwards it happened or did not, as a whole, and
 * once it was answered it did. */
static void a_crash_leaves_the_old_tokens_or_the_new_ones(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, ""), b;
    struct simfs *before = simfs_clone(sim);
    for (uint64_t point = 1; point < 12; point++) {
        for (enum simfs_policy policy = 0; policy < SIMFS_POLICY_COUNT; policy++) {
            struct mr_rand rand;
            mr_tokens_free(tokens);
            simfs_free(sim);
            sim = simfs_clone(before);
            tokens = open_tokens();
            mr_rand_seed(&rand, point * 100 + policy);
            simfs_stop_at(sim, point);
            struct mr_token wanted = {.role = MR_ROLE_WORKER};
            enum mr_err err = mr_tokens_create(tokens, &wanted, &b.token, b.text, NULL);
            simfs_crash(sim, &rand, policy);
            reopen();
            struct mr_token found;
            assert_int_equal(check(a.text, &found), MR_OK);
            assert_true(mr_tokens_live(tokens) <= 2);
            if (err == MR_OK)
                assert_int_equal(check(b.text, &found), MR_OK);
            (void)make(MR_ROLE_VIEWER, ""); /* what was left behind is no obstacle */
        }
    }
    simfs_free(before);
}

static void a_damaged_line_is_named_and_changes_nothing(void **state)
{
    (void)state;
    struct made a = make(MR_ROLE_ADMIN, "");
    size_t i = file_at(DIR_NAME "/tokens");
    struct mr_detail detail;
    struct mr_token found;
    simfs_overwrite(sim, i, simfs_file_size(sim, i) - 20, "?", 1);
    assert_int_equal(mr_tokens_reload(tokens, &detail), MR_DAMAGED);
    assert_non_null(strstr(detail.text, "tokens: line 2"));
    assert_int_equal(check(a.text, &found), MR_OK);
    simfs_cut(sim, i, simfs_file_size(sim, i) - 1); /* no end of the line */
    assert_int_equal(mr_tokens_reload(tokens, &detail), MR_DAMAGED);
    simfs_cut(sim, i, 0);
    assert_int_equal(mr_tokens_reload(tokens, &detail), MR_DAMAGED);
    assert_non_null(strstr(detail.text, "not a file of tokens"));
}

static void a_file_of_a_newer_version_is_left_alone(void **state)
{
    (void)state;
    (void)make(MR_ROLE_ADMIN, "");
    struct mr_detail detail;
    struct mr_tokens *other;
    simfs_overwrite(sim, file_at(DIR_NAME "/tokens"), strlen("millrace-tokens "), "2", 1);
    assert_int_equal(mr_tokens_open(DIR_NAME, simfs_fs(sim), &other, &detail), MR_VERSION);
}

static void a_reload_sees_what_another_wrote(void **state)
{
    (void)state;
    struct mr_tokens *mine = tokens;
    tokens = open_tokens();
    struct made a = make(MR_ROLE_ADMIN, "");
    struct mr_tokens *other = tokens;
    struct mr_token found;
    tokens = mine;
    assert_int_equal(check(a.text, &found), MR_DENIED);
    assert_int_equal(mr_tokens_reload(tokens, NULL), MR_OK);
    assert_int_equal(check(a.text, &found), MR_OK);
    mr_tokens_free(other);
}

static void a_quota_is_spent_as_a_whole_and_kept(void **state)
{
    (void)state;
    struct made a, free_one = make(MR_ROLE_PRODUCER, "");
    struct mr_token wanted = {.role = MR_ROLE_PRODUCER, .quota = 5};
    struct mr_detail detail;
    assert_int_equal(mr_tokens_create(tokens, &wanted, &a.token, a.text, NULL), MR_OK);
    assert_int_equal(mr_tokens_spend(tokens, a.token.id, 6, &detail), MR_DENIED);
    assert_non_null(strstr(detail.text, "5 left of its quota of 5"));
    assert_int_equal(mr_tokens_spend(tokens, a.token.id, 5, NULL), MR_OK);
    assert_int_equal(mr_tokens_spend(tokens, a.token.id, 1, NULL), MR_DENIED);
    mr_tokens_give_back(tokens, a.token.id, 2);
    assert_int_equal(mr_tokens_spend(tokens, a.token.id, 1, NULL), MR_OK);
    assert_int_equal(mr_tokens_flush(tokens), MR_OK);
    reopen();
    assert_int_equal(mr_tokens_spend(tokens, a.token.id, 2, NULL), MR_DENIED);
    assert_int_equal(mr_tokens_spend(tokens, a.token.id, 1, NULL), MR_OK);
    assert_int_equal(mr_tokens_spend(tokens, free_one.token.id, 1000000, NULL), MR_OK);
    assert_int_equal(mr_tokens_spend(tokens, "000000000000", 1, NULL), MR_DENIED);
}

static void *revoke_one(void *arg)
{
    const struct made *made = arg;
    return mr_tokens_revoke(tokens, made->token.id, NULL) == MR_OK ? arg : NULL;
}

/* The server asks for tokens on the thread that serves everybody. */
static void nobody_who_only_looks_waits_for_the_disk(void **state)
{
    (void)state;
    struct slow_fs slow;
    char dir[TEMP_DIR_MAX];
    temp_dir_make(dir);
    slow_fs_init(&slow);
    mr_tokens_free(tokens);
    assert_int_equal(mr_tokens_open(dir, &slow.fs, &tokens, NULL), MR_OK);
    struct made a = make(MR_ROLE_ADMIN, ""), b;
    struct mr_token wanted = {.role = MR_ROLE_PRODUCER, .quota = 5}, found;
    assert_int_equal(mr_tokens_create(tokens, &wanted, &b.token, b.text, NULL), MR_OK);
    pthread_t thread;
    slow.stalls = true;
    assert_int_equal(mr_thread_start(&thread, "revoke", revoke_one, &a), MR_OK);
    assert_true(mr_event_wait(&slow.reached, 60 * MR_NS_PER_S));
    assert_int_equal(check(a.text, &found), MR_OK); /* it is not on disk yet */
    assert_true(mr_tokens_valid(tokens, a.token.id));
    assert_int_equal(mr_tokens_spend(tokens, b.token.id, 3, NULL), MR_OK);
    slow.stalls = false;
    mr_event_set(&slow.go_on);
    mr_thread_join(thread);
    assert_int_equal(check(a.text, &found), MR_DENIED);
    /* What was spent meanwhile is spent, also on disk. */
    assert_int_equal(mr_tokens_spend(tokens, b.token.id, 3, NULL), MR_DENIED);
    assert_int_equal(mr_tokens_flush(tokens), MR_OK);
    assert_int_equal(mr_tokens_reload(tokens, NULL), MR_OK);
    assert_int_equal(mr_tokens_spend(tokens, b.token.id, 3, NULL), MR_DENIED);
    assert_int_equal(mr_tokens_spend(tokens, b.token.id, 2, NULL), MR_OK);
    temp_dir_remove(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_token_is_known_by_its_text_alone),
        TEST(a_wrong_text_is_refused),
        TEST(the_secret_is_not_in_the_file),
        TEST(the_file_is_for_its_owner_alone),
        TEST(everything_is_there_after_opening_again),
        TEST(a_revoked_token_is_refused_at_once_and_told_so),
        TEST(what_cannot_be_meant_is_refused),
        TEST(a_change_that_cannot_be_written_does_not_happen),
        TEST(a_crash_leaves_the_old_tokens_or_the_new_ones),
        TEST(a_damaged_line_is_named_and_changes_nothing),
        TEST(a_file_of_a_newer_version_is_left_alone),
        TEST(a_reload_sees_what_another_wrote),
        TEST(a_quota_is_spent_as_a_whole_and_kept),
        TEST(nobody_who_only_looks_waits_for_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
