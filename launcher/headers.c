/* Shared headers: precompiled headers that the compiles of a build use without a change to their
 * command lines. The flow writes a folder (STOKER_HEADERS) before the build:
 *
 *   uses/HASH      a compile: the header's name, its folder and its words, each ended by a zero byte
 *   NAME.hpp.gch   the header; there is no NAME.hpp, so gcc fails if it rejects the header
 *   NAME.hpp.gch.said  the warnings of the headers in it, which each compile prints as it would without
 *   NAME.begun     touched before the header was made
 *   NAME.files     what it contains, each path ended by a zero byte
 *   NAME.used      one byte for each compile that used it; NAME.refused for each that had to be repeated
 *   refused        the outputs of those compiles, one per line
 */
#define _GNU_SOURCE
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More refusals than this, and more than uses: the header does not suit this project. */
enum { MOST_REFUSED = 3 };

/* A launcher runs one command. */
static char name[NAME_MAX], path[PATH_MAX];
static const char *folder;

/* ---- files -----------------------------------------------------------------------------------*/

static const char *place(const char *format)
{
    static char text[PATH_MAX + NAME_MAX];
    snprintf(text, sizeof text, format, folder, name);
    return text;
}

/* Reads a whole file and adds a zero byte. Returns NULL if it cannot be read. */
static char *content(const char *file, size_t *length)
{
    struct stat found;
    int input = open(file, O_RDONLY | O_CLOEXEC);
    char *bytes = input >= 0 && fstat(input, &found) == 0 ? malloc((size_t)found.st_size + 1) : NULL;
    ssize_t size = bytes ? read(input, bytes, (size_t)found.st_size) : -1;
    if (input >= 0)
        close(input);
    if (size < 0) {
        free(bytes);
        return NULL;
    }
    bytes[size] = '\0';
    *length = (size_t)size;
    return bytes;
}

static void append(const char *file, const char *text)
{
    int output = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (output < 0)
        return;
    if (write(output, text, strlen(text)) < 0) {
        /* It is not counted. Other parts report a full disk. */
    }
    close(output);
}

static off_t size_of(const char *file)
{
    struct stat found;
    return stat(file, &found) == 0 ? found.st_size : 0;
}

/* ---- which header a compile may use ----------------------------------------------------------*/

static uint64_t mixed(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    while (*text++);
    return hash;
}

static const char *value_of(char **command, const char *option)
{
    for (char **word = command; *word; word++)
        if (strcmp(*word, option) == 0)
            return word[1];
    return NULL;
}

/* Compares the words in a file of uses with the command's. */
static bool same_words(const char *bytes, const char *end, char **command)
{
    const char *word = command_name(command);
    for (; word && bytes < end; word = *++command, bytes += strlen(bytes) + 1)
        if (strcmp(bytes, word) != 0)
            return false;
    return !word && bytes == end;
}

/* Stores the name of the header that is meant for exactly this command. */
static bool find_name(char **command, const char *here, const char *output)
{
    size_t length;
    uint64_t hash = mixed(mixed(UINT64_C(0xcbf29ce484222325), here), output);
    snprintf(path, sizeof path, "%s/uses/%016llx", folder, (unsigned long long)hash);
    char *bytes = content(path, &length);
    if (!bytes)
        return false;
    const char *where = bytes + strlen(bytes) + 1, *end = bytes + length;
    bool found = where < end && strlen(bytes) < sizeof name && strcmp(where, here) == 0 &&
                 same_words(where + strlen(where) + 1, end, command);
    if (found)
        strcpy(name, bytes);
    free(bytes);
    return found;
}

static bool is_newer(const struct stat *one, const struct stat *other)
{
    return one->st_mtim.tv_sec != other->st_mtim.tv_sec
               ? one->st_mtim.tv_sec > other->st_mtim.tv_sec
               : one->st_mtim.tv_nsec >= other->st_mtim.tv_nsec;
}

/* gcc does not check whether a precompiled header is older than what it contains. A header of the
 * project may have been generated or changed since. */
static bool is_fresh(void)
{
    struct stat begun, found;
    size_t length;
    char *files = stat(place("%s/%s.begun"), &begun) == 0 ? content(place("%s/%s.files"), &length) : NULL;
    bool fresh = files != NULL;
    for (char *file = files; fresh && file < files + length; file += strlen(file) + 1)
        fresh = stat(file, &found) == 0 && !is_newer(&found, &begun);
    free(files);
    return fresh;
}

