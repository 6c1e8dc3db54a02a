# SPDX-License-Identifier: Apache-2.0
#
# The dashboard, built from web/ and put into the module api as one C file. All build folders of a tree share what is
# installed and built (MR_WEB_DIR), so it happens once.

set(MR_WEB auto CACHE STRING "the dashboard: auto (a page in its place where it cannot be built), on or off")
set_property(CACHE MR_WEB PROPERTY STRINGS auto on off)
set(MR_WEB_DIR "${PROJECT_SOURCE_DIR}/build/web" CACHE PATH "where the dashboard is built")

file(GLOB_RECURSE web_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/web/*")
list(FILTER web_files EXCLUDE REGEX "/node_modules/")
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/web_files.c"
    COMMAND "${PROJECT_SOURCE_DIR}/scripts/web.sh" "${MR_WEB_DIR}" "${PROJECT_BINARY_DIR}/web_files.c" ${MR_WEB}
    DEPENDS ${web_files} "${PROJECT_SOURCE_DIR}/scripts/web.sh"
    VERBATIM COMMENT "Building the dashboard")
target_sources(mr_api_objects PRIVATE "${PROJECT_BINARY_DIR}/web_files.c")
