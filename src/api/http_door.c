/* SPDX-License-Identifier: Apache-2.0 */
/* Who may come by a route. */
#include "api/http_door.h"

#include <stdio.h>
#include <strings.h>

#include "base/text.h"

enum { STATUS_UNKNOWN_CALLER = 401 };

const struct http_row *http_row_of(const struct mr_http_request *request)
{
    return mr_http_route_data(request);
}

/* What a Host header says: this machine by an address, or by the name that every machine has for itself. */
static bool is_this_machine(const char *host)
{
    char text[MR_HOST_MAX + 16], name[MR_HOST_MAX + 1];
    const char *end = host[0] == '[' ? strchr(host, ']') : host;
    struct mr_addr addr;
    uint16_t port;
    size_t n;
    if (end == NULL)
        return false;
    (void)snprintf(text, sizeof text, "%s%s", host, strchr(end, ':') == NULL ? ":80" : "");
    if (mr_host_parse(text, name, &port) != MR_OK)
        return false;
    return strcasecmp(name, "localhost") == 0 ||
           (mr_host_resolve(name, port, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL) == MR_OK &&
            mr_addr_is_loopback(&addr));
}

/* A browser sends along from whose page a request comes. Where no token is needed, a page of somebody else must not act by being
 * looked at on this machine; nor by a name of its own that it lets stand for this machine for a while. */
static bool is_of_other_page(const struct http_door *door, const struct mr_http_request *request)
{
    const char *origin = mr_http_header(request, "Origin"), *host = mr_http_header(request, "Host");
    const char *authority = origin != NULL ? strstr(origin, "://") : NULL;
    if (origin != NULL &&
        (authority == NULL || host == NULL || strcasecmp(authority + strlen("://"), host) != 0))
        return true;
    return door->access->mode == MR_ACCESS_LOOPBACK && host != NULL && !is_this_machine(host);
}

bool http_door_admit(const struct http_door *door, struct mr_http_request *request,
                     struct mr_token *ret_token)
{
    const struct http_row *row = http_row_of(request);
    struct mr_detail detail = {.text = ""};
    const char *authorization = mr_http_header(request, "Authorization");
    enum mr_verdict verdict =
        mr_access_check(door->access, mr_slice_str(authorization != NULL ? authorization : ""),
                        mr_http_is_loopback(request), row->roles, ret_token, &detail);
    if (verdict == MR_ALLOWED && ret_token->id[0] == '\0' && is_of_other_page(door, request)) {
        verdict = MR_NOT_ALLOWED;
        mr_detail_set(&detail, "Origin or Host is of another server: send a token, or ask this "
                               "machine by its address");
    }
    if (verdict == MR_NOT_ALLOWED && row->act != NULL)
        http_door_audit(door, request, ret_token, mr_http_parameter(request), MR_DENIED);
    if (verdict == MR_UNKNOWN_CALLER)
        mr_http_refuse(request, STATUS_UNKNOWN_CALLER, MR_DENIED, detail.text);
    else if (verdict != MR_ALLOWED)
        mr_http_fail(request, MR_DENIED, detail.text);
    return verdict == MR_ALLOWED;
}

/* NULL rate: there is no limit. */
static enum mr_err rate_of(const struct http_door *door, const struct mr_http_request *request,
                           const struct mr_token *token, mr_mono now, struct rate **ret_rate,
                           struct mr_detail *detail)
{
    char caller[MR_ADDR_TEXT_MAX];
    *ret_rate = NULL;
    if (door->rates == NULL)
        return MR_OK;
    mr_http_peer(request, caller);
    char *port = strrchr(caller, ':');
    if (port != NULL)
        *port = '\0';
    return http_rates_of(door->rates, token->id[0] != '\0' ? token->id : caller, now, ret_rate,
                         detail);
}

/* What became of n of them; when they may not go now, the answer will say when. */
static enum mr_err paid(struct mr_http_request *request, const struct rate *rate, size_t n,
                        enum mr_err err)
{
    if (err != MR_OK)
        mr_http_retry_after(request, rate_wait_s(rate, n));
    return err;
}

enum mr_err http_door_pay(const struct http_door *door, struct mr_http_request *request,
                          const struct mr_token *token, struct mr_detail *detail)
{
    struct rate *rate;
    mr_mono now = mr_mono_now(mr_clock_system());
    if (!http_row_of(request)->counts)
        return MR_OK;
    MR_TRY(rate_of(door, request, token, now, &rate, detail));
    return rate != NULL ? paid(request, rate, 1, rate_pay(rate, now, 1, detail)) : MR_OK;
}

enum mr_err http_door_pay_more(const struct http_door *door, struct mr_http_request *request,
                               const struct mr_token *token, size_t n, struct mr_detail *detail)
{
    struct rate *rate;
    mr_mono now = mr_mono_now(mr_clock_system());
    MR_TRY(rate_of(door, request, token, now, &rate, detail));
    return rate != NULL ? paid(request, rate, n + 1, rate_pay_more(rate, now, n, detail)) : MR_OK;
}

void http_door_audit(const struct http_door *door, const struct mr_http_request *request,
                     const struct mr_token *token, struct mr_slice about, enum mr_err err)
{
    char peer[MR_ADDR_TEXT_MAX];
    mr_http_peer(request, peer);
    if (door->audit != NULL)
        door->audit(&(struct mr_audit){.token = token->id,
                                       .peer = peer,
                                       .method = http_row_of(request)->act,
                                       .about = about,
                                       .err = err},
                    door->audit_arg);
}

uint64_t http_last_event_id(const struct mr_http_request *request)
{
    const char *text = mr_http_header(request, "Last-Event-ID");
    int64_t number;
    return text != NULL && mr_parse_int64(text, &number) == MR_OK && number > 0 ? (uint64_t)number
                                                                                : 0;
}

void http_reply(struct mr_http_request *request, int status, struct jw *jw)
{
    enum mr_err err = jw->err;
    if (err == MR_OK)
        err = mr_buf_append(&jw->buf, "\n", 1);
    if (err == MR_OK)
        mr_http_reply(request, status, HTTP_JSON, mr_buf_slice(&jw->buf));
    else
        mr_http_fail(request, err, mr_err_text(err));
    mr_buf_done(&jw->buf);
}
