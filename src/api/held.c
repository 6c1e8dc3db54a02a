/* SPDX-License-Identifier: Apache-2.0 */
/* Leases in hand: open addressing by epoch, linear probing, removal by moving back. */
#include <stdlib.h>

#include "api/work.h"

enum { CAP_MIN = 16 };

static size_t place(const struct helds *helds, uint64_t epoch)
{
    return (size_t)(epoch * 0x9e3779b97f4a7c15ULL >> 32) & (helds->cap - 1);
}

void helds_done(struct helds *helds)
{
    for (size_t i = 0; i < helds->cap; i++)
        free(helds->slots[i].id);
    free(helds->slots);
    *helds = (struct helds){0};
}

static void insert(struct helds *helds, struct held held)
{
    size_t i = place(helds, held.epoch);
    while (helds->slots[i].epoch != 0)
        i = (i + 1) & (helds->cap - 1);
    helds->slots[i] = held;
}

static enum mr_err resize(struct helds *helds, size_t cap)
{
    struct helds larger = {.cap = cap, .n = helds->n};
    larger.slots = calloc(larger.cap, sizeof *larger.slots);
    if (larger.slots == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < helds->cap; i++)
        if (helds->slots[i].epoch != 0)
            insert(&larger, helds->slots[i]);
    free(helds->slots);
    *helds = larger;
    return MR_OK;
}

enum mr_err helds_add(struct helds *helds, const struct mr_lease *lease)
{
    if (helds->n * 2 >= helds->cap)
        MR_TRY(resize(helds, helds->cap == 0 ? CAP_MIN : helds->cap * 2));
    struct held held = {.epoch = lease->epoch, .ref = lease->ref, .id_len = lease->task.id.len};
    held.id = malloc(held.id_len + 1);
    if (held.id == NULL)
        return MR_NOMEM;
    memcpy(held.id, lease->task.id.data, held.id_len);
    insert(helds, held);
    helds->n++;
    return MR_OK;
}

struct held *helds_find(const struct helds *helds, uint64_t epoch)
{
    if (helds->n == 0 || epoch == 0)
        return NULL;
    for (size_t i = place(helds, epoch); helds->slots[i].epoch != 0; i = (i + 1) & (helds->cap - 1))
        if (helds->slots[i].epoch == epoch)
            return &helds->slots[i];
    return NULL;
}

void helds_remove(struct helds *helds, uint64_t epoch)
{
    struct held *held = helds_find(helds, epoch);
    if (held == NULL)
        return;
    free(held->id);
    helds->n--;
    size_t mask = helds->cap - 1, hole = (size_t)(held - helds->slots);
    for (size_t i = (hole + 1) & mask; helds->slots[i].epoch != 0; i = (i + 1) & mask) {
        size_t home = place(helds, helds->slots[i].epoch);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* it would come to stand before its home */
        helds->slots[hole] = helds->slots[i];
        hole = i;
    }
    helds->slots[hole] = (struct held){0};
    if (helds->n == 0 && helds->cap > CAP_MIN) { /* an idle worker costs little */
        free(helds->slots);
        *helds = (struct helds){0};
    }
}
