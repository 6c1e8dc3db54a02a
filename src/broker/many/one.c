/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for one server, or for one after the other until somebody has an answer. */
#include "broker/many/internal.h"

/* ---- calls ---------------------------------------------------------------------------------- */

struct calling {
    struct mr_req_call inner;
    struct many *many;
    struct mr_req_call *outer;
    uint64_t tried;
    bool only_looks; /* it changes nothing, so that it may be asked twice */
};

static void calling_send(struct calling *calling);

/* By the method's name, as all of proto/ are named. */
static bool only_looks(const char *path)
{
    static const char *const words[] = {"Get", "List", "Next", "History", "Status", "Stats"};
    const char *method = strrchr(path, '/');
    for (size_t i = 0; method != NULL && i < sizeof words / sizeof *words; i++)
        if (strncmp(method + 1, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static void calling_done(struct mr_req *req)
{
    struct calling *calling = req->arg;
    struct mr_req_call *outer = calling->outer;
    struct many *many = calling->many;
    bool others = (live_origins(many) & ~calling->tried) != 0;
    bool away = req->err == MR_UNAVAILABLE || req->err == MR_CLOSED;
    outer->sent |= calling->inner.sent;
    if (away && others && !many->closing && (!calling->inner.sent || calling->only_looks)) {
        mr_req_done(req);
        calling_send(calling);
        return;
    }
    outer->answer = calling->inner.answer;
    outer->detail = calling->inner.detail;
    enum mr_err err = req->err;
    mr_arena_join(&outer->req.arena, &req->arena);
    mr_req_answer(&outer->req, err);
}

static void calling_send(struct calling *calling)
{
    struct many *many = calling->many;
    const struct mr_req_call *outer = calling->outer;
    struct origin *origin = origin_in_turn(many, live_origins(many) & ~calling->tried);
    if (origin == NULL) {
        mr_req_answer(&calling->outer->req, MR_UNAVAILABLE);
        return;
    }
    calling->tried |= 1ULL << origin->index;
    calling->inner = (struct mr_req_call){
        .req = {.op = MR_OP_CALL, .done = calling_done, .arg = calling},
        .path = outer->path,
        .message = outer->message,
        .timeout_ms = outer->timeout_ms,
    };
    mr_broker_submit(origin->broker, &calling->inner.req);
}

void begin_call(struct many *many, struct mr_req *req)
{
    struct calling *calling = mr_arena_calloc(&req->arena, 1, sizeof *calling);
    if (calling == NULL) {
        mr_req_answer(req, MR_NOMEM);
        return;
    }
    calling->many = many;
    calling->outer = mr_container(req, struct mr_req_call, req);
    calling->outer->sent = false;
    calling->only_looks = only_looks(calling->outer->path);
    calling_send(calling);
}

/* ---- groups --------------------------------------------------------------------------------- */

enum { GATHER_MS = 300 }; /* at one of several servers, before the next one is asked */

/* At first all are asked without waiting; then it waits at one after the other, until the time is over. */
struct gathering {
    struct mr_req_gather inner;
    struct many *many;
    struct mr_req_gather *outer;
    uint64_t tried; /* servers, in this round */
    bool waits;     /* the first round is over */
    bool was_empty; /* somebody said that there is nothing */
    mr_mono end;
};

static void gathering_send(struct gathering *gathering);

static void gathering_done(struct mr_req *req)
{
    struct gathering *gathering = req->arg;
    struct mr_req_gather *inner = &gathering->inner, *outer = gathering->outer;
    struct many *many = gathering->many;
    enum mr_err err = req->err;
    gathering->was_empty |= err == MR_EMPTY;
    bool passes = (err == MR_EMPTY || err == MR_UNAVAILABLE) && !many->closing;
    bool others = (live_origins(many) & ~gathering->tried) != 0;
    bool in_time = mr_rpc_now(many->rpc).ns < gathering->end.ns && live_origins(many) != 0;
    if (passes && (others || in_time)) {
        mr_req_done(req);
        gathering_send(gathering);
        return;
    }
    memcpy(outer->group, inner->group, sizeof outer->group);
    memcpy(outer->set, inner->set, sizeof outer->set);
    outer->tasks = inner->tasks;
    outer->n = inner->n;
    mr_arena_join(&outer->req.arena, &req->arena);
    mr_req_answer(&outer->req, passes && gathering->was_empty ? MR_EMPTY : err);
}

static int64_t gathering_wait_ms(const struct gathering *gathering, uint64_t live)
{
    const struct many *many = gathering->many;
    int64_t left_ms = (gathering->end.ns - mr_rpc_now(many->rpc).ns) / MR_NS_PER_MS;
    bool alone = (live & (live - 1)) == 0;
    if (left_ms <= 0 || (!alone && !gathering->waits))
        return 0;
    return !alone && left_ms > GATHER_MS ? GATHER_MS : left_ms;
}

static void gathering_send(struct gathering *gathering)
{
    struct many *many = gathering->many;
    struct mr_req_gather *outer = gathering->outer;
    uint64_t live = live_origins(many);
    if ((live & ~gathering->tried) == 0) {
        gathering->waits |= gathering->tried != 0;
        gathering->tried = 0;
    }
    struct origin *origin = origin_in_turn(many, live & ~gathering->tried);
    if (origin == NULL) {
        mr_req_answer(&outer->req, gathering->was_empty ? MR_EMPTY : MR_UNAVAILABLE);
        return;
    }
    gathering->tried |= 1ULL << origin->index;
    gathering->inner = *outer;
    gathering->inner.req =
        (struct mr_req){.op = MR_OP_GATHER, .done = gathering_done, .arg = gathering};
    gathering->inner.wait_ms = gathering_wait_ms(gathering, live);
    mr_broker_submit(origin->broker, &gathering->inner.req);
}

void begin_gather(struct many *many, struct mr_req *req)
{
    struct mr_req_gather *outer = mr_container(req, struct mr_req_gather, req);
    outer->n = 0;
    outer->group[0] = outer->set[0] = '\0';
    enum mr_err err = mr_gather_check(outer);
    struct gathering *gathering =
        err == MR_OK ? mr_arena_calloc(&req->arena, 1, sizeof *gathering) : NULL;
    if (gathering == NULL) {
        mr_req_answer(req, err != MR_OK ? err : MR_NOMEM);
        return;
    }
    gathering->many = many;
    gathering->outer = outer;
    gathering->end = mr_mono_add_ms(
        mr_rpc_now(many->rpc), outer->wait_ms < MR_MS_PER_DAY ? outer->wait_ms : MR_MS_PER_DAY);
    gathering_send(gathering);
}

/* No two sets have the same name, so each server can be asked: those that do not have it do nothing. */
struct gathered {
    struct mr_req_gathered inner;
    struct many *many;
    struct mr_req_gathered *outer;
    uint64_t tried;
};

static void gathered_send(struct gathered *gathered);

static void gathered_done(struct mr_req *req)
{
    struct gathered *gathered = req->arg;
    struct many *many = gathered->many;
    enum mr_err err = req->err;
    bool others = (up_origins(many) & ~gathered->tried) != 0;
    if (err == MR_STALE && others && !many->closing) {
        mr_req_done(req);
        gathered_send(gathered);
        return;
    }
    gathered->outer->result = gathered->inner.result;
    mr_req_done(req);
    mr_req_answer(&gathered->outer->req, err);
}

static void gathered_send(struct gathered *gathered)
{
    struct many *many = gathered->many;
    struct origin *origin = origin_in_turn(many, up_origins(many) & ~gathered->tried);
    if (origin == NULL) {
        mr_req_answer(&gathered->outer->req, MR_UNAVAILABLE);
        return;
    }
    gathered->tried |= 1ULL << origin->index;
    gathered->inner = *gathered->outer;
    gathered->inner.req =
        (struct mr_req){.op = MR_OP_GATHERED, .done = gathered_done, .arg = gathered};
    mr_broker_submit(origin->broker, &gathered->inner.req);
}

void begin_gathered(struct many *many, struct mr_req *req)
{
    struct gathered *gathered = mr_arena_calloc(&req->arena, 1, sizeof *gathered);
    if (gathered == NULL) {
        mr_req_answer(req, MR_NOMEM);
        return;
    }
    gathered->many = many;
    gathered->outer = mr_container(req, struct mr_req_gathered, req);
    gathered_send(gathered);
}

/* ---- what the leader writes ----------------------------------------------------------------- */

struct assigning {
    struct mr_req_assign inner;
    struct mr_req_assign *outer;
};

static void assigning_done(struct mr_req *req)
{
    struct assigning *assigning = req->arg;
    struct mr_req_assign *outer = assigning->outer;
    enum mr_err err = req->err;
    outer->version = assigning->inner.version;
    mr_req_done(req);
    mr_req_answer(&outer->req, err);
}

void begin_assign(struct many *many, struct mr_req *req)
{
    struct mr_req_assign *outer = mr_container(req, struct mr_req_assign, req);
    struct origin *origin = origin_of(many, outer->term);
    enum mr_err err = mr_assign_check(outer);
    if (err == MR_OK && origin == NULL)
        err = MR_STALE; /* no term of ours */
    struct assigning *assigning =
        err == MR_OK ? mr_arena_calloc(&req->arena, 1, sizeof *assigning) : NULL;
    if (assigning == NULL) {
        mr_req_answer(req, err != MR_OK ? err : MR_NOMEM);
        return;
    }
    assigning->outer = outer;
    assigning->inner = *outer;
    assigning->inner.term = own_epoch(outer->term);
    assigning->inner.req =
        (struct mr_req){.op = MR_OP_ASSIGN, .done = assigning_done, .arg = assigning};
    mr_broker_submit(origin->broker, &assigning->inner.req);
}

/* ---- backups -------------------------------------------------------------------------------- */

struct backing {
    struct mr_req_backup inner;
    struct mr_req_backup *outer;
};

static void backing_done(struct mr_req *req)
{
    struct backing *backing = req->arg;
    enum mr_err err = req->err;
    backing->outer->detail = backing->inner.detail;
    mr_req_done(req);
    mr_req_answer(&backing->outer->req, err);
}

/* One folder can have the copy of one server. */
void begin_backup(struct many *many, struct mr_req *req)
{
    struct mr_req_backup *outer = mr_container(req, struct mr_req_backup, req);
    uint64_t listed = listed_origins(many);
    if (listed == 0 || (listed & (listed - 1)) != 0) {
        mr_detail_set(&outer->detail, "there are several servers: name the one to back up");
        mr_req_answer(req, MR_UNSUPPORTED);
        return;
    }
    struct backing *backing = mr_arena_calloc(&req->arena, 1, sizeof *backing);
    if (backing == NULL) {
        mr_req_answer(req, MR_NOMEM);
        return;
    }
    backing->outer = outer;
    backing->inner = *outer;
    backing->inner.req = (struct mr_req){.op = MR_OP_BACKUP, .done = backing_done, .arg = backing};
    mr_broker_submit(many->origins[__builtin_ctzll(listed)]->broker, &backing->inner.req);
}
