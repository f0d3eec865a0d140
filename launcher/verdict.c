/* What to do with a call; see verdict.h. */
#define _GNU_SOURCE
#include "verdict.h"

#include "compilers.h"
#include "programs.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static bool same_variable(const struct call *call, const char *one, const char *other)
{
    const char *left = variable(call->environment, one), *right = variable(call->environment, other);
    return same_text(left ? left : "", right ? right : "");
}

/* A cache writes files of its own and needs memory of its own, so a limit of either that is meant
 * for the compiler would make the cache fail in its place. */
static bool has_limits(void)
{
    static const int RESOURCES[] = {RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU};
    struct rlimit limit;
    for (size_t at = 0; at < sizeof RESOURCES / sizeof *RESOURCES; at++)
        if (syscall(SYS_prlimit64, 0, RESOURCES[at], NULL, &limit) == 0 &&
            limit.rlim_cur != RLIM_INFINITY)
            return true;
    return false;
}

bool takes_prefix(const struct call *call, const char *path)
{
    if (variable(call->environment, CCACHE_PREFIX) || !leads_to_ccache(path) || is_dynamic(path))
        return false;
    for (const char *letter = call->launcher; *letter; letter++)
        if (*letter == ' ')
            return false;
    return true;
}

static bool has_one_of(const struct call *call, const char *const *names)
{
    while (*names && !variable(call->environment, *names))
        names++;
    return *names != NULL;
}

/* True for a variable that makes a compiler take other options, or write another file. nvcc.profile adds
 * to the variables of nvcc. */
static bool has_hidden_options(const struct call *call, const char *compiler)
{
    static const char *const NAMES[] = {
        "CCC_OVERRIDE_OPTIONS", "CC_LOG_DIAGNOSTICS", "CC_PRINT_HEADERS", "CC_PRINT_OPTIONS",
        "CC_PRINT_PROC_STAT", "DEPENDENCIES_OUTPUT", "GCC_EXEC_PREFIX", "SUNPRO_DEPENDENCIES", NULL,
    };
    static const char *const OF_NVCC[] = {
        "CUDAFE_FLAGS", "INCLUDES", "PTXAS_FLAGS", "SYSTEM_INCLUDES", NULL,
    };
    return has_one_of(call, NAMES) || (is_nvcc(compiler) && has_one_of(call, OF_NVCC));
}

/* True if machines with other CPUs and GPUs may get the objects of this one. */
static bool is_shared(const struct call *call)
{
    return variable(call->environment, "CCACHE_REMOTE_STORAGE") ||
           variable(call->environment, "SCCACHE_SERVER_UDS");
}

/* True for an option that names a file as its value. A compiler may read it, and a cache compares only
 * its name. */
static bool names_file(char *const *word)
{
    const char *value = value_in_option(word);
    return value && is_file(value);
}

/* The source of a compile has the suffix of one, or any name if the command says its language. */
static bool may_be_source(char *const *words, char *const *word)
{
    return has_language(words) ? word > words && **word != '-' && !same_text(word[-1], "-o")
                               : *word == source_of(words);
}

/* True if a compile starts other programs than the ones that stoker has told the cache of, since a
 * cache compares the driver alone, has an assembler read files, or names a file in an option. */
static bool hides_inputs(const struct call *call, char *const *words)
{
    if (has_hidden_options(call, program_name(words[0])) || (is_shared(call) && is_for_this_machine(words)))
        return true;
    for (char *const *word = words; *word; word++)
        if (names_file(word) || (may_be_source(words, word) && is_source_with_files(*word)))
            return true;
    char path[PATH_MAX];
    const char *assembler = variable(call->environment, "STOKER_ASSEMBLER");
    const char *folders = variable(call->environment, "PATH");
    if (assembler && folders &&
        (search_folders(folders, "as", path) == ABSENT || !same_text(path, assembler)))
        return true;
    for (const char *prefix; (prefix = next_prefix(&words));)
        if (leads_to_programs(prefix, text_length(prefix)))
            return true;
    const char *folder = variable(call->environment, "COMPILER_PATH");
    while (folder && *folder) {
        size_t length = 0;
        while (folder[length] && folder[length] != ':')
            length++;
        if (leads_to_programs(folder, length))
            return true;
        folder += length + (folder[length] == ':');
    }
    return false;
}

/* True if the names of the headers that a compile may find are part of the key of ccache's direct mode,
 * as far as they lie in one tree with its source. Without that, ccache would not notice a new header
 * earlier in the search path. */
static bool has_named_headers(const struct call *call, char *const *words)
{
    const char *tree = variable(call->environment, "STOKER_NAMED_TREE"), *source = source_of(words);
    return !tree || (source && lies_below(source, tree));
}

/* ccache compares what the preprocessor prints, and nvcc's prints only the side of the device. In its
 * depend mode it compares the listed headers instead, which needs the direct mode. */
static bool has_depend_mode(const struct call *call, char *const *words)
{
    return !variable(call->environment, "CCACHE_NODIRECT") &&
           !variable(call->environment, "CCACHE_NODEPEND") && has_named_headers(call, words);
}

