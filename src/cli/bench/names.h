/* SPDX-License-Identifier: Apache-2.0 */
/* The bench of nameservers: processes of our own, a crowd of workers, and links between nameservers that can be cut. */
#ifndef MR_CLI_BENCH_NAMES_H
#define MR_CLI_BENCH_NAMES_H

#include "cli/bench/bench.h"
#include "names/look.h"

/* ---- crowd.c ---------------------------------------------------------------------------------- */

/* Workers that connect every 20 s to register, as those of `millrace work` do; spread evenly. */
struct bench_crowd;

enum { BENCH_CROWD_APP = 10 /* workers of an app */, BENCH_CROWD_MAX = 10 * 1000 };

/* All of them have registered when it returns. MR_TIMEOUT: some did not. */
MR_MUST_USE enum mr_err bench_crowd_open(const char *address, size_t n,
                                         struct bench_crowd **ret_crowd, struct mr_detail *detail);
/* Asks for the workers of one app after the other for so long, and adds how long each answer took. MR_FAILED: one was wrong. */
MR_MUST_USE enum mr_err bench_crowd_look(struct bench_crowd *crowd, double seconds,
                                         struct bench_samples *samples);
/* Registrations that were answered since they all had registered, and that failed. */
void bench_crowd_count(struct bench_crowd *crowd, uint64_t *ret_answered, uint64_t *ret_failed);
void bench_crowd_close(struct bench_crowd *crowd); /* NULL is fine */

/* ---- cut.c ------------------------------------------------------------------------------------ */

/* A link on this machine: who connects to its address talks to its target, unless it is cut. */
struct bench_cut;

enum { BENCH_CUT_LINKS = 8 };

/* So many links; their addresses are known at once. */
MR_MUST_USE enum mr_err bench_cut_open(size_t links, struct bench_cut **ret_cut);
const char *bench_cut_address(const struct bench_cut *cut, size_t link);
/* MR_INVALID: no address. */
MR_MUST_USE enum mr_err bench_cut_target(struct bench_cut *cut, size_t link, const char *address);
/* All links: connections are closed, and new ones at once; or no more. */
void bench_cut_set(struct bench_cut *cut, bool is_cut);
void bench_cut_close(struct bench_cut *cut); /* NULL is fine */

#endif
