/* Finds programs and looks into their files, through the kernel alone and with no memory but the caller's:
 * for the preloaded library, and for the launcher. */
#ifndef STOKER_PROGRAMS_H
#define STOKER_PROGRAMS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* clang's limits.h lacks it in code without the C library. */
#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

enum program {
    ABSENT, /* also a folder, and a file that may not be executed */
    NATIVE,
    FOREIGN, /* of another architecture than this library, which its dynamic loader would complain about */
    SCRIPT,  /* a text, with or without its interpreter in the first line */
    HIDDEN,  /* it may be executed but not read */
};

/* What a path leads to. */
enum program examine(const char *path);

/* False for an ELF program without a dynamic loader, into which nothing can be preloaded. */
bool is_dynamic(const char *path);

/* Returns the path of the program that a call of exec will start, always with a slash in it: the name
 * itself, or the place of it on the PATH, if `search` is set, written to `path`. NULL: there is none, or
 * a path is longer than `size`. */
const char *locate(const char *file, bool search, char *path, size_t size, enum program *program);

/* The same in a list of folders as in PATH. */
const char *search_folders(const char *folders, const char *name, char *path, size_t size,
                           enum program *program);

/* ---- links.c: for the launcher alone -----------------------------------------------------------*/

/* Replaces the path of a link, in PATH_MAX bytes, by what it leads to. */
void follow_links(char *path);

/* True if the path is a link to ccache or the like, also through other links. */
bool leads_to_wrapper(const char *path);
bool leads_to_ccache(const char *path);

#endif
