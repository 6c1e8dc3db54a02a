/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: one row per command and verb, from which parsing, help and errors follow.
 *
 * A verb's options are parsed into a struct of its own that holds one struct cli_value per option;
 * rows say where. Every function that ends a command answers its exit code. Errors are one line on
 * stderr that says what went wrong, where, and what to do next; data goes to stdout. Thread: the
 * main one, unless a function says otherwise.
 */
#ifndef MR_CLI_CLI_H
#define MR_CLI_CLI_H

#include "base/buf.h"
#include "client/client.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOT_FOUND = 3,
    CLI_CONFLICT = 4,
    CLI_NOT_ALLOWED = 5,
    CLI_UNREACHABLE = 6,
    CLI_TIMED_OUT = 7,
    CLI_TASK_FAILED = 8,
    CLI_SIGNAL_BASE = 128, /* ended by a signal: plus its number */
};

/* What an option's value must be. */
enum cli_kind {
    CLI_FLAG,           /* no value */
    CLI_TEXT,           /* any bytes */
    CLI_NAME,           /* a name as of mr_name_check */
    CLI_DURATION,       /* number: ms */
    CLI_TIME,           /* number: ms since the Unix epoch */
    CLI_COUNT,          /* number: within min..max */
    CLI_REAL,           /* real */
    CLI_CHOICE,         /* number: index into choices */
    CLI_SIZE,           /* number: bytes, within min..max */
    CLI_ADDRESS,        /* HOST:PORT */
    CLI_MAYBE_DURATION, /* a duration, or nothing: text is NULL then */
    CLI_KIND_COUNT
};

/* What was given for one option. */
struct cli_value {
    bool given;
    const char *text; /* the last one given */
    int64_t number;
    double real;
    const char **items; /* repeatable options: all that were given */
    size_t items_n;
};

/* Where an option may appear again and again, or is known but not served by this build's brokers.
 */
enum cli_option_note { CLI_ONCE, CLI_REPEATS, CLI_NOT_HERE };

struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum cli_kind kind;
    enum cli_option_note note;
    size_t offset;     /* of the struct cli_value in the verb's arguments */
    const char *value; /* shown for the value in help */
    const char *help;  /* one line; for CLI_NOT_HERE why not, and what to do */
    const char *const *choices;
    int64_t min, max;      /* CLI_COUNT, CLI_SIZE, durations; names: max, bytes; max 0: none */
    const char *fallback;  /* settings of the server: what holds when nothing is given, or NULL */
    const char *otherwise; /* the same where no one value of it does: in words */
};

/* As help says it; NULL: there is none. */
static inline const char *cli_default(const struct cli_option *option)
{
    return option->fallback ? option->fallback : option->otherwise;
}

/* Whether a command on file:DIR may make a new store there. A verb that has more to check before
 * anything is opened says CLI_STORE_NONE and calls cli_open itself. */
enum cli_store { CLI_STORE_NONE, CLI_STORE_MAY_CREATE, CLI_STORE_MUST_EXIST };

struct cli;
typedef int cli_run(struct cli *cli, void *args);

struct cli_verb {
    const char *name;            /* NULL: what the command does without one; the first row */
    const char *synopsis;        /* what follows the name, options apart */
    const char *about;           /* one line */
    const char *const *examples; /* NULL-terminated; the first line of help */
    const struct cli_option *options;
    size_t options_n;
    size_t args_size;              /* of the struct the options are parsed into */
    unsigned words_min, words_max; /* plain arguments */
    enum {
        CLI_WORDS_PLAIN,
        CLI_FIRST_IS_QUEUE,
        CLI_FIRST_IS_TIMER,
        CLI_FIRST_IS_JOB
    } words; /* what they name */
    enum cli_store store;
    enum {
        CLI_TAIL_WORDS,
        CLI_TAIL_COMMAND
    } tail; /* what "--" starts: plain words, or a command */
    cli_run *run;
};

