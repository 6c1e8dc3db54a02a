# SPDX-License-Identifier: Apache-2.0
#
# The Debian packages, made by CPack (`make package`):
#
#   millrace         program, man pages, completions, units of systemd, default configuration, docs
#   libmillrace0     the shared library
#   libmillrace-dev  header, static library, pkg-config file, .proto files
#
# What Debian wants of them beyond `make install` is done by package_stage.cmake, on the folder that CPack packs.
# The number behind the version is MR_PACKAGE_RELEASE; `cpack -D CPACK_DEBIAN_PACKAGE_RELEASE=2` gives another one.

set(MR_PACKAGE_RELEASE 1 CACHE STRING "number of the package behind the version")
set(MR_PACKAGE_MAINTAINER "Millrace maintainers <maintainers@millrace.example>" CACHE STRING
    "who answers for the packages: NAME <ADDRESS>")
set(deb_dir "${PROJECT_SOURCE_DIR}/packaging/deb")
set(library_package libmillrace${PROJECT_VERSION_MAJOR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR Millrace)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/package_stage.cmake")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${MR_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${MR_PACKAGE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME millrace)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS tzdata)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "redis-server, postgresql")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
    "${deb_dir}/conffiles;${deb_dir}/postinst;${deb_dir}/prerm;${deb_dir}/postrm")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
    "durable task queue, timers and big jobs in one program
Millrace runs background work: tasks in queues, timers (cron and intervals)
and jobs, one big input that is split, worked on and put together again.
What was acknowledged is on disk. It needs nothing but a folder, and runs
on Redis and PostgreSQL where one machine is not enough.
.
This package has the command line, the server and the nameserver.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${deb_dir}/triggers")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
    "durable task queue, timers and big jobs (shared library)
Millrace runs background work: tasks in queues, timers and jobs.
.
This package has the library that programs in C use to enqueue, to work and
to look, in a folder of their own, at a server or on a Redis.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmillrace-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON) # of the very same version
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS
    "libhiredis-dev, libnghttp2-dev, libpq-dev, libprotobuf-c-dev, libsqlite3-dev, libssl-dev, zlib1g-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "durable task queue, timers and big jobs (development files)
Millrace runs background work: tasks in queues, timers and jobs.
.
This package has the header, the static library, the pkg-config file, and
the .proto files for gRPC from any language.")

# For package_stage.cmake.
set(CPACK_MR_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
set(CPACK_MR_MULTIARCH "${CMAKE_LIBRARY_ARCHITECTURE}")
set(CPACK_MR_STRIP "${CMAKE_STRIP}")
set(CPACK_MR_LIBRARY_PACKAGE ${library_package})
set(CPACK_MR_PAGES_DIR "${MR_PAGES_DIR}")
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
