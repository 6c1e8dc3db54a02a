/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the service of jobs: its map.
 *
 *   service.c    what is done in every turn at the desk; opening and closing
 *   queues.c     queues with live jobs; whose they are, and what begins and ends with that
 *   live.c       the live jobs of the queues that are ours, in memory
 *   slots.c      how many slots of workers serve each queue
 *   pump.c       parts become tasks, as many as fit the window; then the cursor moves
 *   results.c    results of tasks become outcomes of parts
 *   sweep.c      tasks of which nobody wants the result are deleted, or told to stop
 *   left.c       tasks of parts that are another server's by now
 *   reducer.c    all outcomes are there: they become the result
 *   command.c    a reduce that is a command
 *   retry.c      a retry that was begun comes to its end
 *   reconcile.c  jobs that do not move are held against their tasks; stragglers are run once more
 *   govern.c     what is old is removed
 *   load.c       a job comes into the store
 *   ask.c        looking at jobs, cancelling and retrying them
 *   watch.c      who watches a job is told of its changes
 *   shown.c      a row of the store as people see it
 *
 * All of it belongs to the service's thread, but for load.c and ask.c, which talk to the store from whichever thread
 * they are called on, and the reads of reducer.c, which has a thread beside it. Requests to the store and the broker are
 * errands: they come back as messages. A queue that was lost meanwhile, and a job that was begun anew, has another
 * generation: what comes back for the old one is dropped; that it was carried out does no harm.
 */
#ifndef MR_JOB_INTERNAL_H
#define MR_JOB_INTERNAL_H

#include "base/diag.h"
#include "base/exec.h"
#include "base/map.h"
#include "broker/gate.h"
#include "desk/intake.h"
#include "job/def.h"
#include "job/id.h"
#include "job/service.h"
#include "store/jobs.h"

enum {
    AGAIN_MS = 1000,  /* what failed for a passing reason is tried again after this */
    COMMANDS_MAX = 4, /* reduces that are commands, at once */
    PAGE_MAX = 1000,  /* rows of one answer */
};

#define PUMP_LEASE   "pump:" /* and the name of the queue */
#define GOVERN_LEASE "jobs"

struct queue;
struct live;
struct reducing;
struct governing;

/* ---- live jobs ------------------------------------------------------------------------------- */

/* A live job of a queue that is ours. */
struct live {
    struct mr_link link; /* in its queue's jobs, by order */
    struct queue *queue; /* NULL: it is live no more, or its queue is not ours */
    uint32_t handle;
    unsigned refs;
    uint32_t generation; /* rises when what is under way for it is forgotten */
    bool seen;           /* in the walk through the queue that is on */
    /* The row, as it was last read. */
    struct mr_uuid uid;
    char id[MR_UUID_TEXT_LEN + 1];
    uint64_t no, version, total;
    int64_t order_ms;
    uint32_t round;
    bool pipeline;
    enum mr_jobrow_state state;
    struct mr_store_stage stages[MR_JOB_STAGES_MAX];
    size_t stages_n;
    uint64_t ready_last;
    bool retrying;         /* a retry has steps before it; nothing is submitted until then */
    struct mr_arena arena; /* of what follows */
    struct mr_job_options options;
    /* Where submitting is: beyond the cursors, by what is in hand. */
    uint64_t next[MR_JOB_STAGES_MAX], ready_next;
    struct mr_link batches; /* in hand, in the order of the cursors */
    uint64_t in_hand;       /* parts in those of them that are on their way to the broker */
    uint64_t ahead;         /* and in those that are read, or being read, until there is room */
    /* Parts whose results are in hand: their tasks are over, before a row says so. A row that comes first may have
     * counted some of them: so many are known to be in no row. */
    uint64_t in_results, uncounted;
    uint64_t written;          /* of them, by the request whose rows come next */
    bool reading;              /* one of them is being read */
    struct reducing *reducing; /* it was given to the reducer; see there */
    int64_t reduce_wait_ms;    /* the last time it could not be done, and is tried again ... */
    mr_mono reduce_again;      /* ... then */
    mr_mono moved;             /* when its version rose last */
    mr_mono stalled;           /* it was held against its tasks last; zero: not since it moved */
    bool walking;              /* it is being */
    bool stepping;             /* a step of its retry is under way */
    uint64_t sped;             /* round and stage whose stragglers were run once more, + 1 */
    struct mr_link seconds;    /* tasks of stragglers, both of each part: see reconcile.c */
};

