/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors of lists: any text is answered, refused or followed to an end that comes. */
#include "broker/embedded/embedded.h"
#include "fuzz/store_image.h"
#include "sim/rig.h"

enum { TEXT_MAX = 400, PAGES_MAX = 10000 };

/* One engine for all inputs: listing changes nothing. */
static struct rig *the_rig(void)
{
    static struct rig rig;
    if (rig.engine != NULL)
        return &rig;
    struct simfs *fs = simfs_clone(image_template());
    rig_init(&rig, fs, 3);
    mr_assert(rig_open(&rig) == MR_OK);
    return &rig;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t choice = fuzz_u8(&in);
    char text[TEXT_MAX + 1];
    struct mr_slice rest = fuzz_bytes(&in, TEXT_MAX);
    if (rest.len > 0)
        memcpy(text, rest.data, rest.len);
    text[rest.len] = '\0';
    struct mr_list_options options = {.limit = 1 + choice % 100,
                                      .state = (enum mr_state)(choice % MR_STATE_COUNT),
                                      .cursor = text};
    if (choice & 128)
        options.queue = MR_SLICE_LIT("mail");
    enum mr_err err;
    int pages = 0;
    do {
        struct mr_req_list req = {.req.op = MR_OP_LIST, .options = options};
        err = rig_call(the_rig(), &req.req);
        mr_assert(err == MR_OK || err == MR_INVALID);
        (void)snprintf(text, sizeof text, "%s", err == MR_OK ? req.next : "");
        mr_assert(req.n <= options.limit && (err == MR_OK || pages == 0));
        mr_req_done(&req.req);
        mr_assert(++pages < PAGES_MAX);
    } while (text[0] != '\0');
    return 0;
}
