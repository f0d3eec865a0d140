/* Starts a cache or distributor in place of a compile, with the words and variables with which it returns the
 * object of a plain compile. caching.c reads the command's words, and keys.c identifies compilers. */
#define _GNU_SOURCE
#include "compilers.h"
#include "keys.h"
#include "programs.h"
#include "step.h"
#include "targets.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ccache's direct mode takes the same command in two folders for the same compile, although the compiler
 * looks for headers below each of them. This variable is a part of its key (chains.py); the folder is added
 * where the source lies below it. Build folders of one tree still share objects. */
#define DIRECT_KEY "OBJC_INCLUDE_PATH"

/* Of two variables of a name, ccache takes the last for its options and the first for others. */
static void set(const char *name, const char *value)
{
    unsetenv(name);
    setenv(name, value, true);
}

static bool same_variables(const char *one, const char *other)
{
    return strcmp(setting(one, ""), setting(other, "")) == 0;
}

static bool is_file(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

/* ---- what a compile reads --------------------------------------------------------------------*/

static bool has_one_of(const char *const *names)
{
    while (*names && !getenv(*names))
        names++;
    return *names != NULL;
}

/* True for a variable that makes a compiler take other options, or write another file. nvcc.profile adds
 * to the variables of nvcc. */
static bool has_hidden_options(const char *compiler)
{
    static const char *const NAMES[] = {
        "CCC_OVERRIDE_OPTIONS", "CC_LOG_DIAGNOSTICS", "CC_PRINT_HEADERS", "CC_PRINT_OPTIONS",
        "CC_PRINT_PROC_STAT", "DEPENDENCIES_OUTPUT", "GCC_EXEC_PREFIX", "SUNPRO_DEPENDENCIES", NULL,
    };
    static const char *const OF_NVCC[] = {
        "CUDAFE_FLAGS", "INCLUDES", "PTXAS_FLAGS", "SYSTEM_INCLUDES", NULL,
    };
    return has_one_of(NAMES) || (is_nvcc(compiler) && has_one_of(OF_NVCC));
}

/* True if machines with other CPUs and GPUs may get the objects of this one. */
static bool is_shared(void)
{
    return getenv("CCACHE_REMOTE_STORAGE") || getenv("SCCACHE_SERVER_UDS");
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
    return has_language(words) ? word > words && **word != '-' && strcmp(word[-1], "-o") != 0
                               : *word == source_of(words);
}

/* True for a regular file that has an assembler read other files. Opening a pipe would be noticed by its
 * writer. */
static bool is_source_with_files(const char *path)
{
    struct stat found;
    FILE *source = stat(path, &found) == 0 && S_ISREG(found.st_mode) ? fopen(path, "re") : NULL;
    char *text = source ? malloc((size_t)found.st_size + 1) : NULL;
    size_t length = text ? fread(text, 1, (size_t)found.st_size, source) : 0;
    if (text)
        text[length] = '\0';
    bool has_files = text && has_hidden_files(text, length);
    free(text);
    if (source)
        fclose(source);
    return has_files;
}

/* True if a folder has another one in it, also through a link. */
static bool has_folders(const char *path)
{
    DIR *folder = opendir(path);
    bool found = false;
    struct stat status;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
    if (folder)
        closedir(folder);
    return found;
}

/* True if a driver would find programs or options of its own under a prefix (-B, COMPILER_PATH): a
 * folder or the start of a name. A folder within it may be that of a target. */
static bool leads_to_programs(const char *prefix, size_t length)
{
    static const char *const PROGRAMS[] = {
        "as", "cc1", "cc1plus", "cc1obj", "cc1objplus", "specs", NULL,
    };
    char path[PATH_MAX];
    if (length + sizeof "/cc1objplus" > sizeof path)
        return true;
    for (const char *const *name = PROGRAMS; *name; name++)
        for (int inside = 0; inside <= 1; inside++) {
            snprintf(path, sizeof path, "%.*s%s%s", (int)length, prefix, inside ? "/" : "", *name);
            if (access(path, F_OK) == 0)
                return true;
        }
    snprintf(path, sizeof path, "%.*s", (int)length, prefix);
    return has_folders(*path ? path : ".");
}

static bool has_programs_elsewhere(char *const *words)
{
    for (const char *prefix; (prefix = next_prefix(&words));)
        if (leads_to_programs(prefix, strlen(prefix)))
            return true;
    for (const char *folder = setting("COMPILER_PATH", ""); *folder; folder += *folder == ':') {
        size_t length = strcspn(folder, ":");
        if (leads_to_programs(folder, length))
            return true;
        folder += length;
    }
    return false;
}

/* A cache knows the assembler that was on the PATH when the run began. */
static bool has_other_assembler(void)
{
    char path[PATH_MAX];
    enum program program;
    const char *known = getenv("STOKER_ASSEMBLER"), *folders = getenv("PATH");
    const char *found =
        known && folders ? search_folders(folders, "as", path, sizeof path, &program) : known;
    return known && (!found || strcmp(found, known) != 0);
}

/* True if a compile starts other programs than the ones that stoker has told the cache of, since a
 * cache compares the driver alone, has an assembler read files, or names a file in an option. */
static bool hides_inputs(char *const *words)
{
    if (has_hidden_options(program_name(words[0])) || (is_shared() && is_for_this_machine(words)))
        return true;
    for (char *const *word = words; *word; word++)
        if (names_file(word) || (may_be_source(words, word) && is_source_with_files(*word)))
            return true;
    return has_other_assembler() || has_programs_elsewhere(words);
}

/* ---- ccache ----------------------------------------------------------------------------------*/

/* Writes the real path of a folder, and returns whether it is another one or below it, which has no links. */
static bool lies_below(const char *path, const char *folder, char *real)
{
    size_t above = strlen(folder);
    return realpath(path, real) && strncmp(real, folder, above) == 0 &&
           (real[above] == '/' || !real[above]);
}

/* The names in hidden folders and in those of builds are not known, since builds generate files there. */
static bool has_names(const char *folder, const char *tree)
{
    static const char *const MARKS[] = {"CMakeCache.txt", "build.ninja", "pyvenv.cfg", "CACHEDIR.TAG", NULL};
    char at[PATH_MAX], mark[PATH_MAX + 16];
    if (!lies_below(folder, tree, at))
        return false;
    for (; strlen(at) > strlen(tree); *strrchr(at, '/') = '\0') {
        bool hidden = program_name(at)[0] == '.';
        for (const char *const *name = MARKS; *name && !hidden; name++) {
            snprintf(mark, sizeof mark, "%s/%s", at, *name);
            hidden = access(mark, F_OK) == 0;
        }
        if (hidden)
            return false;
    }
    return true;
}

/* True if the names of the headers beside a source are part of the key of ccache's direct mode. Without
 * that, ccache would not notice a new header earlier in the search path. */
static bool has_named_source(char *const *words)
{
    char folder[PATH_MAX], real[PATH_MAX];
    const char *tree = getenv("STOKER_NAMED_TREE"), *source = source_of(words);
    int length = source ? (int)(program_name(source) - source) : 0;
    snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? source : ".");
    return !tree || (source && lies_below(folder, tree, real));
}

