/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the conformance suite on the Redis engine. MR_DEPLOYMENT says on what: one server (the default),
 * "unix", "tls", "sentinel" or "cluster". The servers are started once and emptied before each test.
 */
#include "broker/redis/redis.h"
#include "conform/conform.h"
#include "support/redis_rig.h"

struct far {
    struct redis_rig *rig;
    struct mr_redis_broker_options options;
};

static enum mr_err open_again(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    struct mr_detail detail = {.text = ""};
    enum mr_err err = mr_redis_broker_open(&far->options, ret_broker, &detail);
    if (err != MR_OK)
        print_error("%s: %s: %s\n", far->options.url, mr_err_name(err), detail.text);
    return err;
}

static enum mr_err open_new(void *arg, struct mr_broker **ret_broker)
{
    struct far *far = arg;
    RIG_ALL(far->rig, "FLUSHALL");
    return open_again(arg, ret_broker);
}

static void clean(void *arg)
{
    (void)arg; /* the next test empties the servers */
}

/* Deployments by name. */
static struct redis_rig *start(const char *name, struct mr_redis_broker_options *options)
{
    struct redis_rig_options secured = {
        .tls = true, .tls_clients = true, .user = "mill", .password = "secret"};
    bool tls = strcmp(name, "tls") == 0;
    /* What the suite is about is no failover, and a busy machine may stand still for long. */
    static const struct redis_rig_options lasting = {.down_after_ms = 60000};
    struct redis_rig *rig = strcmp(name, "sentinel") == 0 ? redis_rig_sentinel(&lasting)
                            : strcmp(name, "cluster") == 0
                                ? redis_rig_cluster(&lasting)
                                : redis_rig_standalone(tls ? &secured : NULL);
    options->url = strcmp(name, "unix") == 0 ? redis_rig_unix_url(rig) : redis_rig_url(rig);
    if (tls) {
        options->tls_ca = redis_rig_pem(rig, "ca.pem");
        options->tls_cert = redis_rig_pem(rig, "client.pem");
        options->tls_key = redis_rig_pem(rig, "client.key");
    }
    return rig;
}

int main(int argc, char **argv)
{
    static struct far far;
    static struct conform_engine engine = {
        .arg = &far,
        .open = open_new,
        .reopen = open_again,
        .clean = clean,
        .can_reopen = true,
        .has_inner = true,
        .payload_max = MR_PAYLOAD_MAX,
    };
    const char *deployment = getenv("MR_DEPLOYMENT");
    engine.name = deployment != NULL ? deployment : "redis";
    far.rig = start(engine.name, &far.options);
    int code = conform_main(&engine, argc, argv);
    redis_rig_stop(far.rig);
    return code;
}
