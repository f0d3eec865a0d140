/* Shared headers: precompiled headers that the compiles of a build use without a change to their
 * command lines. The flow writes a folder (STOKER_HEADERS) before the build:
 *
 *   uses/HASH      a compile: the header's name, dependencies that gcc will miss, the folder and the
 *                  words of the command, each ended by a zero byte
 *   NAME.hpp.gch   the header; there is no NAME.hpp, so gcc fails if it rejects the header
 *   NAME.bare.o.said       what gcc prints for the text of the header without precompiling it
 *   NAME.bare-with.o.said  what it prints for an empty source with the header
 *   NAME.begun     touched before the header was made
 *   NAME.files     what it contains, each path ended by a zero byte
 *   NAME.used      one byte for each compile that used it; NAME.refused for each that had to be repeated
 *   NAME.lost      the CPU time of the latter with the header, in microseconds, one per line
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
static const char *folder, *twins;

struct text {
    const char *bytes;
    size_t length;
};

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
    static char *bytes; /* `twins` points into it */
    free(bytes);
    bytes = content(path, &length);
    if (!bytes)
        return false;
    const char *end = bytes + length, *same = bytes + strlen(bytes) + 1;
    const char *where = same < end ? same + strlen(same) + 1 : end;
    bool found = where < end && strlen(bytes) < sizeof name && strcmp(where, here) == 0 &&
                 same_words(where + strlen(where) + 1, end, command);
    if (found) {
        strcpy(name, bytes);
        twins = same;
    }
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

bool headers_meant(char **asked)
{
    char here[PATH_MAX];
    const char *output = value_of(asked, "-o");
    folder = getenv("STOKER_HEADERS");
    if (!folder || !*folder || command_kind != COMPILE || !output || !getcwd(here, sizeof here))
        return false;
    return find_name(asked, here, output) && is_fresh() && is_accepted();
}

char **headers_command(char **asked, char **permitted)
{
    if (!headers_meant(asked))
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


/* A rule that is being written; its first word is the target. */
struct rule {
    FILE *stream;
    struct text *words;
    size_t count, column;
};

static bool is_written(const struct rule *rule, struct text word)
{
    for (size_t at = 1; at < rule->count; at++)
        if (rule->words[at].length == word.length &&
            memcmp(rule->words[at].bytes, word.bytes, word.length) == 0)
            return true;
    return false;
}

/* Adds the words of a text up to the end of its first line, without the shared header itself and
 * without repetitions. Returns the rest of the text. */
static const char *add_words(struct rule *rule, const char *at)
{
    size_t own = strlen(folder);
    for (struct text word; (word.length = next_dependency(&at)) > 0;) {
        word.bytes = at;
        at += word.length;
        bool ours = word.length > own && memcmp(word.bytes, folder, own) == 0;
        if (!ours && !is_written(rule, word)) {
            bool wraps = rule->column > 0 && rule->column + word.length > 76;
            const char *before = rule->count == 0 ? "" : wraps ? " \\\n " : " ";
            fprintf(rule->stream, "%s%.*s", before, (int)word.length, word.bytes);
            rule->column = wraps ? 1 + word.length : rule->column + 1 + word.length;
            rule->words[rule->count++] = word;
        }
        if (*at == '\n')
            break;
    }
    return at;
}

/* Writes a dependency file again. The rules of -MP behind the first one lose that of the header. */
static bool write_rules(FILE *stream, const char *at)
{
    size_t most = (strlen(at) + strlen(twins)) / 2 + 2;
    struct rule rule = {stream, calloc(most, sizeof *rule.words), 0, 0};
    if (!rule.words)
        return false;
    at = add_words(&rule, at);
    add_words(&rule, twins);
    fputc('\n', stream);
    for (at += *at == '\n'; *at;) {
        size_t line = strcspn(at, "\n");
        if (strncmp(at, folder, strlen(folder)) != 0)
            fprintf(stream, "%.*s\n", (int)line, at);
        at += line + (at[line] == '\n');
    }
    free(rule.words);
    return !ferror(stream);
}

bool headers_used(char **command)
{
    size_t length;
    const char *file = value_of(command, "-MF");
    char *bytes = file ? content(file, &length) : NULL;
    FILE *stream = bytes ? fopen(file, "we") : NULL;
    bool whole = !file;
    if (stream) {
        whole = write_rules(stream, bytes);
        whole = fclose(stream) == 0 && whole;
    }
    free(bytes);
    if (whole)
        append(place("%s/%s.used"), ".");
    return whole;
}

/* ---- warnings --------------------------------------------------------------------------------*/

/* Finds what each command with the header prints in what this one has printed. Returns whether it is
 * there, and the text before and behind it. */
static bool split_output(const struct output *output, struct text parts[2])
{
    size_t length, usual;
    const char *text = output_text(output, &length);
    char *said = text ? content(place("%s/%s.bare-with.o.said"), &usual) : NULL;
    const char *at = said ? memmem(text, length, said, usual) : NULL;
    free(said);
    if (!at)
        return false;
    parts[0] = (struct text){text, (size_t)(at - text)};
    parts[1] = (struct text){at + usual, length - parts[0].length - usual};
    return true;
}

/* Returns whether a line names a file of the header, as gcc does: relative to the current folder. */
static bool names_file(struct text line, const char *files, size_t length)
{
    char here[PATH_MAX];
    size_t own = getcwd(here, sizeof here) ? strlen(here) : 0;
    for (const char *file = files; file < files + length; file += strlen(file) + 1) {
        const char *shown = own && strncmp(file, here, own) == 0 && file[own] == '/' ? file + own + 1 : file;
        const char *found = memmem(line.bytes, line.length, shown, strlen(shown));
        if (found && found + strlen(shown) < line.bytes + line.length && found[strlen(shown)] == ':')
            return true;
    }
    return false;
}

static bool warns_of_file(struct text part, const char *files, size_t length)
{
    static const char WARNING[] = "warning: ";
    while (part.length > 0) {
        const char *end = memchr(part.bytes, '\n', part.length);
        struct text line = {part.bytes, end ? (size_t)(end - part.bytes) + 1 : part.length};
        if (memmem(line.bytes, line.length, WARNING, sizeof WARNING - 1) && names_file(line, files, length))
            return true;
        part.bytes += line.length;
        part.length -= line.length;
    }
    return false;
}

bool headers_accept(const struct output *output)
{
    size_t length;
    struct text parts[2];
    char *files = split_output(output, parts) ? content(place("%s/%s.files"), &length) : NULL;
    bool accepted = files && !warns_of_file(parts[0], files, length) && !warns_of_file(parts[1], files, length);
    free(files);
    return accepted;
}

void headers_print(const struct output *output)
{
    size_t length;
    struct text parts[2];
    char *said = content(place("%s/%s.bare.o.said"), &length);
    if (said)
        output_write(STDERR_FILENO, said, length);
    free(said);
    if (!split_output(output, parts)) {
        output_print(output);
        return;
    }
    for (int part = 0; part < 2; part++)
        output_write(STDERR_FILENO, parts[part].bytes, parts[part].length);
}

/* ---- the count -------------------------------------------------------------------------------*/

void headers_refused(char **command, uint64_t cpu_us)
{
    char line[PATH_MAX + 1];
    snprintf(line, sizeof line, "%llu\n", (unsigned long long)cpu_us);
    append(place("%s/%s.lost"), line);
    snprintf(line, sizeof line, "%s\n", value_of(command, "-o"));
    append(place("%s/%s.refused"), ".");
    append(place("%s/refused"), line);
}
