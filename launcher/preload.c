/* libstoker-preload.so: preloaded by `stoker run` into every dynamic program of a build. It wraps
 * the exec family and posix_spawn: when a compiler is about to start, it starts the launcher with the
 * compiler's command instead. compilers.c recognises compilers.
 *
 *   [LAUNCHER, PATH, ARGUMENT...]               a step, where argv[0] is the path
 *   [LAUNCHER, --as, ARGV0, PATH, ARGUMENT...]  where it is not
 *   [LAUNCHER, --custom, ...]                   another command of a build tool
 *   [LAUNCHER, --remote, ...]                   a compile that a distributor sends to another machine
 *   [WRAPPER, PATH, ARGUMENT...]                a compile, where a cache or distributor is in use;
 *                                               the compiler that the wrapper starts is the step
 *
 * A build tool gets a wide window of jobs (STOKER_JOBS), because the governor chooses among the steps that
 * wait; a static one keeps its own number, because its jobs cannot be governed.
 *
 * Everything here may run between vfork and exec, in a thread or in a signal handler: it changes
 * no global, allocates nothing, takes no lock and leaves errno as it was. The library is linked with
 * nothing, not even the C library, and asks for no versioned symbol, so that it loads into programs
 * of any C library of this architecture. It calls the kernel through syscall(), because other
 * preloaded libraries and sanitizers replace the usual functions.
 */
#define _GNU_SOURCE
#include "compilers.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum {
    WORDS_ON_STACK = 8192, /* a longer command line gets memory of its own */
    DEEPEST_LINK = 16,
    SAVED_BYTES = 8192,
    SAVED_ENTRIES = 32,
};

/* The content of a script does not identify the compiler that it starts. */
#define BY_CONTENT "CCACHE_COMPILERCHECK=content"
#define BY_VERSION "CCACHE_COMPILERCHECK=%compiler% --version"

#define WRAPPED_MARK "STOKER_WRAPPED" /* in the environment of what a wrapper starts */

/* ---- the functions behind ours ---------------------------------------------------------------*/

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

/* What `stoker run` said, for programs that start a compiler with an environment of their own. */
static struct {
    size_t count, used;
    const char *launcher;
    char *entries[SAVED_ENTRIES];
    char bytes[SAVED_BYTES];
} saved;

