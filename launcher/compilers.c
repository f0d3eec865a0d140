/* What programs are, by their names and command lines: compilers, their wrappers, probes, custom
 * commands. Pure functions without the C library; see compilers.h. */
#include "compilers.h"

#include "text.h"

/* A word within a longer text. */
struct word {
    const char *start;
    size_t length;
};

/* COMPILERS, ORIGINALS (ends of the names of compilers whose place a script has taken), BACK_ENDS (what
 * drivers start for the work itself; they are met only below a driver that a static program started,
 * past us), LINKERS, WRAPPERS (programs that stand under a compiler's name and start the compiler only
 * where they need it), DISTRIBUTORS, CACHED and SHELLS. */
#include "names.h"

static const char *const COMPILE_ONLY[] = {"-c", "--compile", "-dc", "--device-c", NULL};

static const char *const DEVICE_LANGUAGES[] = {"cu", "cuda", "hip", NULL};

/* An assembler reads files that no preprocessor and no list of headers shows. */
static const char *const ASSEMBLER_LANGUAGES[] = {
    "s", "S", "sx", "asm", "assembler", "assembler-with-cpp", NULL,
};

/* Long options of nvcc and their short forms, which caches know from gcc. */
static const char *const SHORT_OPTIONS[][2] = {
    {"--generate-dependencies-with-compile", "-MD"},
    {"--generate-nonsystem-dependencies-with-compile", "-MMD"},
    {"--dependency-output", "-MF"},
    {"--dependency-target-name", "-MT"},
    {"--output-file", "-o"},
};

static const char *const BUILD_TOOLS[] = {"ninja", "samu", "n2", "make", "gmake", NULL};

/* Programs whose children are governed one by one; a permit for them as well would wait for its
 * own children's. */
static const char *const BUILDERS[] = {
    "ninja", "samu", "make", "gmake", "meson", "scons", "cargo", "bazel", "pip", "pip3", "ctest",
    "setup.py", "stoker", "stoker-launcher",
    "STOKER_LAUNCHER", NULL,
};

static const char *const TRIVIAL[] = {
    ":",  "true", "false", "mkdir", "rmdir", "touch", "rm",     "ln",     "cp",    "mv",   "echo",
    "cd", "test", "[",     "chmod", "cat",   "exit",  "printf", "export", "unset", "set", NULL,
};

/* Words before a command that do not change what it is. */
static const char *const BEFORE_COMMANDS[] = {
    "if", "then", "else", "elif", "fi", "for", "while", "do", "done", "!", "time", "exec",
    "env", "nice", "command", NULL,
};

/* Options after which a driver ends without compiling. */
static const char *const QUESTIONS[] = {
    "--version", "-dumpmachine", "-dumpversion", "-dumpfullversion", "-dumpspecs", "-###",
    "--help", "--target-help", "--dryrun", "-dryrun", NULL,
};

static const char *const PREPROCESS[] = {
    "-E", "--preprocess", "-M", "-MM", "--generate-dependencies", NULL,
};

/* Options whose value is the next word. One that is missing here makes its value look like an
 * input, so that at worst a probe is governed. */
static const char *const WITH_VALUE[] = {
    "-x", "-I", "-D", "-U", "-L", "-l", "-B", "-T", "-u", "-z", "-e", "-m", "-include", "-imacros",
    "-isystem", "-iquote", "-idirafter", "-isysroot", "-MF", "-MT", "-MQ", "-Xlinker",
    "-Xassembler", "-Xpreprocessor", "-Xclang", "-Xcompiler", "-Xptxas", "-Xcudafe", "-mllvm",
    "-target", "-arch", "-gencode", "-code", "-ccbin", "--param", "-rpath", "-soname", "-plugin",
    "-dynamic-linker", "--compiler-bindir", "--compiler-options", "--gpu-architecture",
    "--generate-code", "--threads", NULL,
};

/* How the files begin that Autoconf, distutils, CMake and Meson compile as tests. */
static const char *const TEST_FILES[] = {
    "conftest", "_configtest", "__cmake_determine", "sanity_check_for_", "sanitycheck", NULL,
};

/* Where CMake and Meson compile their tests. */
static const char *const TEST_FOLDERS[] = {
    "CMakeFiles/CMakeScratch/", "CMakeFiles/CMakeTmp/", "CMakeFiles/cmTC_", "meson-private/",
    ".conf_check_", NULL,
};

/* ---- text ------------------------------------------------------------------------------------*/

static struct word word_of(const char *text)
{
    return (struct word){text, text_length(text)};
}

