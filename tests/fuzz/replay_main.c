/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer: every file of the folders given, then up to MR_MUTATIONS
 * (1000) random changes of each, and as many inputs made of chance alone. Slow targets stop
 * changing inputs after MR_FUZZ_SECONDS (10) in all, shared evenly by the files. The changes are
 * the same in every run; MR_SEED (1) gives others. When the target fails, the input is printed in
 * hexadecimal.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/rand.h"
#include "fuzz/fuzz.h"

enum { INPUT_MAX = 1 << 20, GROW_MAX = 64, SHOWN_MAX = 4096 };

/* How much to do, and how much has been done. */
struct plan {
    struct mr_rand rand;
    unsigned long mutations; /* of each file, at most */
    int64_t budget_ns;       /* for mutations of all of them */
    size_t files;            /* in all */
    size_t files_done;
    unsigned long mutations_done;
    mr_mono started;
};

static const char *current_name = "";
static struct mr_slice current;

/* Only what may be called from a signal handler. */
static void show_input(int signal_number)
{
    static const char digits[] = "0123456789abcdef";
    static char text[2 * SHOWN_MAX + 1];
    size_t n = current.len < SHOWN_MAX ? current.len : SHOWN_MAX;
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[((const uint8_t *)current.data)[i] >> 4];
        text[2 * i + 1] = digits[((const uint8_t *)current.data)[i] & 15];
    }
    text[2 * n] = '\n';
    ssize_t written = write(STDERR_FILENO, "failing input, from ", 20);
    written += write(STDERR_FILENO, current_name, strlen(current_name));
    written += write(STDERR_FILENO, ":\n", 2);
    written += write(STDERR_FILENO, text, 2 * n + 1);
    (void)written;
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

/* A copy of exactly the right size, so that a sanitizer sees the first byte read too many. */
static void run_input(const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len > 0 ? len : 1);
    mr_assert(copy != NULL);
    if (len > 0)
        memcpy(copy, data, len);
    current = mr_slice_make(copy, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

/* ---- mutations ------------------------------------------------------------------------------ */

static void flip_bit(struct mr_buf *buf, struct mr_rand *rand)
{
    buf->data[mr_rand_below(rand, buf->len)] ^= (uint8_t)(1u << mr_rand_below(rand, 8));
}

static void set_byte(struct mr_buf *buf, struct mr_rand *rand)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '-', '.', 'e', '{', '"'};
    buf->data[mr_rand_below(rand, buf->len)] = telling[mr_rand_below(rand, sizeof telling)];
}

static void set_number(struct mr_buf *buf, struct mr_rand *rand)
{
    static const uint64_t telling[] = {0,          1,          0x7fffffff,    0x80000000,
                                       0xffffffff, UINT64_MAX, UINT64_MAX / 2};
    uint64_t value = telling[mr_rand_below(rand, sizeof telling / sizeof telling[0])];
    size_t width = (size_t)1 << mr_rand_below(rand, 4);
    if (width <= buf->len)
        memcpy(buf->data + mr_rand_below(rand, buf->len - width + 1), &value, width);
}

static void cut(struct mr_buf *buf, struct mr_rand *rand)
{
    size_t from = mr_rand_below(rand, buf->len);
    size_t len = 1 + mr_rand_below(rand, buf->len - from);
    memmove(buf->data + from, buf->data + from + len, buf->len - from - len);
    buf->len -= len;
}

static void grow(struct mr_buf *buf, struct mr_rand *rand)
{
    size_t len = 1 + mr_rand_below(rand, GROW_MAX);
    size_t at = mr_rand_below(rand, buf->len + 1);
    mr_assert(mr_buf_reserve(buf, len) == MR_OK);
    memmove(buf->data + at + len, buf->data + at, buf->len - at);
    buf->len += len;
    if (mr_rand_one_in(rand, 2) && at >= len)
        memcpy(buf->data + at, buf->data + at - len, len);
    else
        mr_rand_bytes(rand, buf->data + at, len);
}

static void mutate(struct mr_buf *buf, struct mr_rand *rand)
{
    static void (*const ways[])(struct mr_buf *, struct mr_rand *) = {flip_bit, set_byte,
                                                                      set_number, cut, grow};
    size_t n = 1 + mr_rand_below(rand, 4);
    for (size_t i = 0; i < n; i++) {
        size_t way = mr_rand_below(rand, sizeof ways / sizeof ways[0]);
        if (buf->len == 0)
            grow(buf, rand);
        else if (buf->len < INPUT_MAX || ways[way] != grow)
            ways[way](buf, rand);
    }
}

/* Whether this file has had its share of the time. */
static bool time_is_up(const struct plan *plan)
{
    int64_t spent_ns = mr_mono_now(mr_clock_system()).ns - plan->started.ns;
    return spent_ns / (int64_t)(plan->files_done + 1) > plan->budget_ns / (int64_t)plan->files;
}

static void run_mutations(const struct mr_buf *input, struct plan *plan)
{
    struct mr_buf buf = {0};
    for (unsigned long i = 0; i < plan->mutations && !time_is_up(plan); i++) {
        mr_buf_clear(&buf);
        if (input->len > 0)
            mr_assert(mr_buf_append(&buf, input->data, input->len) == MR_OK);
        mutate(&buf, &plan->rand);
        run_input(buf.data, buf.len);
        plan->mutations_done++;
    }
    plan->files_done++;
    mr_buf_done(&buf);
}

/* ---- corpora -------------------------------------------------------------------------------- */

static void run_file(const char *path, struct plan *plan)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: cannot read it\n", path);
        exit(1);
    }
    struct mr_buf buf = {0};
    mr_assert(mr_buf_reserve(&buf, INPUT_MAX) == MR_OK);
    buf.len = fread(buf.data, 1, INPUT_MAX, file);
    (void)fclose(file);
    current_name = path;
    run_input(buf.data, buf.len);
    run_mutations(&buf, plan);
    mr_buf_done(&buf);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_folder(const char *folder, struct plan *plan)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_shown, alphasort);
    if (n < 0) {
        fprintf(stderr, "%s: no such corpus\n", folder);
        exit(1);
    }
    plan->files += (size_t)n;
    for (int i = 0; i < n; i++) {
        char path[MR_PATH_MAX];
        mr_assert(mr_path_join(path, folder, entries[i]->d_name) == MR_OK);
        run_file(path, plan);
        free(entries[i]);
    }
    free(entries);
}

static unsigned long env_number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct plan plan = {
        .mutations = env_number("MR_MUTATIONS", 1000),
        .budget_ns = (int64_t)env_number("MR_FUZZ_SECONDS", 10) * MR_NS_PER_S,
        .files = 1, /* chance alone */
        .started = mr_mono_now(mr_clock_system()),
    };
    mr_rand_seed(&plan.rand, env_number("MR_SEED", 1));
    (void)signal(SIGABRT, show_input);
    for (int i = 1; i < argc; i++)
        run_folder(argv[i], &plan);
    struct mr_buf nothing = {0};
    current_name = "chance";
    run_mutations(&nothing, &plan);
    printf("%zu files, %lu mutations\n", plan.files - 1, plan.mutations_done);
    return 0;
}
