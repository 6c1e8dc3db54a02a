/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of earlier versions are read as they were meant and written as they were: each line of tests/golden/wire has a
 * message, its bytes as another implementation made them, and what they say (tests/golden/make_wire.py). Every field
 * of proto/millrace/v1 has its line; one that is new gets it by running that script.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>

#include "base/buf.h"
#include "unit/golden_messages.h"
#include "wire/pb.h"

enum { LINE_MAX_BYTES = 64 * 1024, FIELDS_MAX = 64 };

static struct known {
    const ProtobufCMessageDescriptor *descriptor;
    bool has_line;
    bool seen[FIELDS_MAX]; /* by the place of the field */
} messages[] = {
#define ROW(name) {.descriptor = &millrace__v1__##name##__descriptor},
    GOLDEN_MESSAGES(ROW)
#undef ROW
};
enum { MESSAGES = sizeof messages / sizeof *messages };

static struct known *find(const char *name)
{
    for (size_t i = 0; i < MESSAGES; i++)
        if (strcmp(messages[i].descriptor->name, name) == 0)
            return &messages[i];
    return NULL;
}

/* ---- as text ---------------------------------------------------------------------------------- */

static void put(struct mr_buf *buf, const char *fmt, ...) MR_PRINTF(2, 3);
static void put(struct mr_buf *buf, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_int_equal(mr_buf_append(buf, text, strlen(text)), MR_OK);
}

static void put_message(struct mr_buf *buf, const ProtobufCMessage *message, bool *seen);

static void put_bytes(struct mr_buf *buf, const ProtobufCBinaryData *bytes)
{
    for (size_t i = 0; i < bytes->len; i++)
        put(buf, "%02x", bytes->data[i]);
}

/* Its size in an array. */
static size_t put_value(struct mr_buf *buf, ProtobufCType type, const void *at)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_ENUM:
        put(buf, "%d", *(const int32_t *)at);
        return sizeof(int32_t);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        put(buf, "%u", *(const uint32_t *)at);
        return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
        put(buf, "%lld", (long long)*(const int64_t *)at);
        return sizeof(int64_t);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        put(buf, "%llu", (unsigned long long)*(const uint64_t *)at);
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_DOUBLE:
        put(buf, "%g", *(const double *)at);
        return sizeof(double);
    case PROTOBUF_C_TYPE_BOOL:
        put(buf, *(const protobuf_c_boolean *)at ? "true" : "false");
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
        put(buf, "\"%s\"", *(const char *const *)at);
        return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES:
        put_bytes(buf, at);
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE:
        put(buf, "{");
        put_message(buf, *(const ProtobufCMessage *const *)at, NULL);
        put(buf, "}");
        return sizeof(ProtobufCMessage *);
    default:
        fail_msg("a type that this test does not know: %d", (int)type);
        return 0;
    }
}

/* A field that is not repeated and has no mark: what is zero is not there. */
static bool is_zero(const ProtobufCFieldDescriptor *field, const void *at)
{
    static const uint8_t zeros[sizeof(uint64_t)];
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return *(const char *const *)at == NULL || **(const char *const *)at == '\0';
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)at)->len == 0;
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return memcmp(at, zeros, sizeof(uint64_t)) == 0;
    default:
        return memcmp(at, zeros, sizeof(uint32_t)) == 0;
    }
}

/* How many values it has. */
static size_t count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const uint8_t *base = (const uint8_t *)message;
    const void *mark = base + field->quantifier_offset, *at = base + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)mark;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)mark == field->id;
    bool is_pointer =
        field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING;
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !is_pointer)
        return *(const protobuf_c_boolean *)mark != 0;
    return !is_zero(field, at);
}

static void put_field(struct mr_buf *buf, const ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field, size_t n)
{
    const uint8_t *at = (const uint8_t *)message + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        at = *(const uint8_t *const *)(const void *)at;
    put(buf, "%s%s=", buf->len > 0 && buf->data[buf->len - 1] != '{' ? " " : "", field->name);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            put(buf, ",");
        at += put_value(buf, field->type, at);
    }
}

