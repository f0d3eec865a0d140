/* Ninja and make, and how many jobs they are told to run. */
#include "compilers.h"

#include "text.h"

static const char *const BUILD_TOOLS[] = {"ninja", "samu", "n2", "make", "gmake", NULL};

bool names_build_tool(struct word name)
{
    return is_among(name, BUILD_TOOLS);
}

bool is_build_tool(const char *name)
{
    return names_build_tool(word_of(name));
}

static bool is_number(const char *text)
{
    const char *at = text;
    while (*at >= '0' && *at <= '9')
        at++;
    return at > text && *at == '\0';
}

/* How many words of the command line say the number of jobs, here: 0, 1 or 2. */
static int words_of_jobs(char *const *word)
{
    if (same_text(*word, "-j") || same_text(*word, "--jobs"))
        return word[1] && is_number(word[1]) ? 2 : 1;
    bool joined = (starts_with(*word, "-j") && is_number(*word + 2)) ||
                  (starts_with(*word, "--jobs=") && is_number(*word + 7));
    return joined ? 1 : 0;
}

const char *jobs_of(char *const *arguments)
{
    const char *number = NULL;
    for (char *const *word = arguments + 1; *word && !same_text(*word, "--"); word++) {
        int words = words_of_jobs(word);
        if (words == 0)
            continue;
        number = word[words - 1]; /* the last one counts */
        while (*number && !(*number >= '0' && *number <= '9'))
            number++;
        word += words - 1;
    }
    return number;
}

void write_jobs(char **words, char *const *arguments, const char *jobs)
{
    struct word name = base_name(word_of(arguments[0]));
    bool told = !is_word(name, "make") && !is_word(name, "gmake");
    *words++ = *arguments++;
    char **place = words;
    while (*arguments && !same_text(*arguments, "--")) {
        int skipped = words_of_jobs(arguments);
        told |= skipped > 0;
        if (skipped == 0)
            *words++ = *arguments++;
        arguments += skipped;
    }
    while (*arguments)
        *words++ = *arguments++;
    *words = NULL;
    if (!told)
        return;
    for (; words >= place; words--)
        words[1] = words[0];
    *place = (char *)jobs;
}
