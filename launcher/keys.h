/* The key of a compiler: a digest of all programs and libraries that decide about its objects, such as
 * cc1plus and libLLVM.so. A cache by itself compares the driver, which may stay the same where these change.
 *
 * STOKER_COMPILER_KEYS is a folder with a record of each compiler that was used: its key, and the files of
 * which the key was made, with their sizes and times. cache/inside/compiler_key.py writes it. */
#ifndef STOKER_KEYS_H
#define STOKER_KEYS_H

#include <limits.h>
#include <stdbool.h>

enum { KEY_LENGTH = 40 };

struct compiler_record {
    char compiler[PATH_MAX], path[PATH_MAX]; /* empty: none */
};

/* Finds the place of a compiler's record in the folder of keys. Its libraries are searched for in
 * LD_LIBRARY_PATH too. False: a path is too long. */
bool find_record(const char *folder, const char *compiler, struct compiler_record *record);

/* Writes the key to KEY_LENGTH + 1 bytes. False: there is no record, or a file has changed. */
bool read_key(const struct compiler_record *record, char *key);

#endif
