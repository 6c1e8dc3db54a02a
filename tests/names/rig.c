/* SPDX-License-Identifier: Apache-2.0 */
#include "names/rig.h"

#include <stdio.h>

#include "base/id.h"
#include "client/client.h"
#include "names/service.h"
#include "support/ports.h"
#include "unit/temp_dir.h"

bool rig_full(void)
{
    const char *size = getenv("MR_ACCEPT");
    return size != NULL && strcmp(size, "full") == 0;
}

bool rig_judges_time(void)
{
    return rig_full() || getenv("MR_ALONE") != NULL;
}

int rig_interval_ms(void)
{
    return rig_full() ? MR_NAMES_INTERVAL_MS : 500;
}

/* ---- what nameservers show -------------------------------------------------------------------- */

static uint64_t sum_of(const struct mr_names_entry *entry)
{
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){entry->incarnation, 0}, entry->name);
    return mr_uuid_hash(&hash);
}

/* Thread: the loop of the eyes. */
static void seen(struct mr_names_client *client, enum mr_names_kind kind, void *arg)
{
    struct rig_eye *eye = arg;
    uint64_t sum = 0;
    size_t n[MR_NAMES_KIND_COUNT];
    (void)kind;
    for (int k = 0; k < MR_NAMES_KIND_COUNT; k++) {
        const struct mr_names_entry *entries =
            mr_names_client_list(client, (enum mr_names_kind)k, &n[k]);
        for (size_t i = 0; i < n[k]; i++)
            sum += sum_of(&entries[i]);
    }
    mr_lock_enter(&eye->rig->lock);
    eye->servers = n[MR_NAMES_SERVER];
    eye->workers = n[MR_NAMES_WORKER];
    eye->sum = sum;
    mr_lock_leave(&eye->rig->lock);
}

static void open_eye(struct rig *rig, size_t i)
{
    struct rig_eye *eye = &rig->eyes[i];
    struct mr_detail detail = {.text = ""};
    char address[32];
    const char *nameserver = address;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", rig->ports[i]);
    struct mr_names_client_options options = {.rpc = rig->rpc,
                                              .nameservers = &nameserver,
                                              .nameservers_n = 1,
                                              .workers_of = MR_SLICE_LIT(MR_TIMER_APP),
                                              .changed = seen,
                                              .arg = eye};
    eye->rig = rig;
    if (mr_names_client_new(&options, &eye->client, &detail) != MR_OK)
        fail_msg("%s", detail.text);
}

bool rig_is_seen(struct rig *rig, size_t servers, size_t workers)
{
    bool all = true;
    mr_lock_enter(&rig->lock);
    for (size_t i = 0; i < rig->nameservers_n; i++)
        all = all && (rig->nameservers[i].pid == 0 ||
                      (rig->eyes[i].servers == servers && rig->eyes[i].workers == workers));
    mr_lock_leave(&rig->lock);
    return all;
}

bool rig_is_agreed(struct rig *rig)
{
    const struct rig_eye *first = NULL;
    bool all = true;
    mr_lock_enter(&rig->lock);
    for (size_t i = 0; i < rig->nameservers_n; i++) {
        if (rig->nameservers[i].pid == 0)
            continue;
        first = first != NULL ? first : &rig->eyes[i];
        all = all && rig->eyes[i].sum == first->sum;
    }
    mr_lock_leave(&rig->lock);
    return all;
}

size_t rig_eye_workers(struct rig *rig, size_t nameserver)
{
    mr_lock_enter(&rig->lock);
    size_t n = rig->eyes[nameserver].workers;
    mr_lock_leave(&rig->lock);
    return n;
}

uint64_t rig_passed(struct rig *rig)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < rig->nameservers_n; i++)
        for (size_t j = 0; j < rig->nameservers_n; j++)
            bytes += rig->ways[i][j] != NULL ? rig->ways[i][j]->passed : 0;
    return bytes;
}

