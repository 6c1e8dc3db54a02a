# SPDX-License-Identifier: Apache-2.0
#
# libmillrace (static and shared) from all modules but cli, the program, and the examples.

# exports_from_header(FILE): a version script that exports the functions of the public header and
# nothing else, so that names shared between modules stay inside the library.
function(exports_from_header script)
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
        "${PROJECT_SOURCE_DIR}/include/millrace.h")
    file(READ "${PROJECT_SOURCE_DIR}/include/millrace.h" header)
    string(REGEX MATCHALL "mr_[a-z0-9_]+\\(" calls "${header}")
    list(REMOVE_DUPLICATES calls)
    list(SORT calls)
    list(JOIN calls "|" names)
    string(REPLACE "(|" ";\n        " names "${names}")
    string(REPLACE "(" ";" names "${names}")
    file(CONFIGURE OUTPUT "${script}" CONTENT
        "MILLRACE_${PROJECT_VERSION_MAJOR} {\n    global:\n        ${names}\n    local:\n        *;\n};\n")
endfunction()

if(MR_MODULES)
    add_library(millrace_static STATIC ${MR_LIB_OBJECTS})
    add_library(millrace_shared SHARED ${MR_LIB_OBJECTS})
    foreach(lib millrace_static millrace_shared)
        set_target_properties(${lib} PROPERTIES OUTPUT_NAME millrace)
        target_include_directories(${lib} INTERFACE "${PROJECT_SOURCE_DIR}/include")
        target_link_libraries(${lib} PRIVATE mr_flags)
    endforeach()
    set_target_properties(millrace_shared PROPERTIES VERSION ${PROJECT_VERSION}
                                                     SOVERSION ${PROJECT_VERSION_MAJOR})
    exports_from_header("${PROJECT_BINARY_DIR}/millrace.map")
    target_link_options(millrace_shared PRIVATE
        "-Wl,--version-script,${PROJECT_BINARY_DIR}/millrace.map")
    # Nothing may be left undefined, except what a sanitizer's runtime brings in at the start.
    if(MR_SANITIZE STREQUAL "none" AND NOT MR_FUZZ)
        target_link_options(millrace_shared PRIVATE -Wl,--no-undefined)
    endif()
endif()

if(MR_HAS_CLI)
    pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
    add_executable(millrace ${MR_CLI_SOURCES})
    target_link_libraries(millrace PRIVATE mr_all PkgConfig::JANSSON m)
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
foreach(target millrace millrace_static millrace_shared)
    if(TARGET ${target})
        add_dependencies(product ${target})
    endif()
endforeach()
