# SPDX-License-Identifier: Apache-2.0
#
# One static library mr_<module> per folder of src/ named in src/levels.txt, linked to the modules of
# lower levels. Sets MR_MODULES (those with sources, lowest first), MR_LIB_OBJECTS and MR_HAS_CLI.

set(MR_MODULES)
set(MR_LIB_OBJECTS)
set(MR_HAS_CLI OFF)

file(STRINGS "${PROJECT_SOURCE_DIR}/src/levels.txt" rows REGEX "^[0-9]+ [a-z]+$")
foreach(row IN LISTS rows)
    string(REGEX REPLACE "^([0-9]+) [a-z]+$" "\\1" level "${row}")
    string(REGEX REPLACE "^[0-9]+ ([a-z]+)$" "\\1" module "${row}")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${module}/*.c")
    if(NOT sources)
        continue()
    endif()
    if(module STREQUAL "cli")
        set(MR_HAS_CLI ON)
        set(MR_CLI_SOURCES ${sources})
        continue()
    endif()
    add_library(mr_${module}_objects OBJECT ${sources})
    target_link_libraries(mr_${module}_objects PRIVATE mr_flags)
    add_library(mr_${module} STATIC $<TARGET_OBJECTS:mr_${module}_objects>)
    target_link_libraries(mr_${module} PUBLIC mr_flags)
    foreach(lower IN LISTS MR_MODULES)
        if(MR_LEVEL_${lower} LESS level)
            target_link_libraries(mr_${module} PUBLIC mr_${lower})
        endif()
    endforeach()
    set(MR_LEVEL_${module} ${level})
    list(APPEND MR_MODULES ${module})
    list(APPEND MR_LIB_OBJECTS $<TARGET_OBJECTS:mr_${module}_objects>)
endforeach()

# All module libraries, highest first, for whoever links everything.
add_library(mr_all INTERFACE)
set(top_first ${MR_MODULES})
list(REVERSE top_first)
foreach(module IN LISTS top_first)
    target_link_libraries(mr_all INTERFACE mr_${module})
endforeach()
target_link_libraries(mr_all INTERFACE mr_flags)
