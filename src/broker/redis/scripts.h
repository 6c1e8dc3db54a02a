/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts of lua/: one row each, named as its file. */
#ifndef MR_BROKER_REDIS_SCRIPTS_H
#define MR_BROKER_REDIS_SCRIPTS_H

#include "redis/redis.h"

#define WORK_SCRIPTS(X)                                                                            \
    X(PUSH, push)                                                                                  \
    X(ENQUEUE, enqueue)                                                                            \
    X(FIND, find)                                                                                  \
    X(TAKE, take)                                                                                  \
    X(BEAT, beat)                                                                                  \
    X(BEGUN, begun)                                                                                \
    X(FINISH, finish)                                                                              \
    X(RECOVER, recover)                                                                            \
    X(SAY, say)                                                                                    \
    X(MEMBER, member)

/* With lua/look.lua behind lua/common.lua. */
#define LOOK_SCRIPTS(X)                                                                            \
    X(GET, get)                                                                                    \
    X(LIST, list)                                                                                  \
    X(CONTROL, control)                                                                            \
    X(QUEUE, queue)                                                                                \
    X(HISTORY, history)                                                                            \
    X(PAUSE, pause)                                                                                \
    X(REMOVE, remove)                                                                              \
    X(AWAIT, await)                                                                                \
    X(GATHER, gather)                                                                              \
    X(GATHERED, gathered)

#define SCRIPT_MAP(X) WORK_SCRIPTS(X) LOOK_SCRIPTS(X)

enum script {
#define SCRIPT_ENUM(NAME, file) SCRIPT_##NAME,
    SCRIPT_MAP(SCRIPT_ENUM)
#undef SCRIPT_ENUM
        SCRIPT_COUNT
};

extern const struct mr_redis_script scripts[SCRIPT_COUNT];

#endif
