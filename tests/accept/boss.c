/* SPDX-License-Identifier: Apache-2.0 */
#include "accept/boss.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/rand.h"
#include "base/text.h"

enum { BATCH = 5, TAKE = 50, WAIT_MS = 20, NAP_MS = 20, PRIORITY_S_MAX = 100 };

struct note {
    enum boss_note what;
    char id[MR_ID_MAX + 1];
};

static void path_of(const char *audit, char path[MR_PATH_MAX + 16])
{
    (void)snprintf(path, MR_PATH_MAX + 16, "%s.bosses", audit);
}

/* ---- the process ---------------------------------------------------------------------------- */

struct boss {
    const char *name;
    struct mr_slice topic;
    bool submits;
    int fd;
    struct mr_client *client;
    struct mr_master *master;
    struct mr_rand rand;
    size_t sent;
    uint64_t nap_ms;
};

static volatile sig_atomic_t told_to_end;

static void on_term(int number)
{
    (void)number;
    told_to_end = 1;
}

static void note(const struct boss *boss, enum boss_note what, struct mr_slice id)
{
    struct note line = {.what = what};
    (void)snprintf(line.id, sizeof line.id, "%.*s", (int)id.len, (const char *)id.data);
    if (write(boss->fd, &line, sizeof line) != (ssize_t)sizeof line)
        abort();
}

static void submit(struct boss *boss)
{
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    char ids[BATCH][64], payloads[BATCH][16];
    for (size_t i = 0; i < BATCH; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "%s-%zu", boss->name, boss->sent++);
        (void)snprintf(payloads[i], sizeof payloads[i], "%llu",
                       (unsigned long long)mr_rand_below(&boss->rand, boss->nap_ms));
        tasks[i] = (struct mr_task_options){
            .id = mr_slice_str(ids[i]),
            .type = mr_slice_str("sleep"),
            .payload = mr_slice_str(payloads[i]),
            .topic = boss->topic,
            .priority_s = (double)mr_rand_below(&boss->rand, PRIORITY_S_MAX),
            .retention_ms = ACCEPT_RETENTION_MS,
        };
        note(boss, BOSS_SENT, tasks[i].id);
    }
    if (mr_enqueue(boss->client, tasks, BATCH, results) != MR_OK)
        return;
    for (size_t i = 0; i < BATCH; i++)
        if (results[i].err == MR_OK)
            note(boss, BOSS_ACCEPTED, tasks[i].id);
}

static void commit(struct boss *boss, struct mr_result_list *list)
{
    struct mr_slice receipts[TAKE];
    enum mr_err errs[TAKE];
    size_t n = mr_result_list_count(list);
    for (size_t i = 0; i < n; i++) {
        const struct mr_result *result = mr_result_list_at(list, i);
        receipts[i] = result->receipt;
        if (result->final)
            note(boss, BOSS_TAKEN, result->task_id);
    }
    enum mr_err err = mr_master_commit(boss->master, receipts, n, errs);
    for (size_t i = 0; i < n && err == MR_OK; i++)
        if (errs[i] == MR_OK && mr_result_list_at(list, i)->final)
            note(boss, BOSS_COMMITTED, mr_result_list_at(list, i)->task_id);
}

/* It may be cut off while it begins: that is a reason to begin again. */
static bool boss_begin(struct boss *boss, const char *url, const struct mr_master_options *options)
{
    enum mr_err err = MR_UNAVAILABLE;
    while (err == MR_UNAVAILABLE && !told_to_end) {
        err = mr_client_open(url, NULL, &boss->client, NULL);
        if (err == MR_OK && (err = mr_master_open(boss->client, options, &boss->master)) != MR_OK)
            mr_client_close(boss->client);
    }
    return err == MR_OK;
}