/* The same for all headers that a compile may find. The folders in a response file are not known. */
static bool has_named_headers(char *const *words)
{
    const char *tree = getenv("STOKER_NAMED_TREE");
    bool named = has_named_source(words) && !(tree && (getenv("CPATH") || getenv("C_INCLUDE_PATH") ||
                                                       getenv("CPLUS_INCLUDE_PATH")));
    for (char *const *word = words; tree && named && *word; word++) {
        const char *folder = include_folder(word);
        named = **word != '@' && (!folder || has_names(folder, tree));
    }
    return named;
}

/* ccache compares what the preprocessor prints, and nvcc's prints only the side of the device. In its
 * depend mode it compares the listed headers instead, which needs the direct mode. */
static bool has_depend_mode(char *const *words)
{
    return !getenv("CCACHE_NODIRECT") && !getenv("CCACHE_NODEPEND") && has_named_source(words);
}

/* A ccache that is linked statically, as its authors distribute it, cannot have our library in it, but its
 * prefix can name the launcher. That is a list of words, and the user's own stays. */
static bool takes_prefix(const char *path)
{
    const char *launcher = setting("STOKER_LAUNCHER", " ");
    return !getenv("CCACHE_PREFIX") && leads_to_ccache(path) && !is_dynamic(path) && !strchr(launcher, ' ');
}