struct queue {
    struct mr_link link;
    struct mr_job_service *s;
    char name[MR_NAME_MAX + 1];
    char lease[sizeof PUMP_LEASE + MR_NAME_MAX];
    bool wanted; /* it has live jobs */
    bool owned, asking;
    uint64_t token, generation;
    mr_mono until;   /* it is ours so long */
    mr_mono renewed; /* when that was last asked for */
    mr_mono shunned; /* it is left to others until then */
    mr_mono refused; /* since then another one has it; zero: not as far as we know */
    struct mr_link jobs;
    bool walking, walk_again; /* the live jobs are being read */
    uint64_t slots;           /* of workers that serve it */
    bool advancing;           /* cursors are being moved */
    bool paused;              /* until again: the broker or the store did not do something */
    struct mr_timer again;
    mr_mono heard; /* when something of it changed, as far as we know */
    /* Jobs of it want commands, which are not run here: since when, and when that was seen last. It is given up for that
     * then, after so long again; now. */
    mr_mono commandless, commandless_seen, hand_over;
    int64_t hand_over_ms;
    bool hands_over;
};

/* ---- the service ----------------------------------------------------------------------------- */

struct mr_job_service {
    struct mr_desk desk;
    struct mr_job_settings settings;
    size_t payload_max;
    char temp_dir[512];
    void (*step)(enum mr_job_step step, void *arg);
    void *step_arg;
    bool running;
    struct mr_link queues;
    bool listing, listed; /* which of them have live jobs is being asked; it was once */
    struct mr_gate *gate; /* of the broker; NULL: it hands out whatever it has */
    unsigned left_rounds; /* so often the broker is to be looked through for parts of others; ... */
    bool leaving;         /* ... it is */
    struct mr_map *map;   /* of live jobs, by uid */
    struct live **lives;
    uint32_t lives_n, lives_cap, free_handle;
    bool slots_asking;
    struct mr_timer look, govern, watch_look;
    struct governing *governing; /* NULL: nothing is removed now */
    struct mr_intake results;
    mr_mono live_at; /* there are live jobs, or were then */
    struct mr_exec_thread *reducer;
    /* Commands have threads of their own: how long they last nobody knows. */
    struct mr_exec_thread *commanders[COMMANDS_MAX];
    size_t commands[COMMANDS_MAX]; /* that each of them has */
    size_t sweeping;
    struct mr_link sweeps;   /* that wait until others are through */
    _Atomic uint32_t asking; /* asks and loads that talk to the store */
    /* Who watches: see watch.c. */
    struct mr_lock watch_lock; /* over what follows */
    struct mr_link watched;
    struct mr_job_watch *calling; /* whose callback is under way ... */
    const void *caller;           /* ... in which thread */
    bool watch_dirty;             /* there is something new to be read */
    bool watch_reading, watch_closed;
    struct mr_lock lock; /* over what follows */
    struct mr_job_health figures;
    struct mr_link loads; /* that are there: see load.c */
    mr_mono loads_looked; /* the service's thread's */
};

/* Under the lock: figures.FIELD += n. */
#define JOB_COUNT(s, field, n)                                                                     \
    do {                                                                                           \
        mr_lock_enter(&(s)->lock);                                                                 \
        (s)->figures.field += (n);                                                                 \
        mr_lock_leave(&(s)->lock);                                                                 \
    } while (0)

static inline struct mr_job_service *job_of(const struct mr_errand *errand)
{
    return errand->desk->options.service;
}

/* service.c */
static inline void job_step(const struct mr_job_service *s, enum mr_job_step step)
{
    if (s->step != NULL)
        s->step(step, s->step_arg);
}
int64_t job_since_ms(const struct mr_job_service *s, mr_mono since);
/* Rows as they are after a request: jobs in memory are brought up to them, watchers are told. */
void job_changed(struct mr_job_service *s, const struct mr_store_jobs_changed *changed);
void job_changed_one(struct mr_job_service *s, const struct mr_store_job *row);
/* There may be something new in the queue, or for those who watch the job. Copies. Thread: any. */
void job_stir(struct mr_job_service *s, struct mr_slice queue, const struct mr_uuid *uid);

/* queues.c */
void job_queues_look(struct mr_job_service *s); /* asks for, and renews, what is due */
void job_queues_list(struct mr_job_service *s); /* which ones have live jobs */
/* NULL: none of this name is known. */
struct queue *job_queue_find(const struct mr_job_service *s, struct mr_slice name);
/* NULL: no memory. */
struct queue *job_queue(struct mr_job_service *s, struct mr_slice name);
void job_queue_lost(struct queue *queue, enum mr_err err);
/* We hold it, but cannot do what it takes: somebody else may. */
void job_queue_give_up(struct queue *queue, enum mr_err err);
void job_queues_release(struct mr_job_service *s);
void job_queues_free(struct mr_job_service *s);
/* A fence for what only the owner does. */
static inline struct mr_store_fence job_fence(const struct queue *queue)
{
    return (struct mr_store_fence){mr_slice_str(queue->lease), queue->token};
}

