/* What programs are, by their names: compilers, their wrappers, and our own library. */
#include "compilers.h"

#include "text.h"

/* COMPILERS, ORIGINALS (ends of the names of compilers whose place a script has taken), BACK_ENDS (what
 * drivers start for the work itself; they are met only below a driver that a static program started,
 * past us), LINKERS and WRAPPERS (programs that stand under a compiler's name and start the compiler
 * only where they need it). */
#include "names.h"

const char *program_name(const char *path)
{
    return base_name(word_of(path)).start;
}

static bool is_digit_or_dot(char byte)
{
    return (byte >= '0' && byte <= '9') || byte == '.';
}

static bool ends_with(struct word name, const char *end)
{
    size_t length = text_length(end);
    return name.length >= length &&
           is_word((struct word){name.start + name.length - length, length}, end);
}

/* g++ for g++-real. */
static struct word without_original(struct word name)
{
    const char *const *end = ORIGINALS;
    while (*end && !ends_with(name, *end))
        end++;
    return *end ? (struct word){name.start, name.length - text_length(*end)} : name;
}

struct word without_version(struct word whole)
{
    struct word name = without_original(whole);
    size_t length = name.length;
    while (length > 0 && is_digit_or_dot(name.start[length - 1]))
        length--;
    bool version = length > 0 && length < name.length && name.start[length - 1] == '-';
    return (struct word){name.start, version ? length - 1 : name.length};
}

bool ends_with_one_of(struct word name, const char *const *list)
{
    for (; *list; list++) {
        size_t prefix = name.length - text_length(*list);
        if (ends_with(name, *list) && (prefix == 0 || name.start[prefix - 1] == '-'))
            return true;
    }
    return false;
}

static bool is_extra(struct word name, const char *extra)
{
    while (extra && *extra) {
        struct word one = next_word(&extra, ":");
        size_t at = 0;
        while (at < one.length && at < name.length && one.start[at] == name.start[at])
            at++;
        if (at == one.length && at == name.length && at > 0)
            return true;
    }
    return false;
}

bool is_linker(struct word name)
{
    return ends_with_one_of(without_version(name), LINKERS);
}

bool names_compiler(struct word name, const char *extra)
{
    return ends_with_one_of(without_version(name), COMPILERS) || is_linker(name) ||
           is_among(name, BACK_ENDS) || is_extra(name, extra);
}

bool is_compiler(const char *name, const char *extra)
{
    return names_compiler(word_of(name), extra);
}

bool is_extra_compiler(const char *name, const char *extra)
{
    return is_extra(word_of(name), extra);
}

bool is_compiler_wrapper(const char *name)
{
    return is_among(word_of(name), WRAPPERS);
}

bool is_ccache(const char *name)
{
    return is_word(word_of(name), "ccache");
}

bool is_nvcc(const char *name)
{
    return is_word(without_version(word_of(name)), "nvcc");
}

bool is_emulator(const char *name)
{
    return starts_with(name, "qemu-");
}

size_t next_preloaded(const char **list)
{
    while (is_byte_of(**list, ": "))
        ++*list;
    size_t length = 0;
    while ((*list)[length] && !is_byte_of((*list)[length], ": "))
        length++;
    return length;
}

bool is_preload_library(const char *entry, size_t length)
{
    return is_word(base_name((struct word){entry, length}), PRELOAD_LIBRARY);
}

bool remove_preload_library(char *list)
{
    char *kept = list;
    const char *entry = list;
    for (size_t length; (length = next_preloaded(&entry)) > 0; entry += length) {
        if (is_preload_library(entry, length))
            continue;
        if (kept > list)
            *kept++ = ':';
        for (size_t at = 0; at < length; at++)
            *kept++ = entry[at];
    }
    *kept = '\0';
    return kept > list;
}