struct cli_command {
    const char *name;
    const char *about;
    const struct cli_verb *verbs;
    size_t verbs_n;
};

enum {
    CLI_WORDS_ANY = 1 << 30,
    CLI_WAIT_REPLICAS_MAX = 100,
    CLI_LOG_SEGMENT_MIN = 4 * 1024 * 1024,
    CLI_LOG_SEGMENT_MAX = 1024 * 1024 * 1024,
};

/* Options of `work` and settings of `serve`. */
#define CLI_ARCHIVE_MAX_ROW                                                                        \
    .name = "archive-max", .kind = CLI_COUNT, .value = "N", .min = 1, .max = UINT32_MAX,           \
    .help = "on a Redis: of a queue the archive keeps so many tasks", .otherwise = "9999"
#define CLI_ARCHIVE_FOR_ROW                                                                        \
    .name = "archive-for", .kind = CLI_DURATION, .value = "D", .min = MR_MS_PER_S,                 \
    .help = "on a Redis: the archive keeps tasks so long", .otherwise = "90d"
/* A setting of `serve`, and a variable for every command on a folder. */
#define CLI_LOG_SEGMENT_ROW                                                                        \
    .name = "log-segment", .kind = CLI_SIZE, .value = "SIZE", .min = CLI_LOG_SEGMENT_MIN,          \
    .max = CLI_LOG_SEGMENT_MAX,                                                                    \
    .help = "of a folder that is new: its log grows by files of this size; a payload has at most " \
            "a quarter of it"

/* Options every command has. */
struct cli_globals {
    struct cli_value broker, namespace_, token_file, tls_ca, tls_cert, tls_key, wait_replicas, json,
        quiet, no_color, version, help;
};

/* One invocation. */
struct cli {
    struct cli_globals globals;
    const char *broker;           /* flag, environment or default */
    char shown[MR_URL_SHOWN_MAX]; /* the same for people: without a password */
    const char *namespace_;
    bool json, quiet;
    const struct cli_command *command;
    const struct cli_verb *verb;
    char **words; /* plain arguments, in order */
    size_t words_n;
    char **tail; /* what follows "--" */
    size_t tail_n;
    struct mr_client *client; /* NULL until opened; closed at the end */
};

#define CLI_LEN(array) (sizeof(array) / sizeof(array)[0])

/* Of a verb's row. */
#define CLI_OPTIONS(rows, args)                                                                    \
    .options = (rows), .options_n = CLI_LEN(rows), .args_size = sizeof(args)
#define CLI_ONE_WORD .words_min = 1, .words_max = 1
#define CLI_EXAMPLES(...)                                                                          \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- the commands --------------------------------------------------------------------------- */

extern const struct cli_command cli_enqueue, cli_work, cli_queue, cli_task, cli_dead, cli_bench,
    cli_fsck, cli_backup, cli_serve, cli_config, cli_token, cli_selftest;
extern const struct cli_command cli_nameserver, cli_migrate, cli_node, cli_result, cli_timer,
    cli_job, cli_top;
extern const struct cli_command cli_complete; /* for shells, not for people: not in the list */
extern const struct cli_command *const cli_commands[]; /* NULL-terminated, in the order of help */

/* What the exit codes mean, for people. */
struct cli_exit_row {
    enum cli_exit code;
    const char *meaning;
};
extern const struct cli_exit_row cli_exits[];
extern const size_t cli_exits_n;

/* ---- options.c ------------------------------------------------------------------------------ */

extern const struct cli_option cli_global_options[];
extern const size_t cli_global_options_n;

/*
 * Finds command and verb and parses everything else into cli and *ret_args (the verb's struct, to
 * be freed). Answers 0, or the exit code after saying what is wrong. A call for help or the version
 * leaves the rest unparsed and is answered 0.
 */
int cli_parse(struct cli *cli, int argc, char **argv, void **ret_args);
void cli_args_free(const struct cli *cli, void *args);
/* Takes the global options out of words that may be half typed, and leaves the rest. */
void cli_globals_read(struct cli *cli, char **words, size_t n);