/* ---- nameservers ------------------------------------------------------------------------------ */

static uint16_t way(const struct rig *rig, size_t from, size_t to)
{
    const struct forwarder *forwarder = rig->ways[from][to];
    return forwarder != NULL ? forwarder->port : rig->ports[to];
}

static void make_ways(struct rig *rig)
{
    for (size_t i = 0; i < rig->nameservers_n; i++) {
        for (size_t j = 0; j < rig->nameservers_n; j++) {
            if (i == j)
                continue;
            rig->ways[i][j] = calloc(1, sizeof *rig->ways[i][j]);
            assert_non_null(rig->ways[i][j]);
            assert_int_equal(forwarder_start(rig->ways[i][j], rig->ports[j]), MR_OK);
        }
    }
}

void rig_name(struct rig *rig, size_t i)
{
    struct program_args args = {0};
    program_arg(&args, "nameserver");
    program_arg(&args, "--listen");
    program_arg(&args, "127.0.0.1:%u", rig->ports[i]);
    program_arg(&args, "--data");
    program_arg(&args, "%s/names-%zu", rig->bench->dir, i);
    program_arg(&args, "--interval");
    program_arg(&args, "%dms", rig_interval_ms());
    program_arg(&args, "--hold");
    program_arg(&args, "%s", rig_full() ? "20s" : "2s");
    program_arg(&args, "--server-ttl");
    program_arg(&args, "%s", rig_full() ? "30s" : "3s");
    program_arg(&args, "--worker-ttl");
    program_arg(&args, "%s", rig_full() ? "60s" : "3s");
    for (size_t j = 0; j < rig->nameservers_n; j++) {
        if (i == j)
            continue;
        program_arg(&args, "--peer");
        program_arg(&args, "127.0.0.1:%u", way(rig, i, j));
    }
    program_start(&rig->nameservers[i], &args);
    program_await_ready(&rig->nameservers[i]);
}

static void set_ways(struct rig *rig, size_t nameserver, bool cut)
{
    for (size_t i = 0; i < rig->nameservers_n; i++) {
        for (size_t j = 0; j < rig->nameservers_n; j++) {
            struct forwarder *forwarder = rig->ways[i][j];
            if (forwarder == NULL || (i != nameserver && j != nameserver))
                continue;
            atomic_store(&forwarder->refuse, cut);
            if (cut)
                forwarder_cut(forwarder);
        }
    }
}

void rig_cut(struct rig *rig, size_t nameserver)
{
    set_ways(rig, nameserver, true);
}

void rig_heal(struct rig *rig)
{
    for (size_t i = 0; i < rig->nameservers_n; i++)
        set_ways(rig, i, false);
}

/* ---- servers and workers ---------------------------------------------------------------------- */

static void list_of(const struct rig *rig, char list[RIG_PATH_MAX])
{
    size_t len = 0;
    list[0] = '\0';
    for (size_t i = 0; i < rig->nameservers_n; i++)
        len += (size_t)snprintf(list + len, RIG_PATH_MAX - len, "%s127.0.0.1:%u", i > 0 ? "," : "",
                                rig->ports[i]);
}

static void server_dir(const struct rig *rig, size_t i, char dir[RIG_PATH_MAX])
{
    (void)snprintf(dir, RIG_PATH_MAX, "%s/server-%zu", rig->bench->dir, i);
}

