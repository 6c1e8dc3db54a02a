/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua files as they are, with what they share before them, put here by the assembler. */
#include "broker/redis/scripts.h"

#define LUA(file) ".incbin \"broker/redis/lua/" file ".lua\"\n"
#define SCRIPT_BYTES(file, shared)                                                                 \
    __asm__(".section .rodata\n"                                                                   \
            "script_" #file ":\n" LUA("head") shared LUA(#file) ".byte 0\n"                        \
                                                                ".previous\n");                    \
    extern const char script_##file[] __attribute__((visibility("hidden")));
#define HEAD_BYTES(NAME, file)   SCRIPT_BYTES(file, "")
#define WORK_BYTES(NAME, file)   SCRIPT_BYTES(file, LUA("common"))
#define LIMIT_BYTES(NAME, file)  SCRIPT_BYTES(file, LUA("common") LUA("limit"))
#define RESULT_BYTES(NAME, file) SCRIPT_BYTES(file, LUA("common") LUA("results"))
#define LOOK_BYTES(NAME, file)   SCRIPT_BYTES(file, LUA("common") LUA("look"))
#define FSCK_BYTES(NAME, file)   SCRIPT_BYTES(file, LUA("common") LUA("look") LUA("fsck"))
HEAD_SCRIPTS(HEAD_BYTES)
WORK_SCRIPTS(WORK_BYTES)
LIMIT_SCRIPTS(LIMIT_BYTES)
RESULT_SCRIPTS(RESULT_BYTES)
LOOK_SCRIPTS(LOOK_BYTES)
FSCK_SCRIPTS(FSCK_BYTES)

const struct mr_redis_script scripts[SCRIPT_COUNT] = {
#define SCRIPT_ROW(NAME, file) {#file, script_##file},
    SCRIPT_MAP(SCRIPT_ROW)};
const struct mr_redis_script fsck_scripts[FSCK_SCRIPT_COUNT] = {FSCK_SCRIPTS(SCRIPT_ROW)};
#undef SCRIPT_ROW
