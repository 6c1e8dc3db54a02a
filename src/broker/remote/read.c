/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the small messages of a server, and how its calls end. */
#include "broker/remote/internal.h"

enum mr_err fields_read(struct mr_slice bytes, struct fields *ret_fields)
{
    *ret_fields = (struct fields){0};
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number > FIELDS_MAX)
            continue;
        if (item.type == MR_FLAT_BYTES)
            ret_fields->bytes[item.number] = item.bytes;
        else
            ret_fields->value[item.number] = item.value;
    }
    return MR_OK;
}

enum mr_err code_of(uint64_t code)
{
    return code < MR_ERR_COUNT ? (enum mr_err)code : MR_FAILED;
}

/* Numbers one behind the other, as a repeated field packs them. */
static enum mr_err take_packed(struct mr_slice *packed, uint64_t *ret_value)
{
    const uint8_t *at = packed->data;
    uint64_t value = 0;
    for (size_t i = 0; i < packed->len && i < sizeof value; i++) {
        value |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] >= 0x80)
            continue;
        *packed = mr_slice_make(at + i + 1, packed->len - i - 1);
        *ret_value = value;
        return MR_OK;
    }
    return MR_INVALID;
}

struct codes {
    enum mr_err *codes;
    size_t n, found;
};

static enum mr_err add_code(struct codes *codes, uint64_t code)
{
    if (codes->found == codes->n)
        return MR_INVALID;
    codes->codes[codes->found++] = code_of(code);
    return MR_OK;
}

enum mr_err codes_read(struct mr_slice bytes, uint32_t number, enum mr_err *ret_codes, size_t n)
{
    struct codes codes = {.codes = ret_codes, .n = n};
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != number)
            continue;
        if (item.type == MR_FLAT_VARINT)
            MR_TRY(add_code(&codes, item.value));
        while (item.type == MR_FLAT_BYTES && item.bytes.len > 0) {
            uint64_t code;
            MR_TRY(take_packed(&item.bytes, &code));
            MR_TRY(add_code(&codes, code));
        }
    }
    if (codes.found == 0)
        for (size_t i = 0; i < n; i++)
            ret_codes[i] = MR_OK;
    return codes.found == 0 || codes.found == n ? MR_OK : MR_INVALID;
}

/* For ends without a code of ours: of the transport, or of something between us and the server. */
static const enum mr_err by_status[] = {
    [MR_RPC_OK] = MR_OK,
    [MR_RPC_CANCELLED] = MR_CANCELLED,
    [MR_RPC_UNKNOWN] = MR_FAILED,
    [MR_RPC_INVALID] = MR_INVALID,
    [MR_RPC_DEADLINE] = MR_TIMEOUT,
    [5] = MR_NOT_FOUND,
    [6] = MR_CONFLICT,
    [MR_RPC_DENIED] = MR_DENIED,
    [MR_RPC_EXHAUSTED] = MR_TOO_BIG,
    [9] = MR_WRONG_STATE,
    [10] = MR_STALE,
    [11] = MR_INVALID,
    [MR_RPC_UNIMPLEMENTED] = MR_UNSUPPORTED,
    [MR_RPC_INTERNAL] = MR_FAILED,
    [MR_RPC_UNAVAILABLE] = MR_UNAVAILABLE,
    [15] = MR_DAMAGED,
    [MR_RPC_UNAUTHENTICATED] = MR_DENIED,
};

void remote_refused(const struct remote *remote, enum mr_err err, struct mr_slice text)
{
    struct mr_detail detail;
    if (remote->refused == NULL || err == MR_OK || text.len == 0)
        return;
    mr_detail_set(&detail, "%.*s", (int)text.len, (const char *)text.data);
    remote->refused(err, detail.text, remote->refused_arg);
}

bool call_said(const struct mr_call *call)
{
    return mr_call_metadata(call, "millrace-code").len > 0;
}

enum mr_err call_err(const struct mr_call *call, int status)
{
    struct mr_slice code = mr_call_metadata(call, "millrace-code");
    for (int err = 1; status != MR_RPC_OK && code.len > 0 && err < MR_ERR_COUNT; err++)
        if (mr_slice_equal(code, mr_slice_str(mr_err_name((enum mr_err)err))))
            return (enum mr_err)err;
    if (status < 0 || (size_t)status >= sizeof by_status / sizeof *by_status)
        return MR_FAILED;
    return by_status[status];
}