void rig_serve(struct rig *rig, size_t i)
{
    struct program_args args = {0};
    char list[RIG_PATH_MAX], dir[RIG_PATH_MAX];
    list_of(rig, list);
    server_dir(rig, i, dir);
    program_arg(&args, "serve");
    program_arg(&args, "--data");
    program_arg(&args, "%s", dir);
    program_arg(&args, "--store");
    program_arg(&args, "%s", rig->store_url != NULL ? rig->store_url : rig->bench->store_url);
    program_arg(&args, "--listen");
    program_arg(&args, "127.0.0.1:0");
    program_arg(&args, "--grpc");
    program_arg(&args, "%s",
                rig->servers[i].grpc[0] != '\0' ? rig->servers[i].grpc : "127.0.0.1:0");
    program_arg(&args, "--timer-lease");
    program_arg(&args, "%lldms", (long long)(rig->lease_ms > 0 ? rig->lease_ms : RIG_LEASE_MS));
    if (list[0] != '\0') {
        program_arg(&args, "--nameserver");
        program_arg(&args, "%s", list);
        program_arg(&args, "--register-every");
        program_arg(&args, "%s", rig_full() ? "10s" : "500ms");
        program_arg(&args, "--subapp-merge-after");
        program_arg(&args, "%s", rig_full() ? "30s" : "2s");
    }
    for (size_t j = 0; rig->server_args[j] != NULL; j++)
        program_arg(&args, "%s", rig->server_args[j]);
    program_start(&rig->servers[i], &args);
    program_await_ready(&rig->servers[i]);
}

/* list: of nameservers; NULL: it knows none. */
static void start_worker(struct rig *rig, size_t i, const char *url, const char *list)
{
    struct program_args args = {0};
    program_arg(&args, "--broker");
    program_arg(&args, "%s", url);
    program_arg(&args, "work");
    if (list != NULL) {
        program_arg(&args, "--nameserver");
        program_arg(&args, "%s", list);
        program_arg(&args, "--register-every");
        program_arg(&args, "%s", rig_full() ? "20s" : "500ms");
        program_arg(&args, "--app"); /* else it is that of the queue */
        program_arg(&args, MR_TIMER_APP);
    }
    program_arg(&args, "--queue");
    program_arg(&args, "%s", rig->worker_queue != NULL ? rig->worker_queue : "default");
    program_arg(&args, "--concurrency");
    program_arg(&args, "2");
    program_arg(&args, "--node");
    program_arg(&args, "w%zu", i);
    program_arg(&args, "--drain-timeout");
    program_arg(&args, "5s");
    program_arg(&args, "--");
    program_arg(&args, "sh");
    program_arg(&args, "-c");
    program_arg(&args, "echo \"$MILLRACE_TASK_ID $MILLRACE_ATTEMPT w%zu\" >>'%s'; echo 1", i,
                rig->runs_path);
    program_start(&rig->workers[i], &args);
}

static void work_by_names(struct rig *rig, size_t i, const char *list)
{
    char url[RIG_PATH_MAX + 16];
    (void)snprintf(url, sizeof url, "names://%s", list);
    start_worker(rig, i, url, list);
}

void rig_work(struct rig *rig, size_t i)
{
    char list[RIG_PATH_MAX];
    list_of(rig, list);
    work_by_names(rig, i, list);
}

void rig_work_at(struct rig *rig, size_t i, size_t nameserver)
{
    char list[32];
    (void)snprintf(list, sizeof list, "127.0.0.1:%u", rig->ports[nameserver]);
    work_by_names(rig, i, list);
}

void rig_work_for(struct rig *rig, size_t i, size_t server)
{
    char url[96];
    (void)snprintf(url, sizeof url, "millrace://%s", rig->servers[server].grpc);
    start_worker(rig, i, url, NULL);
}

void rig_lose_disk(struct rig *rig, size_t server)
{
    char dir[RIG_PATH_MAX];
    assert_int_equal(rig->servers[server].pid, 0);
    server_dir(rig, server, dir);
    temp_dir_remove(dir);
    assert_int_not_equal(access(dir, F_OK), 0);
}

static struct mr_client *open_client(const char *url)
{
    struct mr_client *client;
    struct mr_client_options options = {.open_ms = BENCH_WAIT_MS};
    struct mr_detail detail = {.text = ""};
    if (mr_client_open(url, &options, &client, &detail) != MR_OK)
        fail_msg("%s: %s", url, detail.text);
    return client;
}

