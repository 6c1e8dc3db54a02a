/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments, by table. Two passes: the first finds the command and its verb, for which it must know
 * which options carry a value; the second stores everything. Own parsing instead of getopt_long,
 * since options may stand before the command and errors are to name what was typed and the nearest
 * known thing.
 */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "base/net.h"
#include "base/text.h"
#include "cli/cli.h"

#define AT(field) offsetof(struct cli_globals, field)

const struct cli_option cli_global_options[] = {
    {.name = "broker",
     .kind = CLI_TEXT,
     .offset = AT(broker),
     .value = "URL",
     .help = "where tasks live, such as file:DIR; else MILLRACE_BROKER"},
    {.name = "namespace",
     .kind = CLI_NAME,
     .offset = AT(namespace_),
     .value = "NAME",
     .help = "separate space on a shared broker; else MILLRACE_NAMESPACE"},
    {.name = "token-file",
     .kind = CLI_TEXT,
     .offset = AT(token_file),
     .value = "FILE",
     .help = "token for a server; else MILLRACE_TOKEN, MILLRACE_TOKEN_FILE"},
    {.name = "tls-ca",
     .kind = CLI_TEXT,
     .offset = AT(tls_ca),
     .value = "FILE",
     .help = "with TLS: trust these, PEM; else MILLRACE_TLS_CA, else the system's"},
    {.name = "tls-cert",
     .kind = CLI_TEXT,
     .offset = AT(tls_cert),
     .value = "FILE",
     .help = "with TLS: our own certificate, PEM; else MILLRACE_TLS_CERT"},
    {.name = "tls-key",
     .kind = CLI_TEXT,
     .offset = AT(tls_key),
     .value = "FILE",
     .help = "with TLS: its private key, PEM; else MILLRACE_TLS_KEY"},
    {.name = "wait-replicas",
     .kind = CLI_COUNT,
     .offset = AT(wait_replicas),
     .value = "N",
     .max = CLI_WAIT_REPLICAS_MAX,
     .help = "redis: acknowledge what so many replicas have; else MILLRACE_WAIT_REPLICAS"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "JSON on standard output"},
    {.name = "quiet", .kind = CLI_FLAG, .offset = AT(quiet), .help = "nothing but data and errors"},
    {.name = "no-color",
     .kind = CLI_FLAG,
     .offset = AT(no_color),
     .help = "no colours; also NO_COLOR"},
    {.name = "version", .kind = CLI_FLAG, .offset = AT(version), .help = "print the version"},
    {.name = "help", .letter = 'h', .kind = CLI_FLAG, .offset = AT(help), .help = "print this"},
};
const size_t cli_global_options_n = CLI_LEN(cli_global_options);

/* ---- values --------------------------------------------------------------------------------- */

/* Each checks value->text and fills the rest; MR_INVALID with what is wrong with it. */
typedef enum mr_err parse_value(const struct cli_option *option, struct cli_value *value,
                                struct mr_detail *why);

static enum mr_err wrong(struct mr_detail *why, const char *text)
{
    mr_detail_set(why, "%s", text);
    return MR_INVALID;
}

static enum mr_err parse_text(const struct cli_option *option, struct cli_value *value,
                              struct mr_detail *why)
{
    (void)option, (void)value, (void)why;
    return MR_OK;
}

const char *cli_name_problem(const char *text)
{
    struct mr_slice name = mr_slice_str(text);
    if (mr_name_check(name) == MR_OK)
        return NULL;
    if (name.len == 0)
        return "is empty";
    if (name.len > MR_NAME_MAX)
        return "is over the limit of 128 bytes";
    return mr_utf8_valid(name) ? "has control characters or braces" : "is not valid UTF-8";
}
static_assert(MR_NAME_MAX == 128, "the text above says so");

static enum mr_err parse_name(const struct cli_option *option, struct cli_value *value,
                              struct mr_detail *why)
{
    const char *problem = cli_name_problem(value->text);
    size_t len = strlen(value->text);
    if (problem == NULL && option->max > 0 && len > (size_t)option->max) {
        mr_detail_set(why, "has %zu bytes, the limit is %lld", len, (long long)option->max);
        return MR_INVALID;
    }
    return problem ? wrong(why, problem) : MR_OK;
}

