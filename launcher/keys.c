/* The key of a compiler; see keys.h. */
#define _GNU_SOURCE
#include "keys.h"

#include "programs.h"
#include "text.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

bool record_of(const struct call *call, const char *compiler, char *record)
{
    static const char DIGITS[] = "0123456789abcdef";
    const char *folder = variable(call->environment, "STOKER_COMPILER_KEYS");
    const char *libraries = variable(call->environment, "LD_LIBRARY_PATH");
    if (!folder || text_length(folder) + sizeof "/0123456789abcdef" > PATH_MAX)
        return false;
    uint64_t digest = digest_of(UINT64_C(0xcbf29ce484222325), compiler);
    if (libraries && *libraries) {
        char here[PATH_MAX];
        here[0] = '\0';
        if (has_relative(libraries) && syscall(SYS_getcwd, here, sizeof here) <= 0)
            return false;
        digest = digest_of(digest_of(digest_of(digest_of(digest, ":"), libraries), ":"), here);
    }
    size_t length = text_length(folder);
    copy(record, folder, length);
    record[length++] = '/';
    for (int shift = 60; shift >= 0; shift -= 4)
        record[length++] = DIGITS[digest >> shift & 15];
    record[length] = '\0';
    return true;
}

bool absolute_path(const char *path, char *absolute)
{
    long length = 0;
    if (path[0] != '/') {
        length = syscall(SYS_getcwd, absolute, PATH_MAX); /* with its zero, which becomes a slash */
        if (length <= 0)
            return false;
        absolute[length - 1] = '/';
    }
    if ((size_t)length + text_length(path) >= PATH_MAX)
        return false;
    copy(absolute + length, path, text_length(path));
    return true;
}

static int64_t next_number(const char **text)
{
    int64_t number = 0;
    for (; is_byte_of(**text, "0123456789"); ++*text)
        number = number * 10 + (**text - '0');
    if (**text == ' ')
        ++*text;
    return number;
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
    int64_t size = next_number(&line), inode = next_number(&line);
    int64_t modified = next_number(&line), changed = next_number(&line);
    if (syscall(SYS_newfstatat, AT_FDCWD, line, &status, 0) < 0)
        return inode == 0;
    return status.st_size == size && (int64_t)status.st_ino == inode && nanoseconds(status.st_mtim) == modified &&
           nanoseconds(status.st_ctim) == changed;
}

/* Ends the line with a zero, and returns the next one, or NULL at the end of the text. */
static char *end_line(char *line)
{
    while (*line && *line != '\n')
        line++;
    if (!*line)
        return NULL;
    *line = '\0';
    return line + 1;
}

bool read_key(const char *record, const char *compiler, char *key)
{
    enum { MOST = 8000 };
    char text[MOST], found[PATH_MAX];
    int file = (int)syscall(SYS_openat, AT_FDCWD, record, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    long length = syscall(SYS_read, file, text, MOST - 1);
    syscall(SYS_close, file);
    if (length <= 0 || length == MOST - 1)
        return false;
    text[length] = '\0';
    char *real = end_line(text), *line = real ? end_line(real) : NULL;
    if (!line || text_length(text) != KEY_LENGTH || !real_path(compiler, found) ||
        !same_text(real, found))
        return false;
    size_t files = 0;
    for (char *next; (next = end_line(line)); line = next, files++)
        if (!is_unchanged(line))
            return false;
    copy(key, text, KEY_LENGTH);
    return files > 0 && !*line;
}
