/* Decides what the preloaded library does with a call of exec or posix_spawn. It starts nothing;
 * start.c does what it says. */
#ifndef STOKER_VERDICT_H
#define STOKER_VERDICT_H

#include <spawn.h>
#include <stdbool.h>

#define CCACHE_PREFIX "CCACHE_PREFIX"
#define LEFT_OUT "STOKER_LEFT_OUT_TARGETS"
#define WRAPPED_MARK "STOKER_WRAPPED" /* in the environment of what a wrapper starts */

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
    WITHOUT_US,      /* without our library */
    WITH_US,         /* with our library and variables, which its environment lacks */
    LAUNCHED,        /* the launcher in place of the compiler */
    LAUNCHED_CUSTOM, /* the launcher in place of another command of a build tool */
    LAUNCHED_REMOTE, /* the launcher in place of a distributor */
    OPEN,            /* the build tool with a wide window of jobs */
    WRAPPED,         /* a cache or distributor in place of the compiler */
    CCACHED,         /* a ccache of the user's own, with variables that this compile needs */
};

/* True for a ccache that is linked statically, as its authors distribute it: our library cannot be
 * in it, but its prefix can name the launcher. That is a list of words, and the user's own stays. */
bool takes_prefix(const struct call *call, const char *path);

/* The variables that ccache needs for a compile of `path`: none, depend mode for kernels, no direct mode
 * where a new header would not be noticed, or those that switch it off. NULL ends the list. `judged`: the
 * compile is known to hide nothing, since it is wrapped. */
const char *const *ccache_variables(const struct call *call, const char *path, char *const *words,
                                    bool judged);

/* Also writes the path of the program to PATH_MAX bytes; only a call that stays unchanged may have
 * none. */
enum verdict judge(const struct call *call, char *path);

#endif
