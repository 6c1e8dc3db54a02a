/* SPDX-License-Identifier: Apache-2.0 */
/* How a nameserver tells that it is well: over HTTP as serve does, and by the standard health service of gRPC. */
#include "cli/nameserver.h"
#include "grpc/health/v1/health.pb-c.h"

/* ---- HTTP ------------------------------------------------------------------------------------- */

static void say(struct mr_http_request *request, int status, const char *text)
{
    mr_http_reply(request, status, "text/plain; charset=utf-8", mr_slice_str(text));
}

static void say_live(struct mr_http_request *request, void *arg)
{
    (void)arg;
    say(request, 200, "live\n");
}

static void say_ready(struct mr_http_request *request, void *arg)
{
    const struct names_health *health = arg;
    if (atomic_load(&health->is_ready))
        say(request, 200, "ready\n");
    else
        say(request, 503, "not ready: starting or stopping\n");
}

const struct mr_http_route names_routes[] = {
    {"GET", "/livez", say_live, 0, NULL, NULL},
    {"GET", "/readyz", say_ready, 0, NULL, NULL},
};
const size_t names_routes_n = CLI_LEN(names_routes);

/* ---- gRPC ------------------------------------------------------------------------------------- */

static void check_message(struct mr_call *call, struct mr_slice bytes)
{
    Grpc__Health__V1__HealthCheckRequest *in =
        grpc__health__v1__health_check_request__unpack(NULL, bytes.len, bytes.data);
    Grpc__Health__V1__HealthCheckResponse out = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    uint8_t packed[16];
    enum mr_err err = in == NULL ? MR_INVALID : MR_OK;
    if (err == MR_OK && *in->service && strcmp(in->service, "millrace.v1.Names") != 0)
        err = MR_NOT_FOUND;
    if (in != NULL)
        grpc__health__v1__health_check_request__free_unpacked(in, NULL);
    out.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    size_t len = grpc__health__v1__health_check_response__get_packed_size(&out);
    mr_assert(len <= sizeof packed);
    grpc__health__v1__health_check_response__pack(&out, packed);
    if (err == MR_OK)
        err = mr_call_send(call, mr_slice_make(packed, len));
    if (err != MR_CLOSED)
        mr_call_end(call, mr_err_grpc_status(err),
                    mr_slice_str(err == MR_OK ? "" : mr_err_text(err)));
}

static void check_half_closed(struct mr_call *call)
{
    mr_call_end(call, MR_RPC_INVALID, MR_SLICE_LIT("no message"));
}

static void check_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call, (void)status, (void)text;
}

static const struct mr_call_ops check_ops = {
    .message = check_message, .half_closed = check_half_closed, .closed = check_closed};

/* For everybody: it says nothing but that somebody is there. */
static void begin_check(struct mr_call *call, void *arg)
{
    mr_call_set(call, &check_ops, arg);
}

const struct mr_rpc_method *names_methods(size_t *ret_n)
{
    static struct mr_rpc_method methods[NAMES_METHODS_MAX];
    size_t n;
    const struct mr_rpc_method *ours = mr_names_methods(&n);
    mr_assert(n < NAMES_METHODS_MAX);
    memcpy(methods, ours, n * sizeof *ours);
    methods[n++] = (struct mr_rpc_method){"/grpc.health.v1.Health/Check", begin_check};
    *ret_n = n;
    return methods;
}
