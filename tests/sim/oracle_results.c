/* SPDX-License-Identifier: Apache-2.0 */
/* Results, as the oracle hears of them: each accepted end of a run of a task with a topic has left one,
 * with what the run said, and it is there until it is committed, once. See oracle.h. */
#include <stdlib.h>
#include <string.h>

#include "sim/oracle_int.h"

/* ---- what may be left ----------------------------------------------------------------------- */

static bool has_topic(const struct fact *fact)
{
    return oracle_topic(&fact->spec)[0] != '\0';
}

static struct result_row *row_of(struct oracle *oracle, uint32_t token, uint64_t epoch)
{
    for (size_t i = oracle->results_n; i > 0; i--) {
        struct result_row *row = &oracle->results[i - 1];
        if (row->token == token && row->epoch == epoch)
            return row;
    }
    return NULL;
}

void results_touched(struct oracle *oracle, uint32_t token)
{
    for (size_t i = 0; i < oracle->results_n; i++)
        oracle->results[i].undecided &= oracle->results[i].token != token;
}

void results_leased(struct oracle *oracle, uint32_t token, uint64_t epoch)
{
    if (!has_topic(fact_at(oracle, token)))
        return;
    results_touched(oracle, token);
    if (oracle->results_n == oracle->results_cap) {
        oracle->results_cap = oracle->results_cap ? 2 * oracle->results_cap : 64;
        oracle->results = realloc(oracle->results, oracle->results_cap * sizeof *oracle->results);
        mr_assert(oracle->results);
    }
    oracle->results[oracle->results_n++] = (struct result_row){.token = token, .epoch = epoch};
}

void results_sent(struct oracle *oracle, const struct oracle_op *op)
{
    struct result_row *row = row_of(oracle, op->token, op->epoch);
    if (row)
        row->sent |= (uint8_t)(1 << op->outcome);
}

void results_accepted(struct oracle *oracle, const struct oracle_op *op)
{
    struct result_row *row = row_of(oracle, op->token, op->epoch);
    if (!row)
        return;
    row->accepted = true;
    row->outcome = op->outcome;
    row->note_len = op->outcome == MR_DONE ? op->note_len : 0;
}

/* Only what nobody else was doing anything to tells whether the step was taken; and of a failure only
 * one that cannot be quarantined instead. */
void results_crashed(struct oracle *oracle)
{
    for (size_t i = 0; i < oracle->results_n; i++) {
        struct result_row *row = &oracle->results[i];
        const struct fact *fact = fact_at(oracle, row->token);
        bool good = row->sent == 1 << MR_DONE || row->sent == 1 << MR_DROP;
        bool bad = row->sent == 1 << MR_FAIL_FOR_GOOD && fact->crashes.max + 1 < MR_CRASHES_MAX;
        if ((good || bad) && !row->accepted && fact->finish_under_way &&
            fact->epoch == row->epoch && fact->sure == LIVE && fact->controls == 0 &&
            fact->removals == 0 && fact->enqueues == 0 && !fact->cancelled && !fact->doomed)
            row->undecided = true;
    }
}

static bool leaves(enum mr_outcome outcome)
{
    return outcome != MR_HAND_BACK && outcome != MR_LATER;
}

static enum mr_result_outcome left_by(enum mr_outcome outcome)
{
    if (!leaves(outcome))
        return MR_RESULT_CANCELLED; /* by one that was told to go */
    return outcome == MR_DONE || outcome == MR_DROP ? MR_RESULT_OK : MR_RESULT_ERROR;
}

/* ---- what was left -------------------------------------------------------------------------- */

static struct result_row *find(struct oracle *oracle, const struct mr_lease *lease,
                               const struct mr_result *result)
{
    char text[MR_UUID_TEXT_LEN + 1];
    for (size_t i = oracle->results_n; i > 0; i--) {
        struct result_row *row = &oracle->results[i - 1];
        const char *id = fact_at(oracle, row->token)->id;
        if (!mr_slice_equal(result->task_id, mr_slice_str(id)))
            continue;
        struct mr_uuid uuid = mr_result_id(result->task_id, row->epoch);
        mr_uuid_format(&uuid, text);
        if (mr_slice_equal(lease->task.id, mr_slice_make(text, MR_UUID_TEXT_LEN)))
            return row;
    }
    oracle_fail(oracle, "ghost: a result of %.*s, of no run that we know", (int)result->task_id.len,
                (const char *)result->task_id.data);
    return NULL;
}