struct mr_client *rig_client(struct rig *rig, size_t server)
{
    char url[96];
    (void)snprintf(url, sizeof url, "millrace://%s", rig->servers[server].grpc);
    return open_client(url);
}

struct mr_client *rig_names_client(struct rig *rig)
{
    char list[RIG_PATH_MAX], url[RIG_PATH_MAX + 16];
    list_of(rig, list);
    (void)snprintf(url, sizeof url, "names://%s", list);
    return open_client(url);
}

/* ---- what servers say ------------------------------------------------------------------------- */

uint64_t rig_processed(struct rig *rig, size_t server)
{
    struct mr_queue_info info = {.name = ""};
    if (rig->servers[server].pid == 0)
        return 0;
    struct mr_client *client = rig_client(rig, server);
    enum mr_err err = mr_queue_get(client, MR_SLICE_LIT("default"), &info);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    mr_client_close(client);
    return err == MR_OK ? info.processed_total : 0;
}

size_t rig_attached(struct rig *rig, size_t server)
{
    struct mr_node_list *list;
    size_t n = 0;
    if (rig->servers[server].pid == 0)
        return 0;
    struct mr_client *client = rig_client(rig, server);
    assert_int_equal(mr_node_list_get(client, &list), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(list); i++)
        n += mr_node_list_at(list, i)->role == MR_NODE_WORKER &&
             mr_node_list_at(list, i)->state == MR_NODE_LIVE;
    mr_node_list_free(list);
    mr_client_close(client);
    return n;
}

void rig_note_processed(struct rig *rig, uint64_t ret_processed[RIG_SERVERS])
{
    for (size_t i = 0; i < RIG_SERVERS; i++)
        ret_processed[i] = rig_processed(rig, i);
}

size_t rig_worked_for(struct rig *rig, const uint64_t since[RIG_SERVERS])
{
    size_t n = 0;
    for (size_t i = 0; i < RIG_SERVERS; i++)
        n += rig_processed(rig, i) > since[i];
    return n;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static void read_runs(struct bench *bench, void *arg);

static void name_logs(struct rig *rig)
{
    const char *dir = rig->bench->dir;
    for (size_t i = 0; i < RIG_NAMESERVERS; i++)
        (void)snprintf(rig->nameservers[i].log, RIG_PATH_MAX, "%s/names-%zu.log", dir, i);
    for (size_t i = 0; i < RIG_SERVERS; i++)
        (void)snprintf(rig->servers[i].log, RIG_PATH_MAX, "%s/server-%zu.log", dir, i);
    for (size_t i = 0; i < RIG_WORKERS; i++)
        (void)snprintf(rig->workers[i].log, RIG_PATH_MAX, "%s/worker-%zu.log", dir, i);
    (void)snprintf(rig->runs_path, RIG_PATH_MAX, "%s/runs", dir);
}

struct rig *rig_make(size_t nameservers, enum rig_ways ways)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->bench = bench_new_on_store();
    rig->bench->look = read_runs;
    rig->bench->look_arg = rig;
    mr_lock_init(&rig->lock);
    name_logs(rig);
    rig->nameservers_n = nameservers;
    for (size_t i = 0; i < nameservers; i++)
        assert_int_not_equal(rig->ports[i] = free_port(), 0);
    if (ways == RIG_CUTTABLE)
        make_ways(rig);
    assert_int_equal(mr_rpc_new("eyes", NULL, &rig->rpc), MR_OK);
    for (size_t i = 0; i < nameservers; i++)
        open_eye(rig, i);
    return rig;
}

