# SPDX-License-Identifier: Apache-2.0
#
# libmillrace (static and shared) from all modules but the server's and cli, the program, and the examples.

# Only the functions of the public header are visible from outside, in either library; names shared
# between modules stay inside. The list is taken from the header.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/millrace.h)
file(READ "${PROJECT_SOURCE_DIR}/include/millrace.h" header)
string(REGEX MATCHALL "mr_[a-z0-9_]+\\(" public "${header}")
list(REMOVE_DUPLICATES public)
list(TRANSFORM public REPLACE "\\($" "")
list(JOIN public "\n" public_lines)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/public.txt" CONTENT "${public_lines}\n")
string(REPLACE "\n" ";\n" public_lines "${public_lines}")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/public.map" CONTENT
    "MILLRACE_${PROJECT_VERSION_MAJOR} {\nglobal:\n${public_lines};\nlocal: *;\n};\n")

if(MR_MODULES)
    # Sanitizers want the objects as the compiler made them.
    if(MR_SANITIZE STREQUAL "none" AND NOT MR_FUZZ)
        set(one_object "${PROJECT_BINARY_DIR}/libmillrace.o")
        add_custom_command(OUTPUT "${one_object}"
            COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o "${one_object}" ${MR_LIB_OBJECTS}
            COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=public.txt "${one_object}"
            DEPENDS ${MR_LIB_OBJECTS} "${PROJECT_BINARY_DIR}/public.txt"
            WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
            COMMAND_EXPAND_LISTS VERBATIM COMMENT "Joining the modules to libmillrace.o")
        set_source_files_properties("${one_object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
        add_library(millrace_static STATIC "${one_object}")
        set_target_properties(millrace_static PROPERTIES LINKER_LANGUAGE C)
    else()
        add_library(millrace_static STATIC ${MR_LIB_OBJECTS})
    endif()
    add_library(millrace_shared SHARED ${MR_LIB_OBJECTS})
    foreach(lib millrace_static millrace_shared)
        set_target_properties(${lib} PROPERTIES OUTPUT_NAME millrace)
        target_include_directories(${lib} INTERFACE "${PROJECT_SOURCE_DIR}/include")
        target_link_libraries(${lib} PRIVATE mr_flags ${MR_LIB_PACKAGES})
    endforeach()
    set_target_properties(millrace_shared PROPERTIES VERSION ${PROJECT_VERSION}
                                                     SOVERSION ${PROJECT_VERSION_MAJOR})
    target_link_options(millrace_shared PRIVATE
        "-Wl,--version-script,${PROJECT_BINARY_DIR}/public.map")
    # Nothing may be left undefined, except what a sanitizer's runtime brings in at the start.
    if(MR_SANITIZE STREQUAL "none" AND NOT MR_FUZZ)
        target_link_options(millrace_shared PRIVATE -Wl,--no-undefined)
    endif()
endif()

if(MR_HAS_CLI)
    pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
    pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
    # Two programs on the same tables: what is installed, and what writes its man pages and completions
    # when it is built.
    set(MR_PAGES_SOURCES ${MR_CLI_SOURCES})
    list(FILTER MR_PAGES_SOURCES INCLUDE REGEX "/src/cli/pages/")
    list(FILTER MR_CLI_SOURCES EXCLUDE REGEX "/src/cli/(pages/.*|main)\\.c$")
    add_library(mr_cli_objects OBJECT ${MR_CLI_SOURCES})
    target_link_libraries(mr_cli_objects PUBLIC mr_all PkgConfig::JANSSON PkgConfig::YAML)
    if(NOT MR_SANITIZE STREQUAL "none") # a command is short: more time would go into compiling than it saves
        set_target_properties(mr_cli_objects PROPERTIES MR_UNOPTIMISED ON)
    endif()
    add_executable(millrace "${PROJECT_SOURCE_DIR}/src/cli/main.c")
    target_link_libraries(millrace PRIVATE mr_cli_objects)
    add_executable(millrace-pages ${MR_PAGES_SOURCES})
    target_link_libraries(millrace-pages PRIVATE mr_cli_objects)
    set(MR_PAGES_DIR "${PROJECT_BINARY_DIR}/pages")
    add_custom_command(OUTPUT "${MR_PAGES_DIR}/millrace.bash"
        COMMAND millrace-pages "${MR_PAGES_DIR}"
        DEPENDS millrace-pages
        VERBATIM COMMENT "Writing man pages and completions")
    add_custom_target(pages ALL DEPENDS "${MR_PAGES_DIR}/millrace.bash")
endif()

# The examples see what a user sees: the public header and the library.
set(MR_EXAMPLES)
file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.c")
if(MR_MODULES)
    foreach(source IN LISTS examples)
        get_filename_component(name "${source}" NAME_WE)
        add_executable(example_${name} "${source}")
        set_target_properties(example_${name} PROPERTIES
            OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
        target_link_libraries(example_${name} PRIVATE millrace_static mr_flags)
        list(APPEND MR_EXAMPLES example_${name})
    endforeach()
endif()

# What `make build` makes: the things that are installed, without tests.
add_custom_target(product)
foreach(target millrace pages millrace_static millrace_shared)
    if(TARGET ${target})
        add_dependencies(product ${target})
    endif()
endforeach()
