/* What caches and distributors may do with a compile. */
#include "compilers.h"

#include "text.h"

#include "names.h" /* CACHED and DISTRIBUTORS */

static const char *const COMPILE_ONLY[] = {"-c", "--compile", "-dc", "--device-c", NULL};

static const char *const DEVICE_LANGUAGES[] = {"cu", "cuda", "hip", NULL};

/* An assembler reads files that no preprocessor and no list of headers shows. */
static const char *const ASSEMBLER_LANGUAGES[] = {
    "s", "S", "sx", "asm", "assembler", "assembler-with-cpp", NULL,
};

/* Long options of nvcc and gcc and their short forms, which caches know. */
static const char *const SHORT_OPTIONS[][2] = {
    {"--generate-dependencies-with-compile", "-MD"},
    {"--generate-nonsystem-dependencies-with-compile", "-MMD"},
    {"--dependency-output", "-MF"},
    {"--dependency-target-name", "-MT"},
    {"--output-file", "-o"},
    {"--write-dependencies", "-MD"},
    {"--write-user-dependencies", "-MMD"},
};

/* What follows the last dot. */
static struct word suffix_of(struct word word)
{
    size_t dot = word.length;
    while (dot > 0 && word.start[dot - 1] != '.')
        dot--;
    return dot > 0 ? (struct word){word.start + dot, word.length - dot} : (struct word){"", 0};
}

static bool starts_with_one_of(struct word option, const char *const *names)
{
    while (*names && !starts_with(option.start, *names))
        names++;
    return *names != NULL;
}

/* A file of options in a form that ccache does not read: it knows `--options-file NAME` of nvcc. */
static bool is_options_file(const char *option)
{
    return starts_with(option, "-optf=") || contains(option, "-options-file=") ||
           contains(option, "-options-file,");
}

/* An option by which a compiler reads modules, or starts other programs than its own: clang looks for an
 * assembler under the name of its target too. CMake has the names of modules in a response file. An option
 * may also have the assembler read options from a file, name a file that names others (--config), or be a
 * form of -g that ccache does not know, so that it leaves out the folder in the object. */
static bool hides_inputs(struct word option)
{
    static const char *const OPTIONS[] = {
        "-fmodule", "-fprebuilt-module-path", "-debug-info-kind", "--debug", "--config",
        "-no-canonical-prefixes", "-fno-integrated-as", "-no-integrated-as", "-Xassembler", NULL,
    };
    return starts_with_one_of(option, OPTIONS) || is_word(option, "-wrapper") ||
           is_word(suffix_of(option), "modmap") ||
           (starts_with(option.start, "-Wa,") && contains(option.start, ",@")) ||
           is_options_file(option.start);
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
        "-gen-cdb-fragment-path", "-fthin-link-bitcode", "-fdiagnostics-format=json-file",
        "-fdiagnostics-format=sarif-file", "-fdiagnostics-add-output", "-fdiagnostics-set-output",
        "-dumpbase", "-dumpdir", "--dumpbase", "--dumpdir", NULL,
    };
    return starts_with_one_of(option, OPTIONS) || is_word(option, "-da") ||
           (starts_with(option.start, "-Wa,") && contains(option.start, ",--M"));
}

/* What a command that makes one object file says. */
struct compile {
    bool known; /* such a command, of a compiler that caches understand */
    bool device;
    bool lists;   /* writes the names of the headers that it reads */
    bool partly;  /* without those of the system */
    bool counts;  /* the object names the file of its counters, */
    bool covers;  /* and there is a list of what it counts, whose folder ccache compares */
    bool records; /* the object has the command line, to which ccache adds an option of clang's */
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
        found.counts |= is_word(whole, "-fprofile-arcs");
        found.covers |= is_word(whole, "-ftest-coverage");
        found.records |= starts_with(*word, "-grecord-") || starts_with(*word, "-frecord-");
        found.known |= is_among(whole, COMPILE_ONLY);
    }
    found.hides |= (found.counts && !found.covers) || (found.records && contains(name.start, "clang"));
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

