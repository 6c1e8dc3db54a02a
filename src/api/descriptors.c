/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What proto/ says, as the compiler of .proto files writes it down (a FileDescriptorSet), made part
 * of the program when it is built. It is small and asked for rarely, so it is searched as it is.
 */
#include <stdio.h>

#include "api/internal.h"

__asm__(".pushsection .rodata\n"
        ".hidden mr_descriptors\n"
        ".hidden mr_descriptors_end\n"
        ".globl mr_descriptors\n"
        ".globl mr_descriptors_end\n"
        "mr_descriptors:\n"
        ".incbin \"" MR_DESCRIPTORS_FILE "\"\n"
        "mr_descriptors_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const uint8_t mr_descriptors[], mr_descriptors_end[];

/* Numbers of descriptor.proto. */
enum { SET_FILE = 1, FILE_NAME = 1, FILE_PACKAGE = 2, FILE_SERVICE = 6, ANY_NAME = 1 };

enum thing { THING_FILE, THING_MESSAGE, THING_ENUM, THING_SERVICE, THING_METHOD, THING_COUNT };

/* Which fields hold named things. */
static const struct {
    enum thing in;
    uint32_t number;
    enum thing is;
} members[] = {
    {THING_FILE, 4, THING_MESSAGE}, {THING_FILE, 5, THING_ENUM},
    {THING_FILE, 6, THING_SERVICE}, {THING_MESSAGE, 3, THING_MESSAGE},
    {THING_MESSAGE, 4, THING_ENUM}, {THING_SERVICE, 2, THING_METHOD},
};

/* The next field of this number; false at the end. */
static bool next_of(struct mr_slice *bytes, uint32_t number, struct mr_slice *ret_field)
{
    struct mr_flat_item item;
    while (bytes->len > 0 && mr_flat_next(bytes, &item) == MR_OK) {
        if (item.number == number && item.type == MR_FLAT_BYTES) {
            *ret_field = item.bytes;
            return true;
        }
    }
    return false;
}

static struct mr_slice first_of(struct mr_slice bytes, uint32_t number)
{
    struct mr_slice field;
    return next_of(&bytes, number, &field) ? field : (struct mr_slice){0};
}

static struct mr_slice all_files(void)
{
    return mr_slice_make(mr_descriptors, (size_t)(mr_descriptors_end - mr_descriptors));
}

bool descriptor_by_name(struct mr_slice name, struct mr_slice *ret_file)
{
    struct mr_slice files = all_files();
    while (next_of(&files, SET_FILE, ret_file))
        if (mr_slice_equal(first_of(*ret_file, FILE_NAME), name))
            return true;
    return false;
}

/* What is left of a path behind its first part; false when it does not begin with it. Empty: it was
 * the last. */
static bool behind(struct mr_slice path, struct mr_slice part, struct mr_slice *ret_rest)
{
    const char *text = path.data;
    if (part.len == 0 || !mr_slice_starts_with(path, part))
        return false;
    bool whole = path.len == part.len;
    if (!whole && text[part.len] != '.')
        return false;
    *ret_rest =
        whole ? (struct mr_slice){0} : mr_slice_make(text + part.len + 1, path.len - part.len - 1);
    return true;
}

static bool contains(struct mr_slice bytes, enum thing thing, struct mr_slice path)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct mr_slice rest = bytes, member, left;
        while (members[i].in == thing && next_of(&rest, members[i].number, &member))
            if (behind(path, first_of(member, ANY_NAME), &left) &&
                (left.len == 0 || contains(member, members[i].is, left)))
                return true;
    }
    return false;
}

bool descriptor_by_symbol(struct mr_slice symbol, struct mr_slice *ret_file)
{
    struct mr_slice files = all_files(), rest;
    while (next_of(&files, SET_FILE, ret_file))
        if (behind(symbol, first_of(*ret_file, FILE_PACKAGE), &rest) && rest.len > 0 &&
            contains(*ret_file, THING_FILE, rest))
            return true;
    return false;
}

struct mr_slice descriptor_service(size_t i, char name[SERVICE_NAME_MAX])
{
    struct mr_slice files = all_files(), file, service;
    while (next_of(&files, SET_FILE, &file)) {
        struct mr_slice package = first_of(file, FILE_PACKAGE);
        if (mr_slice_equal(first_of(file, FILE_NAME), MR_SLICE_LIT("millrace/v1/nameserver.proto")))
            continue; /* a nameserver has it, no server */
        for (struct mr_slice rest = file; next_of(&rest, FILE_SERVICE, &service);) {
            struct mr_slice own = first_of(service, ANY_NAME);
            if (i-- > 0)
                continue;
            int len = snprintf(name, SERVICE_NAME_MAX, "%.*s.%.*s", (int)package.len,
                               (const char *)package.data, (int)own.len, (const char *)own.data);
            mr_assert(len < SERVICE_NAME_MAX);
            return mr_slice_make(name, (size_t)len);
        }
    }
    return (struct mr_slice){0};
}
