/* SPDX-License-Identifier: Apache-2.0 */
/* The Redis engine: a broker whose data is Asynq's, on one server, Sentinel or Cluster. */
#ifndef MR_BROKER_REDIS_H
#define MR_BROKER_REDIS_H

#include "broker/broker.h"

struct mr_redis_broker_options {
    const char *url; /* redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster:// */
    const char *tls_ca, *tls_cert, *tls_key, *tls_name; /* PEM files; NULL: the system's, none */
    struct mr_slice namespace_; /* before every key: "NS:asynq:..."; empty: Asynq's own */
    size_t payload_max;         /* 0: MR_PAYLOAD_MAX */
    uint32_t wait_replicas;     /* what is acknowledged is on so many replicas */
    int64_t open_ms;            /* 0: 3 s; the first connection must be there by then */
    uint32_t archive_max; /* tasks that runs leave in the archive of a queue; 0: 9999, as Asynq */
    int64_t archive_ms;   /* ... and for how long; 0: 90 days */
    mr_refusal *refused;  /* what Redis says with a refusal; NULL: nobody is told */
    void *refused_arg;
};

/* MR_UNAVAILABLE with the reason when there is no connection in time; MR_INVALID for a URL that is none;
 * MR_DENIED; MR_UNSUPPORTED for a Redis that is too old, or of another kind. detail may be NULL. */
MR_MUST_USE enum mr_err mr_redis_broker_open(const struct mr_redis_broker_options *options,
                                             struct mr_broker **ret_broker,
                                             struct mr_detail *detail);

struct mr_redis_check {
    const char *url; /* as above, and so the following */
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
    struct mr_slice namespace_;
    enum mr_fsck_mode mode;
    mr_fsck_line *line; /* told of each finding; may be NULL */
    void *arg;
};
/* Checks, and with repair mends, what is in a Redis, also while it is in use. See mr_fsck. */
MR_MUST_USE enum mr_err mr_redis_fsck(const struct mr_redis_check *options,
                                      struct mr_fsck_report *ret_report, struct mr_detail *detail);

#endif