bool has_language(char *const *arguments)
{
    while (*arguments && !starts_with(*arguments, "-x") && !starts_with(*arguments, "--language"))
        arguments++;
    return *arguments != NULL;
}

const char *source_of(char *const *arguments)
{
    static const char *const SOURCES[] = {
        "c", "cc", "cp", "cpp", "CPP", "cxx", "c++", "C", "cppm", "ccm", "cxxm", "c++m", "ixx",
        "cu", "hip", "i", "ii", "m", "mm", "mi", "mii", NULL,
    };
    for (char *const *word = arguments; *word && *++word;)
        if (**word != '-' && is_among(suffix_of(word_of(*word)), SOURCES))
            return *word;
    return NULL;
}

/* True for a directive behind a quote, the start of a raw string, a blank, or an escape for the end of a
 * line or a tab. */
static bool is_directive(const char *text, size_t before, const char *name)
{
    size_t length = text_length(name);
    char last = before > 0 ? text[-1] : '\n';
    bool escape = before > 1 && text[-2] == '\\' && (last == 'n' || last == 't');
    return (escape || is_byte_of(last, "\"'( \t\n;")) && starts_with(text, name) &&
           is_byte_of(text[length], " \t\\\"");
}

/* True for "embed" behind "#" and blanks, or for the question whether a file could be embedded. */
static bool is_embedding(const char *text, size_t before)
{
    if (!starts_with(text, "embed"))
        return false;
    const char *start = text - before, *last = text;
    while (last > start && is_byte_of(last[-1], " \t"))
        last--;
    return (last > start && last[-1] == '#') || (before >= 6 && starts_with(text - 6, "__has_"));
}

bool has_hidden_files(const char *text, size_t length)
{
    for (size_t at = 0; at < length; at++)
        if ((text[at] == '.' && (is_directive(text + at, at, ".incbin") ||
                                 is_directive(text + at, at, ".include"))) ||
            (text[at] == 'e' && is_embedding(text + at, at)))
            return true;
    return false;
}

const char *value_in_option(char *const *word)
{
    static const char *const READ[] = {
        "-fauto-profile=", "-fplugin=", "-fprofile-instr-use=", "-fprofile-sample-use=",
        "-fprofile-use=", "-fsanitize-blacklist=", "-fuse-ld=", NULL,
    };
    bool of_llvm = same_text(*word, "-mllvm") && word[1];
    const char *text = of_llvm ? word[1] : *word;
    if ((!of_llvm && !starts_with(text, "-f")) || starts_with_one_of(word_of(text), READ))
        return NULL;
    while (*text && *text != '=')
        text++;
    return *text ? text + 1 : NULL;
}

/* The value of an option that is one word or two, or NULL. */
static const char *option_value(char *const *word, const char *option)
{
    if (!starts_with(*word, option))
        return NULL;
    size_t length = text_length(option);
    return (*word)[length] ? *word + length : word[1];
}

const char *include_folder(char *const *word)
{
    static const char *const OPTIONS[] = {"-isystem", "-iquote", "-idirafter", "-I", NULL};
    const char *folder = NULL;
    for (const char *const *option = OPTIONS; *option && !folder; option++)
        folder = option_value(word, *option);
    return folder;
}

const char *host_compiler_in(char *const *word)
{
    const char *value = option_value(word, "-ccbin");
    value = value ? value : option_value(word, "--compiler-bindir");
    return value && *value == '=' ? value + 1 : value;
}

bool is_for_this_machine(char *const *arguments)
{
    for (char *const *word = arguments; *word; word++)
        if (is_word(word_of(*word), "native") || contains(*word, "=native"))
            return true;
    return false;
}

const char *next_prefix(char *const **word)
{
    while (**word) {
        const char *prefix = option_value(*word, "-B");
        prefix = prefix ? prefix : option_value(*word, "--prefix");
        ++*word;
        if (prefix)
            return *prefix == '=' ? prefix + 1 : prefix;
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
