/* Makes the call of a program, or starts the launcher or a cache in its place, as verdict.c says. The rules
 * for all code of the library are in preload.c. */
#define _GNU_SOURCE
#include "preload.h"

#include "compilers.h"
#include "keys.h"
#include "programs.h"
#include "targets.h"
#include "text.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORDS_ON_STACK = 1024 }; /* a longer list gets memory of its own: the caller's stack may be small */

static int make_unchanged(const struct call *call)
{
    return make(call, call->file, call->search, call->arguments, call->environment);
}

static char **borrow(size_t words)
{
    void *memory = mmap(NULL, words * sizeof(char *), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Declares a list of so many words; NULL if there is no memory for it. A long one stays behind in the
 * parent if a child of vfork executes a program, so typical ones are on the stack. */
#define LIST(list, words)                                                                          \
    size_t list##_words = (words);                                                                 \
    char *list##_few[list##_words <= WORDS_ON_STACK ? list##_words : 1];                           \
    char **list = list##_words <= WORDS_ON_STACK ? list##_few : borrow(list##_words)

#define END_OF(list)                                                                               \
    do {                                                                                           \
        if (list != list##_few)                                                                    \
            munmap(list, list##_words * sizeof(char *));                                           \
    } while (0)

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

/* Writes the call's environment, and what the launcher needs to know where that lacks it. Returns
 * the end. */
static char **write_environment(char **entries, const struct call *call)
{
    for (char *const *entry = call->environment; entry && *entry; entry++)
        *entries++ = *entry;
    if (!variable(call->environment, "STOKER_LAUNCHER"))
        for (size_t at = 0; at < saved.count; at++)
            *entries++ = saved.entries[at];
    *entries = NULL;
    return entries;
}

/* Starts the same program with an LD_PRELOAD in which our library is missing. */
static int start_without_us(const struct call *call)
{
    const char *preload = variable(call->environment, "LD_PRELOAD");
    if (!preload)
        return make_unchanged(call);
    size_t entries = count(call->environment), length = text_length(preload);
    LIST(environment, entries + 1 + (sizeof PRELOAD + length) / sizeof(char *) + 1);
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
    END_OF(environment);
    return result;
}

/* Starts the same program with our variables and our library, so that we see what it starts. Where its
 * environment is new, that is not the one that the settings of a cache were made for, so it has none. */
static int start_with_us(const struct call *call)
{
    char own[PATH_MAX];
    bool is_new = !variable(call->environment, "STOKER_LAUNCHER");
    bool cached = is_compiler_wrapper(calling_program(own)) &&
                  !variable(call->environment, WRAPPED_MARK);
    if ((!is_new && !cached) || (is_new && !saved.preload))
        return make_unchanged(call);
    LIST(environment, count(call->environment) + saved.count + 3);
    if (!environment)
        return make_unchanged(call);
    char **end = write_environment(environment, call);
    if (is_new && !variable(call->environment, "LD_PRELOAD"))
        *end++ = saved.preload;
    if (is_new || cached)
        *end++ = WRAPPED_MARK "=1";
    *end = NULL;
    int result = make(call, call->file, call->search, call->arguments, environment);
    END_OF(environment);
    return result;
}

static int start_launcher(const struct call *call, const char *kind, const char *path)
{
    size_t most = count(call->arguments) + 5;
    bool is_new = !variable(call->environment, "STOKER_LAUNCHER");
    LIST(words, most + (is_new ? count(call->environment) + saved.count + 1 : 0));
    if (!words)
        return make_unchanged(call);
    write_words(words, call, kind, path);
    if (is_new)
        write_environment(words + most, call);
    int result = make(call, call->launcher, false, words, is_new ? words + most : call->environment);
    END_OF(words);
    /* The launcher may have vanished, or its command line be too long for the kernel. */
    return call->spawns && result == 0 ? 0 : start_without_us(call);
}

enum {
    PREFIX_BYTES = sizeof CCACHE_PREFIX + 1 + PATH_MAX,
    CCACHE_VARIABLES = 2, /* the most that ccache_variables returns */
};

/* Writes the variable by which ccache starts the launcher. Returns false if that is not needed. */
static bool write_prefix(char *entry, const struct call *call, const char *cache)
{
    static const char NAME[] = CCACHE_PREFIX "=";
    size_t length = text_length(call->launcher);
    if (length >= PATH_MAX || !takes_prefix(call, cache))
        return false;
    copy(entry, NAME, sizeof NAME - 1);
    copy(entry + sizeof NAME - 1, call->launcher, length);
    return true;
}

/* ccache's direct mode takes the same command in two folders for the same compile, although the
 * compiler looks for headers below each of them. This variable is a part of its key (chains.py); the
 * folder is added where the source lies below it. Build folders of one tree still share objects. */
#define DIRECT_KEY "OBJC_INCLUDE_PATH"
enum { PLACE_BYTES = 2 * PATH_MAX };

/* Writes that variable. Returns false if it is not needed. */
static bool write_place(char *entry, const struct call *call, char *const *words)
{
    static const char NAME[] = DIRECT_KEY "=";
    char folder[PATH_MAX];
    const char *key = variable(call->environment, DIRECT_KEY), *place = folder;
    const char *base = variable(call->environment, "CCACHE_BASEDIR");
    size_t length = key ? text_length(key) : 0;
    const char *source = source_of(words);
    if (!key || !source || *source == '/' || starts_with(source, "..") ||
        variable(call->environment, "CCACHE_NOHASHDIR") ||
        length + sizeof NAME + 1 > PATH_MAX || syscall(SYS_getcwd, folder, sizeof folder) <= 0)
        return false;
    if (base && starts_with(folder, base))
        place += text_length(base); /* another checkout shares objects */
    copy(entry, NAME, sizeof NAME - 1);
    copy(entry + sizeof NAME - 1, key, length);
    length += sizeof NAME - 1;
    entry[length++] = ':';
    copy(entry + length, place, text_length(place));
    return true;
}

/* Writes the path of the compiler of C++ that nvcc starts. False: there is none. */
static bool find_host_compiler(const struct call *call, char *const *words, char *path)
{
    const char *folders = variable(call->environment, "PATH");
    const char *named = variable(call->environment, "NVCC_CCBIN");
    for (; *words; words++)
        if (host_compiler_in(words))
            named = host_compiler_in(words);
    if (!named || !*named)
        named = "gcc";
    size_t length = text_length(named);
    if (length + sizeof "/gcc" > PATH_MAX)
        return false;
    copy(path, named, length);
    if (is_file(path))
        return true;
    if (folder_holds(named, length, "gcc")) {
        copy(path + length, "/gcc", sizeof "/gcc" - 1);
        return true;
    }
    return folders && search_folders(folders, named, path) != ABSENT;
}

/* The keys of the compilers of a command, for a cache. */
enum keyed {
    NO_KEYS, /* the cache compares the compilers by itself, as its user said */
    KEYED,
    UNKEYED, /* a compiler is not identified */
};

enum { CHECK_BYTES = 4 * PATH_MAX };

/* A compiler that is to be identified. */
struct unknown {
    char path[PATH_MAX], record[PATH_MAX];
};

/* Writes the key of a compiler. False: it must be identified first. */
static bool write_key(const struct call *call, const char *compiler, char *key,
                      struct unknown *unknown)
{
    return absolute_path(compiler, unknown->path) &&
           record_of(call, unknown->path, unknown->record) &&
           read_key(unknown->record, unknown->path, key);
}

/* Appends the name of a key's file, or the key itself if there is no folder. */
static size_t append_key(char *entry, size_t length, const char *folder, const char *key)
{
    if (folder) {
        if (entry[length - 1] != '=')
            entry[length++] = ':';
        copy(entry + length, folder, text_length(folder));
        length += text_length(folder);
        entry[length++] = '/';
    }
    copy(entry + length, key, KEY_LENGTH);
    return length + KEY_LENGTH;
}

/* Writes the variable by which a cache takes the keys into its own: those of the compiler and, for nvcc,
 * of the one that it starts. ccache compares files: it has no other text for this that all its releases
 * know, but its way to compare compilers, which is also for files of specs. */
static enum keyed write_check(char *entry, const struct call *call, const char *cache,
                              const char *path, char *const *words, struct unknown *unknown)
{
    char key[KEY_LENGTH + 1], host[PATH_MAX];
    bool of_sccache = same_text(program_name(cache), "sccache"), of_nvcc = is_nvcc(program_name(path));
    const char *check = variable(call->environment, "CCACHE_COMPILERCHECK");
    const char *folder = variable(call->environment, "STOKER_COMPILER_KEYS");
    const char *name = of_sccache ? "SCCACHE_C_CUSTOM_CACHE_BUSTER" : "CCACHE_EXTRAFILES";
    const char *own = variable(call->environment, name);
    size_t length = text_length(name), of_own = own ? text_length(own) : 0;
    if (!folder || (!of_sccache && !of_nvcc && !(check && same_text(check, "content"))))
        return NO_KEYS;
    unknown->record[0] = '\0';
    if (text_length(folder) >= PATH_MAX || of_own >= PATH_MAX)
        return UNKEYED;
    copy(entry, name, length);
    entry[length++] = '=';
    copy(entry + length, own ? own : "", of_own);
    length += of_own;
    if (!write_key(call, path, key, unknown))
        return UNKEYED;
    length = append_key(entry, length, of_sccache ? NULL : folder, key);
    if (of_nvcc && find_host_compiler(call, words, host)) {
        if (!write_key(call, host, key, unknown))
            return UNKEYED;
        append_key(entry, length, of_sccache ? NULL : folder, key);
    }
    return KEYED;
}

/* Starts the program that identifies a compiler, which makes the call then. Returns false if that was
 * tried before. */
static bool identify(const struct call *call, const char *path, const struct unknown *unknown,
                     int *result)
{
    const char *python = variable(call->environment, "STOKER_PYTHON");
    const char *program = variable(call->environment, "STOKER_COMPILER_KEY");
    const char *sought = variable(call->environment, "STOKER_KEYS_SOUGHT");
    if (!python || !program || !unknown->record[0] || (sought && contains(sought, unknown->record)))
        return false;
    LIST(words, count(call->arguments) + 8);
    if (!words)
        return false;
    char **end = words;
    *end++ = (char *)python;
    *end++ = "-I";
    *end++ = "-S";
    *end++ = (char *)program;
    *end++ = (char *)unknown->record;
    *end++ = (char *)unknown->path;
    *end++ = (char *)path;
    for (char *const *word = call->arguments; *word; word++)
        *end++ = *word;
    *end = NULL;
    *result = make(call, python, false, words, call->environment);
    END_OF(words);
    return call->spawns && *result == 0;
}

/* Writes the variable by which a ccache of the user's own identifies the compiler: as it does by default
 * where its key is not known. Returns false if the call was made by the program that identifies it. */
static bool write_own_check(char *entry, const struct call *call, const char *path,
                            char *const *words, int *result)
{
    static const char DEFAULT[] = "CCACHE_COMPILERCHECK=mtime";
    char compiler[PATH_MAX];
    struct unknown unknown;
    *entry = '\0';
    if (!*words || judge_caching(program_name(*words), words) == NO_COMPILE)
        return true;
    bool found = locate(*words, true, compiler) != ABSENT && !leads_to_wrapper(compiler);
    enum keyed keyed =
        write_check(entry, call, path, found ? compiler : "", words + 1, &unknown);
    if (keyed == UNKEYED && found && identify(call, path, &unknown, result))
        return false;
    if (keyed == NO_KEYS)
        *entry = '\0';
    if (keyed == UNKEYED)
        copy(entry, DEFAULT, sizeof DEFAULT - 1);
    return true;
}

/* Writes words with the options that caches know in place of long ones. */
static void write_short(char **list, char *const *words)
{
    while (*words)
        *list++ = (char *)short_option(*words++);
    *list = NULL;
}

/* Starts a ccache of the user's own with the variables that this compile needs. A static one also
 * starts the launcher for each compile that it lacks. */
static int start_ccache(const struct call *call, const char *path)
{
    char prefix[PREFIX_BYTES], check[CHECK_BYTES];
    int result = -1;
    size_t most = count(call->arguments) + 1;
    LIST(environment, most + count(call->environment) + saved.count + 3 + CCACHE_VARIABLES);
    if (!environment)
        return make_unchanged(call);
    char **arguments = environment, **variables = environment + most;
    write_short(arguments, call->arguments);
    char **end = write_environment(variables, call);
    char *const *words = call->arguments + is_ccache(program_name(path));
    if (!write_own_check(check, call, path, words, &result)) {
        END_OF(environment);
        return result;
    }
    if (*check)
        *end++ = check;
    if (write_prefix(prefix, call, path))
        *end++ = prefix;
    for (const char *const *more = ccache_variables(call, *words ? *words : "", words, false); *more; more++)
        *end++ = (char *)*more;
    *end = NULL;
    result = make(call, call->file, call->search, arguments, variables);
    END_OF(environment);
    return result;
}

/* True if a list, which need not end with NULL, has a variable of the same name. */
static bool is_set_by(char *const *list, char *const *end, const char *entry)
{
    for (; list < end; list++) {
        size_t at = 0;
        while (entry[at] && entry[at] == (*list)[at] && entry[at] != '=')
            at++;
        if (entry[at] == '=' && (*list)[at] == '=')
            return true;
    }
    return false;
}

/* True if the wrapper sends this compile to another machine. sccache does if a scheduler has told how many
 * compiles its workers take, and sends CUDA too. */
static bool is_sent(const struct call *call, const char *wrapper, char *const *words)
{
    const char *slots = variable(call->environment, "STOKER_SLOTS");
    bool by_sccache = same_text(program_name(wrapper), "sccache") && slots && !same_text(slots, "0");
    return by_sccache || is_remote_compile(program_name(wrapper), words);
}

/* Starts the wrapper with the compiler's command, and the launcher if there is no wrapper any more. */
static int start_wrapper(const struct call *call, const char *path)
{
    size_t most = count(call->arguments) + 2;
    size_t entries = count(call->environment) + 5 + CCACHE_VARIABLES;
    const char *wrapper = variable(call->environment, "STOKER_WRAPPER");
    LIST(words, most + entries);
    if (!words)
        return start_launcher(call, NULL, path);
    char **environment = words + most, **end = environment;
    char check[CHECK_BYTES], prefix[PREFIX_BYTES], place[PLACE_BYTES];
    struct unknown unknown;
    enum keyed keyed = write_check(check, call, wrapper, path, call->arguments + 1, &unknown);
    int result = -1;
    if (keyed == UNKEYED) {
        if (!identify(call, path, &unknown, &result))
            result = start_launcher(call, NULL, path);
        END_OF(words);
        return result;
    }
    words[0] = (char *)wrapper;
    words[1] = (char *)path;
    write_short(words + 2, call->arguments + 1);
    if (keyed == KEYED)
        *end++ = check;
    if (write_prefix(prefix, call, wrapper))
        *end++ = prefix;
    if (leads_to_ccache(wrapper) && write_place(place, call, words + 1))
        *end++ = place;
    if (leads_to_ccache(wrapper))
        for (const char *const *more = ccache_variables(call, path, words + 1, true); *more; more++)
            *end++ = (char *)*more;
    /* Of two variables of a name, ccache takes the last for its options and the first for others. */
    char *const *ours = end;
    for (char *const *entry = call->environment; entry && *entry; entry++)
        if (!is_set_by(environment, ours, *entry))
            *end++ = *entry;
    *end++ = WRAPPED_MARK "=1";
    *end = NULL;
    if (is_sent(call, wrapper, words)) {
        struct call remote = *call;
        remote.file = wrapper, remote.search = false;
        remote.arguments = words, remote.environment = environment;
        result = start_launcher(&remote, "--remote", wrapper);
    } else {
        /* A distributor would start this compiler here anyway. */
        if (!is_distributor(program_name(wrapper)))
            result = make(call, wrapper, false, words, environment);
        if (!call->spawns || result != 0)
            result = start_launcher(call, NULL, path);
    }
    END_OF(words);
    return result;
}

/* Starts a build tool that asks for more jobs at once than it has CPUs. */
static int start_open(const struct call *call)
{
    char jobs[16] = "-j";
    const char *number = variable(call->environment, "STOKER_JOBS");
    if (!number || text_length(number) + 3 > sizeof jobs)
        return make_unchanged(call);
    LIST(arguments, count(call->arguments) + 2);
    if (!arguments)
        return make_unchanged(call);
    copy(jobs + 2, number, text_length(number));
    write_jobs(arguments, call->arguments, jobs);
    int result = make(call, call->file, call->search, arguments, call->environment);
    END_OF(arguments);
    return result;
}

static int start_judged(struct call call)
{
    char path[PATH_MAX];
    int before = errno;
    enum verdict verdict = judge(&call, path);
    errno = before;
    if (verdict == WITHOUT_US)
        return start_without_us(&call);
    if (verdict == WITH_US)
        return start_with_us(&call);
    if (verdict == OPEN)
        return start_open(&call);
    if (verdict == WRAPPED)
        return start_wrapper(&call, path);
    if (verdict == CCACHED)
        return start_ccache(&call, path);
    if (verdict == LAUNCHED)
        return start_launcher(&call, NULL, path);
    if (verdict == LAUNCHED_CUSTOM || verdict == LAUNCHED_REMOTE)
        return start_launcher(&call, verdict == LAUNCHED_CUSTOM ? "--custom" : "--remote", path);
    return make_unchanged(&call);
}

/* A compiler that a cache starts gets the words of the cache: these are the key of its object. */
static const char *targets_to_leave_out(const struct call *call)
{
    char own[PATH_MAX];
    if (!call->launcher || !call->arguments || !names_nvcc(call->arguments))
        return NULL;
    const char *list = variable(call->environment, LEFT_OUT);
    if (!list && !variable(call->environment, "STOKER_LAUNCHER"))
        list = variable(saved.entries, LEFT_OUT);
    return list && !is_compiler_wrapper(calling_program(own)) ? list : NULL;
}

int start(struct call call)
{
    int before = errno;
    const char *launcher = variable(call.environment, "STOKER_LAUNCHER");
    call.launcher = launcher ? launcher : saved.launcher;
    const char *left_out = targets_to_leave_out(&call);
    errno = before;
    if (!left_out)
        return start_judged(call);
    LIST(words, count(call.arguments) + 1);
    if (words && leave_out_targets(words, call.arguments, left_out))
        call.arguments = words;
    int result = start_judged(call);
    END_OF(words);
    return result;
}
