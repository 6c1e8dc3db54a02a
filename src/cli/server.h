/* SPDX-License-Identifier: Apache-2.0 */
/* What a command needs to talk to a server: its address, and who we are. */
#ifndef MR_CLI_SERVER_H
#define MR_CLI_SERVER_H

#include "cli/cli.h"
#include "rpc/rpc.h"

/* The token to show: of --token-file, else MILLRACE_TOKEN, else of the file MILLRACE_TOKEN_FILE;
 * without one buf stays empty. A NUL follows it. 0, or the exit code after saying what is wrong. */
int cli_token_text(const struct cli *cli, struct mr_buf *buf);

/* That of a file. Likewise. */
int cli_token_read(const char *path, struct mr_buf *buf);

/* What --tls-ca, --tls-cert and --tls-key say, or MILLRACE_TLS_CA and so on; NULL: nothing. */
struct cli_tls {
    const char *ca, *cert, *key;
};
/* 0, or the exit code after saying what is wrong: a flag where the broker has no TLS, a certificate
 * without its key, a file that cannot be read. */
int cli_tls(const struct cli *cli, struct cli_tls *ret_tls);

/* 0, or the exit code after saying that the file cannot be read, and what names it. Before anything
 * is opened, so that the error is about the file and not about the connection. */
int cli_look_at_file(const char *name, const char *path);

/* Whether the URL names a Redis, or one behind Sentinels or of a Cluster. */
bool cli_is_redis(const char *url);

/* Whether the URL names nameservers, who know the servers. */
bool cli_is_names(const char *url);

/* Whether the URL names a server: millrace://HOST:PORT, or millraces:// with TLS. */
bool cli_is_server(const char *url);

/* Sends the request to the method at the server behind cli->broker and waits for its answer, which
 * is appended to ret_answer. 0, or the exit code after saying why not; `what` says what was
 * attempted. */
int cli_call(const struct cli *cli, const char *what, const char *path, struct mr_slice request,
             struct mr_buf *ret_answer);

/* The same, where any of the servers of millrace://H1:P1,H2:P2 will do: the first one that is there. */
int cli_call_any(const struct cli *cli, const char *what, const char *path, struct mr_slice request,
                 struct mr_buf *ret_answer);

/* A server or nameserver by its address. */
struct cli_address {
    const char *address;
    const struct mr_rpc_tls *tls; /* NULL: plain */
    const char *authorization;    /* NULL: none */
    int64_t ms;                   /* a call takes so long at most */
};
/* The same there; what went wrong is in *why, and is not said. */
MR_MUST_USE enum mr_err cli_call_address(const struct cli_address *at, const char *path,
                                         struct mr_slice request, struct mr_buf *ret_answer,
                                         struct mr_detail *why);

#endif
