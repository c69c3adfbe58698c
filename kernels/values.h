/* Reading the values of options. */
#ifndef NM_VALUES_H
#define NM_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * All give true and set *out, or print one line to standard error, "PROGRAM: --OPTION:
 * what is wrong", and give false. A size may end in K, M or G (or KiB, MiB, GiB).
 */
bool value_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool value_count(const char *option, const char *text, long min, long max, long *out);
bool value_seconds(const char *option, const char *text, double min, double max, double *out);

/* A:B, or A alone for both; A must not be above B. */
bool value_sizes(const char *option, const char *text, uint64_t max, uint64_t *a, uint64_t *b);
bool value_counts(const char *option, const char *text, long max, long *a, long *b);

/* The name that error lines start with. */
void program_name(const char *name);

/*
 * An error line, "PROGRAM: ...". In an MPI program it is printed by rank 0 alone, which
 * is found, before MPI_Init, in what launchers put into the environment.
 */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool first_rank(void);

#endif