static void check_outcome(struct oracle *oracle, const struct result_row *row,
                          const struct mr_result *result)
{
    bool fits = row->accepted && result->outcome == left_by(row->outcome);
    bool lost = result->outcome == MR_RESULT_LOST || result->outcome == MR_RESULT_CANCELLED;
    for (int outcome = MR_DONE; outcome <= MR_LATER && !row->accepted; outcome++)
        fits |= lost || (row->sent & 1 << outcome && result->outcome == left_by(outcome));
    if (!fits && !oracle->short_of_space)
        oracle_fail(oracle, "task %u: a run that ended with %d (%s) left the result %s", row->token,
                    (int)row->outcome, row->accepted ? "accepted" : "not accepted",
                    mr_result_outcome_name(result->outcome));
    struct mr_slice text = result->result;
    bool same = text.len == row->note_len || !row->accepted || row->outcome != MR_DONE;
    bool ours = text.len == 0 || note_epoch(row->token, text) == row->epoch;
    if (!ours || (!same && !oracle->short_of_space))
        oracle_fail(oracle, "task %u: another result than its run under %llu left", row->token,
                    (unsigned long long)row->epoch);
}

struct result_row *oracle_result(struct oracle *oracle, const struct mr_lease *lease)
{
    struct mr_result result;
    if (mr_result_decode(lease->task.payload, &result) != MR_OK) {
        oracle_fail(oracle, "a result cannot be read");
        return NULL;
    }
    struct result_row *row = find(oracle, lease, &result);
    if (!row)
        return NULL;
    const struct oracle_spec *spec = &fact_at(oracle, row->token)->spec;
    if (!mr_slice_equal(result.topic, mr_slice_str(oracle_topic(spec))) ||
        !mr_slice_equal(result.queue, mr_slice_str(spec->queue)) ||
        !mr_slice_equal(result.type, mr_slice_str(spec->type)))
        oracle_fail(oracle, "task %u: its result says that it is another", row->token);
    check_outcome(oracle, row, &result);
    if (row->committed)
        oracle_fail(oracle, "task %u: its result was committed, and comes again", row->token);
    if (row->seen && oracle->counts_results)
        oracle_fail(oracle, "task %u: two results of one run", row->token);
    row->seen = true;
    row->left = result.outcome;
    return row;
}

struct result_row *oracle_result_known(struct oracle *oracle, const struct mr_lease *lease)
{
    struct mr_result result;
    return mr_result_decode(lease->task.payload, &result) == MR_OK ? find(oracle, lease, &result)
                                                                   : NULL;
}

void oracle_commit_sent(struct result_row *row)
{
    row->doubtful = true; /* until it is answered */
}

void oracle_committed(struct oracle *oracle, struct result_row *row, enum mr_err err)
{
    if (err == MR_OK && row->committed)
        oracle_fail(oracle, "task %u: its result was committed twice", row->token);
    row->committed |= err == MR_OK;
}

void oracle_results_begin(struct oracle *oracle)
{
    oracle->counts_results = true;
    for (size_t i = 0; i < oracle->results_n; i++)
        oracle->results[i].seen = false;
}

/* The crash left both, the end of the run and its result, or neither. */
static void check_decided(struct oracle *oracle, const struct result_row *row)
{
    bool bad = row->sent == 1 << MR_FAIL_FOR_GOOD;
    uint8_t fate = fact_at(oracle, row->token)->sure, end = bad ? ARCHIVED : GONE | COMPLETED;
    bool ended = !(fate & ~end), not_ended = !(fate & end);
    bool left = row->seen && row->left == (bad ? MR_RESULT_ERROR : MR_RESULT_OK);
    if (row->undecided && !row->doubtful && (ended || not_ended) && ended != left &&
        !oracle->allow_loss && !oracle->reads_failed)
        oracle_fail(oracle, "task %u %s, and the result of that %s there", row->token,
                    ended ? "has ended" : "has not ended", left ? "is" : "is not");
}

void oracle_results_end(struct oracle *oracle)
{
    oracle->counts_results = false;
    for (size_t i = 0; i < oracle->results_n; i++) {
        const struct result_row *row = &oracle->results[i];
        bool there = row->accepted && leaves(row->outcome) && !row->committed && !row->doubtful;
        check_decided(oracle, row);
        if (there && !row->seen && !oracle->allow_loss && !oracle->reads_failed)
            oracle_fail(oracle, "task %u: the result of its run under %llu is lost", row->token,
                        (unsigned long long)row->epoch);
    }
}
