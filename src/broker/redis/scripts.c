/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua files as they are: lua/common.lua before each, in those that look lua/look.lua behind it, put
 * here by the assembler. */
#include "broker/redis/scripts.h"

#define SCRIPT_BYTES(file, shared)                                                                 \
    __asm__(".section .rodata\n"                                                                   \
            "script_" #file ":\n"                                                                  \
            ".incbin \"broker/redis/lua/common.lua\"\n" shared ".incbin \"broker/redis/lua/" #file \
            ".lua\"\n"                                                                             \
            ".byte 0\n"                                                                            \
            ".previous\n");                                                                        \
    extern const char script_##file[] __attribute__((visibility("hidden")));
#define WORK_BYTES(NAME, file) SCRIPT_BYTES(file, "")
#define LOOK_BYTES(NAME, file) SCRIPT_BYTES(file, ".incbin \"broker/redis/lua/look.lua\"\n")
WORK_SCRIPTS(WORK_BYTES)
LOOK_SCRIPTS(LOOK_BYTES)

const struct mr_redis_script scripts[SCRIPT_COUNT] = {
#define SCRIPT_ROW(NAME, file) {#file, script_##file},
    SCRIPT_MAP(SCRIPT_ROW)
#undef SCRIPT_ROW
};
