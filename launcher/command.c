/* Parses compilers' command lines. Independent of the governor and of processes. */
#define _GNU_SOURCE
#include "compilers.h"
#include "launcher.h"
#include "options.h"
#include "programs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A launcher runs one command. */
static char *own_name;
enum kind command_kind;
const char *command_reason = "";

bool command_repeats(void)
{
    return command_kind == COMPILE || command_kind == REMOTE;
}

char **command_named(char *name, char **command)
{
    own_name = name;
    return command;
}

char *command_own_name(char **command)
{
    return own_name ? own_name : command[0];
}

char **command_with(char **command, char *const *words, size_t count)
{
    size_t length = 0;
    while (command[length])
        length++;
    char **whole = calloc(length + count + 1, sizeof *whole);
    if (!whole)
        return NULL;
    whole[0] = command[0];
    memcpy(whole + 1, words, count * sizeof *words);
    memcpy(whole + 1 + count, command + 1, (length - 1) * sizeof *command);
    return whole;
}

/* A text that names no interpreter is run by a shell. execvp of musl leaves that to its caller. */
static void execute_text(char *file, char **command)
{
#ifdef __linux__
    char space[PATH_MAX];
    enum program program;
    char *word = (char *)locate(file, true, space, sizeof space, &program);
    char **whole = word && program == SCRIPT ? command_with(command, &word, 1) : NULL;
    if (whole) {
        whole[0] = "/bin/sh";
        execv(whole[0], whole);
    }
#else
    (void)file, (void)command;
#endif
}

_Noreturn void command_execute(char **command)
{
    char *file = command[0];
    if (own_name)
        command[0] = own_name;
    execvp(file, command);
    if (errno == ENOEXEC)
        execute_text(file, command);
    int reason = errno;
    bool missing = reason == ENOENT || reason == ENOTDIR;
    dprintf(STDERR_FILENO, "stoker-launcher: %s: %s\n", file,
            missing ? "not found" : strerror(reason));
    _exit(missing ? 127 : 126);
}

/* Returns whether nvcc is among the words before the first option; other launchers may precede it. */
static bool starts_nvcc(char **command)
{
    for (char **word = command; *word && **word != '-'; word++)
        if (strcmp(program_name(*word), "nvcc") == 0)
            return true;
    return false;
}

/* Returns the value of an option written `NAME VALUE`, `NAME=VALUE` or, if attached, `NAMEVALUE`. */
static const char *option_value(const char *word, const char *next, const char *name, bool attached)
{
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0)
        return NULL;
    if (word[length] == '\0')
        return next;
    if (word[length] == '=')
        return word + length + 1;
    return attached ? word + length : NULL;
}

static bool set_threads(const char *word, const char *next, unsigned *threads)
{
    const char *value = option_value(word, next, "--threads", false);
    if (!value)
        value = option_value(word, next, "-t", true);
    char *end = NULL;
    unsigned long number = value ? strtoul(value, &end, 10) : 0;
    if (!value || end == value || *end != '\0' || number > UINT_MAX)
        return false;
    *threads = (unsigned)number;
    return true;
}

/* nvcc also reads options from its environment, which the governor cannot see. */
static void threads_of_variable(const char *name, unsigned *threads)
{
    const char *value = getenv(name);
    char *words = value ? strdup(value) : NULL;
    char *rest = NULL;
    char *word = words ? strtok_r(words, " \t", &rest) : NULL;
    while (word) {
        char *next = strtok_r(NULL, " \t", &rest);
        set_threads(word, next, threads);
        word = next;
    }
    free(words);
}

unsigned command_cpus(char **command)
{
    unsigned threads = 1;
    if (!starts_nvcc(command))
        return threads;
    threads_of_variable("NVCC_PREPEND_FLAGS", &threads);
    for (char **word = command; *word; word++)
        set_threads(word[0], word[1], &threads);
    threads_of_variable("NVCC_APPEND_FLAGS", &threads);
    return threads;
}

/* ---- outputs ---------------------------------------------------------------------------------*/

struct output_word command_output(char **command, char **word)
{
    bool nvcc = starts_nvcc(command); /* gcc knows -oFILE; to nvcc -odir is another option */
    for (int main = 1; main >= 0; main--)
        for (const char *const *name = main ? OUTPUTS : HEADER_LISTS; *name; name++) {
            bool attached = (*name)[1] != '-' && !nvcc;
            const char *path = option_value(word[0], word[1], *name, attached);
            if (path)
                return (struct output_word){path, path == word[1] ? 2 : 1, main};
        }
    return (struct output_word){NULL, 1, false};
}
