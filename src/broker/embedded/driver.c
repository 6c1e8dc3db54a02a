/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with threads: one that owns it, one that syncs, one for slow work with files,
 * one that touches new memory. */
#include <stdlib.h>

#include "broker/embedded/engine.h"

struct driver {
    struct mr_broker broker; /* what callers see */
    struct mr_engine *engine;
    struct mr_exec_thread *sync_exec, *file_exec;
    struct mr_warm *warm;
    struct mr_gate *gate;
    struct mr_chan inbox; /* of the engine: requests and finished chores */
    pthread_t thread;
    struct mr_msg stop;
    bool stopping;
};

static struct mr_broker *inner(struct mr_broker *broker)
{
    return mr_engine_broker(mr_container(broker, struct driver, broker)->engine);
}

static void driver_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_broker *engine = inner(broker);
    engine->ops->submit(engine, req);
}

static void driver_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct mr_broker *engine = inner(broker);
    engine->ops->begun(engine, slot, epoch);
}

static enum mr_err driver_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    struct mr_broker *engine = inner(broker);
    return engine->ops->lease_open(engine, lease);
}

/* Everything asked for is answered, everything written is durable, no chore is under way. */
static bool quiet(struct mr_engine *engine)
{
    bool failed = engine_failure(engine) != MR_OK;
    return mr_log_idle(engine->log) && (engine->snapshot == NULL || snapshot_idle(engine)) &&
           !engine->spare.busy && engine->backup == NULL &&
           (failed || mr_list_empty(&engine->backups)) &&
           (failed || (mr_list_empty(&engine->waiting) && mr_list_empty(&engine->stalled)));
}

static void *driver_run(void *arg)
{
    struct driver *driver = arg;
    struct mr_engine *engine = driver->engine;
    while (!driver->stopping || !quiet(engine)) {
        mr_engine_turn(engine);
        mr_mono next = mr_engine_next(engine), now = mr_mono_now(engine->clock);
        bool soon = next.ns <= now.ns || (driver->stopping && quiet(engine));
        mr_chan_wait(&driver->inbox, soon                   ? 0
                                     : next.ns == INT64_MAX ? INT64_MAX
                                                            : next.ns - now.ns);
    }
    return NULL;
}

static void driver_stop(struct mr_msg *msg, void *receiver)
{
    struct driver *driver = mr_container(msg, struct driver, stop);
    ((struct mr_engine *)receiver)->closing = true;
    driver->stopping = true;
}

static void driver_free(struct driver *driver)
{
    mr_exec_thread_free(driver->sync_exec);
    mr_exec_thread_free(driver->file_exec);
    mr_warm_free(driver->warm);
    mr_gate_free(driver->gate);
    free(driver);
}

static void driver_close(struct mr_broker *broker)
{
    struct driver *driver = mr_container(broker, struct driver, broker);
    driver->stop.deliver = driver_stop;
    mr_chan_send(&driver->inbox, &driver->stop);
    mr_thread_join(driver->thread);
    mr_engine_finish(driver->engine);
    mr_engine_abandon(driver->engine);
    driver_free(driver);
}

static const struct mr_broker_ops driver_ops = {
    .submit = driver_submit,
    .begun = driver_begun,
    .lease_open = driver_lease_open,
    .close = driver_close,
    .in_process = true,
};

static enum mr_err open_engine(struct driver *driver, const struct mr_embedded_options *options,
                               struct mr_detail *detail)
{
    struct mr_engine_options full = {.base = *options};
    full.base.fs = options->fs ? options->fs : mr_fs_system();
    full.base.clock = options->clock ? options->clock : mr_clock_system();
    full.threaded = true;
    mr_rand_seed_system(&full.rand);
    mr_chan_init(&driver->inbox);
    full.inbox = &driver->inbox;
    MR_TRY(mr_exec_thread_new("mr-sync", false, &driver->inbox, &driver->sync_exec));
    MR_TRY(mr_exec_thread_new("mr-files", true, &driver->inbox, &driver->file_exec));
    MR_TRY(mr_warm_new(&driver->warm));
    full.warm = driver->warm;
    MR_TRY(mr_gate_new(full.base.clock, &driver->gate));
    full.gate = driver->gate;
    full.sync_exec = mr_exec_thread_exec(driver->sync_exec);
    full.file_exec = mr_exec_thread_exec(driver->file_exec);
    return mr_engine_open(&full, &driver->engine, detail);
}

enum mr_err mr_embedded_open(const struct mr_embedded_options *options,
                             struct mr_broker **ret_broker, struct mr_detail *detail)
{
    struct driver *driver = calloc(1, sizeof *driver);
    if (driver == NULL)
        return MR_NOMEM;
    driver->broker.ops = &driver_ops;
    enum mr_err err = open_engine(driver, options, detail);
    if (err == MR_OK) {
        err = mr_thread_start(&driver->thread, "mr-engine", driver_run, driver);
        if (err != MR_OK)
            mr_engine_abandon(driver->engine);
    }
    if (err != MR_OK) {
        driver_free(driver);
        return err;
    }
    *ret_broker = &driver->broker;
    return MR_OK;
}

struct mr_gate *mr_embedded_gate(const struct mr_broker *broker)
{
    return broker->ops == &driver_ops ? mr_container(broker, struct driver, broker)->gate : NULL;
}

bool mr_embedded_home(const struct mr_broker *broker, char text[MR_UUID_TEXT_LEN + 1])
{
    if (broker->ops != &driver_ops)
        return false;
    /* It is set before the open is answered, and never changes. */
    mr_uuid_format(&mr_container(broker, struct driver, broker)->engine->store_id, text);
    return true;
}
