/* Whether a command may be killed and started again. Only what is known to be harmless is: a compiler
 * or linker that reads nothing but files and writes nothing but outputs that it names, which
 * files_undo removes. Independent of the governor and of processes. */
#define _GNU_SOURCE
#include "compilers.h"
#include "launcher.h"
#include "programs.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { DEEPEST_FILE = 8 };

/* Options that make a compiler run other programs or append to a file. */
static const char *const UNREPEATABLE[] = {
    "-fplugin=", "-load", "-wrapper", "-time", "--time", "-fproc-stat-report", "-header-include-file",
    "-diagnostic-log-file", NULL,
};

/* Options of gcc that append to the file behind their `=`. */
static const char *const DUMPS[] = {"-fopt-info", "-fdump-", NULL};

/* Variables that make gcc and clang append to a file. */
static const char *const APPENDING[] = {
    "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CC_PRINT_OPTIONS", "CC_PRINT_HEADERS",
    "CC_LOG_DIAGNOSTICS", "CC_PRINT_PROC_STAT", NULL,
};

/* Where a job server is announced. A killed process does not give its tokens back. */
static const char *const JOB_SERVERS[] = {"MAKEFLAGS", "CARGO_MAKEFLAGS", "MFLAGS", NULL};

/* Options whose values are neither files nor read as such. */
static const char *const NO_FILES[] = {"-D", "-U", "-I", "-L", "-l", "-O", "-g", "-m", "-M", "-std", NULL};

/* Options before a name that is written, often that of the output, and never opened. */
static const char *const NAMES[] = {"-MT", "-MQ", "-soname", "-h", NULL};

/* Paths that mean something else to each process: a terminal, or a file that is open already. */
static const char *const DESCRIPTORS[] = {"/dev/std", "/dev/fd/", "/dev/tty", "/proc/", NULL};

/* What is known of a command so far. */
struct knowledge {
    struct stat outputs[MOST_OUTPUTS]; /* those that exist */
    size_t count;
    bool named;         /* -o names a file */
    bool compiles;      /* -c: does not link */
    bool tokens;        /* takes tokens of a job server, if there is one */
    bool lto;           /* does so when it links */
    bool is_name;       /* the next word is a name only */
    bool in_script;     /* the words are those of a script */
    const char *reason; /* why it must not be started twice */
};

static bool refuse(struct knowledge *known, const char *reason)
{
    known->reason = reason;
    return false;
}

static bool starts_with_one_of(const char *word, const char *const *list)
{
    while (*list && strncmp(word, *list, strlen(*list)) != 0)
        list++;
    return *list != NULL;
}

static bool is_word_of(const char *word, const char *const *list)
{
    while (*list && strcmp(word, *list) != 0)
        list++;
    return *list != NULL;
}

static bool is_null_device(const struct stat *file)
{
    return S_ISCHR(file->st_mode) && file->st_rdev == makedev(1, 3);
}

/* True if reading stdin yields nothing, each time: the null device, the end of a file, a pipe that
 * no process writes to any more (make and pip give their commands one), and the terminal, from whose
 * background reading is an error. */
static bool stdin_is_empty(void)
{
    struct stat file;
    struct pollfd source = {.fd = STDIN_FILENO, .events = POLLIN};
    if (fstat(STDIN_FILENO, &file) < 0)
        return true;
    if (S_ISCHR(file.st_mode))
        return is_null_device(&file) || isatty(STDIN_FILENO);
    if (S_ISREG(file.st_mode))
        return lseek(STDIN_FILENO, 0, SEEK_CUR) >= file.st_size;
    return S_ISFIFO(file.st_mode) && poll(&source, 1, 0) == 1 && source.revents == POLLHUP;
}

/* ---- outputs ---------------------------------------------------------------------------------*/

/* An output must be a file that can be deleted, and so a link must not lead to something else. */
static bool add_output(struct knowledge *known, const char *path, bool named)
{
    struct stat file;
    known->named |= named;
    if (strcmp(path, "/dev/null") == 0)
        return true;
    if (strcmp(path, "-") == 0 || starts_with_one_of(path, DESCRIPTORS))
        return refuse(known, "an output is an open file or a terminal");
    if (lstat(path, &file) < 0)
        return true;
    if (!S_ISREG(file.st_mode))
        return refuse(known, "an output is no plain file");
    known->outputs[known->count++] = file;
    return true;
}

