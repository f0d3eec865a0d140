/* The files that a command writes: what they were before an attempt, and what becomes of them when it is
 * killed. Independent of the governor and of processes. */
#define _GNU_SOURCE
#include "launcher.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An output, and what it was before the attempt. */
struct output_file {
    const char *path;
    bool main;
    bool existed;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec written;
};

/* A launcher runs one command. */
static struct output_file files[MOST_OUTPUTS];
static size_t file_count;

/* Returns whether a path is a regular file. `-o /dev/null` names a device, `-o -` names stdout. */
static bool is_file(const char *path, struct stat *found)
{
    return strcmp(path, "-") != 0 && lstat(path, found) == 0 && S_ISREG(found->st_mode);
}

void files_remember(char **command)
{
    struct output_word found;
    file_count = 0;
    for (char **word = command; *word && file_count < MOST_OUTPUTS; word += found.words) {
        struct stat file;
        if (!(found = command_output(command, word)).path)
            continue;
        struct output_file *output = &files[file_count++];
        *output = (struct output_file){.path = found.path, .main = found.main};
        if (!is_file(found.path, &file))
            continue;
        output->existed = true;
        output->device = file.st_dev;
        output->inode = file.st_ino;
        output->size = file.st_size;
        output->written = file.st_mtim;
    }
}

static bool is_same_file(const struct output_file *output, const struct stat *now)
{
    return output->existed && output->device == now->st_dev && output->inode == now->st_ino;
}

static bool is_untouched(const struct output_file *output, const struct stat *now)
{
    return is_same_file(output, now) && output->size == now->st_size &&
           output->written.tv_sec == now->st_mtim.tv_sec &&
           output->written.tv_nsec == now->st_mtim.tv_nsec;
}

/* Empties a file. It becomes older than any source, so that make does not take it for complete. */
static void empty(const char *path)
{
    static const struct timespec OLDEST[2];
    int file = open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return;
    futimens(file, OLDEST);
    close(file);
}

/* Returns whether a name is `start`, then so many hexadecimal digits, then `end`. */
static bool is_made_from(const char *name, const char *start, size_t start_length, size_t digits,
                         const char *end)
{
    if (strlen(name) != start_length + digits + strlen(end) ||
        strncmp(name, start, start_length) != 0 || strcmp(name + start_length + digits, end) != 0)
        return false;
    for (size_t at = 0; at < digits; at++)
        if (!isxdigit((unsigned char)name[start_length + at]))
            return false;
    return true;
}

/* clang writes STEM-12345678.EXTENSION.tmp, lld writes NAME.tmp1234567, and each renames it to the
 * output's name at the end. */
static bool is_temporary(const char *name, const char *output)
{
    char start[NAME_MAX + 8], end[NAME_MAX + 8];
    const char *dot = strrchr(output, '.');
    int stem = (int)(dot ? (size_t)(dot - output) : strlen(output));
    int clang = snprintf(start, sizeof start, "%.*s-", stem, output);
    snprintf(end, sizeof end, "%s.tmp", dot ? dot : "");
    if (is_made_from(name, start, (size_t)clang, 8, end))
        return true;
    int lld = snprintf(start, sizeof start, "%s.tmp", output);
    return is_made_from(name, start, (size_t)lld, 7, "");
}

static void delete_temporaries(const char *output)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(output, '/'), *name = slash ? slash + 1 : output;
    int length = slash ? (int)(slash - output) + 1 : 0;
    if (strlen(name) > NAME_MAX || length >= PATH_MAX - 1)
        return;
    snprintf(folder, sizeof folder, "%.*s.", length, output);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (entry->d_type != DT_DIR && is_temporary(entry->d_name, name))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}

/* Removes what was written to an output. One that was written in place is emptied if the command is
 * repeated: it then keeps its links and its mode, as it would have without us. */
static void undo(const struct output_file *output, const struct stat *now, bool repeated)
{
    bool in_place = is_same_file(output, now) && (now->st_size == 0 || !is_untouched(output, now));
    if (repeated && in_place)
        empty(output->path);
    else
        unlink(output->path);
}

void files_undo(bool repeated)
{
    struct stat now;
    bool touched = false;
    if (command_kind == CUSTOM)
        return;
    for (size_t at = 0; at < file_count; at++)
        touched |= is_file(files[at].path, &now) && !is_untouched(&files[at], &now);
    for (size_t at = 0; at < file_count; at++) {
        const struct output_file *output = &files[at];
        bool exists = is_file(output->path, &now);
        /* Without its list of headers, an old object would look up to date to make. */
        if (exists && (!is_untouched(output, &now) || (touched && output->main)))
            undo(output, &now, repeated);
        if (output->main)
            delete_temporaries(output->path);
    }
}
