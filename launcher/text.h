/* Text and lists of it, without the C library: for the preloaded library and what it is linked with. */
#ifndef STOKER_TEXT_H
#define STOKER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

static inline size_t text_length(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

static inline bool starts_with(const char *text, const char *prefix)
{
    while (*prefix && *text == *prefix)
        text++, prefix++;
    return *prefix == '\0';
}

static inline bool same_text(const char *one, const char *other)
{
    return starts_with(one, other) && one[text_length(other)] == '\0';
}

/* Copies so many bytes, and adds a zero. */
static inline void copy(char *to, const char *from, size_t length)
{
    for (size_t at = 0; at < length; at++)
        to[at] = from[at];
    to[length] = '\0';
}

static inline size_t count(char *const *list)
{
    size_t length = 0;
    while (list && list[length])
        length++;
    return length;
}

static inline const char *variable(char *const *environment, const char *name)
{
    for (size_t length = text_length(name); environment && *environment; environment++)
        if (starts_with(*environment, name) && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

#endif
