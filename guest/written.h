/* The files that programs have written outside the shares: those in the overlay over the root. */
#ifndef NM_WRITTEN_H
#define NM_WRITTEN_H

#include <stdbool.h>

/*
 * Writes the absolute paths of files changed in the last age ms ("": of all) to standard output, each followed by a
 * NUL, and another NUL if there are more than are listed; returns the exit code. The overlay's upper directory is
 * standard input.
 */
int written_list(const char *age);

struct timespec;

/*
 * Returns whether a file in the overlay's upper directory top was changed since a time of CLOCK_REALTIME_COARSE, the
 * clock of files' times. If the check needs more than a few ms it returns true.
 */
bool written_since(int top, const struct timespec *since);

#endif