const char *const *ccache_variables(const struct call *call, const char *path, char *const *words,
                                    bool judged)
{
    static const char *const NONE[] = {NULL}, *const OFF[] = {"CCACHE_DISABLE=1", NULL},
                      *const BY_LIST[] = {"CCACHE_DEPEND=1", "CCACHE_DIRECT=1", NULL},
                      *const BY_TEXT[] = {"CCACHE_NODIRECT=1", NULL};
    enum caching caching = judge_caching(program_name(path), words);
    if (caching == NO_COMPILE)
        return NONE;
    if (caching == UNSAFE || caching == UNSAFE_BY_TEXT || (!judged && hides_inputs(call, words)))
        return OFF;
    if (caching == SAFE)
        return has_named_headers(call, words) ? NONE : BY_TEXT;
    return has_depend_mode(call, words) ? BY_LIST : OFF;
}

/* True if the wrapper returns the object of a plain compile, as far as we know. */
static bool is_safe_with(const char *wrapper, const struct call *call, const char *path)
{
    char *const *words = call->arguments;
    enum caching caching = judge_caching(program_name(path), words);
    if (caching == NO_COMPILE || caching == UNSAFE || hides_inputs(call, words) ||
        is_extra_compiler(program_name(path), variable(call->environment, "STOKER_UNCACHED")))
        return false;
    if (same_text(program_name(wrapper), "sccache")) /* it looks at both sides of a kernel */
        return !variable(call->environment, "SOURCE_DATE_EPOCH"); /* which it removes */
    return caching == SAFE ||
           (caching == SAFE_BY_LIST && (!leads_to_ccache(wrapper) || has_depend_mode(call, words)));
}

static bool can_run(enum program program)
{
    return program != ABSENT && program != FOREIGN;
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
           is_safe_with(wrapper, call, path) &&
           same_variable(call, "NVCC_APPEND_FLAGS", "STOKER_NVCC_APPEND_FLAGS") &&
           same_variable(call, "NVCC_PREPEND_FLAGS", "STOKER_NVCC_PREPEND_FLAGS") &&
           can_run(examine(wrapper)) && (is_dynamic(wrapper) || takes_prefix(call, wrapper)) &&
           !has_limits();
}

/* A script under a compiler's name may do anything, and reads what it likes. So it runs as it is, and
 * the compiler that it starts is the step: that one's command line is known, to us and to a cache. */
static bool is_compiler_script(enum program program, const char *path, const char *extra)
{
    return program == SCRIPT && !is_extra_compiler(program_name(path), extra);
}

static enum verdict judge_compiler(const struct call *call, enum program program, const char *path,
                                   const char *extra)
{
    char own[PATH_MAX];
    const char *caller = calling_program(own);
    if (starts_with(caller, "stoker-launcher"))
        return UNCHANGED; /* it has asked already */
    bool below_wrapper = is_compiler_wrapper(caller);
    if (is_probe(program_name(path), call->arguments, below_wrapper))
        return WITHOUT_US;
    if (is_compiler_script(program, path, extra))
        return is_out_of_reach(call->environment) ? WITHOUT_US : WITH_US;
    return !below_wrapper && is_wrapped(call, path) ? WRAPPED : LAUNCHED;
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
    if (!has_window(call) || (jobs && same_text(jobs, "1"))) /* such a build may depend on one at a time */
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

/* True if this compile by the user's own ccache needs variables: `ccache gcc -c a.c`, or ccache under
 * the name of a compiler. */
static bool needs_variables(const struct call *call, const char *path)
{
    char *const *words = call->arguments + is_ccache(program_name(path));
    if (!*words || judge_caching(program_name(*words), words) == NO_COMPILE)
        return false;
    return variable(call->environment, "STOKER_COMPILER_KEYS") || *ccache_variables(call, *words, words, false);
}

enum verdict judge(const struct call *call, char *path)
{
    char own[PATH_MAX];
    const char *extra = variable(call->environment, "STOKER_COMPILERS");
    if (!call->file || count(call->arguments) == 0)
        return UNCHANGED;
    enum program program = locate(call->file, call->search, path);
    if (program == ABSENT)
        return UNCHANGED; /* the error is the real function's to find */
    if (variable(call->environment, "LD_TRACE_LOADED_OBJECTS"))
        return WITHOUT_US; /* ldd lists what the program loads by itself */
    bool governs = call->launcher && call->launcher[0] == '/' && !is_of_another_user(call);
    bool compiles = governs && is_compiler(program_name(path), extra);
    if (compiles && !leads_to_wrapper(path))
        return judge_compiler(call, program, path, extra);
    if ((compiles || (governs && is_ccache(program_name(path)))) && leads_to_ccache(path) &&
        (takes_prefix(call, path) || needs_variables(call, path)))
        return CCACHED;
    if (governs && is_remote_compile(program_name(path), call->arguments))
        return starts_with(calling_program(own), "stoker-launcher") ? UNCHANGED : LAUNCHED_REMOTE;
    bool without_us = program == FOREIGN || is_emulator(program_name(path)) ||
                      is_out_of_reach(call->environment);
    if (without_us || !governs)
        return without_us ? WITHOUT_US : UNCHANGED;
    bool builds = is_build_tool(program_name(path));
    if (is_new(call->environment) && (builds || is_compiling_shell(call->arguments, extra)))
        return WITH_US;
    if (builds)
        return judge_build_tool(call, path);
    if (is_build_tool(calling_program(own)) &&
        (is_custom_command(call->arguments, extra) || !is_dynamic(path)))
        return LAUNCHED_CUSTOM;
    return UNCHANGED;
}
