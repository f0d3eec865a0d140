/* Leaves GPU targets out of commands of nvcc. Pure functions without the C library. */
#ifndef STOKER_TARGETS_H
#define STOKER_TARGETS_H

#include <stdbool.h>

/* True if nvcc is among the words before the first option; a cache may precede it. */
bool names_nvcc(char *const *words);

/* Copies a command of nvcc without the options -gencode whose values are in a list, separated by
 * spaces, and with a terminating NULL. False if nothing is to be left out, or if no -gencode would
 * remain: then nvcc would compile for a target of its own choice. */
bool leave_out_targets(char **kept, char *const *words, const char *left_out);

#endif