void rig_free(struct rig *rig)
{
    for (size_t i = 0; i < RIG_WORKERS; i++)
        program_kill(&rig->workers[i]);
    for (size_t i = 0; i < RIG_SERVERS; i++)
        program_kill(&rig->servers[i]);
    for (size_t i = 0; i < rig->nameservers_n; i++) {
        program_kill(&rig->nameservers[i]);
        mr_names_client_free(rig->eyes[i].client);
    }
    mr_rpc_free(rig->rpc);
    for (size_t i = 0; i < rig->nameservers_n; i++) {
        for (size_t j = 0; j < rig->nameservers_n; j++) {
            if (rig->ways[i][j] != NULL)
                forwarder_stop(rig->ways[i][j]);
            free(rig->ways[i][j]);
        }
    }
    mr_lock_done(&rig->lock);
    bench_free(rig->bench);
    free(rig);
}

void rig_start(struct rig *rig, size_t servers, size_t workers)
{
    for (size_t i = 0; i < rig->nameservers_n; i++)
        rig_name(rig, i);
    for (size_t i = 0; i < servers; i++)
        rig_serve(rig, i);
    for (size_t i = 0; i < workers; i++)
        rig_work(rig, i);
    BENCH_UNTIL(rig_is_seen(rig, servers, workers));
}

/* ---- how the app is cut ----------------------------------------------------------------------- */

static bool is_known(const struct rig_plan *plan, size_t n, struct mr_slice owner)
{
    for (size_t i = 0; i < n; i++)
        if (mr_slice_equal(mr_slice_str(plan->names[i]), owner))
            return true;
    return false;
}

static void add_part(struct rig_plan *plan, const struct mr_plan_part *part)
{
    unsigned slots = (unsigned)__builtin_popcountll(part->slots);
    size_t i = plan->parts;
    assert_true(i < 64 && part->owner.len <= MR_STORE_OWNER_MAX);
    plan->unowned += part->owner.len == 0;
    plan->owners += part->owner.len > 0 && !is_known(plan, i, part->owner);
    if (part->owner.len > 0)
        memcpy(plan->names[i], part->owner.data, part->owner.len);
    plan->is_disjoint = plan->is_disjoint && (plan->slots & part->slots) == 0;
    plan->slots |= part->slots;
    plan->slots_of[i] = part->slots;
    plan->least = slots < plan->least ? slots : plan->least;
    plan->most = slots > plan->most ? slots : plan->most;
    plan->parts++;
}

/* The newest is the first. */
static void add_moves(struct rig_plan *plan, const struct mr_plan_look *look)
{
    int64_t after_ms = 0;
    plan->apart_ms = INT64_MAX;
    for (size_t i = 0; i < look->moves_n; i++) {
        const struct mr_plan_move *move = &look->moves[i];
        if (!mr_slice_starts_with(move->reason, MR_SLICE_LIT("moved")))
            continue;
        if (plan->balance_moves++ > 0 && after_ms - move->at_ms < plan->apart_ms)
            plan->apart_ms = after_ms - move->at_ms;
        after_ms = move->at_ms;
    }
}

struct rig_plan rig_plan(struct rig *rig)
{
    struct rig_plan plan = {.is_disjoint = true, .least = 64};
    struct mr_plan_look look = {0};
    assert_int_equal(mr_plan_look(rig->bench->store, &look), MR_OK);
    for (size_t i = 0; i < look.parts_n; i++)
        if (mr_slice_equal(look.parts[i].app, MR_SLICE_LIT(MR_TIMER_APP)))
            add_part(&plan, &look.parts[i]);
    plan.moves = look.moves_n;
    add_moves(&plan, &look);
    mr_plan_look_done(&look);
    return plan;
}

void rig_print_moves(struct rig *rig)
{
    struct mr_plan_look look = {0};
    assert_int_equal(mr_plan_look(rig->bench->store, &look), MR_OK);
    for (size_t i = 0; i < look.moves_n; i++) {
        const struct mr_plan_move *move = &look.moves[i];
        printf("%lld: subApp %u from %.*s to %.*s: %.*s\n", (long long)move->at_ms, move->part,
               (int)move->from.len, (const char *)move->from.data, (int)move->to.len,
               (const char *)move->to.data, (int)move->reason.len, (const char *)move->reason.data);
    }
    mr_plan_look_done(&look);
}