static void name_prefix(const char *path)
{
    if (takes_prefix(path))
        set("CCACHE_PREFIX", getenv("STOKER_LAUNCHER"));
}

/* Sets the variables of ccache for a compile of which it is known whether it hides inputs: depend mode for
 * kernels, no direct mode where a new header would not be noticed, or what switches it off. */
static void set_mode(const char *compiler, char *const *words, bool hides)
{
    enum caching caching = judge_caching(program_name(compiler), words);
    bool by_list = caching == SAFE_BY_LIST && has_depend_mode(words);
    if (caching == NO_COMPILE)
        return;
    if (hides || (caching != SAFE && !by_list)) {
        set("CCACHE_DISABLE", "1");
    } else if (by_list) {
        set("CCACHE_DEPEND", "1");
        set("CCACHE_DIRECT", "1");
    } else if (!has_named_headers(words)) {
        set("CCACHE_NODIRECT", "1");
    }
}

/* Adds the current folder to the key of the direct mode, if the source is named from there. */
static void add_place(char *const *words)
{
    char folder[PATH_MAX], key[2 * PATH_MAX];
    const char *own = getenv(DIRECT_KEY), *base = getenv("CCACHE_BASEDIR"), *place = folder;
    const char *source = source_of(words);
    if (!own || !source || *source == '/' || strncmp(source, "..", 2) == 0 ||
        getenv("CCACHE_NOHASHDIR") || !getcwd(folder, sizeof folder))
        return;
    if (base && strncmp(folder, base, strlen(base)) == 0)
        place += strlen(base); /* another checkout shares objects */
    if (snprintf(key, sizeof key, "%s:%s", own, place) < (int)sizeof key)
        set(DIRECT_KEY, key);
}

/* ---- the keys of compilers -------------------------------------------------------------------*/

/* Finds the compiler of C++ that nvcc starts. */
static const char *host_compiler(char *const *words, char *path, size_t size)
{
    enum program program;
    const char *named = setting("NVCC_CCBIN", "gcc");
    for (; *words; words++)
        if (host_compiler_in(words))
            named = host_compiler_in(words);
    if (is_file(named))
        return named;
    snprintf(path, size, "%s/gcc", named);
    if (access(path, F_OK) == 0)
        return path;
    return search_folders(setting("PATH", ""), named, path, size, &program);
}

/* The keys of the compilers of a command, for a cache. */
enum keyed {
    NO_KEYS, /* the cache compares the compilers by itself, as its user said */
    KEYED,
    UNKEYED, /* a compiler is not identified */
};

/* Sets the variable by which a cache takes the keys into its own: those of the compiler and, for nvcc,
 * of the one that it starts. ccache compares files: it has no other text for this that all its releases
 * know, but its way to compare compilers, which is also for files of specs. */
