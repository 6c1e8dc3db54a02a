/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/settings.h"

#include "wire/flat.h"

void mr_queue_settings_change(struct mr_queue_settings *settings,
                              const struct mr_req_queue_set *req, int64_t now_ms)
{
    bool mode = req->setting == MR_QUEUE_RETRY_MODE;
    if (mode && req->value != MR_RETRY_CLASS)
        settings->class_since_ms = 0;
    else if (mode && settings->retry_mode != MR_RETRY_CLASS)
        settings->class_since_ms = now_ms;
    if (mode)
        settings->retry_mode = (enum mr_retry_mode)req->value;
    else if (req->setting == MR_QUEUE_RETRY_WAIT)
        settings->retry_wait_ms = (int64_t)req->value;
}

void mr_queue_settings_show(const struct mr_queue_settings *settings, struct mr_queue_info *info)
{
    info->retry_mode = settings->retry_mode;
    info->retry_wait_ms = settings->retry_wait_ms > 0 ? settings->retry_wait_ms : MR_RETRY_WAIT_MS;
}

/* ---- encoding ------------------------------------------------------------------------------- */

#define FIELD(kind, member, more)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_queue_settings, member), more                           \
    }
static const struct mr_flat_field fields[] = {
    FIELD(ENUM, retry_mode, MR_RETRY_MODE_COUNT - 1),
    FIELD(64, retry_wait_ms, 0),
    FIELD(SLICE, limits, 0),
    FIELD(64, taken_ms, 0),
    FIELD(64, class_since_ms, 0),
};
static MR_FLAT(struct mr_queue_settings, flat, fields);

enum mr_err mr_queue_settings_encode(const struct mr_queue_settings *settings, struct mr_buf *buf)
{
    return mr_flat_append(&flat, settings, buf);
}

enum mr_err mr_queue_settings_decode(struct mr_slice bytes, struct mr_queue_settings *ret_settings)
{
    struct mr_queue_settings settings = {0};
    enum mr_err err = mr_flat_read(&flat, bytes, NULL, &settings);
    if (err != MR_OK)
        return err == MR_INVALID ? MR_DAMAGED : err;
    if (settings.retry_wait_ms < 0 || settings.retry_wait_ms > MR_DELAY_MAX_MS)
        return MR_DAMAGED;
    *ret_settings = settings;
    return MR_OK;
}