bool rig_is_cut(struct rig *rig, size_t parts)
{
    struct rig_plan plan = rig_plan(rig);
    return plan.parts == parts && plan.unowned == 0 && plan.is_disjoint && plan.slots == UINT64_MAX;
}

/* ---- runs ------------------------------------------------------------------------------------- */

/* "ID ATTEMPT WORKER"; the last line may be half written. */
static void note_run(struct bench *bench, char *line)
{
    char id[MR_ID_MAX + 1];
    unsigned attempt;
    struct mr_uuid uid;
    int64_t planned_ms;
    uint32_t run;
    assert_int_equal(sscanf(line, "%128s %u", id, &attempt), 2);
    if (!mr_firing_id_parse(mr_slice_str(id), &uid, &planned_ms, &run))
        return;
    struct mr_task task = {.id = mr_slice_str(id), .attempt = attempt};
    bench_note(bench, &task);
}

static void read_runs(struct bench *bench, void *arg)
{
    struct rig *rig = arg;
    char line[512];
    FILE *file = fopen(rig->runs_path, "re");
    if (file == NULL)
        return;
    assert_int_equal(fseek(file, rig->runs_at, SEEK_SET), 0);
    while (fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL) {
        note_run(bench, line);
        rig->runs_at = ftell(file);
    }
    (void)fclose(file);
}