static bool is_word(struct word word, const char *text)
{
    size_t at = 0;
    while (at < word.length && text[at] == word.start[at])
        at++;
    return at == word.length && text[at] == '\0';
}

static bool is_among(struct word word, const char *const *list)
{
    while (*list && !is_word(word, *list))
        list++;
    return *list != NULL;
}

static bool is_byte_of(char byte, const char *set)
{
    while (*set && *set != byte)
        set++;
    return *set != '\0';
}

static bool contains(const char *text, const char *part)
{
    while (*text && !starts_with(text, part))
        text++;
    return *text != '\0';
}

static struct word base_name(struct word word)
{
    for (size_t at = word.length; at > 0; at--)
        if (word.start[at - 1] == '/')
            return (struct word){word.start + at, word.length - at};
    return word;
}

const char *program_name(const char *path)
{
    return base_name(word_of(path)).start;
}

/* The word up to the next of the separators, which it passes. */
static struct word next_word(const char **text, const char *separators)
{
    struct word word = {*text, 0};
    for (; **text; ++*text, word.length++)
        for (const char *separator = separators; *separator; separator++)
            if (**text == *separator) {
                ++*text;
                return word;
            }
    return word;
}

/* ---- names -----------------------------------------------------------------------------------*/

static bool is_digit_or_dot(char byte)
{
    return (byte >= '0' && byte <= '9') || byte == '.';
}

static bool ends_with(struct word name, const char *end)
{
    size_t length = text_length(end);
    return name.length >= length &&
           is_word((struct word){name.start + name.length - length, length}, end);
}

/* g++ for g++-real. */
static struct word without_original(struct word name)
{
    const char *const *end = ORIGINALS;
    while (*end && !ends_with(name, *end))
        end++;
    return *end ? (struct word){name.start, name.length - text_length(*end)} : name;
}

static struct word without_version(struct word whole)
{
    struct word name = without_original(whole);
    size_t length = name.length;
    while (length > 0 && is_digit_or_dot(name.start[length - 1]))
        length--;
    bool version = length > 0 && length < name.length && name.start[length - 1] == '-';
    return (struct word){name.start, version ? length - 1 : name.length};
}

/* The name itself, or with a prefix as in aarch64-linux-gnu-gcc. */
static bool ends_with_one_of(struct word name, const char *const *list)
{
    for (; *list; list++) {
        size_t prefix = name.length - text_length(*list);
        if (ends_with(name, *list) && (prefix == 0 || name.start[prefix - 1] == '-'))
            return true;
    }
    return false;
}

static bool is_extra(struct word name, const char *extra)
{
    while (extra && *extra) {
        struct word one = next_word(&extra, ":");
        size_t at = 0;
        while (at < one.length && at < name.length && one.start[at] == name.start[at])
            at++;
        if (at == one.length && at == name.length && at > 0)
            return true;
    }
    return false;
}

static bool is_linker(struct word name)
{
    return ends_with_one_of(without_version(name), LINKERS);
}

static bool names_compiler(struct word name, const char *extra)
{
    return ends_with_one_of(without_version(name), COMPILERS) || is_linker(name) ||
           is_among(name, BACK_ENDS) || is_extra(name, extra);
}

bool is_compiler(const char *name, const char *extra)
{
    return names_compiler(word_of(name), extra);
}

bool is_extra_compiler(const char *name, const char *extra)
{
    return is_extra(word_of(name), extra);
}

bool is_compiler_wrapper(const char *name)
{
    return is_among(word_of(name), WRAPPERS);
}

bool is_ccache(const char *name)
{
    return is_word(word_of(name), "ccache");
}

bool is_nvcc(const char *name)
{
    return is_word(without_version(word_of(name)), "nvcc");
}

bool is_emulator(const char *name)
{
    return starts_with(name, "qemu-");
}

bool is_build_tool(const char *name)
{
    return is_among(word_of(name), BUILD_TOOLS);
}

/* ---- jobs ------------------------------------------------------------------------------------*/

static bool is_number(const char *text)
{
    const char *at = text;
    while (*at >= '0' && *at <= '9')
        at++;
    return at > text && *at == '\0';
}

/* How many words of the command line say the number of jobs, here: 0, 1 or 2. */
static int words_of_jobs(char *const *word)
{
    if (same_text(*word, "-j") || same_text(*word, "--jobs"))
        return word[1] && is_number(word[1]) ? 2 : 1;
    bool joined = (starts_with(*word, "-j") && is_number(*word + 2)) ||
                  (starts_with(*word, "--jobs=") && is_number(*word + 7));
    return joined ? 1 : 0;
}

