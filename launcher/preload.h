/* The preloaded library: what `stoker run` said, and the functions behind ours. */
#ifndef STOKER_PRELOAD_H
#define STOKER_PRELOAD_H

#include "verdict.h"

enum { SAVED_BYTES = 8192, SAVED_ENTRIES = 32 };

#define PRELOAD "LD_PRELOAD="

/* What is known since the program was loaded. */
extern struct saved {
    long process;
    enum caller caller;
    /* What `stoker run` said, for programs that start a compiler with an environment of their own. */
    size_t count, used;
    const char *launcher;
    char *preload; /* an LD_PRELOAD with our library alone */
    char *entries[SAVED_ENTRIES + 1];
    char bytes[SAVED_BYTES];
} saved;

/* Makes a call by the function behind ours. */
int make(const struct call *call, const char *file, bool search, char *const *arguments,
         char *const *environment);

/* start.c: makes a call, or the one that takes its place. */
int start(struct call call);

#endif