static enum keyed set_keys(const char *cache, const char *compiler, char *const *words,
                           struct compiler_record *unknown)
{
    char text[4 * PATH_MAX], key[KEY_LENGTH + 1], host[PATH_MAX];
    bool sccache = strcmp(program_name(cache), "sccache") == 0;
    bool of_nvcc = is_nvcc(program_name(compiler));
    const char *name = sccache ? "SCCACHE_C_CUSTOM_CACHE_BUSTER" : "CCACHE_EXTRAFILES";
    const char *folder = getenv("STOKER_COMPILER_KEYS");
    if (!folder || (!sccache && !of_nvcc && strcmp(setting("CCACHE_COMPILERCHECK", ""), "content") != 0))
        return NO_KEYS;
    const char *compilers[] = {compiler, of_nvcc ? host_compiler(words, host, sizeof host) : NULL};
    int length = snprintf(text, sizeof text, "%s", setting(name, ""));
    for (size_t at = 0; at < 2 && compilers[at]; at++) {
        if (length >= (int)sizeof text || !find_record(folder, compilers[at], unknown) ||
            !read_key(unknown, key))
            return UNKEYED;
        bool first = length == 0;
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s%s%s",
                           sccache || first ? "" : ":", sccache ? "" : folder, sccache ? "" : "/", key);
    }
    if (length >= (int)sizeof text)
        return UNKEYED;
    set(name, text);
    return KEYED;
}

/* Starts the program that identifies a compiler, and that starts the command then. Returns if that was
 * tried before. */
static void identify(const char *path, char **command, const struct compiler_record *unknown)
{
    const char *python = getenv("STOKER_PYTHON"), *program = getenv("STOKER_COMPILER_KEY");
    if (!has_library() || !python || !program || !*unknown->path || strstr(setting("STOKER_KEYS_SOUGHT", ""), unknown->path))
        return;
    char *const words[] = {
        "-I",         "-S", (char *)program, (char *)unknown->path, (char *)unknown->compiler,
        (char *)path, command_own_name(command),
    };
    char **whole = command_with(command, words, sizeof words / sizeof *words);
    if (whole) {
        whole[0] = (char *)python;
        execv(python, whole);
    }
    free(whole);
}

/* ---- starting --------------------------------------------------------------------------------*/

static void use_short_options(char **words)
{
    for (; *words; words++)
        *words = (char *)short_option(*words);
}

/* A cache writes files of its own and needs memory of its own, so a limit of either that is meant
 * for the compiler would make the cache fail in its place. */
static bool has_limits(void)
{
    struct rlimit limit;
#define LIMITED(resource) (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return LIMITED(RLIMIT_FSIZE) || LIMITED(RLIMIT_AS) || LIMITED(RLIMIT_DATA) || LIMITED(RLIMIT_CPU);
}

/* True if the wrapper returns the object of a plain compile, as far as we know. Caches do not look at the
 * flags that nvcc reads from the environment, so these must be the ones that stoker has told the cache of. */
static bool is_safe_with(const char *wrapper, const char *path, char *const *words)
{
    enum caching caching = judge_caching(program_name(path), words);
    if (caching == NO_COMPILE || caching == UNSAFE || hides_inputs(words) ||
        is_extra_compiler(program_name(path), getenv("STOKER_UNCACHED")) ||
        !same_variables("NVCC_APPEND_FLAGS", "STOKER_NVCC_APPEND_FLAGS") ||
        !same_variables("NVCC_PREPEND_FLAGS", "STOKER_NVCC_PREPEND_FLAGS"))
        return false;
    if (strcmp(program_name(wrapper), "sccache") == 0) /* it looks at both sides of a kernel */
        return !getenv("SOURCE_DATE_EPOCH");           /* which it removes */
    return caching == SAFE ||
           (caching == SAFE_BY_LIST && (!leads_to_ccache(wrapper) || has_depend_mode(words)));
}

/* True if the compiler that a wrapper starts asks the governor. */
static bool reaches_us(const char *wrapper)
{
    return is_dynamic(wrapper) ? has_library() : takes_prefix(wrapper);
}

static bool is_wrapped(const char *wrapper, const char *path, char **command)
{
    enum program program = wrapper && *wrapper == '/' ? examine(wrapper) : ABSENT;
    return program != ABSENT && program != FOREIGN &&
           strcmp(program_name(command_own_name(command)), program_name(path)) == 0 &&
           is_safe_with(wrapper, path, command) && reaches_us(wrapper) && !has_limits();
}