bool asks_one_job(char *const *arguments)
{
    bool one = false;
    for (char *const *word = arguments + 1; *word && !same_text(*word, "--"); word++) {
        int words = words_of_jobs(word);
        if (words == 0)
            continue;
        const char *number = word[words - 1];
        while (*number && !(*number >= '0' && *number <= '9'))
            number++;
        one = same_text(number, "1"); /* the last one counts */
        word += words - 1;
    }
    return one;
}

void write_jobs(char **words, char *const *arguments, const char *jobs)
{
    struct word name = base_name(word_of(arguments[0]));
    bool told = !is_word(name, "make") && !is_word(name, "gmake");
    *words++ = *arguments++;
    char **place = words;
    while (*arguments && !same_text(*arguments, "--")) {
        int skipped = words_of_jobs(arguments);
        told |= skipped > 0;
        if (skipped == 0)
            *words++ = *arguments++;
        arguments += skipped;
    }
    while (*arguments)
        *words++ = *arguments++;
    *words = NULL;
    if (!told)
        return;
    for (; words >= place; words--)
        words[1] = words[0];
    *place = (char *)jobs;
}

/* ---- probes ----------------------------------------------------------------------------------*/

static bool is_test_file(const char *path)
{
    const char *name = program_name(path);
    for (const char *const *start = TEST_FILES; *start; start++)
        if (starts_with(name, *start))
            return true;
    if (starts_with(name, "CMake") && contains(name, "CompilerId."))
        return true;
    for (const char *const *folder = TEST_FOLDERS; *folder; folder++)
        if (contains(path, *folder))
            return true;
    return false;
}

/* What a command line says so far. */
struct reading {
    bool answers;  /* ends after an answer */
    bool tests;    /* is a test of a configure script */
    bool inputs;   /* reads something that has to be compiled */
    bool expands;  /* stops after the preprocessor */
    const char *output;
};

/* Linkers print maps and statistics of what they really link. */
static bool is_question(struct word option, bool links)
{
    if (is_among(option, QUESTIONS))
        return true;
    return !links && (starts_with(option.start, "-print-") || starts_with(option.start, "--print-"));
}

/* nvcc passes a list of options on to its host compiler, whose answer is then all that it prints. */
static bool asks_host(struct word option, const char *next)
{
    const char *list = NULL;
    if (is_word(option, "-Xcompiler") || is_word(option, "--compiler-options"))
        list = next;
    else if (starts_with(option.start, "-Xcompiler="))
        list = option.start + sizeof "-Xcompiler=" - 1;
    while (list && *list)
        if (is_question(next_word(&list, ", "), false))
            return true;
    return false;
}

/* rustc prints these in addition to what it compiles. */
static bool is_rust_question(const char *word, const char *next)
{
    if (!starts_with(word, "--print"))
        return false;
    const char *what = word[7] == '=' ? word + 8 : next;
    return what && !starts_with(what, "native-static-libs") && !starts_with(what, "link-args");
}

/* Takes one word and says how many words it was, with its value. */
static int read_word(struct reading *reading, const char *word, const char *next, bool links)
{
    struct word whole = word_of(word);
    if (word[0] != '-' || word[1] == '\0') {
        reading->inputs |= !same_text(word, "/dev/null");
        reading->tests |= is_test_file(word);
        return 1;
    }
    if (is_word(whole, "-o") || is_word(whole, "--output-file")) {
        reading->output = next;
        reading->tests |= next && is_test_file(next);
        return 2;
    }
    if (is_word(whole, "--options-file") || is_word(whole, "-optf"))
        reading->inputs = true;
    reading->answers |= is_question(whole, links) || asks_host(whole, next);
    reading->expands |= is_among(whole, PREPROCESS);
    return is_among(whole, WITH_VALUE) ? 2 : 1;
}

bool is_probe(const char *compiler, char *const *arguments, bool wrapped)
{
    struct reading reading = {false, false, false, false, NULL};
    struct word name = without_version(word_of(compiler));
    bool links = is_linker(name), rust = is_word(name, "rustc");
    for (char *const *word = arguments; *word && *++word;) {
        reading.answers |= rust && is_rust_question(word[0], word[1]);
        if (read_word(&reading, word[0], word[1], links) == 2 && word[1])
            word++;
    }
    const char *output = reading.output;
    bool nowhere = output && same_text(output, "/dev/null");
    bool to_stdout = !output || same_text(output, "-");
    return reading.answers || reading.tests || !reading.inputs || nowhere ||
           (reading.expands && (to_stdout || wrapped));
}

/* ---- caches ----------------------------------------------------------------------------------*/

