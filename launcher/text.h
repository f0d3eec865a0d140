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

/* A word within a longer text. */
struct word {
    const char *start;
    size_t length;
};

static inline struct word word_of(const char *text)
{
    return (struct word){text, text_length(text)};
}

static inline bool is_word(struct word word, const char *text)
{
    size_t at = 0;
    while (at < word.length && text[at] == word.start[at])
        at++;
    return at == word.length && text[at] == '\0';
}

static inline bool is_among(struct word word, const char *const *list)
{
    while (*list && !is_word(word, *list))
        list++;
    return *list != NULL;
}

static inline bool is_byte_of(char byte, const char *set)
{
    while (*set && *set != byte)
        set++;
    return *set != '\0';
}

static inline bool contains(const char *text, const char *part)
{
    while (*text && !starts_with(text, part))
        text++;
    return *text != '\0';
}

static inline struct word base_name(struct word word)
{
    for (size_t at = word.length; at > 0; at--)
        if (word.start[at - 1] == '/')
            return (struct word){word.start + at, word.length - at};
    return word;
}

/* The word up to the next of the separators, which it passes. */
static inline struct word next_word(const char **text, const char *separators)
{
    struct word word = {*text, 0};
    for (; **text; ++*text, word.length++)
        for (const char *separator = separators; *separator; separator++)
            if (**text == *separator) {
                ++*text;
                return word;
            }
    return word;
}

#endif