size_t rig_runs_by(struct rig *rig, size_t worker)
{
    char line[512], end[16];
    size_t n = 0;
    FILE *file = fopen(rig->runs_path, "re");
    (void)snprintf(end, sizeof end, " w%zu\n", worker);
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        n += strlen(line) > strlen(end) && strcmp(line + strlen(line) - strlen(end), end) == 0;
    if (file != NULL)
        (void)fclose(file);
    return n;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Who ran it is no part of it: the lines "ID ATTEMPT", sorted. The caller frees both. */
static char **read_attempts(struct rig *rig, char **ret_text, size_t *ret_n)
{
    size_t size = 0, n = 0, cap = 0;
    char **lines = NULL, *text = NULL;
    FILE *file = fopen(rig->runs_path, "re");
    if (file != NULL && getdelim(&text, &size, '\0', file) < 0)
        text[0] = '\0';
    if (file != NULL)
        (void)fclose(file);
    for (char *at = text, *end; at != NULL && (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = '\0';
        char *who = strrchr(at, ' ');
        assert_non_null(who);
        *who = '\0';
        if (n == cap) {
            cap = 2 * cap + 64;
            lines = realloc(lines, cap * sizeof *lines);
            assert_non_null(lines);
        }
        lines[n++] = at;
    }
    if (n > 0)
        qsort(lines, n, sizeof *lines, compare_lines);
    *ret_text = text;
    *ret_n = n;
    return lines;
}

size_t rig_repeated(struct rig *rig)
{
    char *text;
    size_t n, repeated = 0;
    char **lines = read_attempts(rig, &text, &n);
    for (size_t i = 1; i < n; i++)
        repeated += strcmp(lines[i - 1], lines[i]) == 0;
    free(lines);
    free(text);
    return repeated;
}

/* ---- the load --------------------------------------------------------------------------------- */

static void task_id(const struct rig *rig, size_t i, char id[64])
{
    (void)snprintf(id, 64, "task-%u-%zu", rig->round, i);
}

/* To one server. */
static void enqueue(struct rig *rig, size_t server, size_t from, size_t n)
{
    struct mr_client *client = rig_client(rig, server);
    for (size_t i = from; i < from + n; i++) {
        char id[64];
        struct mr_enqueue_result result;
        task_id(rig, i, id);
        struct mr_task_options task = {.id = mr_slice_str(id), .retention_ms = 3600 * 1000};
        assert_int_equal(mr_enqueue(client, &task, 1, &result), MR_OK);
        assert_int_equal(result.err, MR_OK);
    }
    mr_client_close(client);
}

void rig_load(struct rig *rig, size_t timers, const char *every, size_t tasks)
{
    size_t live[RIG_SERVERS], n = 0;
    for (size_t i = 0; i < RIG_SERVERS; i++)
        if (rig->servers[i].pid != 0)
            live[n++] = i;
    rig->round++;
    rig->timers_n = timers;
    rig->tasks_n = tasks;
    bench_put_many(rig->bench, BENCH_TIMER("", MR_TIMER_EVERY, every, .misfire = MR_MISFIRE_ALL),
                   "t-%zu", timers);
    for (size_t i = 0; i < n; i++) {
        size_t from = tasks * i / n, to = tasks * (i + 1) / n;
        enqueue(rig, live[i], from, to - from);
    }
}

bool rig_fires(struct rig *rig, int64_t to_ms)
{
    for (size_t i = 0; i < rig->timers_n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t-%zu", i);
        if (!bench_caught_up(rig->bench, name, to_ms))
            return false;
    }
    return true;
}

/* It ended well there; *found says whether it is there at all. */
static bool has_ended(struct mr_client *client, const char *id, bool *found)
{
    struct mr_task_list *list;
    enum mr_err err = mr_task_get(client, mr_slice_str(id), &list);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    *found = err == MR_OK;
    if (err != MR_OK)
        return false;
    bool ended = mr_task_list_at(list, 0)->state == MR_COMPLETED;
    mr_task_list_free(list);
    return ended;
}

/* Each is at one server, and has ended there. */
void rig_await_tasks(struct rig *rig)
{
    size_t *places = calloc(rig->tasks_n + 1, sizeof *places);
    assert_non_null(places);
    for (size_t s = 0; s < RIG_SERVERS; s++) {
        struct mr_client *client = rig->servers[s].pid != 0 ? rig_client(rig, s) : NULL;
        for (size_t i = 0; client != NULL && i < rig->tasks_n; i++) {
            char id[64];
            bool found = false;
            task_id(rig, i, id);
            if (!has_ended(client, id, &found) && found)
                BENCH_UNTIL(has_ended(client, id, &found));
            places[i] += found;
        }
        mr_client_close(client);
    }
    for (size_t i = 0; i < rig->tasks_n; i++)
        if (places[i] != 1)
            fail_msg("task-%u-%zu is at %zu servers", rig->round, i, places[i]);
    free(places);
}

/* What has its row has one accepted end, and a good one. */
static void check_ends(struct rig *rig)
{
    for (size_t i = 0; i < rig->timers_n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t-%zu", i);
        size_t all = bench_count(rig->bench, name, 0);
        size_t good = bench_count(rig->bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED));
        if (all == 0 || good != all)
            fail_msg("%s: %zu of %zu firings ended well", name, good, all);
        bench_delete(rig->bench, name);
    }
}

/* There is something to look at. */
static void await_firings(struct rig *rig)
{
    for (size_t i = 0; i < rig->timers_n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t-%zu", i);
        BENCH_UNTIL(bench_count(rig->bench, name, 0) > 0);
    }
}

/* Each slot is in one subApp, which has one owner; or the app is not cut. */
static bool has_owners(struct rig *rig)
{
    size_t parts = rig_plan(rig).parts;
    return parts == 0 || rig_is_cut(rig, parts);
}

void rig_check(struct rig *rig)
{
    await_firings(rig);
    int64_t to_ms = bench_now_ms(rig->bench);
    rig->bench->repeats = rig->repeats;
    bench_check_all(rig->bench, rig->timers_n, to_ms);
    check_ends(rig);
    rig_await_tasks(rig);
    BENCH_UNTIL(has_owners(rig));
    size_t repeated = rig_repeated(rig);
    if (repeated != rig->repeated && !rig->repeats)
        fail_msg("%zu runs were repeated", repeated - rig->repeated);
    rig->repeated = repeated;
    rig->timers_n = rig->tasks_n = 0;
    rig->repeats = false;
}
