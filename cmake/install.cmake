# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where: program, libraries, header, .proto files, pkg-config file, man pages,
# completions, the reference, the units of systemd, alert rules and the board for figures. The components are
# the packages of package.cmake.

include(GNUInstallDirs)

if(TARGET millrace_static)
    install(TARGETS millrace_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    install(TARGETS millrace_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
            COMPONENT library NAMELINK_COMPONENT development)
endif()
if(TARGET millrace)
    install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/include/millrace.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/proto/millrace"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/millrace/proto" COMPONENT development)

install(FILES "${PROJECT_SOURCE_DIR}/packaging/alerts.yml" "${PROJECT_SOURCE_DIR}/packaging/grafana.json"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/millrace" COMPONENT program)

set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH MR_PC_PREFIX "/${pc_dir}" "/")
string(REGEX REPLACE "/$" "" MR_PC_PREFIX "${MR_PC_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/packaging/millrace.pc.in"
               "${PROJECT_BINARY_DIR}/millrace.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/millrace.pc" DESTINATION ${pc_dir} COMPONENT development)

if(TARGET pages)
    install(DIRECTORY "${MR_PAGES_DIR}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}" COMPONENT program)
    install(FILES "${MR_PAGES_DIR}/millrace.bash" RENAME millrace
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT program)
    install(FILES "${MR_PAGES_DIR}/_millrace"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT program)
    install(FILES "${MR_PAGES_DIR}/millrace.fish"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT program)
endif()

# The reference, made of the tables like the man pages.
if(TARGET pages)
    install(FILES "${MR_PAGES_DIR}/reference.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)
endif()

# The units name the program where it is put, and the prefix is known only then. They are written where they belong, not into the
# build folder first: two installations may go on at a time.
foreach(unit IN ITEMS millrace.service millrace-nameserver.service)
    install(CODE "
        file(READ \"${PROJECT_SOURCE_DIR}/packaging/${unit}\" unit)
        get_filename_component(bin \"${CMAKE_INSTALL_BINDIR}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
        string(REPLACE /usr/bin/millrace \"\${bin}/millrace\" unit \"\${unit}\")
        set(path \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\")
        message(STATUS \"Installing: \$ENV{DESTDIR}\${path}\")
        file(WRITE \"\$ENV{DESTDIR}\${path}\" \"\${unit}\")
        list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${path}\")" COMPONENT program)
endforeach()
