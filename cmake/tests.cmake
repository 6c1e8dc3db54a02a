# SPDX-License-Identifier: Apache-2.0
#
# Test programs, found by place:
#
#   tests/unit/test_*.c      one cmocka program each
#   tests/conform/*.c        the program conform
#   tests/model/*.c          the program model
#   tests/sim/*.c            the library mr_sim; main_X.c is the program millrace-X
#   tests/fuzz/fuzz_*.c      libFuzzer programs with MR_FUZZ, else replays of tests/fuzz/corpus/<name>/
#   tests/integration/*.sh   run with MILLRACE=<the program>
#
# Labels: sample (part of `make test`), threads (also run under TSan), integration, long.

pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
set(tests_dir "${PROJECT_SOURCE_DIR}/tests")

# link_what_is_used(TARGET FILES...): links the modules up to the highest one that the files include
# or whose public functions they call, so that a test of a low module builds without the high ones.
function(link_what_is_used target)
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
    set(top -1)
    foreach(file IN LISTS ARGN)
        file(READ "${file}" text)
        foreach(module IN LISTS MR_MODULES)
            if(MR_LEVEL_${module} GREATER top AND text MATCHES "#include \"${module}/")
                set(top ${MR_LEVEL_${module}})
            endif()
        endforeach()
        if(text MATCHES "mr_(client|worker|inspect)_[a-z]+\\(")
            set(top 9)
        endif()
        if(text MATCHES "#include \"sim/" AND TARGET mr_sim AND NOT target STREQUAL "mr_sim")
            target_link_libraries(${target} PUBLIC mr_sim)
        endif()
        if(text MATCHES "#include \"support/" AND TARGET mr_support)
            target_link_libraries(${target} PUBLIC mr_support)
        endif()
    endforeach()
    set(used ${MR_MODULES})
    list(REVERSE used)
    foreach(module IN LISTS used)
        if(top EQUAL -1 OR NOT MR_LEVEL_${module} GREATER top)
            target_link_libraries(${target} PUBLIC mr_${module})
        endif()
    endforeach()
    target_include_directories(${target} PRIVATE "${tests_dir}")
    target_link_libraries(${target} PUBLIC PkgConfig::CMOCKA mr_flags m)
endfunction()

# Helpers shared by several test programs.
file(GLOB support CONFIGURE_DEPENDS "${tests_dir}/support/*.c")
if(support)
    add_library(mr_support STATIC ${support})
    link_what_is_used(mr_support ${support})
endif()

# The simulator's parts.
file(GLOB sim CONFIGURE_DEPENDS "${tests_dir}/sim/*.c")
file(GLOB sim_headers CONFIGURE_DEPENDS "${tests_dir}/sim/*.h")
set(sim_mains ${sim})
list(FILTER sim EXCLUDE REGEX "/main_[^/]*\\.c$")
list(FILTER sim_mains INCLUDE REGEX "/main_[^/]*\\.c$")
if(sim)
    add_library(mr_sim STATIC ${sim})
    link_what_is_used(mr_sim ${sim} ${sim_headers})
endif()

# add_test_program(NAME SOURCES...): a program with what its sources use, in tests/ of the build.
function(add_test_program name)
    add_executable(${name} ${ARGN})
    link_what_is_used(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

# add_labelled_test(NAME LABELS COMMAND...)
function(add_labelled_test name labels)
    add_test(NAME ${name} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 300
        ENVIRONMENT "MR_SOURCE_DIR=${PROJECT_SOURCE_DIR};MR_BINARY_DIR=${PROJECT_BINARY_DIR}")
endfunction()

file(GLOB units CONFIGURE_DEPENDS "${tests_dir}/unit/test_*.c")
foreach(source IN LISTS units)
    get_filename_component(name "${source}" NAME_WE)
    add_test_program(${name} "${source}")
    set(labels sample unit)
    if(name MATCHES "^test_(chan|exec|embedded|worker|client)")
        list(APPEND labels threads)
    endif()
    add_labelled_test(${name} "${labels}" ${name})
endforeach()

foreach(program conform model)
    file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/${program}/*.c")
    if(sources)
        add_test_program(${program} ${sources})
        set(labels sample)
        if(program STREQUAL "conform")
            list(APPEND labels threads)
        else()
            list(APPEND labels campaign)
        endif()
        add_labelled_test(${program} "${labels}" ${program})
    endif()
endforeach()

foreach(source IN LISTS sim_mains)
    get_filename_component(name "${source}" NAME_WE)
    string(REPLACE "main_" "millrace-" program ${name})
    add_test_program(${program} "${source}")
    if(TARGET mr_sim)
        target_link_libraries(${program} PUBLIC mr_sim)
    endif()
    add_labelled_test(${program} "sample;campaign" ${program})
endforeach()

file(GLOB fuzzers CONFIGURE_DEPENDS "${tests_dir}/fuzz/fuzz_*.c")
file(GLOB replay_main CONFIGURE_DEPENDS "${tests_dir}/fuzz/replay_main.c")
foreach(source IN LISTS fuzzers)
    get_filename_component(name "${source}" NAME_WE)
    string(REPLACE "fuzz_" "" corpus ${name})
    if(MR_FUZZ)
        add_test_program(${name} "${source}")
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    elseif(replay_main)
        add_test_program(${name} "${source}" "${replay_main}")
        add_labelled_test(${name} "sample;fuzz" ${name} "${tests_dir}/fuzz/corpus/${corpus}")
    endif()
endforeach()

file(GLOB scripts CONFIGURE_DEPENDS "${tests_dir}/integration/*.sh")
foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    add_labelled_test(integration_${name} "integration" "${script}")
    if(MR_HAS_CLI)
        set_property(TEST integration_${name} APPEND PROPERTY
            ENVIRONMENT "MILLRACE=$<TARGET_FILE:millrace>")
    endif()
endforeach()
