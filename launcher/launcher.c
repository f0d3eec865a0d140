/* stoker-launcher: stands before a compiler and asks stoker's governor when it may run.
 *
 *   stoker-launcher COMMAND ARGUMENT...   a CMake compiler or linker launcher, or ccache's prefix
 *   a link named gcc, nvcc, ...           stands for the next program of that name on the PATH
 *
 * Without a governor, or within a step that has its permit, it becomes the command at once.
 */
#define _GNU_SOURCE
#include "launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#else
#include <sys/auxv.h>
#endif

#ifndef STOKER_VERSION
#define STOKER_VERSION "unknown"
#endif

static const char NAME[] = "stoker-launcher";

/* More links than that in a row are programs that find each other by turns. */
enum { DEEPEST = 32 };

static int usage(FILE *stream, int status)
{
    fprintf(stream,
            "usage: stoker-launcher COMMAND [ARGUMENT...]\n"
            "\n"
            "Runs COMMAND when stoker's governor permits it, and at once where there is none.\n"
            "Put it before a compiler: CMAKE_CXX_COMPILER_LAUNCHER, CMAKE_CXX_LINKER_LAUNCHER or\n"
            "CCACHE_PREFIX. A link to it named gcc, g++, nvcc, ... stands for the next program of\n"
            "that name on the PATH.\n"
            "\n"
            "  --version             the versions of the launcher and of its protocol\n"
            "  --protocol-selftest   example messages; then stdin's, taken apart\n"
            "\n"
            "Set by `stoker run`: STOKER_SOCKET, STOKER_RUN, STOKER_PROCESS, STOKER_TMP,\n"
            "STOKER_LOCKS.\n");
    return status;
}

static int obey_option(const char *option)
{
    if (strcmp(option, "--help") == 0)
        return usage(stdout, 0);
    if (strcmp(option, "--version") == 0)
        return printf("stoker-launcher %s, protocol %d\n", STOKER_VERSION, PROTOCOL_VERSION) < 0;
#ifdef __linux__
    if (strcmp(option, "--protocol-selftest") == 0)
        return protocol_selftest();
#endif
    fprintf(stderr, "stoker-launcher: unknown option %s\n", option);
    return usage(stderr, 2);
}

static bool same_file(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

static bool is_program(const char *path, struct stat *found)
{
    return stat(path, found) == 0 && S_ISREG(found->st_mode) && access(path, X_OK) == 0;
}

/* Which file we are, whatever the links to it are called. */
static bool find_self(struct stat *self)
{
#ifdef __APPLE__
    char path[PATH_MAX];
    uint32_t size = sizeof path;
    return _NSGetExecutablePath(path, &size) == 0 && stat(path, self) == 0;
#else
    return stat("/proc/self/exe", self) == 0 ||
           stat((const char *)getauxval(AT_EXECFN), self) == 0; /* in a chroot without /proc */
#endif
}

static char *join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 3;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", *folder ? folder : ".", name);
    return path;
}

/* Finds the program behind us, and takes the folders with links to us off the PATH: what it starts
 * in its turn then finds the real programs at once, and never us in a circle. */
static char *find_behind(const char *name, const struct stat *self, char *folders, char *kept)
{
    char *found = NULL;
    for (char *folder; (folder = strsep(&folders, ":"));) {
        struct stat there;
        char *candidate = join(folder, name);
        bool exists = candidate && is_program(candidate, &there);
        bool ours = exists && same_file(&there, self);
        if (!ours)
            strcat(strcat(kept, *kept ? ":" : ""), *folder ? folder : ".");
        if (exists && !ours && !found)
            found = candidate;
        else
            free(candidate);
    }
    return found;
}

static bool too_deep(void)
{
    char digits[16];
    const char *depth = getenv("STOKER_DEPTH");
    int number = depth ? atoi(depth) + 1 : 1;
    snprintf(digits, sizeof digits, "%d", number);
    setenv("STOKER_DEPTH", digits, 1);
    return number > DEEPEST;
}

/* The command that a link to us stands for. Its first word is a path, because compilers find their
 * own parts beside themselves. */
static char **stand_for(const char *name, char **arguments)
{
    struct stat self;
    const char *path = getenv("PATH");
    char *folders = strdup(path ? path : "/usr/local/bin:/usr/bin:/bin");
    char *kept = folders ? calloc(2, strlen(folders) + 1) : NULL; /* "." for each empty one */
    if (kept && find_self(&self) && !too_deep())
        arguments[0] = find_behind(name, &self, folders, kept);
    else
        arguments[0] = NULL;
    if (arguments[0])
        setenv("PATH", kept, 1);
    free(folders);
    free(kept);
    return arguments;
}

int main(int count, char **arguments)
{
    const char *slash = strrchr(arguments[0], '/');
    const char *name = slash ? slash + 1 : arguments[0];
    char **command = arguments + 1;
    if (strncmp(name, NAME, strlen(NAME)) != 0)
        command = stand_for(name, arguments);
    else if (count < 2)
        return usage(stderr, 2);
    else if (*command[0] == '-')
        return obey_option(command[0]);
    if (!command[0]) {
        fprintf(stderr, "stoker-launcher: %s: not found\n", name);
        return 127;
    }
#ifdef __linux__
    if (getenv("STOKER_SOCKET") && !getenv("STOKER_STEP"))
        step_run(command);
#endif
    command_execute(command);
}