/* True if the wrapper sends this compile to another machine. sccache does if a scheduler has told how many
 * compiles its workers take, and sends CUDA too. */
static bool is_sent(const char *wrapper, char **words)
{
    const char *slots = getenv("STOKER_SLOTS");
    bool by_sccache = strcmp(program_name(wrapper), "sccache") == 0 && slots && strcmp(slots, "0") != 0;
    return by_sccache || is_remote_compile(program_name(wrapper), words);
}

/* Starts the wrapper of this run with a compile. Returns the command to govern: that of a distributor, or the
 * compile itself. */
static char **start_wrapper(const char *wrapper, const char *path, char **command)
{
    struct compiler_record unknown = {"", ""};
    enum keyed keyed = set_keys(wrapper, path, command + 1, &unknown);
    if (keyed == UNKEYED)
        identify(path, command, &unknown);
    char *word = (char *)path, **words = keyed == UNKEYED ? NULL : command_with(command, &word, 1);
    if (!words)
        return command;
    words[0] = (char *)wrapper;
    use_short_options(words + 2);
    if (leads_to_ccache(wrapper)) {
        add_place(words + 1);
        set_mode(path, words + 1, false);
        name_prefix(wrapper);
    }
    set(WRAPPED_MARK, "1");
    if (is_sent(wrapper, words)) {
        command_kind = REMOTE;
        command_named(NULL, words);
        return words;
    }
    if (!is_distributor(program_name(wrapper))) /* it would start this compiler here anyway */
        execv(wrapper, words);
    return command;
}

/* Sets how a ccache of the user's own compares a compiler: as it does by default where its key is not known. */
static void set_own_keys(const char *path, char **command, char **compile)
{
    char space[PATH_MAX];
    enum program program;
    struct compiler_record unknown = {"", ""};
    const char *compiler = locate(*compile, true, space, sizeof space, &program);
    bool found = compiler && !leads_to_wrapper(compiler);
    enum keyed keyed = set_keys(path, found ? compiler : "", compile + 1, &unknown);
    if (keyed == UNKEYED && found)
        identify(path, command, &unknown);
    if (keyed == UNKEYED)
        set("CCACHE_COMPILERCHECK", "mtime");
}

/* Starts a command with a wrapper of the user's own: `ccache gcc -c a.c`, or ccache under the name of a
 * compiler. It gets variables only where stoker was asked for a cache. Returns the command to govern, if the
 * wrapper cannot reach us or compiles elsewhere. */
static char **start_own_wrapper(const char *path, char **command)
{
    char **compile = command + is_compiler_wrapper(program_name(path));
    if (is_remote_compile(program_name(path), command)) {
        command_kind = REMOTE;
        return command;
    }
    if (leads_to_ccache(path)) {
        if (getenv("STOKER_COMPILER_KEYS") && *compile &&
            judge_caching(program_name(*compile), compile) != NO_COMPILE) {
            set_own_keys(path, command, compile);
            use_short_options(compile + 1);
            set_mode(*compile, compile, hides_inputs(compile));
        }
        name_prefix(path);
    }
    if (!has_library() && !getenv("CCACHE_PREFIX"))
        return command;
    set(WRAPPED_MARK, "1");
    command_execute(command);
}

char **cache_start(char **command, bool cached)
{
    char space[PATH_MAX];
    enum program program;
    const char *wrapper = getenv("STOKER_WRAPPER"), *left_out = getenv("STOKER_LEFT_OUT_TARGETS");
    cached |= getenv(WRAPPED_MARK) != NULL;
    char **kept = !cached && left_out && names_nvcc(command) ? command_with(command, command, 0) : NULL;
    if (kept && leave_out_targets(kept, command, left_out))
        command = kept;
    const char *path = locate(command[0], true, space, sizeof space, &program);
    if (path && leads_to_wrapper(path))
        return start_own_wrapper(path, command);
    return !cached && path && is_wrapped(wrapper, path, command) ? start_wrapper(wrapper, path, command) : command;
}
