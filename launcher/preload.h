/* The parts of the preloaded library: preload.c stands above verdict.c, and that above programs.c.
 * All of them keep the rules that preload.c begins with. */
#ifndef STOKER_PRELOAD_H
#define STOKER_PRELOAD_H

#include "compilers.h"

#include <limits.h>
#include <spawn.h>

#define WRAPPED_MARK "STOKER_WRAPPED" /* in the environment of what a wrapper starts */

/* ---- text and lists --------------------------------------------------------------------------*/

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

/* ---- programs.c: the files of programs -------------------------------------------------------*/

/* A program is foreign if it is of another architecture than this library, which its dynamic loader
 * would complain about. */
enum program { ABSENT, NATIVE, FOREIGN };

enum program examine(const char *path);

/* Finds the program that a call of exec will start: on the PATH, if `search` is set and the name has
 * no slash. Writes its path, always with a slash in it, to PATH_MAX bytes. */
enum program locate(const char *file, bool search, char *path);

/* False for an ELF program without a dynamic loader, into which nothing can be preloaded. */
bool is_dynamic(const char *path);

bool is_script(const char *path);

/* True if the path is a link to ccache or the like, also through other links. */
bool leads_to_wrapper(const char *path);

/* The name of the program that makes the call, by its file and not by what it calls itself. `path`
 * is space for PATH_MAX bytes. */
const char *calling_program(char *path);

/* ---- verdict.c: what to do with a call -------------------------------------------------------*/

/* A call of exec or posix_spawn. */
struct call {
    const char *file;
    bool search; /* for a name without a slash, on the PATH */
    char *const *arguments, *const *environment;
    const char *launcher; /* NULL where no build is governed */
    bool spawns;
    pid_t *pid;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
};

enum verdict {
    UNCHANGED,
    WITHOUT_US, /* without our library */
    STEP,       /* the launcher in place of the compiler */
    CUSTOM,     /* the launcher in place of another command of a build tool */
    REMOTE,     /* the launcher in place of a distributor */
    OPEN,       /* the build tool with a wide window of jobs */
    WRAPPED,    /* a cache or distributor in place of the compiler */
};

/* Also writes the path of the program to PATH_MAX bytes; only a call that stays unchanged may have
 * none. */
enum verdict judge(const struct call *call, char *path);

#endif
