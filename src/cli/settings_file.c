/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of settings: YAML, one mapping of keys to plain values. Read by libyaml's events, since
 * every error is to name its line, also that of a value which only its setting knows to be wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <yaml.h>

#include "cli/settings.h"

struct reading {
    const struct cli *cli;
    const char *path;
    yaml_parser_t parser;
    settings_pair *pair;
    void *arg;
};

static unsigned line_of(yaml_mark_t mark)
{
    return (unsigned)mark.line + 1;
}

static int fail_at(const struct reading *reading, yaml_mark_t mark, const char *text)
{
    return cli_fail(CLI_USAGE, "%s:%u: %s", reading->path, line_of(mark), text);
}

static int next(struct reading *reading, yaml_event_t *event)
{
    if (yaml_parser_parse(&reading->parser, event))
        return CLI_OK;
    const yaml_parser_t *parser = &reading->parser;
    return cli_fail(CLI_USAGE, "%s:%u: %s", reading->path, line_of(parser->problem_mark),
                    parser->problem ? parser->problem : "not YAML");
}

static const char *text_of(const yaml_event_t *event)
{
    return (const char *)event->data.scalar.value;
}

/* What follows a key. */
static int read_value(struct reading *reading, const yaml_event_t *key)
{
    yaml_event_t value;
    int code = next(reading, &value);
    if (code != CLI_OK)
        return code;
    if (value.type != YAML_SCALAR_EVENT)
        code = cli_fail(CLI_USAGE, "%s:%u: %s: must be one plain value", reading->path,
                        line_of(value.start_mark), text_of(key));
    else if (strlen(text_of(&value)) != value.data.scalar.length)
        code = cli_fail(CLI_USAGE, "%s:%u: %s: has a NUL in it", reading->path,
                        line_of(value.start_mark), text_of(key));
    else
        code = reading->pair(text_of(key), text_of(&value), line_of(key->start_mark), reading->arg);
    yaml_event_delete(&value);
    return code;
}

static int read_mapping(struct reading *reading)
{
    for (;;) {
        yaml_event_t key;
        int code = next(reading, &key);
        if (code != CLI_OK)
            return code;
        bool end = key.type == YAML_MAPPING_END_EVENT;
        if (!end && key.type != YAML_SCALAR_EVENT)
            code = fail_at(reading, key.start_mark, "a key must be plain text");
        else if (!end)
            code = read_value(reading, &key);
        yaml_event_delete(&key);
        if (end || code != CLI_OK)
            return code;
    }
}

/* The document, up to its end; an empty file has none. */
static int read_events(struct reading *reading)
{
    for (;;) {
        yaml_event_t event;
        int code = next(reading, &event);
        if (code != CLI_OK)
            return code;
        bool end = event.type == YAML_STREAM_END_EVENT;
        if (event.type == YAML_MAPPING_START_EVENT)
            code = read_mapping(reading);
        else if (event.type == YAML_SCALAR_EVENT || event.type == YAML_SEQUENCE_START_EVENT ||
                 event.type == YAML_ALIAS_EVENT)
            code = fail_at(reading, event.start_mark, "expected lines of the form KEY: VALUE");
        yaml_event_delete(&event);
        if (end || code != CLI_OK)
            return code;
    }
}

int settings_file(const struct cli *cli, const char *path, settings_pair *pair, void *arg)
{
    struct reading reading = {.cli = cli, .path = path, .pair = pair, .arg = arg};
    FILE *file = fopen(path, "rbe");
    if (!file)
        return cli_fail_err(mr_err_from_errno(errno), "cannot read the settings in %s", path);
    struct stat st;
    if (fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode)) {
        fclose(file);
        return cli_fail(CLI_USAGE, "cannot read the settings in %s: it is a folder", path);
    }
    if (!yaml_parser_initialize(&reading.parser))
        cli_must(MR_NOMEM);
    yaml_parser_set_input_file(&reading.parser, file);
    int code = read_events(&reading);
    yaml_parser_delete(&reading.parser);
    fclose(file);
    return code;
}
