/* What to do with a call; see verdict.h. */
#define _GNU_SOURCE
#include "verdict.h"

#include "compilers.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* True if a program that is given this environment cannot open our library: its root folder is
 * another one, or the library was removed. */
static bool is_out_of_reach(char *const *environment)
{
    char path[512];
    const char *entry = variable(environment, "LD_PRELOAD");
    for (size_t length; entry && (length = next_preloaded(&entry)) > 0; entry += length) {
        if (!is_preload_library(entry, length) || length >= sizeof path)
            continue;
        copy(path, entry, length);
        return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) < 0;
    }
    return false;
}

static bool is_set(char *const *environment, const char *name)
{
    const char *value = variable(environment, name);
    return value && same_text(value, "1");
}

/* True for an environment that a program made from nothing, as SCons and `env -i` do. One that only
 * lacks our library was given to a program that is to run without it. */
static bool is_new(char *const *environment)
{
    return !variable(environment, "STOKER_LAUNCHER") && !variable(environment, "LD_PRELOAD");
}

/* A make below another one shares the jobs of that one. */
static bool has_window(const struct call *call)
{
    const char *flags = variable(call->environment, "MAKEFLAGS");
    for (; flags && *flags; flags++)
        if (starts_with(flags, "--jobserver"))
            return false;
    return variable(call->environment, "STOKER_JOBS") != NULL;
}

static void say(const char *text)
{
    syscall(SYS_write, STDERR_FILENO, text, text_length(text));
}

static enum verdict judge_build_tool(const struct call *call, const char *path)
{
    const char *jobs = jobs_of(call->arguments);
    if (!has_window(call) || (jobs && same_text(jobs, "1")))
        return UNCHANGED;
    if (is_dynamic(path) || is_set(call->environment, "STOKER_VIA_LAUNCHER"))
        return OPEN;
    say("stoker: ");
    say(path);
    say(" is linked statically, so its compiles cannot be reached: it keeps its own number of "
        "jobs.\nstoker: use a dynamic one, or configure the build with "
        "`stoker run --via launcher -- cmake ...`\n");
    return UNCHANGED;
}

/* True for another user (su, setpriv), whom the governor does not serve and whose cache is another
 * one: such a program builds as it would without us. */
static bool is_of_another_user(const struct call *call)
{
    const char *socket = variable(call->environment, "STOKER_SOCKET");
    return socket && syscall(SYS_faccessat, AT_FDCWD, socket, W_OK) < 0 && errno == EACCES;
}

/* A script under a compiler's name may do anything, and reads what it likes. So it runs as it is, and
 * the compiler that it starts is the step: that one's command line is known, to us and to a cache. */
static enum verdict judge_compiler(const struct call *call, enum caller caller, const char *name,
                                   enum program program, const char *extra)
{
    if (is_probe(name, call->arguments, caller == BY_CACHE))
        return WITHOUT_US;
    if (program != SCRIPT || is_extra_compiler(name, extra))
        return LAUNCHED;
    return is_out_of_reach(call->environment) ? WITHOUT_US : WITH_US;
}

enum caller caller_of(const char *program)
{
    if (starts_with(program, "stoker-launcher"))
        return BY_LAUNCHER;
    if (is_compiler_wrapper(program))
        return BY_CACHE;
    return is_build_tool(program) ? BY_BUILD_TOOL : BY_OTHERS;
}

enum verdict judge(const struct call *call, enum caller caller, const char *path, enum program program)
{
    const char *extra = variable(call->environment, "STOKER_COMPILERS");
    const char *name = program_name(path), *first = call->arguments[1];
    if (variable(call->environment, "LD_TRACE_LOADED_OBJECTS"))
        return WITHOUT_US; /* ldd lists what the program loads by itself */
    bool governs = call->launcher && call->launcher[0] == '/' && !is_of_another_user(call);
    if (governs && is_compiler(name, extra))
        return judge_compiler(call, caller, name, program, extra);
    if (governs && is_compiler_wrapper(name) && first && is_compiler(program_name(first), extra))
        return LAUNCHED;
    bool without_us = program == FOREIGN || is_emulator(name) || is_out_of_reach(call->environment);
    if (without_us || !governs)
        return without_us ? WITHOUT_US : UNCHANGED;
    if (is_new(call->environment) && (is_build_tool(name) || is_compiling_shell(call->arguments, extra)))
        return WITH_US;
    if (is_build_tool(name))
        return judge_build_tool(call, path);
    if (caller == BY_BUILD_TOOL && (is_custom_command(call->arguments, extra) || !is_dynamic(path)))
        return LAUNCHED_CUSTOM;
    return UNCHANGED;
}
