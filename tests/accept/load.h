/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that submits, deletes, takes and commits as fast as it may, on some threads, and notes in a file
 * what it is about to do and what was answered. It does not mind when its broker goes; it may be killed at any
 * time. What was answered must be in force ever after.
 */
#ifndef MR_TESTS_ACCEPT_LOAD_H
#define MR_TESTS_ACCEPT_LOAD_H

#include "accept/accept.h"

/* Its ids begin with the prefix. SIGTERM ends it with a good end. */
pid_t load_spawn(struct accept *t, const char *url, const char *prefix);
int load_main(int argc, char **argv);

/* What the load knows; notes are read as they come. */
struct load_book;
struct load_book *load_book_open(struct accept *t);
/* Reads what was noted since the last time; answers how many facts. */
size_t load_read(struct load_book *book);
/* All that was answered since the last time this was asked is in force. */
void load_check_news(struct load_book *book);
/* Nobody works any more: all of it again, and what was not answered is there or not, but not in parts. What is
 * there is remembered for the conservation check. Frees it. */
void load_settle(struct load_book *book);

#endif
