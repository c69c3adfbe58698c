/* Summaries of samples, and clocks. */
#ifndef NM_SUMMARY_H
#define NM_SUMMARY_H

#include <stddef.h>
#include <stdio.h>
#include <time.h>

struct summary {
	double min, median, mean, p99, max;
};

/* Sorts the n > 0 samples and returns their summary. p99 is the nearest rank: 99 % of the samples are not above it. */
struct summary summarize(double *samples, size_t n);

/* Returns seconds of CLOCK_MONOTONIC. */
static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + 1e-9 * (double) ts.tv_nsec;
}

/* Returns the size after bytes in a series that doubles: 0, 1, 2, 4 ... */
static inline size_t next_size(size_t bytes)
{
	return bytes ? 2 * bytes : 1;
}

/* Writes s as a JSON string. */
void json_string(FILE *f, const char *s);

#endif