static bool add_outputs(struct knowledge *known, char **command)
{
    struct output_word found;
    size_t count = 0;
    for (char **word = command + 1; *word; word += found.words) {
        if (!(found = command_output(command, word)).path)
            continue;
        if (++count > MOST_OUTPUTS)
            return refuse(known, "it has too many outputs");
        if (!add_output(known, found.path, found.main))
            return false;
    }
    return known->named || refuse(known, "it names no output");
}

/* ---- inputs ----------------------------------------------------------------------------------*/

/* A file that is also an output is deleted before the command starts again. */
static bool is_output(const struct knowledge *known, const struct stat *file)
{
    for (size_t at = 0; at < known->count; at++)
        if (known->outputs[at].st_ino == file->st_ino && known->outputs[at].st_dev == file->st_dev)
            return true;
    return false;
}

/* A script among the words is what the compiler starts: nvcc -ccbin, gcc --ld-path. */
static bool names_interpreter(const char *path)
{
    char start[2] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool found = file >= 0 && read(file, start, 2) == 2 && start[0] == '#' && start[1] == '!';
    if (file >= 0)
        close(file);
    return found;
}

static bool is_known_script(struct knowledge *known, const char *path);

static bool reads_well(struct knowledge *known, const char *path)
{
    struct stat file;
    if (starts_with_one_of(path, DESCRIPTORS))
        return refuse(known, "it reads an open file or a terminal");
    if (*path == '\0' || stat(path, &file) < 0)
        return true; /* no file, or one that the compiler will miss too */
    if (S_ISREG(file.st_mode) && is_output(known, &file))
        return refuse(known, "it reads a file that it also writes");
    if (S_ISREG(file.st_mode) && (file.st_mode & 0111) && names_interpreter(path) &&
        !is_known_script(known, path))
        return refuse(known, "it may start a script");
    if (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode) || is_null_device(&file))
        return true;
    return refuse(known, "it reads a pipe or a device");
}

static bool file_is_known(struct knowledge *known, const char *path, int depth);

/* The parts of an option that may be files: -Wl,-T,FILE and --options-file=FILE. */
static bool parts_are_known(struct knowledge *known, const char *word)
{
    char part[PATH_MAX];
    bool is_name = false;
    for (const char *at = word; (at = strpbrk(at, "=,"));) {
        size_t length = strcspn(++at, "=,");
        if (length >= sizeof part)
            return refuse(known, "a word of it is too long");
        memcpy(part, at, length);
        part[length] = '\0';
        if (!is_name && !reads_well(known, part[0] == '@' ? part + 1 : part))
            return false;
        is_name = is_word_of(part, NAMES);
    }
    return true;
}

static bool word_is_known(struct knowledge *known, const char *word, int depth)
{
    bool is_name = known->is_name;
    known->is_name = is_word_of(word, NAMES);
    if (is_name)
        return true;
    known->compiles |= strcmp(word, "-c") == 0;
    known->tokens |= strstr(word, "-jobserver") != NULL;
    known->lto |= strncmp(word, "-flto", 5) == 0;
    if (word[0] == '@')
        return file_is_known(known, word + 1, depth);
    if (word[0] != '-')
        return reads_well(known, word);
    if (starts_with_one_of(word, NO_FILES))
        return true;
    if (starts_with_one_of(word, UNREPEATABLE) ||
        (starts_with_one_of(word, DUMPS) && strchr(word, '=')))
        return refuse(known, "an option starts other programs or appends to a file");
    for (const char *const *path = DESCRIPTORS; *path; path++)
        if (strstr(word, *path))
            return refuse(known, "it uses an open file or a terminal");
    return parts_are_known(known, word);
}

/* Words of a file of options. Quotes separate words too: at worst a part of a name is no file. */
static bool words_are_known(struct knowledge *known, char *text, int depth)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t\r\n\"'", &rest); word;
         word = strtok_r(NULL, " \t\r\n\"'", &rest))
        if (!word_is_known(known, word, depth))
            return false;
    return true;
}

/* Returns the content of a file, for free(), or NULL if it cannot be read. */
static char *read_file(int file)
{
    struct stat about;
    char *text = fstat(file, &about) == 0 ? malloc((size_t)about.st_size + 1) : NULL;
    ssize_t length = text ? read(file, text, (size_t)about.st_size) : -1;
    if (length < 0) {
        free(text);
        return NULL;
    }
    text[length] = '\0';
    return text;
}

