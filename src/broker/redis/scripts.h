/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts of lua/: one row each, named as its file. */
#ifndef MR_BROKER_REDIS_SCRIPTS_H
#define MR_BROKER_REDIS_SCRIPTS_H

#include "redis/redis.h"

/* With lua/head.lua before them alone: those that are called for nearly every task. */
#define HEAD_SCRIPTS(X)                                                                            \
    X(PUSH, push)                                                                                  \
    X(DONE, done)                                                                                  \
    X(IDLE, idle)                                                                                  \
    X(BEAT, beat)                                                                                  \
    X(BEGUN, begun)                                                                                \
    X(MINE, mine)                                                                                  \
    X(SAY, say)                                                                                    \
    X(MEMBER, member)                                                                              \
    X(EXHIBIT, exhibit)                                                                            \
    X(EXHIBITED, exhibited)                                                                        \
    X(PARTS, parts)                                                                                \
    X(LEAD, lead)                                                                                  \
    X(ASSIGN, assign)                                                                              \
    X(FIT, fit)                                                                                    \
    X(CLUSTER, cluster)

/* With lua/common.lua behind that. */
#define WORK_SCRIPTS(X)                                                                            \
    X(ENQUEUE, enqueue)                                                                            \
    X(CARRY, carry)                                                                                \
    X(FIND, find)                                                                                  \
    X(COMMIT, commit)

/* And with lua/limit.lua behind that. */
#define LIMIT_SCRIPTS(X)                                                                           \
    X(TAKE, take)                                                                                  \
    X(SET_LIMIT, set_limit)                                                                        \
    X(LIMITS, limits)

/* And with lua/results.lua behind that. */
#define RESULT_SCRIPTS(X)                                                                          \
    X(FINISH, finish)                                                                              \
    X(RECOVER, recover)                                                                            \
    X(TOPICS, topics)

/* With lua/common.lua and lua/look.lua. */
#define LOOK_SCRIPTS(X)                                                                            \
    X(GET, get)                                                                                    \
    X(LIST, list)                                                                                  \
    X(CONTROL, control)                                                                            \
    X(QUEUE, queue)                                                                                \
    X(HISTORY, history)                                                                            \
    X(SET, set)                                                                                    \
    X(REMOVE, remove)                                                                              \
    X(AWAIT, await)                                                                                \
    X(GATHER, gather)                                                                              \
    X(GATHERED, gathered)

/* And with lua/fsck.lua behind that: for fsck alone. */
#define FSCK_SCRIPTS(X)                                                                            \
    X(FSCK_PLACES, fsck_places)                                                                    \
    X(FSCK_TASKS, fsck_tasks)                                                                      \
    X(FSCK_LOCKS, fsck_locks)                                                                      \
    X(FSCK_GROUPS, fsck_groups)

#define SCRIPT_MAP(X)                                                                              \
    HEAD_SCRIPTS(X) WORK_SCRIPTS(X) LIMIT_SCRIPTS(X) RESULT_SCRIPTS(X) LOOK_SCRIPTS(X)

enum script {
#define SCRIPT_ENUM(NAME, file) SCRIPT_##NAME,
    SCRIPT_MAP(SCRIPT_ENUM)
#undef SCRIPT_ENUM
        SCRIPT_COUNT
};

extern const struct mr_redis_script scripts[SCRIPT_COUNT];

enum fsck_script {
#define SCRIPT_ENUM(NAME, file) NAME,
    FSCK_SCRIPTS(SCRIPT_ENUM)
#undef SCRIPT_ENUM
        FSCK_SCRIPT_COUNT
};

extern const struct mr_redis_script fsck_scripts[FSCK_SCRIPT_COUNT];

#endif
