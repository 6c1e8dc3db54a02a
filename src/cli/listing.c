/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/listing.h"

const char *listing_cursor(const struct listing *listing)
{
    return listing->cursor[0] ? listing->cursor : NULL;
}

void listing_turn(struct listing *listing, size_t n, const char *next)
{
    listing->shown += n;
    snprintf(listing->cursor, sizeof listing->cursor, "%s", next);
}

static enum mr_err print_pages(struct cli *cli, const struct listing_kind *kind, const void *args,
                               size_t limit, struct listing *listing)
{
    do {
        size_t left = limit - listing->shown;
        listing->limit = left < MR_BATCH_MAX ? left : MR_BATCH_MAX;
        MR_TRY(kind->page(cli, args, listing));
    } while (listing->cursor[0] && listing->shown < limit && !out_broken());
    return MR_OK;
}

/* A document is whole, or not there. */
static void end_document(struct listing *listing, enum mr_err err)
{
    if (listing->jw && err == MR_OK) {
        jw_array_end(listing->jw);
        jw_finish(listing->jw);
    }
    if (listing->table && listing->shown > 0)
        out_table_flush(listing->table);
    out_table_free(listing->table);
}

enum mr_err listing_print(struct cli *cli, const struct listing_kind *kind, const void *args,
                          const struct cli_value *limit)
{
    struct jw jw = {0};
    struct listing listing = {.jw = cli->json ? &jw : NULL,
                              .table = cli->json ? NULL : kind->table()};
    if (cli->json)
        jw_array_begin(&jw, NULL);
    enum mr_err err = print_pages(cli, kind, args,
                                  limit->given ? (size_t)limit->number : LISTING_LIMIT, &listing);
    end_document(&listing, err);
    mr_buf_done(&jw.buf);
    if (err != MR_OK)
        return err;
    out_flush();
    if (out_broken())
        return MR_OK;
    if (listing.cursor[0])
        cli_note(cli, "%zu shown, there are more: --limit N shows more", listing.shown);
    else if (listing.shown == 0)
        cli_note(cli, "%s", kind->none);
    return MR_OK;
}
