/* Leaves GPU targets out of commands of nvcc; see targets.h. */
#include "targets.h"

#include "compilers.h"
#include "text.h"

static const char *const OPTIONS[] = {"-gencode", "--generate-code", NULL};

bool names_nvcc(char *const *words)
{
    for (; *words && **words != '-'; words++)
        if (is_nvcc(program_name(*words)))
            return true;
    return false;
}

/* The value of an option that names targets, written `NAME VALUE` or `NAME=VALUE`, or NULL. */
static const char *value_of(char *const *word)
{
    for (const char *const *name = OPTIONS; *name; name++) {
        size_t length = text_length(*name);
        if (same_text(*word, *name))
            return word[1];
        if (starts_with(*word, *name) && (*word)[length] == '=')
            return *word + length + 1;
    }
    return NULL;
}

static bool is_listed(const char *value, const char *list)
{
    size_t length = text_length(value);
    while (*list) {
        if (starts_with(list, value) && (list[length] == ' ' || !list[length]))
            return true;
        while (*list && *list != ' ')
            list++;
        while (*list == ' ')
            list++;
    }
    return false;
}

bool leave_out_targets(char **kept, char *const *words, const char *left_out)
{
    bool remains = false, changed = false;
    for (; *words; words++) {
        const char *value = value_of(words);
        bool listed = value && is_listed(value, left_out);
        remains |= value && !listed;
        changed |= listed;
        if (!listed)
            *kept++ = *words;
        if (value && value == words[1]) {
            words++;
            if (!listed)
                *kept++ = *words;
        }
    }
    *kept = NULL;
    return remains && changed;
}