static size_t length_of(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

static void copy(char *to, const char *from, size_t length)
{
    for (size_t at = 0; at < length; at++)
        to[at] = from[at];
    to[length] = '\0';
}

/* Copies it: programs overwrite the memory of their environment, to change their title. */
static void save(const char *entry)
{
    static const char LAUNCHER[] = "STOKER_LAUNCHER=/";
    size_t length = length_of(entry);
    if (saved.count == SAVED_ENTRIES || length >= SAVED_BYTES - saved.used)
        return;
    char *place = saved.bytes + saved.used;
    copy(place, entry, length);
    saved.used += length + 1;
    saved.entries[saved.count++] = place;
    if (starts_with(place, LAUNCHER))
        saved.launcher = place + sizeof LAUNCHER - 2;
}

__attribute__((constructor)) static void load(void)
{
    *(void **)&real.execve = find("execve");
    *(void **)&real.execvpe = find("execvpe");
    *(void **)&real.posix_spawn = find("posix_spawn");
    *(void **)&real.posix_spawnp = find("posix_spawnp");
    for (char **entry = environ; entry && *entry; entry++)
        if (starts_with(*entry, "STOKER_"))
            save(*entry);
}

/* ---- a call of one of them -------------------------------------------------------------------*/

struct call {
    const char *file;
    bool search; /* for a name without a slash, on the PATH */
    char *const *arguments, *const *environment;
    bool spawns;
    pid_t *pid;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
};

static int unavailable(bool spawns)
{
    errno = ENOSYS;
    return spawns ? ENOSYS : -1;
}

static int make(const struct call *call, const char *file, bool search, char *const *arguments,
                char *const *environment)
{
    exec_function *exec = search ? real.execvpe : real.execve;
    spawn_function *spawn = search ? real.posix_spawnp : real.posix_spawn;
    if (call->spawns ? !spawn : !exec)
        return unavailable(call->spawns);
    if (!call->spawns)
        return exec(file, arguments, environment);
    return spawn(call->pid, file, call->actions, call->attributes, arguments, environment);
}

static int make_unchanged(const struct call *call)
{
    return make(call, call->file, call->search, call->arguments, call->environment);
}

static size_t count(char *const *vector)
{
    size_t length = 0;
    while (vector && vector[length])
        length++;
    return length;
}

static const char *variable(char *const *environment, const char *name)
{
    for (size_t length = length_of(name); environment && *environment; environment++)
        if (starts_with(*environment, name) && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* ---- files -----------------------------------------------------------------------------------*/

enum program { ABSENT, NATIVE, FOREIGN };

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* A program is foreign if it is of another architecture than this library, which its dynamic loader
 * would complain about. */
static enum program examine(const char *path)
{
    ElfW(Ehdr) header;
    if (syscall(SYS_faccessat, AT_FDCWD, path, X_OK) < 0)
        return ABSENT;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return NATIVE; /* it may be executed but not read */
    long size = syscall(SYS_read, file, &header, sizeof header);
    syscall(SYS_close, file);
    if (size < 0)
        return ABSENT; /* a folder */
    if (size < (long)sizeof header || !starts_with((char *)header.e_ident, ELFMAG))
        return NATIVE;
    bool same = header.e_ident[EI_CLASS] == __ehdr_start.e_ident[EI_CLASS] &&
                header.e_machine == __ehdr_start.e_machine;
    return same ? NATIVE : FOREIGN;
}

/* False for an ELF program without a dynamic loader, into which nothing can be preloaded. */
static bool is_dynamic(const char *path)
{
    union {
        ElfW(Ehdr) header;
        char bytes[4096];
    } start;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    long size = file < 0 ? -1 : syscall(SYS_read, file, &start, sizeof start);
    if (file >= 0)
        syscall(SYS_close, file);
    if (size < (long)sizeof start.header || !starts_with((char *)start.header.e_ident, ELFMAG))
        return true; /* a script */
    for (size_t number = 0; number < start.header.e_phnum; number++) {
        size_t at = start.header.e_phoff + number * sizeof(ElfW(Phdr));
        if (at + sizeof(ElfW(Phdr)) > (size_t)size)
            return true;
        if (((ElfW(Phdr) *)(start.bytes + at))->p_type == PT_INTERP)
            return true;
    }
    return false;
}

static bool is_script(const char *path)
{
    char start[2] = "";
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) {
        syscall(SYS_read, file, start, sizeof start);
        syscall(SYS_close, file);
    }
    return start[0] == '#' && start[1] == '!';
}

/* Joins folder and name. False: that is too long. */
static bool join(char *path, const char *folder, size_t length, const char *name)
{
    size_t rest = length_of(name);
    if (length == 0)
        folder = ".", length = 1;
    if (length + rest + 2 > PATH_MAX)
        return false;
    copy(path, folder, length);
    path[length] = '/';
    copy(path + length + 1, name, rest);
    return true;
}

static bool has_slash(const char *file)
{
    while (*file && *file != '/')
        file++;
    return *file == '/';
}

static enum program search_folders(const char *folders, const char *name, char *path)
{
    for (bool more = true; more;) {
        size_t length = 0;
        while (folders[length] && folders[length] != ':')
            length++;
        if (join(path, folders, length, name)) {
            enum program found = examine(path);
            if (found != ABSENT)
                return found;
        }
        more = folders[length] == ':';
        folders += length + 1;
    }
    return ABSENT;
}

/* Writes the path of the program that the call will start, always with a slash in it. */
static enum program locate(const struct call *call, char *path)
{
    size_t length = length_of(call->file);
    if (length == 0 || length >= PATH_MAX)
        return ABSENT;
    if (has_slash(call->file)) {
        copy(path, call->file, length);
        return examine(path);
    }
    if (!call->search)
        return search_folders("", call->file, path);
    const char *folders = variable(environ, "PATH");
    return search_folders(folders ? folders : "/bin:/usr/bin", call->file, path);
}

static long read_link(const char *path, char *target)
{
    long length = syscall(SYS_readlinkat, AT_FDCWD, path, target, (size_t)PATH_MAX - 1);
    if (length > 0)
        target[length] = '\0';
    return length;
}

/* True if the path is a link to ccache or the like, also through other links. */
static bool leads_to_wrapper(const char *path)
{
    char at[PATH_MAX], target[PATH_MAX];
    copy(at, path, length_of(path));
    for (int depth = 0; depth < DEEPEST_LINK && read_link(at, target) > 0; depth++) {
        const char *name = program_name(target);
        if (is_compiler_wrapper(name))
            return true;
        if (target[0] == '/') {
            copy(at, target, length_of(target));
        } else {
            size_t folder = (size_t)(program_name(at) - at);
            if (folder + length_of(target) >= PATH_MAX)
                return false;
            copy(at + folder, target, length_of(target));
        }
    }
    return is_compiler_wrapper(program_name(path));
}

/* The name of the program that makes the call, by its file and not by what it calls itself. */
static const char *calling_program(char *path)
{
    return read_link("/proc/self/exe", path) > 0 ? program_name(path) : "";
}

/* ---- what to do with a call ------------------------------------------------------------------*/

enum verdict { UNCHANGED, WITHOUT_US, STEP, CUSTOM, REMOTE, OPEN, WRAPPED };

/* True if a program that is given this environment cannot open our library: its root folder is
 * another one, or the library was removed. */
static bool is_out_of_reach(char *const *environment)
{
    char path[PATH_MAX];
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

static const char *launcher_of(const struct call *call)
{
    const char *launcher = variable(call->environment, "STOKER_LAUNCHER");
    return launcher ? launcher : saved.launcher;
}

static bool same_variable(const struct call *call, const char *one, const char *other)
{
    const char *left = variable(call->environment, one), *right = variable(call->environment, other);
    return same_text(left ? left : "", right ? right : "");
}

/* True if a cache or distributor (STOKER_WRAPPER) is to start this compiler. Caches do not look at
 * the flags that nvcc reads from the environment, so these must be the ones that stoker has told
 * the cache of. */
static bool is_wrapped(const struct call *call, const char *path)
{
    char *const *words = call->arguments;
    const char *wrapper = variable(call->environment, "STOKER_WRAPPER");
    return wrapper && wrapper[0] == '/' && !variable(call->environment, WRAPPED_MARK) &&
           same_text(program_name(words[0]), program_name(path)) &&
           is_cacheable(program_name(path), words) &&
           same_variable(call, "NVCC_APPEND_FLAGS", "STOKER_NVCC_APPEND_FLAGS") &&
           same_variable(call, "NVCC_PREPEND_FLAGS", "STOKER_NVCC_PREPEND_FLAGS") &&
           examine(wrapper) == NATIVE && is_dynamic(wrapper);
}

static enum verdict judge_compiler(const struct call *call, const char *path)
{
    char own[PATH_MAX];
    const char *caller = calling_program(own);
    if (starts_with(caller, "stoker-launcher"))
        return UNCHANGED; /* it has asked already */
    bool below_wrapper = is_compiler_wrapper(caller);
    if (is_probe(program_name(path), call->arguments, below_wrapper))
        return WITHOUT_US;
    return !below_wrapper && is_wrapped(call, path) ? WRAPPED : STEP;
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
    syscall(SYS_write, STDERR_FILENO, text, length_of(text));
}

static enum verdict judge_build_tool(const struct call *call, const char *path)
{
    if (!has_window(call))
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

static enum verdict judge(const struct call *call, char *path)
{
    char own[PATH_MAX];
    const char *launcher = launcher_of(call);
    const char *extra = variable(call->environment, "STOKER_COMPILERS");
    if (!call->file || count(call->arguments) == 0)
        return UNCHANGED;
    enum program program = locate(call, path);
    if (program == ABSENT)
        return UNCHANGED; /* the error is the real function's to find */
    if (variable(call->environment, "LD_TRACE_LOADED_OBJECTS"))
        return WITHOUT_US; /* ldd lists what the program loads by itself */
    bool governs = launcher && launcher[0] == '/';
    if (governs && is_compiler(program_name(path), extra) && !leads_to_wrapper(path))
        return judge_compiler(call, path);
    if (governs && is_remote_compile(program_name(path), call->arguments))
        return starts_with(calling_program(own), "stoker-launcher") ? UNCHANGED : REMOTE;
    bool without_us = program == FOREIGN || is_emulator(program_name(path)) ||
                      is_out_of_reach(call->environment);
    if (governs && !without_us && is_build_tool(program_name(path)))
        return judge_build_tool(call, path);
    /* In an environment made from nothing, as SCons makes it, the shell has to stand for what it
     * starts: there our library cannot see that. */
    if (governs && !variable(call->environment, "STOKER_LAUNCHER") &&
        is_compiling_shell(call->arguments, extra))
        return STEP;
    if (governs && is_set(call->environment, "STOKER_GOVERN_CUSTOM") &&
        is_build_tool(calling_program(own)) && is_custom_command(call->arguments, extra))
        return CUSTOM;
    return without_us ? WITHOUT_US : UNCHANGED;
}

/* ---- doing it --------------------------------------------------------------------------------*/

static void *borrow(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Writes the launcher's command line for the call's. `kind` is its option, if it needs one. */
static void write_words(char **words, const struct call *call, const char *kind, const char *path)
{
    const char *own = call->arguments[0];
    *words++ = (char *)launcher_of(call);
    if (kind)
        *words++ = (char *)kind;
    if (!same_text(own, path)) {
        *words++ = "--as";
        *words++ = (char *)own;
    }
    *words++ = (char *)path;
    for (char *const *word = call->arguments + 1; *word; word++)
        *words++ = *word;
    *words = NULL;
}

/* Writes the call's environment, and what the launcher needs to know where that lacks it. */
static void write_environment(char **entries, const struct call *call)
{
    for (char *const *entry = call->environment; entry && *entry; entry++)
        *entries++ = *entry;
    if (!variable(call->environment, "STOKER_LAUNCHER"))
        for (size_t at = 0; at < saved.count; at++)
            *entries++ = saved.entries[at];
    *entries = NULL;
}

/* Starts the same program with an LD_PRELOAD in which our library is missing. */
static int start_without_us(const struct call *call)
{
    static const char NAME[] = "LD_PRELOAD=";
    const char *list = variable(call->environment, "LD_PRELOAD");
    size_t entries = count(call->environment), length = list ? length_of(list) : 0;
    if (!list || entries + length / sizeof(char *) > WORDS_ON_STACK)
        return make_unchanged(call);
    char *environment[entries + 1], value[sizeof NAME + length];
    copy(value, NAME, sizeof NAME - 1);
    copy(value + sizeof NAME - 1, list, length);
    bool others = remove_preload_library(value + sizeof NAME - 1);
    char **place = environment;
    for (char *const *entry = call->environment; *entry; entry++) {
        bool ours = *entry + sizeof NAME - 1 == list;
        if (!ours || others)
            *place++ = ours ? value : *entry;
    }
    *place = NULL;
    return make(call, call->file, call->search, call->arguments, environment);
}

static int start_launcher(const struct call *call, const char *kind, const char *path)
{
    size_t most = count(call->arguments) + 5, entries = count(call->environment) + saved.count + 1;
    size_t size = (most + entries) * sizeof(char *);
    bool on_stack = most + entries <= WORDS_ON_STACK;
    char *few[on_stack ? most + entries : 1];
    char **words = on_stack ? few : borrow(size);
    if (!words)
        return make_unchanged(call);
    write_words(words, call, kind, path);
    write_environment(words + most, call);
    int result = make(call, launcher_of(call), false, words, words + most);
    if (!on_stack)
        munmap(words, size);
    /* The launcher may have vanished, or its command line be too long for the kernel. */
    return call->spawns && result == 0 ? 0 : start_without_us(call);
}

/* Starts the wrapper with the compiler's command, and the launcher if there is no wrapper any more. */
static int start_wrapper(const struct call *call, const char *path)
{
    size_t most = count(call->arguments) + 2, entries = count(call->environment) + 2;
    const char *wrapper = variable(call->environment, "STOKER_WRAPPER");
    if (most + entries > WORDS_ON_STACK)
        return start_launcher(call, NULL, path);
    char *words[most], *environment[entries];
    words[0] = (char *)wrapper;
    words[1] = (char *)path;
    for (size_t at = 1; at + 1 < most; at++)
        words[at + 1] = call->arguments[at] ? (char *)short_option(call->arguments[at]) : NULL;
    bool script = is_script(path);
    for (size_t at = 0; at < entries - 2; at++) {
        environment[at] = call->environment[at];
        if (script && same_text(environment[at], BY_CONTENT))
            environment[at] = BY_VERSION;
    }
    environment[entries - 2] = WRAPPED_MARK "=1";
    environment[entries - 1] = NULL;
    if (is_remote_compile(program_name(wrapper), words)) {
        struct call remote = *call;
        remote.file = wrapper, remote.search = false;
        remote.arguments = words, remote.environment = environment;
        return start_launcher(&remote, "--remote", wrapper);
    }
    if (is_distributor(program_name(wrapper))) /* it would start this compiler here anyway */
        return start_launcher(call, NULL, path);
    int result = make(call, wrapper, false, words, environment);
    return call->spawns && result == 0 ? 0 : start_launcher(call, NULL, path);
}

/* Starts a build tool that asks for more jobs at once than it has CPUs. */
static int start_open(const struct call *call)
{
    char jobs[16] = "-j";
    const char *number = variable(call->environment, "STOKER_JOBS");
    size_t words = count(call->arguments) + 2;
    if (length_of(number) + 3 > sizeof jobs || words > WORDS_ON_STACK)
        return make_unchanged(call);
    copy(jobs + 2, number, length_of(number));
    char *arguments[words];
    write_jobs(arguments, call->arguments, jobs);
    return make(call, call->file, call->search, arguments, call->environment);
}

static int start(struct call call)
{
    char path[PATH_MAX];
    int before = errno;
    enum verdict verdict = judge(&call, path);
    errno = before;
    if (verdict == WITHOUT_US)
        return start_without_us(&call);
    if (verdict == OPEN)
        return start_open(&call);
    if (verdict == WRAPPED)
        return start_wrapper(&call, path);
    if (verdict == STEP)
        return start_launcher(&call, NULL, path);
    if (verdict == CUSTOM || verdict == REMOTE)
        return start_launcher(&call, verdict == CUSTOM ? "--custom" : "--remote", path);
    return make_unchanged(&call);
}

/* ---- the functions that programs call --------------------------------------------------------*/

static int execute(const char *file, bool search, char *const *arguments, char *const *environment)
{
    return start((struct call){file, search, arguments, environment, false, NULL, NULL, NULL});
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
    return start((struct call){path, false, arguments, environment, true, pid, actions, attributes});
}

EXPORTED int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const arguments[],
                          char *const environment[])
{
    return start((struct call){file, true, arguments, environment, true, pid, actions, attributes});
}
