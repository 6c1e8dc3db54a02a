/* SPDX-License-Identifier: Apache-2.0 */
/* Sets that become one task, as the oracle hears of them. See oracle.h. */
#include <string.h>

#include "sim/oracle_int.h"

static const char *const names[ORACLE_GROUPS_MAX + 1] = {"", "group-1", "group-2", "group-3"};

const char *oracle_group(const struct oracle_spec *spec)
{
    mr_assert(spec->group <= ORACLE_GROUPS_MAX);
    return names[spec->group];
}

void oracle_in_set(struct oracle *oracle, uint32_t token, uint32_t version)
{
    const struct fact *fact = fact_at(oracle, token);
    if (fact->spec.group == 0 || fact->spec.delay_ms != 0)
        oracle_fail(oracle, "task %u is in a set and joined no group", token);
    if (version == fact->version && !(may(oracle, fact) & LIVE))
        oracle_fail(oracle, "ghost: task %u is in a set after its end", token);
}

void oracle_gathered_sent(struct oracle *oracle, struct oracle_gathered *gathered)
{
    for (size_t i = 0; i < gathered->n; i++) {
        struct fact *fact = fact_at(oracle, gathered->members[i]);
        fact->version++;
        fact_add(fact, GONE, 1);
    }
    oracle_enqueue_sent(oracle, gathered->made, &gathered->op);
    size_t at = oracle->gathered_n++ % ORACLE_GATHERED_MAX;
    gathered->number = oracle->gathered_n;
    oracle->gathered[at] = *gathered;
}

static void forget(struct oracle *oracle, uint64_t number)
{
    struct oracle_gathered *known = &oracle->gathered[(number - 1) % ORACLE_GATHERED_MAX];
    if (known->number == number)
        known->number = 0;
}

void oracle_gathered_answered(struct oracle *oracle, const struct oracle_gathered *gathered,
                              enum mr_err err, const struct mr_enqueue_result *result)
{
    bool made = err == MR_OK && result->err == MR_OK;
    bool refused = err == MR_STALE || (err == MR_OK && !made);
    for (size_t i = 0; i < gathered->n; i++) {
        struct fact *fact = fact_at(oracle, gathered->members[i]);
        fact->version++;
        fact_add(fact, GONE, -1);
        if (made && !(may(oracle, fact) & LIVE))
            oracle_fail(oracle, "task %u became part of another after its end",
                        gathered->members[i]);
        if (made)
            fact->sure = GONE, fact->completed = false;
        else if (!refused)
            fact->sure |= GONE, fact->in_doubt = true;
    }
    oracle_enqueue_answered(oracle, &gathered->op, err, result);
    if (made || refused)
        forget(oracle, gathered->number);
}

/* Only what nobody else was doing anything to tells whether the step was taken. */
void gathered_crashed(struct oracle *oracle)
{
    for (size_t g = 0; g < ORACLE_GATHERED_MAX; g++) {
        struct oracle_gathered *gathered = &oracle->gathered[g];
        size_t n = 0;
        for (size_t i = 0; gathered->number != 0 && !gathered->crashed && i < gathered->n; i++) {
            const struct fact *fact = fact_at(oracle, gathered->members[i]);
            if (fact->sure == LIVE && fact->adds[0] == 1 && fact->controls == 0 &&
                fact->enqueues == 0 && !fact->cancelled && !fact->doomed)
                gathered->members[n++] = gathered->members[i];
        }
        if (gathered->number != 0 && !gathered->crashed)
            gathered->n = n;
        gathered->crashed = true;
    }
}

void check_gathered(struct oracle *oracle)
{
    for (size_t g = 0; g < ORACLE_GATHERED_MAX; g++) {
        struct oracle_gathered *gathered = &oracle->gathered[g];
        if (gathered->number == 0 || !gathered->crashed)
            continue;
        bool made = fact_at(oracle, gathered->made)->seen;
        for (size_t i = 0; i < gathered->n && !oracle->allow_loss && !oracle->reads_failed; i++)
            if (fact_at(oracle, gathered->members[i])->seen == made)
                oracle_fail(oracle, "task %u and task %u, which it became a part of, are %s",
                            gathered->members[i], gathered->made,
                            made ? "both there" : "both gone");
        gathered->number = 0;
    }
}
