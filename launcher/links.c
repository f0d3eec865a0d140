/* Follows links of programs; see programs.h. */
#define _GNU_SOURCE
#include "compilers.h"
#include "programs.h"

#include <string.h>
#include <unistd.h>

enum { DEEPEST_LINK = 16 };

/* Replaces a path by what it links to. False: it is no link, or the result is too long. */
static bool follow(char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return false;
    size_t folder = target[0] == '/' ? 0 : (size_t)(program_name(path) - path);
    if (folder + (size_t)length >= PATH_MAX)
        return false;
    memcpy(path + folder, target, (size_t)length);
    path[folder + (size_t)length] = '\0';
    return true;
}

void follow_links(char *path)
{
    for (int depth = 0; depth < DEEPEST_LINK && follow(path); depth++)
        ;
}

static bool leads_to(const char *path, bool is_wanted(const char *name))
{
    char at[PATH_MAX];
    if (strlen(path) >= sizeof at)
        return false;
    strcpy(at, path);
    bool found = is_wanted(program_name(at));
    for (int depth = 0; depth < DEEPEST_LINK && !found && follow(at); depth++)
        found = is_wanted(program_name(at));
    return found;
}

bool leads_to_wrapper(const char *path)
{
    return leads_to(path, is_compiler_wrapper);
}

bool leads_to_ccache(const char *path)
{
    return leads_to(path, is_ccache);
}