static bool is_accepted(void)
{
    off_t refused = size_of(place("%s/%s.refused"));
    return refused <= MOST_REFUSED || refused <= size_of(place("%s/%s.used"));
}

char **headers_command(char **asked, char **permitted)
{
    char here[PATH_MAX];
    const char *output = value_of(asked, "-o");
    folder = getenv("STOKER_HEADERS");
    if (!folder || !*folder || command_kind != COMPILE || !output || !getcwd(here, sizeof here))
        return NULL;
    if (!find_name(asked, here, output) || !is_fresh() || !is_accepted())
        return NULL;
    snprintf(path, sizeof path, "%s", place("%s/%s.hpp"));
    char *words[] = {"-include", path, "-fpch-deps"};
    /* gcc 12 crashes if it is to list dependencies of the header and not of the source. */
    return command_with(permitted, words, value_of(asked, "-MF") ? 3 : 2);
}

/* ---- dependency files ------------------------------------------------------------------------*/

/* The next word of a dependency file; a backslash before a space or a line end belongs to it. */
static size_t next_dependency(const char **at)
{
    while (**at == ' ' || **at == '\n' || (**at == '\\' && (*at)[1] == '\n'))
        ++*at;
    size_t length = 0;
    while ((*at)[length] && (*at)[length] != ' ' && (*at)[length] != '\n')
        length += (*at)[length] == '\\' && (*at)[length + 1] ? 2 : 1;
    return length;
}

struct dependency {
    const char *text;
    size_t length;
};

static bool is_repeated(const struct dependency *all, size_t count, struct dependency one)
{
    for (size_t at = 1; at < count; at++)
        if (all[at].length == one.length && memcmp(all[at].text, one.text, one.length) == 0)
            return true;
    return false;
}

/* Writes the first rule without the header's own file and without repetitions. What follows it, the
 * rules of -MP, loses the header's rule. */
static void write_rule(FILE *stream, const char *at)
{
    size_t count = 0, most = strlen(at) / 2 + 1, own = strlen(folder), column = 0;
    struct dependency *all = calloc(most, sizeof *all), one;
    while (all && count < most && (one.length = next_dependency(&at)) > 0) {
        one.text = at;
        at += one.length;
        bool ours = one.length > own && memcmp(one.text, folder, own) == 0;
        if (!ours && !is_repeated(all, count, one)) {
            all[count++] = one;
            bool wraps = column > 0 && column + one.length > 76;
            column = wraps ? 1 + one.length : column + 1 + one.length;
            fprintf(stream, "%s%.*s", count == 1 ? "" : wraps ? " \\\n " : " ", (int)one.length, one.text);
        }
        if (*at == '\n')
            break;
    }
    fputc('\n', stream);
    for (at += *at == '\n'; *at;) {
        size_t line = strcspn(at, "\n");
        if (strncmp(at, folder, own) != 0)
            fprintf(stream, "%.*s\n", (int)line, at);
        at += line + (at[line] == '\n');
    }
    free(all);
}

bool headers_used(char **command)
{
    size_t length;
    const char *file = value_of(command, "-MF");
    char *bytes = file ? content(file, &length) : NULL;
    FILE *stream = bytes ? fopen(file, "we") : NULL;
    bool whole = !file;
    if (stream) {
        write_rule(stream, bytes);
        whole = !ferror(stream);
        whole = fclose(stream) == 0 && whole;
    }
    free(bytes);
    if (whole)
        append(place("%s/%s.used"), ".");
    return whole;
}

void headers_print(void)
{
    size_t length;
    char *said = content(place("%s/%s.hpp.gch.said"), &length);
    for (size_t at = 0; said && at < length;) {
        ssize_t count = write(STDERR_FILENO, said + at, length - at);
        if (count <= 0)
            break;
        at += (size_t)count;
    }
    free(said);
}

void headers_refused(char **command)
{
    char line[PATH_MAX + 1];
    snprintf(line, sizeof line, "%s\n", value_of(command, "-o"));
    append(place("%s/%s.refused"), ".");
    append(place("%s/refused"), line);
}
