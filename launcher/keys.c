/* The key of a compiler; see keys.h. */
#define _GNU_SOURCE
#include "keys.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Continues a digest (FNV-1a) with a text. It names a file, which says itself what it is about. */
static uint64_t digest_of(uint64_t digest, const char *text)
{
    for (; *text; text++)
        digest = (digest ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return digest;
}

/* True if one of the folders of a list depends on the current folder. */
static bool has_relative(const char *folders)
{
    bool start = true;
    for (; *folders; start = *folders++ == ':')
        if (start && *folders != '/')
            return true;
    return start;
}

bool find_record(const char *folder, const char *compiler, struct compiler_record *record)
{
    char here[PATH_MAX] = "";
    const char *libraries = getenv("LD_LIBRARY_PATH");
    bool relative = libraries && *libraries && has_relative(libraries);
    if ((*compiler != '/' || relative) && !getcwd(here, sizeof here))
        return false;
    int length = snprintf(record->compiler, PATH_MAX, "%s%s%s", *compiler == '/' ? "" : here,
                          *compiler == '/' ? "" : "/", compiler);
    uint64_t digest = digest_of(UINT64_C(0xcbf29ce484222325), record->compiler);
    if (libraries && *libraries)
        digest = digest_of(digest_of(digest_of(digest_of(digest, ":"), libraries), ":"), relative ? here : "");
    return length < PATH_MAX &&
           snprintf(record->path, PATH_MAX, "%s/%016" PRIx64, folder, digest) < PATH_MAX;
}

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* True if a file is the one of a line: "SIZE INODE MODIFIED CHANGED PATH", with times in nanoseconds. All
 * numbers of a missing file are 0. */
static bool is_unchanged(const char *line)
{
    struct stat status;
    int64_t size = 0, modified = 0, changed = 0;
    uint64_t inode = 0;
    int path = 0;
    sscanf(line, "%" SCNd64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %n", &size, &inode, &modified, &changed, &path);
    if (path == 0 || stat(line + path, &status) < 0)
        return path > 0 && inode == 0;
    return status.st_size == size && status.st_ino == inode && nanoseconds(status.st_mtim) == modified &&
           nanoseconds(status.st_ctim) == changed;
}

/* Reads a line without its end. False at the end of the file. */
static bool next_line(FILE *file, char **line, size_t *size)
{
    ssize_t length = getline(line, size, file);
    if (length > 0 && (*line)[length - 1] == '\n')
        (*line)[length - 1] = '\0';
    return length > 0;
}

bool read_key(const struct compiler_record *record, char *key)
{
    char real[PATH_MAX], *line = NULL;
    size_t size = 0, files = 0;
    FILE *file = fopen(record->path, "re");
    bool good = file && next_line(file, &line, &size) && strlen(line) == KEY_LENGTH;
    if (good)
        strcpy(key, line);
    good = good && next_line(file, &line, &size) && realpath(record->compiler, real) &&
           strcmp(line, real) == 0;
    for (; good && next_line(file, &line, &size); files++)
        good = is_unchanged(line);
    if (file)
        fclose(file);
    free(line);
    return good && files > 0;
}
