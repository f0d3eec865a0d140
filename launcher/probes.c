/* Compilers that only answer a question, or compile a test of a configure script. */
#include "compilers.h"

#include "text.h"

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
