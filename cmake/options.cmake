# SPDX-License-Identifier: Apache-2.0
#
# Switches of the build and the compiler flags they stand for. All code is compiled with the interface
# target mr_flags.

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(MR_SANITIZE none CACHE STRING "none, address (ASan + UBSan) or thread (TSan)")
set_property(CACHE MR_SANITIZE PROPERTY STRINGS none address thread)
set(MR_PLANT "" CACHE STRING "name of one planted bug, or empty")
option(MR_FUZZ "build the fuzzers with libFuzzer (needs clang)" OFF)
option(MR_SAN_FATAL "the first sanitizer report ends the program" ON)

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Assertions are ours and stay on in release, so NDEBUG is never set.
# Its symbols are names and lines, as in the sanitized builds: with all variables a fifth more time is spent on compiling.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g3")
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(mr_flags INTERFACE)
target_include_directories(mr_flags INTERFACE "${PROJECT_SOURCE_DIR}/include"
                                              "${PROJECT_SOURCE_DIR}/src")
target_compile_definitions(mr_flags INTERFACE _GNU_SOURCE MR_VERSION_TEXT="${PROJECT_VERSION}")
target_compile_options(mr_flags INTERFACE
    -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wvla -Wpointer-arith -Wwrite-strings -Wformat=2 -Wimplicit-fallthrough
    -fno-common -fno-omit-frame-pointer -fno-semantic-interposition)
target_link_libraries(mr_flags INTERFACE Threads::Threads m)

if(MR_SANITIZE STREQUAL "address")
    # ASan tells of what these two look for, and of more of it; with them a tenth more is compiled and run.
    set(san -fsanitize=address,undefined -fno-sanitize=null,object-size)
elseif(MR_SANITIZE STREQUAL "thread")
    set(san -fsanitize=thread)
elseif(NOT MR_SANITIZE STREQUAL "none")
    message(FATAL_ERROR "MR_SANITIZE is '${MR_SANITIZE}'; it must be none, address or thread")
endif()
if(MR_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "MR_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    list(APPEND san -fsanitize=fuzzer-no-link)
    # Fields that are left out are zero, also where names and places are mixed: gcc agrees.
    target_compile_options(mr_flags INTERFACE -Wno-missing-field-initializers)
endif()
if(san)
    if(MR_SAN_FATAL)
        list(APPEND san -fno-sanitize-recover=all)
    endif()
    # Sanitized code at -O0 is too slow for the campaigns; at -O1 its stack traces are still good.
    # Their reports need names and lines, and no more. Instrumentation makes gcc see uninitialised reads that are not there.
    set(san_compile -g1 -O1 $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_compile_options(mr_flags INTERFACE ${san} ${san_compile})
    target_link_options(mr_flags INTERFACE ${san})
    # 300 programs, each with everything in it: half of the time to link them is the linker's own. lld takes 0.17 s for one, gold
    # 0.25 s, the default 0.4 s.
    find_program(MR_LINKER NAMES ld.lld ld.gold)
    if(MR_LINKER AND NOT MR_FUZZ)
        string(REGEX REPLACE ".*ld\\." "" linker "${MR_LINKER}")
        target_link_options(mr_flags INTERFACE -fuse-ld=${linker})
    endif()
endif()

# Programs of which only what they call must be fast say so: they compile twice as fast.
target_compile_options(mr_flags INTERFACE $<$<BOOL:$<TARGET_PROPERTY:MR_UNOPTIMISED>>:-O0>)

# A planted bug is compiled only into the sources that name one, so that going from plant to plant
# builds little. Plants therefore stand in .c files, never in headers.
if(MR_PLANT AND NOT MR_PLANT MATCHES "^[A-Za-z0-9_]+$")
    message(FATAL_ERROR "MR_PLANT is '${MR_PLANT}'; it must be letters, digits and underscores")
endif()
string(TOUPPER "${MR_PLANT}" MR_PLANT_NAME)
function(plant_in sources)
    if(NOT MR_PLANT_NAME)
        return()
    endif()
    foreach(source IN LISTS sources)
        file(STRINGS "${source}" plants REGEX "MR_PLANT_" LIMIT_COUNT 1)
        if(plants)
            set_source_files_properties("${source}" PROPERTIES
                COMPILE_DEFINITIONS "MR_PLANT_${MR_PLANT_NAME}=1")
        endif()
    endforeach()
endfunction()
