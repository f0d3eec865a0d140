/* Commands of a build that are no compiler themselves: what they start, and whether they work. */
#include "compilers.h"

#include "text.h"

#include "names.h" /* SHELLS */

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
