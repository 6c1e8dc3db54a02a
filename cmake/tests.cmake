# SPDX-License-Identifier: Apache-2.0
#
# Test programs, found by place:
#
#   tests/unit/test_*.c      one cmocka program each
#   tests/conform/*.c        the conformance suite; main_X.c is the program conform_X for engine X
#   tests/store/*.c          the suite of stores; main_X.c is the program store_X for engine X
#   tests/accept/*.c         the program accept: the acceptance tests, the engine is its argument
#   tests/model/*.c          the program model
#   tests/timers/*.c         the program timers: the acceptance tests of timers
#   tests/jobs/*.c           the program jobs: the acceptance tests of jobs
#   tests/timer/*.c          the program rules: time rules against a brute-force oracle
#   tests/sim/*.c            the library mr_sim; main_X.c is the program millrace-X
#   tests/fuzz/fuzz_*.c      libFuzzer programs with MR_FUZZ, else replays of tests/fuzz/corpus/<name>/
#   tests/integration/*.sh   run with MILLRACE=<the program>
#   tests/interop/*.sh       the same; standard gRPC clients of other languages
#
# Labels: sample (part of `make test`), threads (also run under TSan), campaign (takes its size from
# the environment), integration (on the release binary), alloc (on the release build, too), long (part of
# `make test-long`).

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
        if(text MATCHES "mr_(client|worker|enqueue|fsck|queue|control|stats)[a-z_]*\\(")
            set(top 9)
        endif()
        if(text MATCHES "#include <libpq-fe.h>")
            target_link_libraries(${target} PUBLIC PkgConfig::libpq)
        endif()
        if(text MATCHES "#include \"sim/" AND TARGET mr_sim AND NOT target STREQUAL "mr_sim")
            target_link_libraries(${target} PUBLIC mr_sim)
        endif()
        if(text MATCHES "#include \"support/" AND TARGET mr_support AND NOT target STREQUAL "mr_support")
            target_link_libraries(${target} PUBLIC mr_support)
        endif()
        if(text MATCHES "#include \"cli/[a-z_/]+\\.c\"" AND TARGET PkgConfig::JANSSON)
            target_link_libraries(${target} PUBLIC PkgConfig::JANSSON) # it is a part of the command line
        elseif(text MATCHES "#include \"cli/" AND TARGET mr_cli_objects)
            target_link_libraries(${target} PUBLIC mr_cli_objects)
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
    target_link_libraries(${target} PUBLIC PkgConfig::CMOCKA mr_flags)
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
    if(name MATCHES "^(test_|conform_|accept|timers|jobs|names)")
        set_target_properties(${name} PROPERTIES MR_UNOPTIMISED ON)
    endif()
    set_target_properties(${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

# add_suite(FOLDER PREFIX): a suite whose files are compiled once; main_X.c of the folder is the program PREFIX_X, which
# runs it on X. Their names are in ${FOLDER}_programs.
function(add_suite folder prefix)
    file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/${folder}/*.[ch]")
    set(mains ${sources})
    list(FILTER sources EXCLUDE REGEX "/main_[^/]*\\.c$")
    list(FILTER mains INCLUDE REGEX "/main_[^/]*\\.c$")
    add_library(suite_${folder} OBJECT ${sources})
    link_what_is_used(suite_${folder} ${sources})
    if(folder STREQUAL "conform")
        set_target_properties(suite_${folder} PROPERTIES MR_UNOPTIMISED ON)
    endif()
    foreach(main IN LISTS mains)
        get_filename_component(name "${main}" NAME_WE)
        string(REPLACE "main_" "${prefix}_" name "${name}")
        add_test_program(${name} "${main}")
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:suite_${folder}>)
        link_what_is_used(${name} ${sources})
        list(APPEND programs ${name})
    endforeach()
    set(${folder}_programs ${programs} PARENT_SCOPE)
endfunction()

# Sanitizers stop at the first report and say where. With 256 MB of freed memory kept in each process a sixth of the time
# of the simulator was spent on pages.
set(san_env "UBSAN_OPTIONS=print_stacktrace=1" "TSAN_OPTIONS=halt_on_error=1"
    "ASAN_OPTIONS=detect_stack_use_after_return=1:quarantine_size_mb=16")

# Of the whole suite under TSan, which is run by campaigns only, some of it takes ten times as long.
set(test_timeout 300)
if(MR_SANITIZE STREQUAL "thread")
    set(test_timeout 1800)
endif()

# add_labelled_test(NAME LABELS COMMAND...)
function(add_labelled_test name labels)
    add_test(NAME ${name} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${test_timeout})
    set_property(TEST ${name} PROPERTY ENVIRONMENT ${san_env}
        "MR_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "MR_BINARY_DIR=${PROJECT_BINARY_DIR}"
        "MILLRACE_LOG_SEGMENT=4MiB") # tests make thousands of stores: 64 MiB of zeroes for each were a fifth of all work
    if(MR_HAS_CLI)
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "MILLRACE=$<TARGET_FILE:millrace>")
    endif()
    # What lasts is begun first, so that nothing waits for it alone in the end.
    if(name MATCHES "^(conform_|timers_|jobs_|names_|store_|millrace-(sim|soak|bitrot)|test_(store_|rpc_greedy|redis_(outage|work|sentinel)))")
        set_tests_properties(${name} PROPERTIES COST 300)
    endif()
    if(name MATCHES "^jobs_shared_|^timers_[123]$|^conform_(remote|many)$")
        set_tests_properties(${name} PROPERTIES COST 600)
    endif()
    if("threads" IN_LIST labels)
        add_dependencies(threads_tests ${name})
    endif()
    if("alloc" IN_LIST labels)
        add_dependencies(release_tests ${name})
    endif()
endfunction()

# add_long(NAME SIZE COMMAND...): a test of another size for `make test-long`, given as a list of variables.
function(add_long name size)
    add_labelled_test(${name}_long "long" ${ARGN})
    set_property(TEST ${name}_long APPEND PROPERTY ENVIRONMENT ${size} MR_PATIENCE=4)
    set_tests_properties(${name}_long PROPERTIES TIMEOUT 4500)
    # What mostly waits, up to half an hour, is begun first: so there is always something beside it that computes, and nothing
    # is waited for alone in the end. Then the longest that computes.
    if(name MATCHES "^(names_[12]|timers_[13])$")
        set_tests_properties(${name}_long PROPERTIES COST 3000)
    elseif(name STREQUAL "millrace-sim")
        set_tests_properties(${name}_long PROPERTIES COST 2000)
    endif()
endfunction()

# add_campaign(PROGRAM SAMPLE LONG): the same program at two sizes.
function(add_campaign program sample long)
    add_labelled_test(${program} "sample;campaign" ${program})
    set_property(TEST ${program} APPEND PROPERTY ENVIRONMENT ${sample})
    add_long(${program} "${long}" ${program})
endfunction()

add_custom_target(threads_tests)
# What `make test` runs of the release build: the product, and these.
add_custom_target(release_tests)
add_dependencies(release_tests product ${MR_EXAMPLES} peer_millrace)
add_custom_target(fuzzers)
# What is judged by the clock, with nothing beside it.
add_custom_target(time_tests)
add_dependencies(time_tests product)

file(GLOB units CONFIGURE_DEPENDS "${tests_dir}/unit/test_*.c")
foreach(source IN LISTS units)
    get_filename_component(name "${source}" NAME_WE)
    set(more)
    if(name STREQUAL "test_timer_alloc")
        set(more "${tests_dir}/timers/bench.c" "${tests_dir}/timers/bench.h")
    endif()
    add_test_program(${name} "${source}" ${more})
    set(labels sample unit)
    # Events are made on one loop, and those of 12 000 queues take a minute under TSan.
    if(name MATCHES "^test_(chan|exec|desk|embedded|worker|client|http|api|rpc|remote|many|redis|timer_zone|names_(service|client))"
        AND NOT name STREQUAL "test_api_events")
        list(APPEND labels threads)
    endif()
    # Sentinels and Clusters take their time: once is enough for what they do in any build.
    if(name MATCHES "^test_redis_(rig|sentinel|cluster)$")
        list(REMOVE_ITEM labels unit)
    endif()
    # Nor is it its threads that one is about, which takes longest there; the whole suite is a campaign.
    if(name MATCHES "^test_redis_(rig|slot|parts|look|groups|fsck)$|^test_(rpc_greedy|http_scan)$")
        list(REMOVE_ITEM labels threads)
    endif()
    # What replaces the allocator works only where no sanitizer does.
    file(READ "${source}" text)
    if(text MATCHES "failing_alloc" OR name MATCHES "_alloc$")
        list(APPEND labels alloc)
    endif()
    add_labelled_test(${name} "${labels}" ${name})
endforeach()

add_long(test_redis_fsck "MR_DEPLOYMENT=cluster" test_redis_fsck)
add_long(test_redis_outage "MR_DEPLOYMENT=cluster" test_redis_outage)
add_long(test_redis_results "MR_DEPLOYMENT=cluster" test_redis_results)

# Sizes of the campaigns: in `make test`, and in `make test-long`.
set(sample_model MR_STEPS=20000 MR_SEEDS=2)
set(long_model MR_STEPS=100000 MR_SEEDS=20)
set(sample_rules MR_EXPRESSIONS=40 MR_ZONES=4)
set(long_rules MR_EXPRESSIONS=10000 MR_ZONES=20)
set(sample_store MR_STEPS=150 MR_SEEDS=1 MR_STORE_KILLS=3 MR_TIMERS=5000
    MR_PARTS=10000)
set(sample_store_postgres MR_STEPS=80 MR_SEEDS=1 MR_STORE_KILLS=2 MR_TIMERS=5000
    MR_PARTS=10000) # a process between, and files that are synced; and under TSan
set(long_store MR_STEPS=2000 MR_SEEDS=10 MR_STORE_KILLS=100 MR_TIMERS=1000000
    MR_PARTS=1000000 MR_DURABLE=1)
set(sample_sim MR_SEEDS=100)
set(long_sim MR_SEEDS=10000)
set(sample_crash MR_IMAGES=600)
set(long_crash MR_IMAGES=20000)
set(sample_bitrot MR_FLIPS=600)
set(long_bitrot MR_FLIPS=10000)
set(sample_io MR_FAILS=40)
set(long_io MR_WORKLOADS=1) # each of its calls
set(sample_kill MR_KILLS=5)
set(long_kill MR_KILLS=200)
set(sample_redis MR_FAILOVERS=1 MR_MOVES=1)
set(long_redis MR_FAILOVERS=20 MR_MOVES=20 MR_RISKY=1)
set(sample_soak MR_SOAK_SECONDS=5)
set(long_soak MR_SOAK_SECONDS=120) # ten minutes of it are `make soak`

add_suite(conform conform)
foreach(name IN LISTS conform_programs)
    add_labelled_test(${name} "sample" ${name})
    if(name MATCHES "^conform_(remote|redis)$") # a fifth of what is only many; on the folder all of it
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT MR_CONFORM_PART=5)
        add_long(${name} "" ${name})
    endif()
    if(name STREQUAL "conform_many") # two of what conform_remote has: whole in `make test-long`
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT MR_QUICK=1 MR_SERVERS=beside)
        add_long(${name} "MR_SERVERS=one" ${name})
        add_long(${name}_beside "MR_SERVERS=beside" ${name})
    endif()
    if(NOT name STREQUAL "conform_embedded") # the remote one has it behind its server
        add_labelled_test(${name}_threads "" ${name})
        set_tests_properties(${name}_threads PROPERTIES LABELS threads)
        set_property(TEST ${name}_threads APPEND PROPERTY ENVIRONMENT MR_QUICK=1)
        add_dependencies(threads_tests ${name})
    endif()
endforeach()

add_suite(store store)
foreach(name IN LISTS store_programs)
    set(sample "${sample_store}")
    if(DEFINED sample_${name})
        set(sample "${sample_${name}}")
    endif()
    add_campaign(${name} "${sample}" "${long_store}")
    foreach(what costs_at_most finished_segments_cost big_job_is_retried)
        add_labelled_test(${name}_${what}_alone "alone" ${name} "*${what}*")
        set_property(TEST ${name}_${what}_alone APPEND PROPERTY ENVIRONMENT ${long_store} MR_ALONE=1)
    endforeach()
    add_dependencies(time_tests ${name})
    if(name STREQUAL "store_sqlite") # what threads do is the same on both
        add_labelled_test(${name}_threads "" ${name})
        set_tests_properties(${name}_threads PROPERTIES LABELS threads)
        set_property(TEST ${name}_threads APPEND PROPERTY ENVIRONMENT ${sample_store_postgres})
        add_dependencies(threads_tests ${name})
    endif()
endforeach()

# conform_redis is on one server; the other deployments have a few themes here, all of them in
# `make test-long`.
foreach(deployment unix tls sentinel cluster)
    add_labelled_test(conform_redis_${deployment} "sample" conform_redis)
    set_property(TEST conform_redis_${deployment} APPEND PROPERTY ENVIRONMENT
        MR_DEPLOYMENT=${deployment} MR_QUICK=1)
    add_long(conform_redis_${deployment} MR_DEPLOYMENT=${deployment} conform_redis)
endforeach()

# Real processes and their deaths; small here, full in `make test-long`.
file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/accept/*.[ch]")
add_test_program(accept ${sources})
add_dependencies(release_tests accept) # the soak below
if(MR_HAS_CLI)
    add_dependencies(accept millrace)
endif()
# add_share(NAME SHARE PROGRAM...): the tests of this share of a program, of the small size.
function(add_share name share)
    add_labelled_test(${name} "sample" ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT MR_SHARE=${share})
    set_tests_properties(${name} PROPERTIES COST 500)
endfunction()
foreach(share 1 2 3) # they mostly wait: so beside each other
    add_share(accept_embedded_${share} ${share}/3 accept embedded)
    foreach(engine embedded remote redis)
        add_long(accept_${engine}_${share} "MR_ACCEPT=full;MR_SHARE=${share}/3" accept ${engine})
    endforeach()
endforeach()
# Every test is on two engines in `make test`, and on all three in `make test-long`.
foreach(share 1 3)
    add_share(accept_remote_${share} ${share}/4 accept remote)
endforeach()
foreach(share 2 4)
    add_share(accept_redis_${share} ${share}/4 accept redis)
endforeach()

# Some seconds of random faults, begun first, since they mostly wait: beside the integration tests.
foreach(engine remote redis)
    add_labelled_test(soak_${engine} "integration" accept ${engine} "*_127_masters_*")
    set_property(TEST soak_${engine} APPEND PROPERTY ENVIRONMENT MR_SOAK_SECONDS=15)
    set_tests_properties(soak_${engine} PROPERTIES COST 1000)
    add_long(soak_${engine} "MR_SOAK_SECONDS=120" accept ${engine} "*_127_masters_*")
endforeach()

# The acceptance tests of timers, in shares as above.
file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/timers/*.[ch]")
add_test_program(timers ${sources})
if(MR_HAS_CLI AND NOT MR_SANITIZE STREQUAL "thread") # those that need it are not among what has threads
    add_dependencies(timers millrace)
endif()
# An applier, producers at three servers, a scheduler with workers, servers that share an app; the rest is more of the same
# threads.
foreach(number 36 43 67 83)
    add_labelled_test(timers_${number}_threads "" timers "*_${number}_*")
    set_tests_properties(timers_${number}_threads PROPERTIES LABELS threads)
endforeach()
add_dependencies(threads_tests timers)
add_dependencies(time_tests timers)
# What they promise about time, with nothing beside them: in `make test-long`, on the release build.
foreach(number 23 26 30 47 50 57 58)
    add_labelled_test(timers_${number}_alone "alone" timers "*_${number}_*")
    set_property(TEST timers_${number}_alone APPEND PROPERTY ENVIRONMENT MR_ACCEPT=full MR_ALONE=1)
endforeach()
foreach(share 1 2 3)
    add_share(timers_${share} ${share}/3 timers)
    add_long(timers_${share} "MR_ACCEPT=full;MR_SHARE=${share}/3" timers)
endforeach()

# The acceptance tests of jobs: on an embedded broker with SQLite, and on a Redis with PostgreSQL.
file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/jobs/*.[ch]")
add_test_program(jobs ${sources})
foreach(on local shared)
    foreach(share 1 2)
        add_long(jobs_${on}_${share} "MR_ACCEPT=full;MR_JOBS=${on};MR_SHARE=${share}/2" jobs)
    endforeach()
endforeach()
# In `make test` all of them on the first, and a quarter on the second.
add_share(jobs_local_1 1/2 jobs)
add_share(jobs_local_2 2/2 jobs)
add_share(jobs_shared 1/4 jobs)
set_property(TEST jobs_local_1 jobs_local_2 APPEND PROPERTY ENVIRONMENT MR_JOBS=local)
set_property(TEST jobs_shared APPEND PROPERTY ENVIRONMENT MR_JOBS=shared)
add_labelled_test(jobs_threads "" jobs "*_103_*")
add_labelled_test(jobs_homes_threads "" jobs "*_102_who_*")
set_tests_properties(jobs_threads jobs_homes_threads PROPERTIES LABELS threads)
add_dependencies(threads_tests jobs)

# The acceptance tests of the nameserver: real processes, with the bench of timers as their oracle.
if(MR_HAS_CLI)
    file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/names/*.[ch]")
    add_test_program(names ${sources} "${tests_dir}/timers/bench.c" "${tests_dir}/timers/bench.h")
    if(NOT MR_SANITIZE STREQUAL "thread")
        add_dependencies(names millrace)
    endif()
    add_dependencies(time_tests names)
    # Cut off from each other for a minute, with the intervals of the default.
    add_labelled_test(names_79_alone "alone" names "*_79_*")
    set_property(TEST names_79_alone APPEND PROPERTY ENVIRONMENT MR_ALONE=1 MR_ACCEPT=full)
    foreach(share 1 2 3 4)
        add_labelled_test(names_${share}_alone "alone" names)
        set_property(TEST names_${share}_alone APPEND PROPERTY ENVIRONMENT MR_ALONE=1 MR_SHARE=${share}/4)
        set_tests_properties(names_${share}_alone PROPERTIES TIMEOUT 900)
        add_share(names_${share} ${share}/4 names)
        add_long(names_${share} "MR_ACCEPT=full;MR_SHARE=${share}/4" names)
    endforeach()
endif()

file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/model/*.[ch]")
if(sources)
    add_test_program(model ${sources})
    add_campaign(model "${sample_model}" "${long_model}")
endif()

file(GLOB sources CONFIGURE_DEPENDS "${tests_dir}/timer/*.[ch]")
add_test_program(rules ${sources})
add_campaign(rules "${sample_rules}" "${long_rules}")

foreach(source IN LISTS sim_mains)
    get_filename_component(name "${source}" NAME_WE)
    string(REPLACE "main_" "" kind ${name})
    add_test_program(millrace-${kind} "${source}")
    if(TARGET mr_sim)
        target_link_libraries(millrace-${kind} PUBLIC mr_sim)
    endif()
    add_campaign(millrace-${kind} "${sample_${kind}}" "${long_${kind}}")
    if(kind STREQUAL "soak")
        add_dependencies(release_tests millrace-${kind})
    endif()
endforeach()

file(GLOB fuzzers CONFIGURE_DEPENDS "${tests_dir}/fuzz/fuzz_*.c")
file(GLOB replay_main CONFIGURE_DEPENDS "${tests_dir}/fuzz/replay_main.c")
foreach(source IN LISTS fuzzers)
    get_filename_component(name "${source}" NAME_WE)
    string(REPLACE "fuzz_" "" corpus ${name})
    if(MR_FUZZ)
        add_test_program(${name} "${source}")
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        add_dependencies(fuzzers ${name})
    elseif(replay_main)
        add_test_program(${name} "${source}" "${replay_main}")
        add_labelled_test(${name} "sample;fuzz" ${name} "${tests_dir}/fuzz/corpus/${corpus}")
        if(corpus MATCHES "^(api|open|remote|redis|snapshot)$") # over the network, or whole stores: slow
            set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT MR_FUZZ_SECONDS=3)
        endif()
    endif()
endforeach()

foreach(folder integration interop)
    file(GLOB scripts CONFIGURE_DEPENDS "${tests_dir}/${folder}/*.sh")
    foreach(script IN LISTS scripts)
        get_filename_component(name "${script}" NAME_WE)
        add_labelled_test(${folder}_${name} "integration" "${script}")
        if(name MATCHES "^(demo|docs)$") # they use the ports that everybody knows
            set_tests_properties(${folder}_${name} PROPERTIES RESOURCE_LOCK ports)
        endif()
        if(name STREQUAL "web") # a browser on many pages
            set_tests_properties(${folder}_${name} PROPERTIES COST 800)
            set_property(TEST ${folder}_${name} APPEND PROPERTY ENVIRONMENT "MR_WEB_DIR=${MR_WEB_DIR}")
        endif()
        if(name STREQUAL "cli_stall") # it measures
            set_tests_properties(${folder}_${name} PROPERTIES RUN_SERIAL TRUE)
        endif()
        if(name STREQUAL "plants") # begun first, since they last; all of them in `make test-long`
            set_tests_properties(${folder}_${name} PROPERTIES PROCESSORS 2 COST 900)
            set_property(TEST ${folder}_${name} APPEND PROPERTY ENVIRONMENT MR_PLANTS_EVERY=11)
        endif()
    endforeach()
endforeach()

# The packages in a bare system: on the release build, which is what is packed.
add_labelled_test(package_alone "alone" "${tests_dir}/integration/package.sh")
set_property(TEST package_alone APPEND PROPERTY ENVIRONMENT MR_PACKAGE=full)
set_tests_properties(package_alone PROPERTIES TIMEOUT 1800)

# Malformed messages to the services, and kills of a server under load.
add_long(test_api_hostile "MR_MESSAGES=100000" test_api_hostile)
add_long(selftest "MR_KILLS=200" "${tests_dir}/integration/selftest.sh")
add_long(migrate "MR_KILLS=60;MR_TASKS=2000" "${tests_dir}/integration/migrate.sh")
