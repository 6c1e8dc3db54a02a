/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli), by the processor's instruction where it has one, by table elsewhere. */
#ifndef MR_BASE_CRC_H
#define MR_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc (0 at the start) over more bytes. mr_crc32c(mr_crc32c(0, a), b) == mr_crc32c(0,
 * ab). */
uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len);
/* The portable way, for tests that compare the two. */
uint32_t mr_crc32c_table(uint32_t crc, const void *data, size_t len);

#endif
