/* Decides what the preloaded library does with a call of exec or posix_spawn. It starts nothing;
 * start.c does what it says. */
#ifndef STOKER_VERDICT_H
#define STOKER_VERDICT_H

#include "programs.h"

#include <spawn.h>
#include <stdbool.h>

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

/* The program that makes calls. */
enum caller {
    BY_OTHERS,
    BY_LAUNCHER, /* it has asked already */
    BY_CACHE,    /* or by another wrapper of compilers */
    BY_BUILD_TOOL,
};

enum verdict {
    UNCHANGED,
    WITHOUT_US,      /* without our library */
    WITH_US,         /* with our library and variables, which its environment lacks */
    LAUNCHED,        /* the launcher in place of the compiler, or of a cache before one */
    LAUNCHED_CUSTOM, /* the launcher in place of another command of a build tool */
    OPEN,            /* the build tool with a wide window of jobs */
};

enum caller caller_of(const char *program);

enum verdict judge(const struct call *call, enum caller caller, const char *path, enum program program);

#endif