/* What follows the last dot. */
static struct word suffix_of(struct word word)
{
    size_t dot = word.length;
    while (dot > 0 && word.start[dot - 1] != '.')
        dot--;
    return dot > 0 ? (struct word){word.start + dot, word.length - dot} : (struct word){"", 0};
}

/* An option by which a compiler reads modules, or starts other programs than its own. CMake has the
 * names of modules in a response file. */
static bool hides_inputs(struct word option)
{
    return starts_with(option.start, "-fmodule") || is_word(option, "-wrapper") ||
           is_word(suffix_of(option), "modmap");
}

const char *short_option(const char *word)
{
    for (size_t at = 0; at < sizeof SHORT_OPTIONS / sizeof *SHORT_OPTIONS; at++)
        if (same_text(word, SHORT_OPTIONS[at][0]))
            return SHORT_OPTIONS[at][1];
    return word;
}

/* An option by which a compiler writes a file that ccache does not keep: a hit would not make it. */
static bool hides_output(struct word option)
{
    static const char *const OPTIONS[] = {
        "-fopt-info", "-aux-info", "-fcallgraph-info", "-fsave-optimization-record",
        "-foptimization-record-file", "-header-include-file", "-diagnostic-log-file",
        "-fproc-stat-report", "-save-stats", "-stats-file", "-dependency-dot",
        "-gen-cdb-fragment-path", NULL,
    };
    const char *const *name = OPTIONS;
    while (*name && !starts_with(option.start, *name))
        name++;
    return *name || is_word(option, "-da");
}

/* What a command that makes one object file says. */
struct compile {
    bool known; /* such a command, of a compiler that caches understand */
    bool device;
    bool lists;   /* writes the names of the headers that it reads */
    bool partly;  /* without those of the system */
    bool hides;   /* reads or writes files of which a cache does not learn */
};

static struct compile read_compile(const char *compiler, char *const *arguments)
{
    struct word name = without_version(word_of(compiler));
    struct compile found = {.device = is_word(name, "nvcc")};
    for (char *const *word = arguments + 1; *word; word++) {
        struct word whole = word_of(short_option(*word));
        bool option = **word == '-';
        struct word language = is_word(whole, "-x") && word[1] ? word_of(word[1]) : suffix_of(whole);
        found.device |= is_among(language, DEVICE_LANGUAGES);
        found.hides |= (!option || is_word(whole, "-x")) && is_among(language, ASSEMBLER_LANGUAGES);
        found.hides |= hides_inputs(whole) || hides_output(whole);
        found.lists |= is_word(whole, "-MD");
        found.partly |= is_word(whole, "-MMD");
        found.known |= is_among(whole, COMPILE_ONLY);
    }
    found.known &= ends_with_one_of(name, CACHED);
    return found;
}

enum caching judge_caching(const char *compiler, char *const *arguments)
{
    struct compile compile = read_compile(compiler, arguments);
    if (!compile.known)
        return NO_COMPILE;
    if (compile.hides)
        return UNSAFE;
    if (!compile.device)
        return SAFE;
    return compile.lists && !compile.partly ? SAFE_BY_LIST : UNSAFE_BY_TEXT;
}

const char *source_of(char *const *arguments)
{
    static const char *const SOURCES[] = {"c", "cc", "cpp", "cxx", "c++", "C", "cu", NULL};
    for (char *const *word = arguments; *word && *++word;)
        if (**word != '-' && is_among(suffix_of(word_of(*word)), SOURCES))
            return *word;
    return NULL;
}

/* True for a directive behind a quote, a blank, or an escape for the end of a line or a tab. */
static bool is_directive(const char *text, size_t before, const char *name)
{
    size_t length = text_length(name);
    char last = before > 0 ? text[-1] : '\n';
    bool escape = before > 1 && text[-2] == '\\' && (last == 'n' || last == 't');
    return (escape || is_byte_of(last, "\"' \t\n;")) && starts_with(text, name) &&
           is_byte_of(text[length], " \t\\\"");
}

bool has_assembler_files(const char *text, size_t length)
{
    for (size_t at = 0; at < length; at++)
        if (text[at] == '.' && (is_directive(text + at, at, ".incbin") ||
                                is_directive(text + at, at, ".include")))
            return true;
    return false;
}

/* The value of an option that is one word or two, or NULL. */
static const char *option_value(char *const *word, const char *option)
{
    if (!starts_with(*word, option))
        return NULL;
    size_t length = text_length(option);
    return (*word)[length] ? *word + length : word[1];
}

const char *next_prefix(char *const **word)
{
    while (**word) {
        const char *prefix = option_value((*word)++, "-B");
        if (prefix)
            return prefix;
    }
    return NULL;
}

