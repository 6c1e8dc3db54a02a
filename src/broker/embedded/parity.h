/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that survives damage. Its bytes stand in sectors of 4096: 4092 of data and a CRC32C.
 * Fifteen of them and a sixteenth with their parity make a group; any one damaged sector of a group
 * is rebuilt from the others. A snapshot is the only copy of what it says, so it gets this; the
 * log's records stand for themselves.
 */
#ifndef MR_EMBEDDED_PARITY_H
#define MR_EMBEDDED_PARITY_H

#include "base/buf.h"
#include "base/fs.h"

enum {
    SECTOR = 4096,
    SECTOR_DATA = SECTOR - 4,
    GROUP_SECTORS = 16,
    GROUP_BYTES = SECTOR * GROUP_SECTORS,
    GROUP_DATA = SECTOR_DATA * (GROUP_SECTORS - 1),
};

/* Turns whole groups of data (GROUP_DATA bytes each) into sectors. in and out have one owner each.
 */
void parity_encode(const uint8_t *in, size_t groups, uint32_t salt, uint8_t *out);

/* Whether a rebuilt sector is also written to the file. */
enum parity_mend { PARITY_LOOK, PARITY_WRITE_BACK };

/* Reads the data of such a file in order. A sector that cannot be read counts as damaged. */
struct parity_reader {
    enum parity_mend mend; /* the caller's, before parity_open */
    struct mr_file *file;
    uint32_t salt;
    uint64_t size;  /* of the file */
    uint64_t at;    /* data bytes given so far */
    uint64_t group; /* in the buffer; UINT64_MAX: none */
    uint8_t data[GROUP_BYTES];
    uint64_t rebuilt;   /* sectors mended while reading */
    uint64_t damage_at; /* file offset of the last damage */
};

MR_MUST_USE enum mr_err parity_open(struct parity_reader *reader, struct mr_file *file,
                                    uint32_t salt);
/* MR_DAMAGED when two sectors of a group are bad, or the data ends before len. */
MR_MUST_USE enum mr_err parity_read(struct parity_reader *reader, void *data, size_t len);

#endif
