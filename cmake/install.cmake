# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where: program, libraries, header, .proto files, pkg-config file, man pages,
# completions and the unit of systemd.

include(GNUInstallDirs)

if(TARGET millrace_static)
    install(TARGETS millrace_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(TARGETS millrace_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET millrace)
    install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES "${PROJECT_SOURCE_DIR}/include/millrace.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/proto/millrace"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/millrace/proto")

set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH MR_PC_PREFIX "/${pc_dir}" "/")
string(REGEX REPLACE "/$" "" MR_PC_PREFIX "${MR_PC_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/packaging/millrace.pc.in"
               "${PROJECT_BINARY_DIR}/millrace.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/millrace.pc" DESTINATION ${pc_dir})

if(TARGET pages)
    install(DIRECTORY "${MR_PAGES_DIR}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
    install(FILES "${MR_PAGES_DIR}/millrace.bash" RENAME millrace
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
    install(FILES "${MR_PAGES_DIR}/_millrace"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
    install(FILES "${MR_PAGES_DIR}/millrace.fish"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()

# The units name the program where it is put, and the prefix is known only then.
foreach(unit IN ITEMS millrace.service millrace-nameserver.service)
    install(CODE "
        file(READ \"${PROJECT_SOURCE_DIR}/packaging/${unit}\" unit)
        get_filename_component(bin \"${CMAKE_INSTALL_BINDIR}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
        string(REPLACE /usr/bin/millrace \"\${bin}/millrace\" unit \"\${unit}\")
        file(WRITE \"${PROJECT_BINARY_DIR}/${unit}\" \"\${unit}\")")
    install(FILES "${PROJECT_BINARY_DIR}/${unit}" DESTINATION lib/systemd/system)
endforeach()