static enum mr_err parse_duration(const struct cli_option *option, struct cli_value *value,
                                  struct mr_detail *why)
{
    enum mr_err err = mr_parse_duration_ms(value->text, &value->number);
    if (err == MR_OK && value->number < option->min) {
        char least[32];
        mr_format_duration_ms(option->min, least);
        mr_detail_set(why, "is below %s", least);
        return MR_INVALID;
    }
    bool above = err == MR_OK && option->max > 0 && value->number > option->max;
    if (err == MR_OK && !above)
        return MR_OK;
    if (above || err == MR_TOO_BIG)
        return wrong(why, "is too long");
    return wrong(why, value->text[0] == '-'
                          ? "must not be negative"
                          : "is not a duration such as 250ms, 10s, 5m, 1h30m or 7d");
}

static enum mr_err parse_time(const struct cli_option *option, struct cli_value *value,
                              struct mr_detail *why)
{
    (void)option;
    if (mr_parse_time_ms(value->text, &value->number) == MR_OK)
        return MR_OK;
    return wrong(why, "is not a time such as 2030-01-31T08:00:00Z or Unix seconds");
}

/* err: of reading the number. */
static enum mr_err check_range(const struct cli_option *option, const struct cli_value *value,
                               enum mr_err err, struct mr_detail *why)
{
    int64_t most = option->max > 0 ? option->max : INT64_MAX;
    bool negative = value->text[0] == '-';
    if (err == MR_OK && value->number >= option->min && value->number <= most)
        return MR_OK;
    if (negative && option->min == 0)
        return wrong(why, "must not be negative");
    if (negative || (err == MR_OK && value->number < option->min))
        mr_detail_set(why, "is below %lld", (long long)option->min);
    else
        mr_detail_set(why, "is over the limit of %lld", (long long)most);
    return MR_INVALID;
}

static enum mr_err parse_count(const struct cli_option *option, struct cli_value *value,
                               struct mr_detail *why)
{
    enum mr_err err = mr_parse_int64(value->text, &value->number);
    if (err != MR_OK && err != MR_TOO_BIG)
        return wrong(why, "is not a whole number");
    return check_range(option, value, err, why);
}

static enum mr_err parse_size(const struct cli_option *option, struct cli_value *value,
                              struct mr_detail *why)
{
    uint64_t bytes = 0;
    enum mr_err err = mr_parse_size(value->text, &bytes);
    if (err != MR_OK && err != MR_TOO_BIG)
        return wrong(why, "is not a size such as 64KiB, 1MiB or 500000");
    if (err == MR_OK && bytes > INT64_MAX)
        err = MR_TOO_BIG;
    value->number = err == MR_OK ? (int64_t)bytes : INT64_MAX;
    return check_range(option, value, err, why);
}

static enum mr_err parse_address(const struct cli_option *option, struct cli_value *value,
                                 struct mr_detail *why)
{
    (void)option;
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    if (mr_host_parse(value->text, host, &port) == MR_OK)
        return MR_OK;
    return wrong(why, "is not an address such as 127.0.0.1:7400 or [::1]:7400");
}

static enum mr_err parse_real(const struct cli_option *option, struct cli_value *value,
                              struct mr_detail *why)
{
    (void)option;
    if (mr_parse_double(value->text, &value->real) != MR_OK || !isfinite(value->real))
        return wrong(why, "is not a number");
    return MR_OK;
}

static enum mr_err parse_choice(const struct cli_option *option, struct cli_value *value,
                                struct mr_detail *why)
{
    struct mr_buf known = {0};
    for (size_t i = 0; option->choices[i]; i++) {
        cli_must(mr_buf_printf(&known, "%s%s", i ? ", " : "", option->choices[i]));
        if (strcmp(option->choices[i], value->text) == 0) {
            value->number = (int64_t)i;
            mr_buf_done(&known);
            return MR_OK;
        }
    }
    mr_detail_set(why, "is none of %.*s", (int)known.len, (const char *)known.data);
    mr_buf_done(&known);
    return MR_INVALID;
}

static parse_value *const parsers[CLI_KIND_COUNT] = {
    [CLI_FLAG] = parse_text,
    [CLI_TEXT] = parse_text,
    [CLI_NAME] = parse_name,
    [CLI_DURATION] = parse_duration,
    [CLI_TIME] = parse_time,
    [CLI_COUNT] = parse_count,
    [CLI_REAL] = parse_real,
    [CLI_CHOICE] = parse_choice,
    [CLI_SIZE] = parse_size,
    [CLI_ADDRESS] = parse_address,
    [CLI_MAYBE_DURATION] = parse_duration,
};

enum mr_err cli_value_parse(const struct cli_option *option, struct cli_value *value,
                            struct mr_detail *why)
{
    return parsers[option->kind](option, value, why);
}

/* ---- tokens --------------------------------------------------------------------------------- */

struct token {
    enum { TOKEN_WORD, TOKEN_OPTION, TOKEN_END } kind;
    const char *name; /* of an option, not terminated */
    size_t name_len;
    const char *value; /* written in the same token, or NULL */
    char letter;       /* of a short option, else 0 */
};

