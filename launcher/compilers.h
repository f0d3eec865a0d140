/* Recognises programs by their names and command lines. It calls nothing, not even the C library, so that the
 * preloaded library can do so between vfork and exec. */
#ifndef STOKER_COMPILERS_H
#define STOKER_COMPILERS_H

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

/* The file name of the library; its entry in LD_PRELOAD is recognised by it, whatever its folder. */
#define PRELOAD_LIBRARY "libstoker-preload.so"

/* In the environment of what a cache starts: that is not to start another one. */
#define WRAPPED_MARK "STOKER_WRAPPED"

/* The part of a path behind its last slash. */
const char *program_name(const char *path);

/* True for a compiler driver or a linker under any version and target prefix, and for a name among
 * `extra` (separated by colons; may be NULL). */
bool is_compiler(const char *name, const char *extra);

/* The same for a word. */
bool names_compiler(struct word name, const char *extra);

/* True for a linker under any version and target prefix. */
bool is_linker(struct word name);

/* gcc for gcc-12 and for gcc-real. */
struct word without_version(struct word name);

/* True for a name of the list, itself or with a prefix as in aarch64-linux-gnu-gcc. */
bool ends_with_one_of(struct word name, const char *const *list);

/* True for a name among `extra`. */
bool is_extra_compiler(const char *name, const char *extra);

/* True for a program that starts the real compiler when it is called by a compiler's name. */
bool is_compiler_wrapper(const char *name);

bool is_ccache(const char *name);

/* True for nvcc under any version. */
bool is_nvcc(const char *name);

/* True for a program that runs those of another architecture: qemu-x86_64. */
bool is_emulator(const char *name);

/* True for ninja and make, which start each command of a build. */
bool is_build_tool(const char *name);

bool names_build_tool(struct word name);

/* Returns the number of jobs that a build tool is told to run: NULL where it is told nothing, and no text
 * where there is no limit. */
const char *jobs_of(char *const *arguments);

/* Copies a build tool's command line with `jobs` (as in -j32) in place of its own number of jobs, and
 * a terminating NULL. `words` needs space for one more word than `arguments` has. A make without -j
 * still runs one job at a time: its Makefile may depend on that. */
void write_jobs(char **words, char *const *arguments, const char *jobs);

/* True if a compiler only answers a question (--version, -E to stdout, no input), compiles a test of
 * a configure script or of CMake, or preprocesses for the wrapper that started it, if one did. */
bool is_probe(const char *compiler, char *const *arguments, bool wrapped);

/* What a compiler cache may do with a command. */
enum caching {
    NO_COMPILE,     /* it does not make one object file */
    UNSAFE,         /* it reads or writes files of which no cache learns: modules, lists of headers */
    UNSAFE_BY_TEXT, /* kernels of which nvcc's preprocessor prints only the side of the device */
    SAFE,
    SAFE_BY_LIST,   /* the same, with a complete list of the headers that are read */
};

enum caching judge_caching(const char *compiler, char *const *arguments);

/* The source of a compile, as it is named, or NULL. */
const char *source_of(char *const *arguments);

/* True if a command says the language of its source. */
bool has_language(char *const *arguments);

/* True if a source has an assembler or the compiler read a file of which no cache learns: .incbin or
 * .include in a text, #embed or __has_embed. There must be a zero behind the text. */
bool has_hidden_files(const char *text, size_t length);

/* What follows "=" in an option of a compiler that may read the file of that name, or NULL. Options whose
 * file ccache reads too are left out. */
const char *value_in_option(char *const *word);

/* The folder in which an option has headers searched for, or NULL. */
const char *include_folder(char *const *word);

/* The compiler of C++ that an option names to nvcc, or the folder of it, or NULL. */
const char *host_compiler_in(char *const *word);

/* True if a compile asks for code for the machine on which it runs. */
bool is_for_this_machine(char *const *arguments);

/* The next value of -B or --prefix, under which a driver finds the programs that it starts, or NULL. */
const char *next_prefix(char *const **word);

/* True for a program that sends compiles to other machines. */
bool is_distributor(const char *name);

/* True if a program is a distributor and its command a compile of C or C++ that it may send to another
 * machine. A distributor runs CUDA compiles here. */
bool is_remote_compile(const char *program, char *const *arguments);

/* The short form of a long option that caches do not know, or the word itself. */
const char *short_option(const char *word);

/* True if a build tool's command does more than start compilers, ninja or make, and move files about. */
bool is_custom_command(char *const *arguments, const char *extra);

/* True if a command is ninja or make, or has a shell run one. */
bool starts_build_tool(char *const *arguments);

/* True if a shell is told to run a compiler, and not for a test of a configure script. */
bool is_compiling_shell(char *const *arguments, const char *extra);

/* Finds the next entry of a list as in LD_PRELOAD; its length is 0 at the end. */
size_t next_preloaded(const char **list);

/* True if that entry is our library. */
bool is_preload_library(const char *entry, size_t length);

/* Removes our library from the value of LD_PRELOAD, in place. False: nothing else is in it. */
bool remove_preload_library(char *list);

#endif
