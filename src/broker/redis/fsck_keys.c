/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/redis/fsck_keys.h"

#include <stddef.h>

const struct fsck_key fsck_queue_keys[] = {
    {"active", "list", true},        {"lease", "zset", true},
    {"pending", "list", true},       {"scheduled", "zset", true},
    {"retry", "zset", true},         {"archived", "zset", true},
    {"completed", "zset", true},     {"mr:order", "zset", true},
    {"mr:due", "zset", true},        {"mr:keep", "zset", true},
    {"mr:lease", "zset", true},      {"mr:held", "zset", true},
    {"groups", "set", false},        {"aggregation_sets", "zset", false},
    {"mr:await", "zset", false},     {"mr:counts", "hash", false},
    {"mr:epoch", "string", false},   {"mr:max", "string", false},
    {"mr:size", "zset", false},      {"mr:oldest", "zset", false},
    {"mr:newest", "zset", false},    {"mr:full", "string", false},
    {"mr:members", "string", false}, {"mr:part", "string", false},
    {"mr:open", "zset", false},      {"mr:topics", "set", false},
    {"mr:last", "string", false},    {"mr:set", "hash", false},
    {"mr:late", "zset", true},       {"mr:limits", "hash", false},
    {"mr:ran", "string", false},     {"mr:looked", "string", false},
    {"paused", "string", false},     {"processed", "string", false},
    {"failed", "string", false},     {NULL, NULL, false},
};

const struct fsck_key fsck_global_keys[] = {
    {"queues", "set", false},       {"servers", "zset", false},   {"workers", "zset", false},
    {"schedulers", "zset", false},  {"mr:results", "set", false}, {"mr:parts", "hash", false},
    {"mr:cluster", "hash", false},  {"mr:nodes", "zset", false},  {"mr:counts", "hash", false},
    {"mr:format", "string", false}, {NULL, NULL, false},
};