static bool file_is_known(struct knowledge *known, const char *path, int depth)
{
    if (depth == DEEPEST_FILE)
        return refuse(known, "its response files are nested too deeply");
    if (!reads_well(known, path))
        return false;
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return true; /* then it is an ordinary word */
    char *text = read_file(opened);
    bool good = text ? words_are_known(known, text, depth + 1)
                     : refuse(known, "a response file cannot be read");
    free(text);
    close(opened);
    return good;
}

/* The file of a program. */
struct program_file {
    bool known;
    enum program kind;
    const char *path;
    char space[PATH_MAX];
};

static struct program_file own; /* of the command, which is asked for twice */

static void find(const char *name, struct program_file *file)
{
    if (!file->known)
        file->path = locate(name, true, file->space, sizeof file->space, &file->kind);
    file->known = true;
}

bool command_is_script(char **command)
{
    find(command[0], &own);
    return own.kind == SCRIPT;
}

static bool is_known_compiler(const char *name, struct program_file *file)
{
    if (!is_compiler(program_name(name), NULL))
        return false;
    find(name, file);
    return (file->kind == NATIVE || file->kind == FOREIGN) && !leads_to_wrapper(file->path);
}

/* ---- scripts ---------------------------------------------------------------------------------*/

/* Returns the only line of a script that is no comment, or NULL. */
static char *only_line(char *text)
{
    char *rest = NULL, *found = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        line += strspn(line, " \t");
        if (*line == '#' || *line == '\0')
            continue;
        if (found)
            return NULL;
        found = line;
    }
    return found;
}

/* True for the line `exec COMPILER [WORD...] "$@"`, without anything that a shell would expand. */
static bool only_executes_compiler(struct knowledge *known, char *line)
{
    static const char EXEC[] = "exec ", ARGUMENTS[] = "\"$@\"";
    char *arguments = strstr(line, ARGUMENTS), *words = NULL;
    if (strncmp(line, EXEC, sizeof EXEC - 1) != 0 || !arguments)
        return false;
    memset(arguments, ' ', sizeof ARGUMENTS - 1);
    if (strpbrk(line, "$`\\;|&<>(){}[]*?~!'"))
        return false;
    const char *program = strtok_r(line + sizeof EXEC - 1, " \t\"", &words);
    struct program_file file = {.known = false};
    return program && is_known_compiler(program, &file) && words_are_known(known, words, 0);
}

/* True for a script that only puts words before those of a compiler, as hosts of nvcc often are. */
static bool is_known_script(struct knowledge *known, const char *path)
{
    int file = known->in_script || getenv("BASH_ENV") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    char *text = read_file(file), *line = text ? only_line(text) : NULL;
    known->in_script = true;
    bool good = line && only_executes_compiler(known, line);
    known->in_script = known->is_name = false;
    free(text);
    close(file);
    return good;
}

/* ---- the whole -------------------------------------------------------------------------------*/

static bool has_job_server(void)
{
    for (const char *const *name = JOB_SERVERS; *name; name++)
        if (getenv(*name) && strstr(getenv(*name), "--jobserver"))
            return true;
    return false;
}

static bool appends(void)
{
    const char *const *name = APPENDING;
    while (*name && !getenv(*name))
        name++;
    return *name != NULL;
}

bool command_reads_stdin(char **command)
{
    for (char **word = command + 1; *word; word++)
        if (strcmp(*word, "-") == 0 || strcmp(*word, "/dev/stdin") == 0 ||
            strcmp(*word, "/dev/tty") == 0)
            return true;
    return false;
}

const char *command_unrepeatable(char **command)
{
    struct knowledge known = {.tokens = strncmp(program_name(command[0]), "rustc", 5) == 0};
    if (!is_known_compiler(command[0], &own))
        return "its program is a script, or no known compiler";
    if (!stdin_is_empty())
        return "its stdin is not empty";
    if (appends())
        return "a variable makes the compiler append to a file";
    if (!add_outputs(&known, command))
        return known.reason;
    struct output_word found;
    for (char **word = command + 1; *word; word += found.words)
        if (!(found = command_output(command, word)).path && !word_is_known(&known, *word, 0))
            return known.reason;
    known.tokens |= known.lto && !known.compiles;
    return known.tokens && has_job_server() ? "it takes jobs from make's job server" : NULL;
}
