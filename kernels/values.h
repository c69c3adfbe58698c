/* Parsing the values of options. */
#ifndef NM_VALUES_H
#define NM_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * All return true and set *out, or print one line to standard error, "PROGRAM: --OPTION: fault", and return false. A
 * size may end in K, M or G (or KiB, MiB, GiB).
 */
bool value_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool value_count(const char *option, const char *text, long min, long max, long *out);
bool value_seconds(const char *option, const char *text, double min, double max, double *out);

/* Parses A:B, or only A for both; A must not be above B. */
bool value_sizes(const char *option, const char *text, uint64_t max, uint64_t *a, uint64_t *b);
bool value_counts(const char *option, const char *text, long max, long *a, long *b);

/* Sets the name that error lines start with. */
void program_name(const char *name);

/*
 * Prints an error line, "PROGRAM: ...". In an MPI program only rank 0 prints it; before MPI_Init the rank is read
 * from the variables that launchers set.
 */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool first_rank(void);

#endif