static struct token token_of(const char *text)
{
    if (text[0] != '-' || text[1] == '\0' || isdigit((unsigned char)text[1]) || text[1] == '.')
        return (struct token){.kind = TOKEN_WORD}; /* "-" is standard input, "-5" a number */
    if (strcmp(text, "--") == 0)
        return (struct token){.kind = TOKEN_END};
    if (text[1] != '-')
        return (struct token){.kind = TOKEN_OPTION,
                              .name = text + 1,
                              .name_len = 1,
                              .value = text[2] ? text + 2 : NULL,
                              .letter = text[1]};
    const char *equals = strchr(text, '=');
    return (struct token){.kind = TOKEN_OPTION,
                          .name = text + 2,
                          .name_len = equals ? (size_t)(equals - text - 2) : strlen(text + 2),
                          .value = equals ? equals + 1 : NULL};
}

static const struct cli_option *find_row(const struct cli_option *rows, size_t n,
                                         const struct token *token)
{
    for (size_t i = 0; i < n; i++) {
        if (token->letter ? rows[i].letter == token->letter
                          : mr_slice_equal(mr_slice_str(rows[i].name),
                                           mr_slice_make(token->name, token->name_len)))
            return &rows[i];
    }
    return NULL;
}

/* Those of the verb first, or of all verbs while it is not known: what a verb has under the name of a
 * global option is meant there. */
static const struct cli_option *find_option(const struct cli *cli, const struct token *token)
{
    const struct cli_option *found = NULL;
    size_t verbs_n = !cli->command ? 0 : cli->verb ? 1 : cli->command->verbs_n;
    const struct cli_verb *verbs = cli->verb      ? cli->verb
                                   : cli->command ? cli->command->verbs
                                                  : NULL;
    for (size_t i = 0; !found && i < verbs_n; i++)
        found = find_row(verbs[i].options, verbs[i].options_n, token);
    return found ? found : find_row(cli_global_options, cli_global_options_n, token);
}

static bool is_global(const struct cli_option *option)
{
    return option >= cli_global_options && option < cli_global_options + cli_global_options_n;
}

/* Whether the value of an option is the word behind it, if there is one. */
static bool value_follows(const struct cli_option *option, const struct token *token,
                          const char *word)
{
    int64_t ms;
    if (option->kind == CLI_FLAG || token->value)
        return false;
    return option->kind != CLI_MAYBE_DURATION || (word && mr_parse_duration_ms(word, &ms) == MR_OK);
}

/* The nearest word; or the first that begins with it: --prio means --priority; or that begins alike
 * and is about as long: --retires means --retry. */
const char *cli_nearest(const char *name, const char *const *words)
{
    enum { ALIKE = 3, LONGER_MAX = 3 };
    const char *nearest = mr_nearest_word(name, words);
    for (size_t i = 0; !nearest && words[i]; i++)
        if (strlen(name) > 1 && strncmp(words[i], name, strlen(name)) == 0)
            nearest = words[i];
    for (size_t i = 0; !nearest && words[i]; i++) {
        long longer = (long)strlen(words[i]) - (long)strlen(name);
        if (strncmp(words[i], name, ALIKE) == 0 && labs(longer) <= LONGER_MAX)
            nearest = words[i];
    }
    return nearest;
}

static int fail_unknown_option(const struct cli *cli, const struct token *token)
{
    if (token->letter)
        return cli_usage(cli, "unknown option -%c", token->letter);
    enum { WORDS_MAX = 64 };
    const char *words[WORDS_MAX + 1] = {0};
    size_t n = 0;
    for (size_t i = 0; cli->verb && i < cli->verb->options_n && n < WORDS_MAX; i++)
        if (cli->verb->options[i].note != CLI_NOT_HERE)
            words[n++] = cli->verb->options[i].name;
    for (size_t i = 0; i < cli_global_options_n && n < WORDS_MAX; i++)
        words[n++] = cli_global_options[i].name;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)token->name_len, token->name);
    const char *nearest = cli_nearest(name, words);
    if (nearest)
        return cli_usage(cli, "unknown option --%s; did you mean --%s?", name, nearest);
    return cli_usage(cli, "unknown option --%s", name);
}

/* ---- first pass: command and verb ----------------------------------------------------------- */

