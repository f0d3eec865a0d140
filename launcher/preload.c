/* libstoker-preload.so: preloaded by `stoker run` into every dynamic program of a build. It wraps
 * the exec family and posix_spawn: when a compiler is about to start, it starts the launcher with the
 * compiler's command instead. verdict.c decides which calls change, and start.c makes the changed ones.
 *
 *   [LAUNCHER, PATH, ARGUMENT...]               a compile or a link, where argv[0] is the path
 *   [LAUNCHER, --as, ARGV0, PATH, ARGUMENT...]  where it is not
 *   [LAUNCHER, --cached, ...]                   a compiler that a cache has started
 *   [LAUNCHER, --custom, ...]                   another command of a build tool
 *
 * The library knows a command by its name and its environment alone. All that needs a look at its files,
 * such as what a cache may do with it, is the launcher's to decide.
 *
 * A build tool gets a wide window of jobs (STOKER_JOBS), because the governor chooses among the steps that
 * wait; a static one keeps its own number, because its jobs cannot be governed.
 *
 * All code of the library may run between vfork and exec, in a thread or in a signal handler, on a stack of
 * a few KiB: it has no large frames, changes no global but the list of a child of vfork, takes no lock and
 * leaves errno as it was. The library is linked with
 * nothing, not even the C library, and asks for no versioned symbol, so that it loads into programs
 * of any C library of this architecture. It calls the kernel through syscall(), because other
 * preloaded libraries and sanitizers replace the usual functions.
 */
#define _GNU_SOURCE
#include "preload.h"

#include "compilers.h"
#include "text.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int exec_function(const char *, char *const[], char *const[]);
typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *,
                           const posix_spawnattr_t *, char *const[], char *const[]);

static struct {
    exec_function *execve, *execvpe;
    spawn_function *posix_spawn, *posix_spawnp;
} real;

/* The C library has dlsym itself since glibc 2.34, and _dl_sym before. */
#pragma weak dlsym
#pragma weak _dl_sym
extern void *_dl_sym(void *handle, const char *name, void *caller);

static void *find(const char *name)
{
    if (dlsym)
        return dlsym(RTLD_NEXT, name);
    return _dl_sym ? _dl_sym(RTLD_NEXT, name, &real) : NULL;
}

struct saved saved;

/* Copies it: programs overwrite the memory of their environment, to change their title. */
static char *save(const char *entry, size_t length)
{
    if (length >= SAVED_BYTES - saved.used)
        return NULL;
    char *place = saved.bytes + saved.used;
    copy(place, entry, length);
    saved.used += length + 1;
    return place;
}

static void save_variable(const char *entry)
{
    static const char LAUNCHER[] = "STOKER_LAUNCHER=/";
    char *place = saved.count < SAVED_ENTRIES ? save(entry, text_length(entry)) : NULL;
    if (!place)
        return;
    saved.entries[saved.count++] = place;
    if (starts_with(place, LAUNCHER))
        saved.launcher = place + sizeof LAUNCHER - 2;
}

static void save_preload(const char *list)
{
    for (size_t length; (length = next_preloaded(&list)) > 0; list += length) {
        if (!is_preload_library(list, length) || length + sizeof PRELOAD >= SAVED_BYTES - saved.used)
            continue;
        saved.preload = saved.bytes + saved.used;
        copy(saved.preload, PRELOAD, sizeof PRELOAD - 1);
        copy(saved.preload + sizeof PRELOAD - 1, list, length);
        saved.used += length + sizeof PRELOAD;
        return;
    }
}

/* A program is known by its file and not by what it calls itself. */
static enum caller own_kind(void)
{
    char path[1024];
    long length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return caller_of(program_name(path));
}

__attribute__((constructor)) static void load(void)
{
    *(void **)&real.execve = find("execve");
    *(void **)&real.execvpe = find("execvpe");
    *(void **)&real.posix_spawn = find("posix_spawn");
    *(void **)&real.posix_spawnp = find("posix_spawnp");
    saved.process = syscall(SYS_getpid);
    saved.caller = own_kind();
    for (char **entry = environ; entry && *entry; entry++)
        if (starts_with(*entry, "STOKER_"))
            save_variable(*entry);
        else if (starts_with(*entry, PRELOAD))
            save_preload(*entry + sizeof PRELOAD - 1);
}

int make(const struct call *call, const char *file, bool search, char *const *arguments,
         char *const *environment)
{
    exec_function *exec = search ? real.execvpe : real.execve;
    spawn_function *spawn = search ? real.posix_spawnp : real.posix_spawn;
    if (call->spawns ? !spawn : !exec) {
        errno = ENOSYS;
        return call->spawns ? ENOSYS : -1;
    }
    if (!call->spawns)
        return exec(file, arguments, environment);
    return spawn(call->pid, file, call->actions, call->attributes, arguments, environment);
}

static int execute(const char *file, bool search, char *const *arguments, char *const *environment)
{
    return start((struct call){
        .file = file, .search = search, .arguments = arguments, .environment = environment});
}

EXPORTED int execve(const char *path, char *const arguments[], char *const environment[])
{
    return execute(path, false, arguments, environment);
}

EXPORTED int execv(const char *path, char *const arguments[])
{
    return execute(path, false, arguments, environ);
}

EXPORTED int execvp(const char *file, char *const arguments[])
{
    return execute(file, true, arguments, environ);
}

EXPORTED int execvpe(const char *file, char *const arguments[], char *const environment[])
{
    return execute(file, true, arguments, environment);
}

/* The words of a variadic call, with the NULL at their end. */
static size_t count_words(va_list list)
{
    size_t words = 2;
    while (va_arg(list, char *))
        words++;
    return words;
}

static void take_words(char **words, const char *first, va_list *list)
{
    for (*words = (char *)first; *words; *words = va_arg(*list, char *))
        words++;
}

#define WITH_WORDS(first, words, list)                                                             \
    va_list list;                                                                                  \
    va_start(list, first);                                                                         \
    char *words[count_words(list)];                                                                \
    va_end(list);                                                                                  \
    va_start(list, first);                                                                         \
    take_words(words, first, &list);

EXPORTED int execl(const char *path, const char *first, ...)
{
    WITH_WORDS(first, words, list)
    va_end(list);
    return execute(path, false, words, environ);
}

EXPORTED int execlp(const char *file, const char *first, ...)
{
    WITH_WORDS(first, words, list)
    va_end(list);
    return execute(file, true, words, environ);
}

EXPORTED int execle(const char *path, const char *first, ...)
{
    WITH_WORDS(first, words, list)
    char *const *environment = va_arg(list, char *const *);
    va_end(list);
    return execute(path, false, words, environment);
}

EXPORTED int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, char *const arguments[],
                         char *const environment[])
{
    return start((struct call){path, false, arguments, environment, NULL, true, pid, actions,
                               attributes});
}

EXPORTED int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const arguments[],
                          char *const environment[])
{
    return start((struct call){file, true, arguments, environment, NULL, true, pid, actions,
                               attributes});
}