bool is_distributor(const char *name)
{
    return is_among(word_of(name), DISTRIBUTORS);
}

bool is_remote_compile(const char *program, char *const *arguments)
{
    if (!is_distributor(program) || !arguments[0] || !arguments[1])
        return false;
    struct compile compile = read_compile(program_name(arguments[1]), arguments + 1);
    return compile.known && !compile.device;
}

/* ---- custom commands -------------------------------------------------------------------------*/

/* A look at the words of a shell's text. */
struct scan {
    const char *extra;
    bool first;    /* the next word is a command's name */
    bool cmake;    /* the last word was cmake */
    bool tool;     /* the last words were cmake -E */
    bool works;    /* there is a command that is not trivial */
    bool compiles; /* there is a command that is a compiler */
    bool governs;  /* there is a compiler anywhere, or a build that starts some */
};

static bool is_assignment(struct word word)
{
    for (size_t at = 0; at < word.length && word.start[at] != '/'; at++)
        if (word.start[at] == '=')
            return true;
    return false;
}

/* A tool of cmake -E that starts what comes behind it. */
static bool starts_command(struct word tool)
{
    return is_word(tool, "env") || is_word(tool, "time") || is_word(tool, "chdir");
}

static void scan_command(struct scan *scan, struct word word, struct word name)
{
    if (is_assignment(word) || word.start[0] == '-' || is_among(name, BEFORE_COMMANDS))
        return;
    scan->first = false;
    scan->cmake = is_word(name, "cmake") || is_word(name, "cmake3");
    if (!scan->cmake && !is_among(name, TRIVIAL))
        scan->works = true;
}

static void scan_word(struct scan *scan, struct word word)
{
    struct word name = base_name(word);
    bool compiler = names_compiler(name, scan->extra);
    if (compiler || is_among(name, BUILDERS)) {
        scan->governs = true;
        scan->compiles |= compiler && scan->first;
        scan->first = false;
    } else if (scan->cmake) {
        scan->cmake = false;
        scan->tool = is_word(word, "-E");
        scan->governs |= !scan->tool; /* it configures, builds or runs a script that does */
    } else if (scan->tool) {
        scan->tool = false;
        scan->first = starts_command(word);
    } else if (scan->first) {
        scan_command(scan, word, name);
    }
}

static void scan_text(struct scan *scan, const char *text)
{
    while (*text) {
        struct word word = next_word(&text, " \t\n\"'<>$;&|(){}`");
        if (word.length > 0)
            scan_word(scan, word);
        if (is_byte_of(text[-1], "\n;&|(){}`"))
            scan->first = true;
    }
}

/* The text that a shell is told to run, or NULL. */
static const char *shell_text(char *const *arguments)
{
    if (!is_among(base_name(word_of(arguments[0])), SHELLS))
        return NULL;
    for (char *const *word = arguments + 1; *word && **word == '-'; word++)
        if (contains(*word, "c") && word[0][1] != '-')
            return word[1];
    return NULL;
}

bool is_custom_command(char *const *arguments, const char *extra)
{
    struct scan scan = {extra, true, false, false, false, false, false};
    const char *text = shell_text(arguments);
    if (text)
        scan_text(&scan, text);
    for (char *const *word = arguments; !text && *word; word++)
        scan_text(&scan, *word);
    return scan.works && !scan.governs;
}

bool is_compiling_shell(char *const *arguments, const char *extra)
{
    struct scan scan = {extra, true, false, false, false, false, false};
    const char *text = shell_text(arguments);
    if (!text || contains(text, "conftest"))
        return false;
    scan_text(&scan, text);
    return scan.compiles;
}

/* ---- LD_PRELOAD ------------------------------------------------------------------------------*/

size_t next_preloaded(const char **list)
{
    while (is_byte_of(**list, ": "))
        ++*list;
    size_t length = 0;
    while ((*list)[length] && !is_byte_of((*list)[length], ": "))
        length++;
    return length;
}

bool is_preload_library(const char *entry, size_t length)
{
    return is_word(base_name((struct word){entry, length}), PRELOAD_LIBRARY);
}

bool remove_preload_library(char *list)
{
    char *kept = list;
    const char *entry = list;
    for (size_t length; (length = next_preloaded(&entry)) > 0; entry += length) {
        if (is_preload_library(entry, length))
            continue;
        if (kept > list)
            *kept++ = ':';
        for (size_t at = 0; at < length; at++)
            *kept++ = entry[at];
    }
    *kept = '\0';
    return kept > list;
}