static int find_command(struct cli *cli, const char *word)
{
    enum { WORDS_MAX = 32 };
    const char *words[WORDS_MAX + 1] = {0};
    for (size_t i = 0; cli_commands[i] && i < WORDS_MAX; i++) {
        words[i] = cli_commands[i]->name;
        if (strcmp(word, cli_commands[i]->name) == 0)
            cli->command = cli_commands[i];
    }
    if (strcmp(word, cli_complete.name) == 0)
        cli->command = &cli_complete;
    if (cli->command) {
        if (!cli->command->verbs[0].name && cli->command->verbs_n == 1)
            cli->verb = &cli->command->verbs[0];
        return CLI_OK;
    }
    const char *nearest = cli_nearest(word, words);
    if (nearest)
        return cli_usage(cli, "unknown command %s; did you mean %s?", word, nearest);
    return cli_usage(cli, "unknown command %s", word);
}

static int find_verb(struct cli *cli, const char *word)
{
    enum { WORDS_MAX = 32 };
    const char *words[WORDS_MAX + 1] = {0};
    size_t n = 0;
    for (size_t i = 0; i < cli->command->verbs_n && n < WORDS_MAX; i++) {
        if (!cli->command->verbs[i].name)
            continue; /* it is meant by no word */
        words[n] = cli->command->verbs[i].name;
        if (strcmp(word, words[n++]) == 0)
            cli->verb = &cli->command->verbs[i];
    }
    if (cli->verb)
        return CLI_OK;
    const char *nearest = cli_nearest(word, words);
    if (nearest)
        return cli_usage(cli, "unknown verb %s; did you mean %s?", word, nearest);
    return cli_usage(cli, "unknown verb %s", word);
}

/* Where the words that are not arguments stand in argv. */
struct places {
    int command, verb;
};

/* Takes one word of the first pass. */
static int place_word(struct cli *cli, const char *word, int i, struct places *places)
{
    if (!cli->command && !cli->globals.help.given && strcmp(word, "help") == 0) {
        cli->globals.help.given = true;
        return CLI_OK;
    }
    if (!cli->command) {
        places->command = i;
        return find_command(cli, word);
    }
    if (!cli->verb) {
        places->verb = i;
        return find_verb(cli, word);
    }
    return CLI_OK;
}

/* A command with verbs may do something of its own without one. */
static void choose_default(struct cli *cli)
{
    if (cli->command && !cli->verb && !cli->command->verbs[0].name)
        cli->verb = &cli->command->verbs[0];
}

static int first_pass(struct cli *cli, int argc, char **argv, struct places *places)
{
    for (int i = 1; i < argc; i++) {
        struct token token = token_of(argv[i]);
        if (token.kind == TOKEN_END)
            break;
        if (token.kind == TOKEN_WORD) {
            int code = place_word(cli, argv[i], i, places);
            if (code != CLI_OK)
                return code;
            continue;
        }
        const struct cli_option *option = find_option(cli, &token);
        if (!option && !cli->command)
            return fail_unknown_option(cli, &token);
        if (!option)
            continue; /* the second pass reports it, with the verb known */
        if (value_follows(option, &token, argv[i + 1]))
            i++;
        if (is_global(option) && option->kind == CLI_FLAG)
            ((struct cli_value *)((char *)&cli->globals + option->offset))->given = true;
    }
    choose_default(cli);
    return CLI_OK;
}

/* ---- second pass: values -------------------------------------------------------------------- */

/* "--queue" or "-q", as it was typed. */
static const char *typed(const struct token *token, char text[72])
{
    snprintf(text, 72, "-%s%.*s", token->letter ? "" : "-", (int)token->name_len, token->name);
    return text;
}

static int store_value(struct cli *cli, void *args, const struct cli_option *option,
                       const struct token *token)
{
    char flag[72];
    typed(token, flag);
    if (option->note == CLI_NOT_HERE)
        return cli_usage(cli, "%s: %s", flag, option->help);
    char *base = is_global(option) ? (char *)&cli->globals : (char *)args;
    struct cli_value *value = (struct cli_value *)(base + option->offset);
    value->given = true;
    value->text = token->value;
    struct mr_detail why = {0};
    if (token->value && cli_value_parse(option, value, &why) != MR_OK)
        return cli_usage(cli, "%s: \"%.200s\" %s", flag, token->value, why.text);
    if (option->note == CLI_REPEATS) {
        value->items = cli_grow(value->items, value->items_n + 1, sizeof *value->items);
        value->items[value->items_n++] = token->value;
    }
    return CLI_OK;
}