/* --boss URL AUDIT NAME TOPIC SUBMITS BEAT_MS PACE_MS NAP_MS */
int boss_main(int argc, char **argv)
{
    char path[MR_PATH_MAX + 16];
    if (argc != 10)
        return 2;
    struct boss boss = {.name = argv[4],
                        .topic = mr_slice_str(argv[5]),
                        .submits = argv[6][0] == '1',
                        .nap_ms = strtoull(argv[9], NULL, 10)};
    struct mr_master_options options = {.node = mr_slice_str(boss.name),
                                        .topics = &boss.topic,
                                        .topics_n = 1,
                                        .beat_ms = (int64_t)strtoll(argv[7], NULL, 10),
                                        .beats_missed = ACCEPT_BEATS_MISSED};
    path_of(argv[3], path);
    boss.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    mr_rand_seed_system(&boss.rand);
    accept_on_term(on_term);
    if (boss.fd < 0 || !boss_begin(&boss, argv[2], &options))
        return boss.fd >= 0 && told_to_end ? 0 : 1;
    while (!told_to_end) {
        struct mr_result_list *list = NULL;
        if (boss.submits)
            submit(&boss);
        if (mr_master_take(boss.master, TAKE, WAIT_MS, &list) == MR_OK)
            commit(&boss, list);
        mr_result_list_free(list);
        accept_pass_ms((int64_t)strtoll(argv[8], NULL, 10));
    }
    mr_master_free(boss.master);
    mr_client_close(boss.client);
    return 0;
}

/* ---- their accounts ------------------------------------------------------------------------- */

static int compare_notes(const void *a, const void *b)
{
    const struct note *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    return order ? order : (int)x->what - (int)y->what;
}

/* All notes, those of one id together. */
static struct note *read_notes(struct accept *t, size_t *ret_n)
{
    char path[MR_PATH_MAX + 16];
    struct note *notes = NULL, line;
    size_t n = 0, max = 0;
    path_of(t->audit, path);
    FILE *file = fopen(path, "r");
    while (file && fread(&line, sizeof line, 1, file) == 1) {
        if (n == max) {
            max = max ? 2 * max : 1024;
            notes = realloc(notes, max * sizeof *notes);
            assert_non_null(notes);
        }
        notes[n++] = line;
    }
    if (file)
        (void)fclose(file);
    if (n > 0)
        qsort(notes, n, sizeof *notes, compare_notes);
    *ret_n = n;
    return notes;
}

/* How often each thing was noted of the id at notes[*at]; moves on behind it. */
static void count_notes(const struct note *notes, size_t n, size_t *at, size_t counts[4])
{
    const char *id = notes[*at].id;
    memset(counts, 0, 4 * sizeof *counts);
    for (; *at < n && strcmp(notes[*at].id, id) == 0; (*at)++)
        counts[notes[*at].what]++;
}

void boss_remember(struct accept *t)
{
    size_t n, counts[4];
    struct note *notes = read_notes(t, &n);
    for (size_t at = 0; at < n;) {
        const char *id = notes[at].id;
        count_notes(notes, n, &at, counts);
        if (counts[BOSS_ACCEPTED] > 0 ||
            (counts[BOSS_SENT] > 0 && accept_state(t, id) != MR_STATE_NONE))
            (void)accept_remember(t, id);
    }
    free(notes);
}

void boss_one_final_each(struct accept *t, const char *topic)
{
    struct accept_finals *finals = accept_finals_take(t, topic);
    char path[MR_PATH_MAX + 16];
    size_t n, counts[4], doubts = 0;
    struct note *notes = read_notes(t, &n);
    for (size_t at = 0; at < n;) {
        const char *id = notes[at].id;
        count_notes(notes, n, &at, counts);
        accept_finals_add(finals, id, counts[BOSS_COMMITTED]);
        if (counts[BOSS_TAKEN] > counts[BOSS_COMMITTED]) {
            accept_finals_doubt(finals, id, counts[BOSS_TAKEN] - counts[BOSS_COMMITTED]);
            doubts++;
        }
    }
    print_message("%zu tasks, %zu commits in doubt\n", t->ids_n, doubts);
    free(notes);
    accept_finals_check(finals);
    path_of(t->audit, path);
    (void)unlink(path);
}

pid_t boss_spawn(struct accept *t, const char *url, const struct boss_options *options)
{
    char beat[24], pace[24], nap[24];
    (void)snprintf(beat, sizeof beat, "%lld",
                   (long long)(options->beat_ms ? options->beat_ms : ACCEPT_BEAT_MS));
    (void)snprintf(pace, sizeof pace, "%lld", (long long)options->pace_ms);
    (void)snprintf(nap, sizeof nap, "%lld",
                   (long long)(options->nap_ms ? options->nap_ms : NAP_MS));
    return accept_spawn_kept(t, (const char *const[]){"/proc/self/exe", "--boss", url, t->audit,
                                                      options->name, options->topic,
                                                      options->submits ? "1" : "0", beat, pace, nap,
                                                      NULL});
}
