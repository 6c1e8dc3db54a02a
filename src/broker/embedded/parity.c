/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/embedded/parity.h"

#include "base/crc.h"

static void sector_seal(uint8_t *sector, uint32_t salt)
{
    mr_store32(sector + SECTOR_DATA, mr_crc32c(salt, sector, SECTOR_DATA));
}

static bool sector_ok(const uint8_t *sector, uint32_t salt)
{
    return mr_load32(sector + SECTOR_DATA) == mr_crc32c(salt, sector, SECTOR_DATA);
}

static void xor_into(uint8_t *to, const uint8_t *from)
{
    for (size_t i = 0; i < SECTOR_DATA; i += 4)
        mr_store32(to + i, mr_load32(to + i) ^ mr_load32(from + i));
}

void parity_encode(const uint8_t *in, size_t groups, uint32_t salt, uint8_t *out)
{
    for (size_t g = 0; g < groups; g++, out += GROUP_BYTES) {
        uint8_t *parity = out + (size_t)SECTOR * (GROUP_SECTORS - 1);
        memset(parity, 0, SECTOR);
        for (size_t s = 0; s < GROUP_SECTORS - 1; s++, in += SECTOR_DATA) {
            uint8_t *sector = out + s * SECTOR;
            memcpy(sector, in, SECTOR_DATA);
            sector_seal(sector, salt);
            xor_into(parity, sector);
        }
        sector_seal(parity, salt);
    }
}

enum mr_err parity_open(struct parity_reader *reader, struct mr_file *file, uint32_t salt)
{
    reader->file = file;
    reader->salt = salt;
    reader->at = reader->rebuilt = reader->damage_at = 0;
    reader->group = UINT64_MAX;
    MR_TRY(mr_file_size(file, &reader->size));
    return reader->size > 0 ? MR_OK : MR_DAMAGED;
}

/* Rebuilds the one bad sector, if there is one. */
static enum mr_err mend(struct parity_reader *reader)
{
    size_t bad = GROUP_SECTORS, n = 0;
    for (size_t s = 0; s < GROUP_SECTORS; s++) {
        if (sector_ok(reader->data + s * SECTOR, reader->salt))
            continue;
        bad = s;
        n++;
    }
    if (n == 0)
        return MR_OK;
    reader->damage_at = reader->group * GROUP_BYTES + bad * SECTOR;
    if (n > 1)
        return MR_DAMAGED;
    uint8_t *sector = reader->data + bad * SECTOR;
    memset(sector, 0, SECTOR);
    for (size_t s = 0; s < GROUP_SECTORS; s++)
        if (s != bad)
            xor_into(sector, reader->data + s * SECTOR);
    reader->rebuilt++;
    if (reader->mend == PARITY_WRITE_BACK) {
        sector_seal(sector, reader->salt);
        bool written = mr_file_pwrite(reader->file, sector, SECTOR, reader->damage_at) == MR_OK &&
                       mr_file_sync(reader->file) == MR_OK;
        (void)written; /* a failure costs nothing now: what was read is right */
    }
    return MR_OK;
}

/* Sector by sector, with zeroes for what cannot be read. */
static enum mr_err read_around(struct parity_reader *reader, uint64_t at, size_t len)
{
    for (size_t done = 0; done < len; done += SECTOR) {
        size_t n = len - done < SECTOR ? len - done : SECTOR;
        enum mr_err err = mr_file_pread(reader->file, reader->data + done, n, at + done);
        if (err == MR_IO)
            memset(reader->data + done, 0, n);
        else
            MR_TRY(err);
    }
    return MR_OK;
}

/* A file cut short counts as zeroes behind its end: at most one sector of the last group may be
 * missing. */
static enum mr_err load(struct parity_reader *reader, uint64_t group)
{
    uint64_t at = group * GROUP_BYTES;
    if (at >= reader->size)
        return MR_DAMAGED;
    size_t len = reader->size - at < GROUP_BYTES ? (size_t)(reader->size - at) : GROUP_BYTES;
    memset(reader->data + len, 0, GROUP_BYTES - len);
    reader->group = UINT64_MAX;
    enum mr_err err = mr_file_pread(reader->file, reader->data, len, at);
    if (err == MR_IO)
        err = read_around(reader, at, len);
    MR_TRY(err);
    reader->group = group;
    return mend(reader);
}

enum mr_err parity_read(struct parity_reader *reader, void *data, size_t len)
{
    uint8_t *out = data;
    while (len > 0) {
        uint64_t group = reader->at / GROUP_DATA;
        size_t inside = (size_t)(reader->at % GROUP_DATA);
        if (reader->group != group)
            MR_TRY(load(reader, group));
        size_t in_sector = inside % SECTOR_DATA;
        size_t n = SECTOR_DATA - in_sector < len ? SECTOR_DATA - in_sector : len;
        memcpy(out, reader->data + inside / SECTOR_DATA * SECTOR + in_sector, n);
        reader->at += n;
        out += n;
        len -= n;
    }
    return MR_OK;
}