/* Holds value->text against the option's kind and fills the rest; MR_INVALID with what is wrong. */
MR_MUST_USE enum mr_err cli_value_parse(const struct cli_option *option, struct cli_value *value,
                                        struct mr_detail *why);
/* The word meant by an unknown one, or NULL. words end with NULL. */
const char *cli_nearest(const char *name, const char *const *words);
/* What is wrong with a name, NULL when it is fine. */
const char *cli_name_problem(const char *name);

/* ---- help.c --------------------------------------------------------------------------------- */

void cli_help(const struct cli *cli);
/* Whether the verb has an option of this name; false for NULL. */
bool cli_verb_has(const struct cli_verb *verb, const char *name);

/* ---- report.c ------------------------------------------------------------------------------- */

/* Each prints "millrace: ..." on stderr, control characters escaped, and answers the exit code. */
int cli_fail(int code, const char *fmt, ...) MR_PRINTF(2, 3);
/* With " (see millrace COMMAND --help)" behind it; CLI_USAGE. */
int cli_usage(const struct cli *cli, const char *fmt, ...) MR_PRINTF(2, 3);
/* What was attempted, then the text of err; the exit code of err. */
int cli_fail_err(enum mr_err err, const char *fmt, ...) MR_PRINTF(2, 3);
/* What was attempted on subject, then the detail, or the text of err where there is none; a detail
 * often begins with the subject, which is not said twice. */
int cli_fail_detail(enum mr_err err, const char *what, const char *subject,
                    const struct mr_detail *detail);
/* The text of err: what the server said with it, if it did. Thread: any. */
void cli_err_text(enum mr_err err, struct mr_detail *ret_text);
/* For mr_client_options: keeps that. Before the first client is open. */
mr_refusal *cli_refusals(void);
/* For who goes on in spite of them: they are told when they come. Before that, too. */
void cli_refusals_tell(void);
/* A line for one, unless it was told within the last minute. Thread: the broker's. */
void cli_refusal_tell(enum mr_err err, const char *text);
/* A line for people on stderr, unless --quiet. */
void cli_note(const struct cli *cli, const char *fmt, ...) MR_PRINTF(2, 3);

/* Memory for the command line; ends the program when there is none. */
void *cli_alloc(size_t n, size_t size);
void *cli_grow(void *memory, size_t n, size_t size);
/* The same for buffers and copies. */
void cli_must(enum mr_err err);

/* ---- open.c --------------------------------------------------------------------------------- */

/* Broker, namespace and so on: from the flag, else the environment, else the default. */
void cli_settle(struct cli *cli);
/* Whether cli->broker is a folder in which no store is. */
bool cli_store_missing(const struct cli *cli);
/* Opens cli->broker into cli->client; 0 or the exit code after saying why not. */
int cli_open(struct cli *cli, const struct mr_client_options *options, enum cli_store store);
/* Says why cli->broker could not be opened; the exit code. */
int cli_fail_open(const struct cli *cli, enum mr_err err, const struct mr_detail *detail);
/* The limits of the archive, likewise: what these flags say, or MILLRACE_ARCHIVE_MAX and _FOR. */
int cli_archive_limits(const struct cli *cli, const struct cli_value *max,
                       const struct cli_value *keep, struct mr_client_options *options);
/* On a Redis: a note of what it can lose; nothing with --json. */
void cli_note_risk(const struct cli *cli);
/* MR_OK: a folder that can be read; MR_NOT_FOUND: none; MR_INVALID: something else of this name. */
MR_MUST_USE enum mr_err cli_look_at_folder(const char *dir);
/* The folder of a file: URL, or NULL. */
const char *cli_file_dir(const char *url);
/* Reads standard input to its end, at most max bytes: MR_TOO_BIG beyond. */
MR_MUST_USE enum mr_err cli_read_stdin(struct mr_buf *buf, size_t max);

#endif
