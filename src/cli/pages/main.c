/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-pages DIR: writes the man pages, the completions and what else is made of the tables into a folder, at
 * build time.
 *
 *   DIR/man1/millrace.1, DIR/man1/millrace-COMMAND.1, DIR/millrace.bash, DIR/_millrace,
 *   DIR/millrace.fish, DIR/reference.md, DIR/millrace.yaml
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/pages/pages.h"

static FILE *begin(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    if (!file)
        exit(cli_fail(CLI_FAILED, "cannot write %s: %m", path));
    return file;
}

static void end(FILE *file)
{
    bool fine = ferror(file) == 0;
    if (fclose(file) != 0 || !fine)
        exit(cli_fail(CLI_FAILED, "cannot write a page: %m"));
}

static void write_whole(const char *dir, const char *name, void (*write)(FILE *file))
{
    FILE *file = begin(dir, name);
    write(file);
    end(file);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return cli_fail(CLI_USAGE, "usage: millrace-pages DIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/man1", argv[1]);
    if ((mkdir(argv[1], 0777) != 0 && errno != EEXIST) ||
        (mkdir(path, 0777) != 0 && errno != EEXIST))
        return cli_fail(CLI_FAILED, "cannot make %s: %m", path);
    write_whole(argv[1], "man1/millrace.1", page_man);
    write_whole(argv[1], "millrace.bash", page_bash);
    write_whole(argv[1], "_millrace", page_zsh);
    write_whole(argv[1], "millrace.fish", page_fish);
    write_whole(argv[1], "reference.md", page_reference);
    write_whole(argv[1], "millrace.yaml", page_settings);
    for (size_t i = 0; cli_commands[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "man1/millrace-%s.1", cli_commands[i]->name);
        FILE *file = begin(argv[1], name);
        page_man_command(file, cli_commands[i]);
        end(file);
    }
    return CLI_OK;
}