/* Stores the option at argv[*i], moving on when its value is the next word. */
static int store_option(struct cli *cli, void *args, int argc, char **argv, int *i)
{
    struct token token = token_of(argv[*i]);
    const struct cli_option *option = find_option(cli, &token);
    char flag[72];
    if (!option)
        return fail_unknown_option(cli, &token);
    if (option->kind == CLI_FLAG && token.value)
        return cli_usage(cli, "%s takes no value", typed(&token, flag));
    if (value_follows(option, &token, argv[*i + 1])) {
        if (*i + 1 >= argc || strcmp(argv[*i + 1], "--") == 0)
            return cli_usage(cli, "%s needs a value", typed(&token, flag));
        token.value = argv[++*i];
    }
    return store_value(cli, args, option, &token);
}

static int second_pass(struct cli *cli, int argc, char **argv, const struct places *places,
                       void *args)
{
    cli->words = cli_alloc((size_t)argc, sizeof *cli->words);
    for (int i = 1; i < argc; i++) {
        struct token token = token_of(argv[i]);
        if (i == places->command || i == places->verb)
            continue;
        if (token.kind == TOKEN_END) {
            cli->tail = argv + i + 1;
            cli->tail_n = (size_t)(argc - i - 1);
            break;
        }
        if (token.kind == TOKEN_WORD) {
            cli->words[cli->words_n++] = argv[i];
            continue;
        }
        int code = store_option(cli, args, argc, argv, &i);
        if (code != CLI_OK)
            return code;
    }
    for (size_t i = 0; cli->verb->tail == CLI_TAIL_WORDS && i < cli->tail_n; i++)
        cli->words[cli->words_n++] = cli->tail[i];
    return CLI_OK;
}

void cli_globals_read(struct cli *cli, char **words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct token token = token_of(words[i]);
        if (token.kind == TOKEN_END)
            return;
        const struct cli_option *option =
            token.kind == TOKEN_OPTION ? find_row(cli_global_options, cli_global_options_n, &token)
                                       : NULL;
        if (!option || option->kind == CLI_FLAG)
            continue;
        if (!token.value && i + 1 < n)
            token.value = words[++i];
        if (token.value)
            (void)store_value(cli, NULL, option, &token); /* a wrong one counts as none */
    }
}

static int check_words(const struct cli *cli)
{
    const struct cli_verb *verb = cli->verb;
    const char *name = verb->name ? verb->name : "", *gap = verb->name ? " " : "";
    if (cli->words_n < verb->words_min)
        return cli_usage(cli, "an argument is missing: millrace %s%s%s %s", cli->command->name, gap,
                         name, verb->synopsis);
    if (cli->words_n > verb->words_max && verb->tail == CLI_TAIL_COMMAND)
        return cli_usage(cli, "unexpected argument %s; the command to run follows --",
                         cli->words[verb->words_max]);
    if (cli->words_n > verb->words_max)
        return cli_usage(cli, "unexpected argument %s: millrace %s%s%s%s%s",
                         cli->words[verb->words_max], cli->command->name, gap, name,
                         *verb->synopsis ? " " : "", verb->synopsis);
    const char *problem =
        verb->words == CLI_FIRST_IS_QUEUE ? cli_name_problem(cli->words[0]) : NULL;
    return problem ? cli_usage(cli, "queue name \"%.200s\" %s", cli->words[0], problem) : CLI_OK;
}

static int fail_no_verb(const struct cli *cli)
{
    struct mr_buf verbs = {0};
    for (size_t i = 0; i < cli->command->verbs_n; i++)
        cli_must(mr_buf_printf(&verbs, "%s%s", i ? ", " : "", cli->command->verbs[i].name));
    int code = cli_usage(cli, "%s needs one of %.*s", cli->command->name, (int)verbs.len,
                         (const char *)verbs.data);
    mr_buf_done(&verbs);
    return code;
}

void cli_args_free(const struct cli *cli, void *args)
{
    for (size_t i = 0; args && i < cli->verb->options_n; i++) {
        const struct cli_option *option = &cli->verb->options[i];
        if (option->note == CLI_REPEATS)
            free(((struct cli_value *)((char *)args + option->offset))->items);
    }
    free(args);
}

int cli_parse(struct cli *cli, int argc, char **argv, void **ret_args)
{
    struct places places = {0};
    int code = first_pass(cli, argc, argv, &places);
    if (code != CLI_OK || cli->globals.help.given || cli->globals.version.given)
        return code;
    if (!cli->command)
        return cli_usage(cli, "no command given");
    if (!cli->verb)
        return fail_no_verb(cli);
    void *args = cli_alloc(1, cli->verb->args_size);
    code = second_pass(cli, argc, argv, &places, args);
    if (code == CLI_OK)
        code = check_words(cli);
    if (code != CLI_OK) {
        cli_args_free(cli, args);
        return code;
    }
    *ret_args = args;
    return CLI_OK;
}
