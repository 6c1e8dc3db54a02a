# SPDX-License-Identifier: Apache-2.0
#
# proto/ as C, made when it is built: mr_proto_objects, part of the module wire, whose headers are
# included as "millrace/v1/task.pb-c.h"; and what it says, for reflection. Sets MR_PROTO_DIR.

pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
find_program(PROTOC_C protoc-c REQUIRED)
set(MR_PROTO_DIR "${PROJECT_BINARY_DIR}/proto")
file(MAKE_DIRECTORY "${MR_PROTO_DIR}")

set(generated)
file(GLOB_RECURSE protos RELATIVE "${PROJECT_SOURCE_DIR}/proto" CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/proto/*.proto")
set(made_into_c ${protos})
list(REMOVE_ITEM made_into_c millrace/v1/nameserver.proto) # has a method whose name is a word of C
foreach(proto IN LISTS made_into_c)
    string(REGEX REPLACE "\\.proto$" ".pb-c" stem "${MR_PROTO_DIR}/${proto}")
    # A change of one file remakes all: they include each other.
    list(TRANSFORM protos PREPEND "${PROJECT_SOURCE_DIR}/proto/" OUTPUT_VARIABLE sources)
    add_custom_command(OUTPUT "${stem}.c" "${stem}.h"
        COMMAND ${PROTOC_C} --c_out=${MR_PROTO_DIR} -I "${PROJECT_SOURCE_DIR}/proto" "${proto}"
        DEPENDS ${sources} VERBATIM COMMENT "Making C of ${proto}")
    list(APPEND generated "${stem}.c" "${stem}.h")
endforeach()
add_custom_target(mr_proto_made DEPENDS ${generated})

# Not our code: none of our warnings, but our sanitizers.
add_library(mr_proto_objects OBJECT ${generated})
target_link_libraries(mr_proto_objects PRIVATE mr_flags PkgConfig::PROTOBUF_C)
target_compile_options(mr_proto_objects PRIVATE -w)
add_dependencies(mr_proto_objects mr_proto_made)
target_include_directories(mr_flags SYSTEM INTERFACE "${MR_PROTO_DIR}")

# Part of src/api/descriptors.c.
set(descriptors "${MR_PROTO_DIR}/descriptors.bin")
add_custom_command(OUTPUT "${descriptors}"
    COMMAND ${PROTOC_C} --descriptor_set_out=${descriptors} -I "${PROJECT_SOURCE_DIR}/proto" ${protos}
    DEPENDS ${sources} VERBATIM COMMENT "Describing proto/")
add_custom_target(mr_descriptors DEPENDS "${descriptors}")
add_dependencies(mr_proto_made mr_descriptors)
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/api/descriptors.c" PROPERTIES
    COMPILE_DEFINITIONS "MR_DESCRIPTORS_FILE=\"${descriptors}\"" OBJECT_DEPENDS "${descriptors}")
