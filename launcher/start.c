/* Makes the call of a program, or starts the launcher in its place, as verdict.c says. The rules for all
 * code of the library are in preload.c. */
#define _GNU_SOURCE
#include "preload.h"

#include "compilers.h"
#include "programs.h"
#include "text.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A path that has to be composed. The program of a longer one starts as it would without us. */
enum { SPACE = 1024 };

enum { SHARED_WORDS = 2048 };

/* The list of a child of vfork, which cannot return memory to its parent once another program runs in it.
 * The kernel clears the owner then, because it is the child's tid address. */
static struct {
    int owner;
    char *words[SHARED_WORDS];
} shared;

static bool is_child(void)
{
    long process = syscall(SYS_getpid);
    return process != saved.process && process == syscall(SYS_gettid);
}

/* Returns memory for a list of so many words, or NULL. The caller's stack may be small. */
static char **borrow(const struct call *call, size_t words)
{
    int unused = 0;
    if (!call->spawns && words <= SHARED_WORDS && is_child() &&
        __atomic_compare_exchange_n(&shared.owner, &unused, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        syscall(SYS_set_tid_address, &shared.owner);
        return shared.words;
    }
    void *memory = mmap(NULL, words * sizeof(char *), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void give_back(char **list, size_t words)
{
    int before = errno;
    if (list == shared.words) {
        syscall(SYS_set_tid_address, NULL);
        __atomic_store_n(&shared.owner, 0, __ATOMIC_RELEASE);
    } else {
        munmap(list, words * sizeof(char *));
    }
    errno = before;
}

static int make_unchanged(const struct call *call)
{
    return make(call, call->file, call->search, call->arguments, call->environment);
}

/* True if a call has an environment that a program made from nothing. */
static bool lacks_variables(const struct call *call)
{
    return !variable(call->environment, "STOKER_LAUNCHER");
}

/* Writes the call's environment, and our variables and library where that lacks them. Returns the end. */
static char **write_environment(char **entries, const struct call *call)
{
    for (char *const *entry = call->environment; entry && *entry; entry++)
        *entries++ = *entry;
    if (lacks_variables(call))
        for (size_t at = 0; at < saved.count; at++)
            *entries++ = saved.entries[at];
    if (lacks_variables(call) && saved.preload && !variable(call->environment, "LD_PRELOAD"))
        *entries++ = saved.preload;
    *entries = NULL;
    return entries;
}

static size_t most_entries(const struct call *call)
{
    return count(call->environment) + saved.count + 2;
}

/* Starts the same program with an LD_PRELOAD in which our library is missing. */
static int start_without_us(const struct call *call)
{
    const char *preload = variable(call->environment, "LD_PRELOAD");
    if (!preload)
        return make_unchanged(call);
    size_t entries = count(call->environment), length = text_length(preload);
    size_t words = entries + 1 + (sizeof PRELOAD + length) / sizeof(char *) + 1;
    char **environment = borrow(call, words);
    if (!environment)
        return make_unchanged(call);
    char *value = (char *)(environment + entries + 1), **place = environment;
    copy(value, PRELOAD, sizeof PRELOAD - 1);
    copy(value + sizeof PRELOAD - 1, preload, length);
    bool others = remove_preload_library(value + sizeof PRELOAD - 1);
    for (char *const *entry = call->environment; *entry; entry++) {
        bool ours = *entry + sizeof PRELOAD - 1 == preload;
        if (!ours || others)
            *place++ = ours ? value : *entry;
    }
    *place = NULL;
    int result = make(call, call->file, call->search, call->arguments, environment);
    give_back(environment, words);
    return result;
}

/* Starts the same program with our variables and our library, so that we see what it starts. A compiler that
 * a script below a cache starts is not to start another cache. */
static int start_with_us(const struct call *call)
{
    size_t words = most_entries(call) + 1;
    bool is_new = lacks_variables(call) && saved.preload, cached = saved.caller == BY_CACHE;
    char **environment = is_new || cached ? borrow(call, words) : NULL;
    if (!environment)
        return make_unchanged(call);
    char **end = write_environment(environment, call);
    if (cached)
        *end++ = WRAPPED_MARK "=1";
    *end = NULL;
    int result = make(call, call->file, call->search, call->arguments, environment);
    give_back(environment, words);
    return result;
}

/* Writes the launcher's command line for the call's. `kind` is its option, if it needs one. */
static void write_words(char **words, const struct call *call, const char *kind, const char *path)
{
    const char *own = call->arguments[0];
    *words++ = (char *)call->launcher;
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

static int start_launcher(const struct call *call, const char *kind, const char *path)
{
    size_t most = count(call->arguments) + 5;
    size_t words = most + (lacks_variables(call) ? most_entries(call) : 0);
    char **list = borrow(call, words), *const *environment = call->environment;
    if (!list)
        return make_unchanged(call);
    write_words(list, call, kind, path);
    if (lacks_variables(call)) {
        write_environment(list + most, call);
        environment = list + most;
    }
    int result = make(call, call->launcher, false, list, environment);
    give_back(list, words);
    /* The launcher may have vanished, or its command line be too long for the kernel. */
    return call->spawns && result == 0 ? 0 : start_without_us(call);
}

/* The number of jobs that the user has given a build tool: its jobs have so many places. */
#define PLACES "STOKER_PLACES="

/* Starts a build tool that asks for more jobs at once than it has CPUs. */
static int start_open(const struct call *call)
{
    char jobs[16] = "-j", places[sizeof PLACES + sizeof jobs];
    const char *number = variable(call->environment, "STOKER_JOBS"), *own = jobs_of(call->arguments);
    size_t most = count(call->arguments) + 2, words = most + count(call->environment) + 2;
    if (!number || text_length(number) + 3 > sizeof jobs)
        return make_unchanged(call);
    char **arguments = borrow(call, words);
    if (!arguments)
        return make_unchanged(call);
    copy(jobs + 2, number, text_length(number));
    write_jobs(arguments, call->arguments, jobs);
    char **environment = arguments + most, **end = environment;
    bool says = own && !same_text(own, number) && text_length(own) < sizeof jobs;
    if (says) {
        copy(places, PLACES, sizeof PLACES - 1);
        copy(places + sizeof PLACES - 1, *own ? own : number, text_length(*own ? own : number));
        *end++ = places;
    }
    for (char *const *entry = call->environment; entry && *entry; entry++)
        if (!says || !starts_with(*entry, PLACES))
            *end++ = *entry;
    *end = NULL;
    int result = make(call, call->file, call->search, arguments, environment);
    give_back(arguments, words);
    return result;
}

int start(struct call call)
{
    char space[SPACE];
    int before = errno;
    const char *launcher = variable(call.environment, "STOKER_LAUNCHER");
    call.launcher = launcher ? launcher : saved.launcher;
    enum program program = ABSENT;
    bool known = call.file && count(call.arguments) > 0 && saved.caller != BY_LAUNCHER;
    const char *path = known ? locate(call.file, call.search, space, SPACE, &program) : NULL;
    /* If it is absent, the error is the real function's to find. */
    enum verdict verdict = path ? judge(&call, saved.caller, path, program) : UNCHANGED;
    errno = before;
    if (verdict == WITHOUT_US)
        return start_without_us(&call);
    if (verdict == WITH_US)
        return start_with_us(&call);
    if (verdict == OPEN)
        return start_open(&call);
    if (verdict == LAUNCHED)
        return start_launcher(&call, saved.caller == BY_CACHE ? "--cached" : NULL, path);
    if (verdict == LAUNCHED_CUSTOM)
        return start_launcher(&call, "--custom", path);
    return make_unchanged(&call);
}
