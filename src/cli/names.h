/* SPDX-License-Identifier: Apache-2.0 */
/* Nameservers as people name them, and what a command shows to them. */
#ifndef MR_CLI_NAMES_H
#define MR_CLI_NAMES_H

#include "base/arena.h"
#include "cli/cli.h"
#include "names/client.h"
#include "rpc/rpc.h"

#define NAMES_DEFAULT "127.0.0.1:7410"

/* A list, and how to talk to those on it. */
struct cli_names {
    const char *addresses[MR_NAMESERVERS_MAX];
    size_t n;
    bool is_secure; /* it began with namess:// or millraces:// */
    struct mr_rpc_tls tls;
    const char *authorization; /* NULL: none */
    struct mr_arena arena;     /* all of the texts */
};

/* "H:P,H:P", with TLS "namess://H:P,H:P" or "millraces://H:P,H:P"; name is what it was given by. 0, or the exit code after saying what is wrong;
 * cli_names_done in either case. */
int cli_names_read(const struct cli *cli, const char *name, const char *text,
                   struct cli_names *names);
/* The token and certificates of the options that every command has. Likewise. */
int cli_names_identify(const struct cli *cli, struct cli_names *names);
/* Appends the URL of a broker whose servers these know, and a NUL. */
void cli_names_url(const struct cli_names *names, struct mr_buf *url);
void cli_names_done(struct cli_names *names);
/* "Bearer TOKEN" as the arena's; NULL without a token. */
const char *cli_names_bearer(struct cli_names *names, const char *token);
/* NULL: plain. */
const struct mr_rpc_tls *cli_names_tls(const struct cli_names *names);

/* The list of --nameserver, else of MILLRACE_NAMESERVER, else NULL; ret_name: which of them. */
const char *cli_names_given(const struct cli_value *flag, const char **ret_name);

#define NAMES_HELP "nameservers, of which one must live; else MILLRACE_NAMESERVER"

#endif
