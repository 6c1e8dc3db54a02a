/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program itself, $MILLRACE, as a process of a test: `serve`, `nameserver`, `work`. What it says goes into a file. It ends
 * with the test at the latest. Failures end the test.
 */
#ifndef MR_TESTS_PROGRAM_H
#define MR_TESTS_PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

enum { PROGRAM_ARGS_MAX = 48, PROGRAM_TEXT_MAX = 512 };

struct program {
    pid_t pid;                  /* 0: it does not run */
    char log[PROGRAM_TEXT_MAX]; /* the file; set before the start */
    char grpc[64], http[64];    /* where it listens, by its ready line; "": it does not say */
};

/* Arguments as text: formats as they are, up to a NULL. They are copied. */
struct program_args {
    size_t n;
    char texts[PROGRAM_ARGS_MAX][PROGRAM_TEXT_MAX];
};
void program_arg(struct program_args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A file that is there is replaced. */
void program_start(struct program *program, const struct program_args *args);
/* It has said that it is ready, up to 20 s. */
void program_await_ready(struct program *program);
/* Whether a line of what it says since its start contains this. */
bool program_says(const struct program *program, const char *text);
void program_kill(struct program *program);                /* -9, and waits; none: fine */
void program_stop(struct program *program, int exit_code); /* in order; it must end so */
void program_freeze(struct program *program);
void program_thaw(struct program *program);
/* Runs it to its end, up to 20 s, with its standard output into text; its exit code. */
int program_run(const struct program_args *args, char *text, size_t size);

#endif
