/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Man pages, completions, the reference and a file of settings, written from the tables of the program when
 * Millrace is built. Not part of the program itself.
 */
#ifndef MR_CLI_PAGES_PAGES_H
#define MR_CLI_PAGES_PAGES_H

#include <stdio.h>

#include "cli/cli.h"

/* ---- man.c ---------------------------------------------------------------------------------- */

/* millrace(1): what all commands share. */
void page_man(FILE *file);
/* millrace-COMMAND(1). */
void page_man_command(FILE *file, const struct cli_command *command);

/* ---- markdown.c ----------------------------------------------------------------------------- */

/* All commands, options, settings, errors, routes and figures. */
void page_reference(FILE *file);
/* A file of settings that sets none: each of them is there behind a #. */
void page_settings(FILE *file);

/* ---- bash.c, zsh.c, fish.c ------------------------------------------------------------------ */

void page_bash(FILE *file);
void page_zsh(FILE *file);
void page_fish(FILE *file);

/* The first row of a command that has a name: one before it is what it does without a verb. */
size_t pages_first_verb(const struct cli_command *command);
/* What __complete is asked for the first word of the verb; NULL: nothing. */
const char *pages_names(const struct cli_verb *verb);
/* The option whose value is a queue, as a pattern of the shell. */
#define PAGES_QUEUE_OPTION "--queue|-q"

/* ---- options.c ------------------------------------------------------------------------------ */

/* Whether the option is of use in this build. */
bool pages_shown(const struct cli_option *option);
/* Whether the next word is its value. */
bool pages_takes_value(const struct cli_option *option);
/* Options that appear on several commands mean the same there, so the completions need each of them
 * only once. Calls each for every option with a value, global ones first, none of them twice. */
void pages_valued(void (*each)(FILE *file, const struct cli_option *option), FILE *file);
/* All of these as a pattern of the shell: --queue|-q|--type|... */
void pages_valued_pattern(FILE *file);
/* One of them. */
void pages_pattern(FILE *file, const struct cli_option *option);
/* The words it takes, with a space before each. */
void pages_choices(FILE *file, const struct cli_option *option);

#endif
