/* SPDX-License-Identifier: Apache-2.0 */
/* How the server knows, and tells, whether it is well. */
#include "base/diag.h"
#include "cli/serve.h"

enum { SILENT_MS = 5000 }; /* an engine that says nothing for so long is not well */

static void note_disk(struct serve_health *health, bool full)
{
    if (atomic_exchange(&health->disk_full, full) == full)
        return;
    if (full)
        mr_diag(MR_DIAG_ERROR, "disk.full", "refusing=new-work");
    else
        mr_diag(MR_DIAG_INFO, "disk.room", "taking=new-work");
}

static void on_stats(struct mr_req *req)
{
    struct serve_health *health = req->arg;
    if (req->err == MR_OK) {
        atomic_store(&health->failed, health->req.stats.failed);
        note_disk(health, health->req.stats.disk_full);
        atomic_store(&health->answered_ns, mr_mono_now(mr_clock_system()).ns);
    }
    mr_req_done(req);
    atomic_store(&health->asked, false);
}

void serve_health_beat(struct serve_health *health)
{
    if (!health->broker || atomic_exchange(&health->asked, true))
        return;
    health->req =
        (struct mr_req_stats){.req = {.op = MR_OP_STATS, .done = on_stats, .arg = health}};
    mr_broker_submit(health->broker, &health->req.req);
}

void serve_health_open(struct serve_health *health, struct mr_broker *broker)
{
    health->broker = broker;
    atomic_store(&health->answered_ns, mr_mono_now(mr_clock_system()).ns); /* it has just opened */
    serve_health_beat(health);
}

void serve_health_set_ready(struct serve_health *health, bool ready)
{
    atomic_store(&health->ready, ready);
}

bool serve_health_answers(const struct serve_health *health, int64_t within_ms)
{
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    return now_ns - atomic_load(&health->answered_ns) < within_ms * MR_NS_PER_MS;
}

bool serve_health_failed(const struct serve_health *health)
{
    return atomic_load(&health->failed);
}

/* ---- routes --------------------------------------------------------------------------------- */

static void say(struct mr_http_request *request, int status, const char *text)
{
    mr_http_reply(request, status, "text/plain; charset=utf-8", mr_slice_str(text));
}

static void say_live(struct mr_http_request *request, void *arg)
{
    (void)arg;
    say(request, 200, "live\n");
}

/* Operations on timers are accepted also while their store is away, so this is no reason not to be ready. */
static void say_with_timers(struct mr_http_request *request, struct mr_timer_service *timers)
{
    struct mr_timer_health health;
    char text[sizeof health.store_text + 64];
    mr_timer_service_health(timers, &health);
    snprintf(text, sizeof text, "ready\n%s%s%s",
             health.store == MR_OK ? "" : "timers and jobs: ", health.store_text,
             health.store == MR_OK ? "" : "\n");
    say(request, 200, text);
}

static void say_ready(struct mr_http_request *request, void *arg)
{
    const struct serve_health *health = arg;
    struct mr_timer_service *timers = atomic_load(&health->timers);
    if (!atomic_load(&health->ready))
        say(request, 503, "not ready: starting or stopping\n");
    else if (atomic_load(&health->failed))
        say(request, 503, "not ready: the store failed\n");
    else if (!serve_health_answers(health, SILENT_MS))
        say(request, 503, "not ready: the engine does not answer\n");
    else if (atomic_load(&health->disk_full))
        say(request, 503, "not ready: disk full\n");
    else if (timers)
        say_with_timers(request, timers);
    else
        say(request, 200, "ready\n");
}

const struct mr_http_route serve_routes[] = {
    {"GET", "/livez", say_live, 0, NULL, NULL},
    {"GET", "/readyz", say_ready, 0, NULL, NULL},
};
const size_t serve_routes_n = CLI_LEN(serve_routes);
