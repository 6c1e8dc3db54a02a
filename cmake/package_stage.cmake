# SPDX-License-Identifier: Apache-2.0
#
# Run by CPack when the files of all packages stand below one folder each (program, library, development) and before they are
# packed: what Debian wants to have otherwise than `make install` leaves it.

set(stage "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
set(source "${CPACK_MR_SOURCE_DIR}")
set(version "${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
set(package_program millrace)
set(package_library ${CPACK_MR_LIBRARY_PACKAGE})
set(package_development libmillrace-dev)

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "${ARGN}: failed")
    endif()
endfunction()

# The same bytes each time: without a name and a time in them.
function(compress)
    run(gzip -9nf ${ARGN})
endfunction()

# Libraries are in the folder of their architecture, so that those of several can stand beside each other.
function(move_libraries)
    if(NOT CPACK_MR_MULTIARCH)
        return()
    endif()
    foreach(part IN ITEMS library development)
        set(lib "${stage}/${part}/usr/lib")
        file(GLOB files LIST_DIRECTORIES true "${lib}/*")
        list(REMOVE_ITEM files "${lib}/${CPACK_MR_MULTIARCH}")
        file(MAKE_DIRECTORY "${lib}/${CPACK_MR_MULTIARCH}")
        foreach(path IN LISTS files)
            get_filename_component(name "${path}" NAME)
            file(RENAME "${path}" "${lib}/${CPACK_MR_MULTIARCH}/${name}")
        endforeach()
    endforeach()
    set(CMAKE_INSTALL_LIBDIR "lib/${CPACK_MR_MULTIARCH}")
    set(CMAKE_INSTALL_INCLUDEDIR include)
    set(MR_PC_PREFIX ../../..)
    set(PROJECT_VERSION ${CPACK_PACKAGE_VERSION})
    configure_file("${source}/packaging/millrace.pc.in"
                   "${stage}/development/usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig/millrace.pc" @ONLY)
endfunction()

# What is linked to is stripped by CPack; of a static library only what debuggers read may go.
function(strip_archive)
    file(GLOB_RECURSE archives "${stage}/development/*.a")
    foreach(archive IN LISTS archives)
        run("${CPACK_MR_STRIP}" --strip-debug --remove-section=.comment --enable-deterministic-archives "${archive}")
    endforeach()
    # Nobody executes a library.
    file(GLOB_RECURSE shared "${stage}/library/*.so.*")
    foreach(path IN LISTS shared)
        if(NOT IS_SYMLINK "${path}")
            file(CHMOD "${path}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
        endif()
    endforeach()
endfunction()

# The units as they are in the source: they name /usr/bin. Debian 12 looks for them in /lib.
function(put_units)
    file(REMOVE_RECURSE "${stage}/program/usr/lib/systemd")
    file(GLOB units "${source}/packaging/*.service")
    file(COPY ${units} DESTINATION "${stage}/program/lib/systemd/system")
    file(GLOB left "${stage}/program/usr/lib/*")
    if(NOT left)
        file(REMOVE_RECURSE "${stage}/program/usr/lib")
    endif()
endfunction()

function(put_configuration)
    set(etc "${stage}/program/etc")
    foreach(name IN ITEMS millrace millrace-nameserver)
        configure_file("${source}/packaging/deb/${name}.default" "${etc}/default/${name}" COPYONLY)
    endforeach()
    configure_file("${CPACK_MR_PAGES_DIR}/millrace.yaml" "${etc}/millrace/millrace.yaml" COPYONLY)
endfunction()

# put_docs(PART): copyright and changelogs, which each package must have.
function(put_docs part)
    set(doc "${stage}/${part}/usr/share/doc/${package_${part}}")
    configure_file("${source}/packaging/deb/copyright" "${doc}/copyright" COPYONLY)
    configure_file("${source}/CHANGELOG.md" "${doc}/changelog" COPYONLY)
    file(TIMESTAMP "${source}/CHANGELOG.md" date "%a, %d %b %Y %H:%M:%S +0000" UTC)
    file(WRITE "${doc}/changelog.Debian"
        "millrace (${version}) unstable; urgency=medium\n\n"
        "  * Package of Millrace ${CPACK_PACKAGE_VERSION}; what changed is in changelog.gz.\n\n"
        " -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}\n")
    compress("${doc}/changelog" "${doc}/changelog.Debian")
endfunction()

function(put_pages)
    file(GLOB pages "${stage}/program/usr/share/man/man1/*.1")
    compress(${pages})
    set(doc "${stage}/program/usr/share/doc/millrace")
    file(GLOB docs "${source}/docs/*.md")
    file(COPY ${docs} DESTINATION "${doc}/docs")
    file(RENAME "${doc}/reference.md" "${doc}/docs/reference.md")
    file(COPY "${source}/README.md" DESTINATION "${doc}")
    if(EXISTS "${source}/docs/images")
        file(COPY "${source}/docs/images" DESTINATION "${doc}/docs")
    endif()
endfunction()

move_libraries()
strip_archive()
put_units()
put_configuration()
put_pages()
foreach(part IN ITEMS program library development)
    put_docs(${part})
endforeach()
run(chmod -R u=rwX,go=rX "${stage}")
