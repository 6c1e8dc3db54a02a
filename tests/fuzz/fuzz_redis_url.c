/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of a Redis: whatever they say, they are refused with a reason or name a server. */
#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "redis/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    mr_assert(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    struct redis_url url;
    struct mr_detail detail = {0};
    enum mr_err err = redis_url_parse(text, &url, &detail);
    mr_assert(err == MR_OK || (err == MR_INVALID && detail.text[0] != '\0'));
    if (err == MR_OK) {
        mr_assert(url.hosts_n > 0 && url.hosts_n <= REDIS_HOSTS_MAX && url.db >= 0);
        mr_assert((url.path == NULL) == (url.hosts[0].name[0] != '\0'));
        mr_assert((url.service != NULL) == (url.kind == MR_REDIS_SENTINEL));
        mr_assert(url.user == NULL || url.password != NULL);
        redis_url_done(&url);
    }
    free(text);
    return 0;
}
