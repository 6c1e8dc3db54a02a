/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of our own, for the bench and the selftest: this very program again, on a folder and a
 * port of this machine. It is a process of its own, dies with us, and hears no Ctrl-C. Whatever
 * MILLRACE_* says is not for it. Thread: the main one.
 */
#ifndef MR_CLI_OWN_SERVER_H
#define MR_CLI_OWN_SERVER_H

#include <sys/types.h>

#include "base/buf.h"

enum { OWN_SERVER_SAID = 400, OWN_SERVER_ADDRESS = 64 };

struct own_server {
    pid_t pid;                     /* 0: none */
    int err_fd;                    /* its standard error, where it says that it is ready */
    bool ready;                    /* it has said so */
    char http[OWN_SERVER_ADDRESS]; /* where it listens, once it is ready; empty: nowhere */
    char grpc[OWN_SERVER_ADDRESS];
    char said[OWN_SERVER_SAID]; /* the end of what it said */
    size_t said_len;
};

/* Starts it on the folder and the address ("127.0.0.1:0": any port). It is not ready yet. */
MR_MUST_USE enum mr_err own_server_start(struct own_server *server, const char *dir,
                                         const char *address, struct mr_detail *detail);
/* The same for any command of this program that says when it is ready; argv ends with NULL. */
MR_MUST_USE enum mr_err own_server_start_args(struct own_server *server, const char *const *argv,
                                              struct mr_detail *detail);
/* Reads what it says now; never waits. False when it has said its last word. */
bool own_server_hear(struct own_server *server);
/* Waits until it is ready; MR_UNAVAILABLE with its last words when it ends before, MR_TIMEOUT. */
MR_MUST_USE enum mr_err own_server_await(struct own_server *server, struct mr_detail *detail);
/* kill -9. Both are fine when there is none. */
void own_server_kill(struct own_server *server);
/* SIGTERM; answers how it ended, as of waitpid. */
int own_server_stop(struct own_server *server);

/* In a new child: it dies with its parent, and Ctrl-C is not for it. */
void own_child_begin(pid_t parent);

#endif