/* live.c */
MR_MUST_USE enum mr_err job_lives_init(struct mr_job_service *s);
void job_lives_done(struct mr_job_service *s);
struct live *job_live_find(struct mr_job_service *s, const struct mr_uuid *uid);
/* The live jobs of the queue are read, all of them. */
void job_live_walk(struct queue *queue);
/* The row is newer than what is in memory, or not looked at. */
void job_live_update(struct live *live, const struct mr_store_job *row);
/* What is under way for it is forgotten. */
void job_live_restart(struct live *live);
void job_lives_drop(struct queue *queue); /* all of them */
struct live *job_live_ref(struct live *live);
void job_live_unref(struct live *live);
/* Tasks in the broker, or on their way there. */
uint64_t job_live_outstanding(const struct live *live);

/* slots.c */
void job_slots_look(struct mr_job_service *s);

/* pump.c */
void job_pump(struct queue *queue);    /* submits what fits */
void job_advance(struct queue *queue); /* cursors follow what was submitted */
void job_pump_drop(struct live *live); /* its batches: forgotten */
/* Something of it can be submitted. */
bool job_pump_has_more(const struct live *live);
bool job_pump_waits(const struct queue *queue); /* there is more, and no room for it */

/* results.c */
void job_results_init(struct mr_job_service *s);
/* There are live jobs, whoever has them; and there are none: soon results are wanted no more. */
void job_results_want(struct mr_job_service *s);
void job_results_linger(struct mr_job_service *s);
/* Outcomes, known by whatever means; copied. done (may be NULL): with what the store says of the whole. */
typedef void ends_done(struct mr_job_service *s, enum mr_err err, void *arg);
void job_ends_write(struct mr_job_service *s, const struct mr_store_end *ends, size_t n,
                    ends_done *done, void *arg);

/* sweep.c */
/* The job has ended otherwise than by success: what was submitted of it is not wanted. But for what is submitted in
 * another round, when it was retried meanwhile. */
void job_sweep(struct mr_job_service *s, const struct mr_uuid *uid, uint32_t round);
void job_sweeps_end(struct mr_job_service *s);
/* These tasks; copied. */
void job_sweep_tasks(struct mr_job_service *s, const struct mr_slice *ids, size_t n);

/* left.c: there may be some, from before or since a queue was lost; they are looked for. */
void job_left_note(struct mr_job_service *s);
void job_left_look(struct mr_job_service *s);

/* reducer.c */
void job_reduces_begin(struct mr_job_service *s);
void job_reduce(struct live *live);
/* Nobody waits for it any more: it ends before long. */
void job_reduce_forget(struct live *live);
/* It can not go on: it ends. why is a literal. */
void job_fail(struct live *live, const char *why);

/* command.c */
struct mr_reduce_command;
/* What the command prints goes to chunk; MR_FAILED: it did not end well, detail says how. Any thread that may wait. */
struct job_command {
    struct mr_slice command;
    const char *job_id;
    const char *temp_dir;
    uint64_t total;       /* parts, for the length of their names */
    int64_t limit_ms;     /* it may run so long, MR_TIMEOUT; 0: as long as it likes */
    _Atomic bool *cancel; /* it ends when this is set */
    enum mr_err (*chunk)(struct mr_slice bytes, void *arg);
    void *arg;
};
MR_MUST_USE enum mr_err job_command_new(const struct job_command *options,
                                        struct mr_reduce_command **ret_command,
                                        struct mr_detail *detail);
MR_MUST_USE enum mr_err job_command_part(struct mr_reduce_command *command, uint64_t index,
                                         struct mr_slice bytes, struct mr_detail *detail);
MR_MUST_USE enum mr_err job_command_run(struct mr_reduce_command *command,
                                        struct mr_detail *detail);
void job_command_free(struct mr_reduce_command *command);
/* Folders that others have left here when they were killed. */
void job_command_clean(const char *temp_dir);

/* retry.c */
/* Of one that is retrying: the next step, unless one is under way. */
void job_retry_go_on(struct live *live);

/* reconcile.c */
void job_reconcile_look(struct queue *queue);
void job_seconds_free(struct live *live);
/* The part has its outcome: the other task of it is not wanted. */
void job_seconds_end(struct live *live, const struct mr_part_id *part);

/* govern.c */
void job_govern_begin(struct mr_job_service *s);
void job_govern_end(struct mr_job_service *s);

/* load.c */
void job_loads_look(struct mr_job_service *s); /* those that are slow are kept from being removed */

/* watch.c */
/* It has changed: by this row, or nobody knows how. */
void job_watch_row(struct mr_job_service *s, const struct mr_store_job *row);
void job_watch_changed(struct mr_job_service *s, const struct mr_uuid *uid);
void job_watch_look(struct mr_job_service *s); /* reads what is new */
void job_watch_init(struct mr_job_service *s);
void job_watch_close(struct mr_job_service *s); /* all of them end */
void job_watch_done(struct mr_job_service *s);

/* shown.c: a row with its definition, opened; in the arena. */
MR_MUST_USE enum mr_err job_show(const struct mr_store_job *row, struct mr_slice definition,
                                 int64_t now_ms, struct mr_arena *arena,
                                 struct mr_job_shown *ret_shown);

#endif
