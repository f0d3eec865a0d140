/* Commands of a build tool that do more than start a compiler: each of them is a job that asks. */
#include "compilers.h"

#include "text.h"

#include "names.h" /* SHELLS, WRAPPERS */

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
    bool file;     /* the next word is a file to read from or to write to */
    char quote;    /* the one that the word is in, or 0 */
    bool cmake;    /* the last word was cmake */
    bool tool;     /* the last words were cmake -E */
    bool works;    /* there is a command that does more than move files about or start a compiler */
    bool compiles; /* there is a command that is a compiler */
    bool builds;   /* there is a command that is a build tool */
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

/* What a build may call the launcher, which asks whatever it starts. */
static const char *const LAUNCHERS[] = {"stoker-launcher", "STOKER_LAUNCHER", NULL};

/* Compilers ask by themselves, below a wrapper too, and what ninja and make start asks in turn. */
static void scan_command(struct scan *scan, struct word word, struct word name)
{
    if (is_assignment(word) || word.start[0] == '-' || is_among(name, BEFORE_COMMANDS) ||
        is_among(name, WRAPPERS))
        return;
    bool compiler = names_compiler(name, scan->extra), builds = names_build_tool(name);
    scan->first = false;
    scan->compiles |= compiler;
    scan->cmake = is_word(name, "cmake") || is_word(name, "cmake3");
    scan->builds |= builds;
    scan->works |= !scan->cmake && !compiler && !builds && !is_among(name, TRIVIAL) &&
                   !is_among(name, LAUNCHERS);
}

static void scan_word(struct scan *scan, struct word word)
{
    if (scan->file) {
        scan->file = false;
    } else if (scan->cmake) {
        scan->cmake = false;
        scan->tool = is_word(word, "-E");
        scan->works |= !scan->tool; /* it configures, builds or runs a script */
    } else if (scan->tool) {
        scan->tool = false;
        scan->first = starts_command(word);
    } else if (scan->first) {
        scan_command(scan, word, base_name(word));
    }
}

/* Takes in what ends a word. */
static void scan_separator(struct scan *scan, char separator, char before)
{
    bool quote = separator == '"' || separator == '\'';
    if (quote && before != '\\' && (!scan->quote || scan->quote == separator))
        scan->quote = scan->quote ? '\0' : separator;
    else if (!scan->quote && (separator == '<' || separator == '>'))
        scan->file = true; /* 2>&1 names a file of the command too */
    else if (!scan->quote && is_byte_of(separator, "\n;&|(){}`") && !scan->file)
        scan->first = true;
}

static void scan_text(struct scan *scan, const char *text)
{
    for (char before = '\0'; *text; before = text[-1]) {
        struct word word = next_word(&text, " \t\n\"'<>$;&|(){}`");
        if (word.length > 0)
            scan_word(scan, word);
        scan_separator(scan, text[-1], word.length > 0 ? word.start[word.length - 1] : before);
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

static struct scan scan_words(char *const *arguments, const char *extra)
{
    struct scan scan = {.extra = extra, .first = true};
    const char *text = shell_text(arguments);
    if (text)
        scan_text(&scan, text);
    for (char *const *word = arguments; !text && *word; word++)
        scan_word(&scan, word_of(*word));
    return scan;
}

bool is_custom_command(char *const *arguments, const char *extra)
{
    return scan_words(arguments, extra).works;
}

bool starts_build_tool(char *const *arguments)
{
    return scan_words(arguments, NULL).builds;
}

bool is_compiling_shell(char *const *arguments, const char *extra)
{
    struct scan scan = {.extra = extra, .first = true};
    const char *text = shell_text(arguments);
    if (!text || contains(text, "conftest"))
        return false;
    scan_text(&scan, text);
    return scan.compiles;
}
