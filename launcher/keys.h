/* The key of a compiler: a digest of all programs and libraries that decide about its objects, such as
 * cc1plus and libLLVM.so. A cache by itself compares the driver, which may stay the same where these change.
 *
 * STOKER_COMPILER_KEYS is a folder with a record of each compiler that was used: its key, and the files of
 * which the key was made, with their sizes and times. cache/inside/compiler_key.py writes it. */
#ifndef STOKER_KEYS_H
#define STOKER_KEYS_H

#include "verdict.h"

#include <stdbool.h>

enum { KEY_LENGTH = 40 };

/* Writes the path of a compiler's record to PATH_MAX bytes. Its libraries are searched for in
 * LD_LIBRARY_PATH too. False: no keys are wanted. */
bool record_of(const struct call *call, const char *compiler, char *record);

/* Writes an absolute path to PATH_MAX bytes. False: it is too long. */
bool absolute_path(const char *path, char *absolute);

/* Writes the key to KEY_LENGTH + 1 bytes. False: there is no record, or a file has changed. */
bool read_key(const char *record, const char *compiler, char *key);

#endif
