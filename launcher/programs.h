/* Finds programs and looks into their files, for the preloaded library: through the kernel alone, with
 * no memory but the caller's. */
#ifndef STOKER_PROGRAMS_H
#define STOKER_PROGRAMS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* clang's limits.h lacks it in code without the C library. */
#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* ---- what a file is --------------------------------------------------------------------------*/

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

/* True for a regular file. */
bool is_file(const char *path);

/* True if a regular file is a source that has an assembler read other files. */
bool is_source_with_files(const char *path);

/* ---- where a program is ----------------------------------------------------------------------*/

/* Finds the program that a call of exec will start: on the PATH, if `search` is set and the name has
 * no slash. Writes its path, always with a slash in it, to PATH_MAX bytes. */
enum program locate(const char *file, bool search, char *path);

/* Finds a program in a list of folders as in PATH, and writes its path to PATH_MAX bytes. */
enum program search_folders(const char *folders, const char *name, char *path);

/* True if there is such a file. `folder` need not end where its text does, nor with a slash. */
bool folder_holds(const char *folder, size_t length, const char *name);

/* True if a driver would find programs or options of its own under a prefix (-B, COMPILER_PATH): a
 * folder or the start of a name. A folder within it may be that of a target. */
bool leads_to_programs(const char *prefix, size_t length);

/* Writes the path of a file without links to PATH_MAX bytes. False: there is none. */
bool real_path(const char *path, char *real);

/* Replaces the path of a link, in PATH_MAX bytes, by what it leads to. */
void follow_links(char *path);

/* True if the path is a link to ccache or the like, also through other links. */
bool leads_to_wrapper(const char *path);
bool leads_to_ccache(const char *path);

/* True if the folder of a file is another one or below it; `folder` has no links. */
bool lies_below(const char *path, const char *folder);

/* The name of the program that makes the call, by its file and not by what it calls itself. `path`
 * is space for PATH_MAX bytes. */
const char *calling_program(char *path);

#endif
