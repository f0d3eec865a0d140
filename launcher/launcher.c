/* stoker-launcher: wraps a compiler and asks stoker's governor when it may run.
 *
 *   stoker-launcher COMMAND ARGUMENT...   a CMake compiler or linker launcher, or ccache's prefix
 *   stoker-launcher --as NAME COMMAND ... the same with another argv[0], from the preloaded library
 *
 * Without a governor, or within a step that has its permit, it executes the command immediately.
 */
#define _GNU_SOURCE
#include "compilers.h"
#include "launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STOKER_VERSION
#define STOKER_VERSION "unknown"
#endif

static int usage(FILE *stream, int status)
{
    fprintf(stream,
            "usage: stoker-launcher COMMAND [ARGUMENT...]\n"
            "\n"
            "Runs COMMAND when stoker's governor permits it, or immediately without a governor.\n"
            "The preloaded library starts it in place of each compiler. To use it without the\n"
            "library: CMAKE_CXX_COMPILER_LAUNCHER, CMAKE_CXX_LINKER_LAUNCHER or CCACHE_PREFIX.\n"
            "\n"
            "  --as NAME COMMAND...  run COMMAND with another argv[0]\n"
            "  --custom COMMAND...   run a command of a build tool that is not a compiler\n"
            "  --cached COMMAND...   run a compiler that a cache has started\n"
            "  --version             print the versions of the launcher and of its protocol\n"
            "  --protocol-selftest   print example messages, then the fields of stdin's messages\n"
            "\n"
            "Set by `stoker run`: STOKER_SOCKET, STOKER_RUN, STOKER_PROCESS, STOKER_SCRATCH,\n"
            "STOKER_LOCKS, STOKER_SLOTS.\n");
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

#ifdef __linux__
/* A governed command starts no governed commands, so it does not need our library. Other libraries
 * stay in LD_PRELOAD. */
static void stop_preloading(void)
{
    char *list = getenv("LD_PRELOAD");
    if (list && !remove_preload_library(list))
        unsetenv("LD_PRELOAD");
}

bool has_library(void)
{
    const char *list = getenv("LD_PRELOAD");
    bool found = false;
    for (size_t length; list && !found && (length = next_preloaded(&list)) > 0; list += length)
        found = is_preload_library(list, length);
    return found;
}

/* True for a script under a compiler's name that runs with our library, which governs the compiler that
 * the script starts. */
static bool is_script_with_library(char **command)
{
    const char *name = program_name(command[0]);
    return has_library() && is_compiler(name, NULL) &&
           !is_extra_compiler(name, getenv("STOKER_COMPILERS")) && command_is_script(command);
}

/* Runs the command under the governor. Returns if it must run without. */
static void govern(char **command)
{
    if (!getenv("STOKER_SOCKET") || getenv("STOKER_STEP"))
        return;
    const char *reason =
        command_repeats() ? command_unrepeatable(command + (command_kind == REMOTE)) : NULL;
    if (reason)
        command_kind = ONCE, command_reason = reason;
    /* A command that reads the terminal, or may ask the user a question there, must be in the
     * foreground. */
    bool reads = command_kind == CUSTOM || command_reads_stdin(command);
    if (reads && isatty(STDIN_FILENO))
        return;
    tokens_offer(command);
    step_run(command);
}
#endif

int main(int count, char **arguments)
{
    char **command = arguments + 1;
    if (count < 2)
        return usage(stderr, 2);
    bool cached = count > 2 && strcmp(command[0], "--cached") == 0;
    if (count > 2 && strcmp(command[0], "--custom") == 0)
        command_kind = CUSTOM;
    if (cached || command_kind == CUSTOM)
        command++, count--;
    if (count > 3 && strcmp(command[0], "--as") == 0)
        command = command_named(command[1], command + 2);
    else if (*command[0] == '-')
        return obey_option(command[0]);
#ifdef __linux__
    if (command_kind == COMPILE)
        command = cache_start(command, cached);
    if (command_kind == COMPILE && is_script_with_library(command))
        command_execute(command);
    if (command_kind == COMPILE)
        stop_preloading();
    govern(command);
#endif
    command_execute(command);
}