static void put_message(struct mr_buf *buf, const ProtobufCMessage *message, bool *seen)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    assert_true(descriptor->n_fields <= FIELDS_MAX);
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        size_t n = count(message, &descriptor->fields[i]);
        if (n == 0)
            continue;
        put_field(buf, message, &descriptor->fields[i], n);
        if (seen != NULL)
            seen[i] = true;
    }
}

/* ---- the lines -------------------------------------------------------------------------------- */

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* In memory of its exact size, so that reading behind its end is seen. */
static uint8_t *bytes_of(const char *hex, size_t *ret_len)
{
    size_t len = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    *ret_len = len;
    return bytes;
}

static void check_line(const char *name, const char *hex, const char *text)
{
    struct known *known = find(name);
    if (known == NULL)
        fail_msg("%s is gone: programs of earlier versions still send it", name);
    size_t len = 0;
    uint8_t *bytes = bytes_of(hex, &len);
    ProtobufCMessage *message = protobuf_c_message_unpack(known->descriptor, NULL, len, bytes);
    if (message == NULL)
        fail_msg("%s cannot be read any more", name);
    struct mr_buf said = {0};
    put_message(&said, message, known->seen);
    if (!mr_slice_equal(mr_buf_slice(&said), (struct mr_slice){text, strlen(text)}))
        fail_msg("%s\n  says:   %.*s\n  wanted: %s", name, (int)said.len, (const char *)said.data,
                 text);
    assert_int_equal(protobuf_c_message_get_packed_size(message), len);
    uint8_t *again = malloc(len > 0 ? len : 1);
    assert_non_null(again);
    assert_int_equal(protobuf_c_message_pack(message, again), len);
    assert_memory_equal(again, bytes, len);
    known->has_line = true;
    protobuf_c_message_free_unpacked(message, NULL);
    mr_buf_done(&said);
    free(again);
    free(bytes);
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[1024];
    const char *source = getenv("MR_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/%s/%s", source != NULL ? source : ".", folder, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    return file;
}

static void check_file(const char *name)
{
    static char line[LINE_MAX_BYTES];
    FILE *file = open_in("tests/golden/wire", name);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        char *hex = strchr(line, ' ');
        assert_non_null(hex);
        *hex++ = '\0';
        char *text = strchr(hex, ' ');
        if (text != NULL)
            *text++ = '\0';
        check_line(line, hex, text != NULL ? text : "");
    }
    (void)fclose(file);
}

static DIR *open_folder(const char *folder)
{
    char path[1024];
    const char *source = getenv("MR_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/%s", source != NULL ? source : ".", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    return dir;
}

static void messages_of_earlier_versions_are_read_and_written_as_they_were(void **state)
{
    (void)state;
    DIR *dir = open_folder("tests/golden/wire");
    size_t files = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, ".txt") == NULL)
            continue;
        check_file(entry->d_name);
        files++;
    }
    (void)closedir(dir);
    assert_true(files > 0);
}

/* After the one above. */
static void every_field_has_its_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < MESSAGES; i++) {
        const ProtobufCMessageDescriptor *descriptor = messages[i].descriptor;
        if (!messages[i].has_line)
            fail_msg("%s has no bytes: run tests/golden/make_wire.py", descriptor->name);
        for (unsigned f = 0; f < descriptor->n_fields; f++)
            if (!messages[i].seen[f])
                fail_msg("%s.%s has no bytes: run tests/golden/make_wire.py", descriptor->name,
                         descriptor->fields[f].name);
    }
}

static void check_proto(const char *name)
{
    char line[512];
    FILE *file = open_in("proto/millrace/v1", name);
    while (fgets(line, sizeof line, file) != NULL) {
        char message[64], full[96];
        if (sscanf(line, "message %63[A-Za-z0-9]", message) != 1)
            continue;
        (void)snprintf(full, sizeof full, "millrace.v1.%s", message);
        if (find(full) == NULL)
            fail_msg("%s of %s is not in tests/unit/golden_messages.h", full, name);
    }
    (void)fclose(file);
}

static void every_message_is_known_here(void **state)
{
    (void)state;
    DIR *dir = open_folder("proto/millrace/v1");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".proto") != NULL)
            check_proto(entry->d_name);
    (void)closedir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_earlier_versions_are_read_and_written_as_they_were),
        cmocka_unit_test(every_field_has_its_bytes),
        cmocka_unit_test(every_message_is_known_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
