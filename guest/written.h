/* What programs have written that no share keeps: the files in the overlay over the root. */
#ifndef NM_WRITTEN_H
#define NM_WRITTEN_H

#include <stdbool.h>

/*
 * Writes the absolute paths of files changed in the last age ms ("": of all) to standard output, each
 * with a NUL behind it, and one NUL more where there are more than are listed; the exit code. The
 * overlay's upper directory is standard input.
 */
int written_list(const char *age);

struct timespec;

/*
 * Whether a file in the overlay's upper directory top was changed since a time of CLOCK_REALTIME_COARSE, the clock
 * of files' times. Where that takes more than a few ms to say: true.
 */
bool written_since(int top, const struct timespec *since);

#endif
